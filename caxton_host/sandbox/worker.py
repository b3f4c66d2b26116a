"""
A worker: a process that runs guests of one trust domain, and holds no secrets.

    python -I -m caxton_host.sandbox.worker SOCKET PARENT ADDRESS_SPACE DATA KIND \
        COMPUTE [DESCRIPTOR KEY SETTINGS]

Imports what it needs, opens only the one socket that it was given, confines itself,
reports that, and then serves the host's frames. Each guest has a thread of its own.
Nothing here waits for a guest: its thread checks the turns, the stop slot and the
compute clock at every tick.
"""

from __future__ import annotations

import _thread
import ctypes
import gc
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from functools import partial
from threading import Lock
from time import monotonic
from typing import NoReturn

import wasmtime

from ..lib import codec
from ..ports.sandbox import Answer
from . import component, confine, wasi, wire
from .engine import build_engine
from .session import Code, Ended, execute
from .settings import EngineSettings
from .wire import End, Start

#: Exit codes of this process.
HOST_GONE, BROKEN = 0, 70


class Waiter:
    """A thread that waits for a frame of the channel."""

    __slots__ = ("ready", "wake")

    def __init__(self) -> None:
        self.ready = False
        self.wake = Lock()
        self.wake.acquire()


class Channel:
    """
    Sends and receives frames, over one socket that one thread at a time reads.

    A guest that waits for an answer reads the socket itself if no other thread does, so
    that its answer wakes it and no other thread. The other waiting guests follow: one
    of them reads on when the reader has its answer. With no guest at all, the main
    thread reads; while guests compute, it polls at every tick.

    Args:
        sock: Connected to the host.

        handle: Called with kind, run and body of each frame, by the reader.

        leave: Ends the process at once, with all its threads.
    """

    def __init__(
        self,
        sock: socket.socket,
        handle: Callable[[int, int, bytes], None],
        leave: Callable[[int], NoReturn] = os._exit,
    ) -> None:
        self._socket = sock
        self._handle = handle
        self._leave = leave
        self._inbox = wire.Inbox(wire.to_worker)
        # Frames of several guests must not mix.
        self._sending = Lock()
        # Guards the next two, and `Waiter.ready`.
        self._state = Lock()
        # The waiter whose thread reads the socket now.
        self._read_by: Waiter | None = None
        # Waiters whose threads sleep, in order of arrival; the first one reads next.
        self._following: dict[Waiter, None] = {}
        # Stands for the main thread as a reader.
        self._main = Waiter()

    def send(self, frame: bytes) -> None:
        """Send one frame whole."""
        with self._sending:
            try:
                self._socket.sendall(frame)
            except OSError:
                self._leave(HOST_GONE)

    def wait(self, waiter: Waiter) -> None:
        """Return once *waiter* was released."""
        while True:
            with self._state:
                if waiter.ready:
                    waiter.ready = False
                    return
                leads = self._read_by is None
                if leads:
                    self._read_by = waiter
                else:
                    self._following[waiter] = None
            if leads:
                while not waiter.ready:
                    self._receive(0)
                self._step_down()
            else:
                waiter.wake.acquire()

    def release(self, waiter: Waiter) -> None:
        """Let *waiter* continue, now or when it starts to wait."""
        with self._state:
            waiter.ready = True
            if self._following.pop(waiter, waiter) is None:
                waiter.wake.release()

    def listen(self) -> None:
        """Read until a frame came. For the main thread, while there is no guest."""
        self._look(once=True)

    def poll(self) -> None:
        """Read what has come, unless another thread is reading."""
        self._look(once=False)

    def _look(self, *, once: bool) -> None:
        with self._state:
            if self._read_by is not None:
                return
            self._read_by = self._main
        if once:
            self._receive(0)
        else:
            while self._receive(socket.MSG_DONTWAIT):
                pass
        self._step_down()

    def _step_down(self) -> None:
        with self._state:
            self._read_by = None
            if self._following:
                follower = next(iter(self._following))
                del self._following[follower]
                follower.wake.release()

    def _receive(self, flags: int) -> bool:
        """Handle what comes; return whether anything came."""
        try:
            count = self._socket.recv_into(self._inbox.room(), 0, flags)
        except BlockingIOError:
            return False
        except OSError:
            count = 0
        if not count:
            self._leave(HOST_GONE)
        try:
            for kind, run, body in self._inbox.received(count):
                self._handle(kind, run, body)
        except BaseException:  # noqa: BLE001 -- the guest that reads is not at fault
            self._leave(BROKEN)
        return True


class _Place:
    __slots__ = ("granted", "wake")

    def __init__(self) -> None:
        self.granted = False
        self.wake = Lock()
        self.wake.acquire()


class Turns:
    """
    Turns to compute, handed out in order of request: about one a processor.

    A guest that waits for a tool gives its turn back. One that computes yields at a
    tick if others are waiting, so that none starves behind two that spin.

    Args:
        width: How many guests may compute at a time.
    """

    def __init__(self, width: int) -> None:
        self._free = width
        self._lock = Lock()
        # In order of request. Empty as long as a turn is free.
        self._queue: dict[object, _Place] = {}

    @property
    def wanted(self) -> bool:
        """Whether a guest waits for a turn."""
        return bool(self._queue)

    def take(self, taker: object, dismissed: Callable[[], object]) -> bool:
        """
        Wait for a turn, and return whether *taker* got one.

        Args:
            taker: Identifies the guest to `dismiss`.

            dismissed: Returns whether *taker* must not wait. It must be true before
                `dismiss` is called.
        """
        with self._lock:
            if self._free:
                self._free -= 1
                return True
            if dismissed():
                return False
            place = self._queue[taker] = _Place()
        place.wake.acquire()
        return place.granted

    def give(self) -> None:
        """Give a turn back."""
        with self._lock:
            if self._queue:
                place = self._queue.pop(next(iter(self._queue)))
                place.granted = True
                place.wake.release()
            else:
                self._free += 1

    def dismiss(self, taker: object) -> None:
        """End the wait of *taker*, without a turn."""
        with self._lock:
            if place := self._queue.pop(taker, None):
                place.wake.release()


#: Between two increments of the epoch: how long a guest runs unchecked.
TICK_S = 0.01
#: Bytes of stack for the host functions, on top of the guest's own stack.
_PYTHON_STACK = 1536 * 1024
_M_ARENA_MAX = -8
#: Where the arguments for a mapped artifact begin.
_MAPPED = 7


class Engine:
    """
    An engine, and the host functions of its guests.

    Args:
        settings: What it is built from.

    Attributes:
        load: Returns the code in an artifact; see `abi.deserialize`.
    """

    def __init__(self, settings: EngineSettings) -> None:
        self.settings = settings
        self.built = build_engine(settings)
        kind = component if settings.component else wasi
        most = wire.MAX_REASON if settings.interpreter else wire.MAX_MESSAGE
        self.load: Callable[[bytes | str], Code] = partial(
            kind.load, self.built, kind.link(self.built), most
        )


class Run(Waiter):
    """
    One execution, in its own thread.

    Args:
        number: Its number on the wire.

        start: What the guest is given.

        worker: Where its frames and turns come from.

        code: What it executes.
    """

    __slots__ = (
        "_answer",
        "_code",
        "_holds",
        "_since",
        "_used",
        "number",
        "session",
        "worker",
    )

    def __init__(self, number: int, start: Start, worker: Worker, code: Code) -> None:
        super().__init__()
        self.number = number
        self.worker = worker
        self._code = code
        self.session = code.session(start, self)
        # None after a wait: the guest was stopped.
        self._answer: Answer | None = None
        # Whether it has a turn, which its end must give back.
        self._holds = False
        # When it took the turn, and seconds computed since its last tool call.
        self._since = self._used = 0.0

    def execute(self) -> None:
        """Run the guest, and send its end to the host."""
        try:
            self._take_turn()
            end = execute(self._code, self.session)
        except Ended:
            end = self.session.stop or End(kind="stopped")
        except BaseException as exc:  # noqa: BLE001 -- sent to the host
            end = End(kind="failed", message=repr(exc))
        if self._holds:
            self.worker.turns.give()
        self.worker.ended(self, end)

    def call(self, name: bytes, params: bytes, fuel: int) -> Answer:
        """Have the host carry out a tool call; see `session.Host`."""
        return self._ask(wire.call(self.number, name, params, fuel))

    def call_many(self, batch: bytes, fuel: int) -> Answer:
        """Have the host carry out a batch of tool calls; see `session.Host`."""
        return self._ask(wire.calls(self.number, batch, fuel))

    def _ask(self, frame: bytes) -> Answer:
        self._answer = None
        self.worker.channel.send(frame)
        self._give_turn()
        self.worker.channel.wait(self)
        if self._answer is None:
            raise Ended
        if self._answer.at:  # an empty batch is no tool call
            self._used = 0.0
        self._take_turn()
        return self._answer

    def log(self, level: int, text: bytes) -> None:
        """Send a log line."""
        self.worker.channel.send(wire.log(self.number, level, text))

    def tick(self) -> bool:
        """Return whether the guest may continue to compute."""
        session = self.session
        limit = session.limits.compute
        if self._used + monotonic() - self._since > limit:
            message = f"{limit:g} s without a tool call"
            session.end(End(kind="limit", limit="compute", message=message))
        elif session.stop is None and self.worker.turns.wanted:
            self._give_turn()
            self._take_turn()
        return session.stop is None

    def answer(self, answer: Answer) -> None:
        """Deliver the answer that the guest waits for."""
        self._answer = answer
        self.worker.channel.release(self)

    def stop(self) -> None:
        """End the guest, whether it computes or waits."""
        self.session.end(End(kind="stopped"))
        self.worker.turns.dismiss(self)
        self.worker.channel.release(self)

    def _take_turn(self) -> None:
        self._holds = self.worker.turns.take(self, lambda: self.session.stop)
        self._since = monotonic()
        if self.session.stop:
            raise Ended

    def _give_turn(self) -> None:
        self._holds = False
        self._used += monotonic() - self._since
        self.worker.turns.give()


class Worker:
    """
    Serves the frames of the host.

    Args:
        sock: Connected to the host.

        leave: Ends this process.

        compute: How many guests may compute at a time; 0 for as many as there are
            processors.
    """

    def __init__(
        self,
        sock: socket.socket,
        leave: Callable[[int], NoReturn] = os._exit,
        compute: int = 0,
    ) -> None:
        self.channel = Channel(sock, self._handle, leave)
        self.turns = Turns(compute or len(os.sched_getaffinity(0)))
        self._runs: dict[int, Run] = {}
        # Set when the last run ends, so that the main thread need not wait for a tick.
        self._idle = threading.Event()
        self._engines: dict[str, Engine] = {}
        self._modules: dict[str, tuple[Engine, Code]] = {}

    def serve(self) -> None:
        """Serve until the host is gone."""
        while True:
            self._idle.clear()
            if not self._runs:
                self.channel.listen()
                continue
            self._idle.wait(TICK_S)
            for engine in list(self._engines.values()):
                engine.built.increment_epoch()
            self.channel.poll()

    def ended(self, run: Run, end: End) -> None:
        """Drop *run*, and send its end to the host."""
        del self._runs[run.number]
        self.channel.send(wire.end(run.number, end))
        if not self._runs:
            self._idle.set()

    def _handle(self, kind: int, number: int, body: bytes) -> None:
        if kind == wire.REPLY:
            if run := self._runs.get(number):
                run.answer(wire.read_reply(body))
        elif kind == wire.START:
            self._start(number, wire.read_start(body))
        elif kind == wire.STOP:
            # It may have ended before this frame came.
            if run := self._runs.get(number):
                run.stop()
        else:
            self._receive(*wire.read_module(body))

    def _start(self, number: int, start: Start) -> None:
        loaded = self._modules.get(start.module)
        if loaded is None:
            end = End(kind="no_room", message="the module could not be loaded")
            self.channel.send(wire.end(number, end))
            return
        engine, code = loaded
        run = self._runs[number] = Run(number, start, self, code)
        try:
            # One thread at a time reads frames, so no other one starts between these.
            threading.stack_size(engine.settings.stack + _PYTHON_STACK)
            _thread.start_new_thread(run.execute, ())
        except (RuntimeError, MemoryError):
            self.ended(run, End(kind="no_room", message="no room for its thread"))

    def load(self, key: str, settings: str, artifact: bytes | str) -> None:
        """Make the code in an artifact ready; see `abi.deserialize`."""
        engine = self._engines.get(settings)
        if engine is None:
            engine = Engine(EngineSettings.from_json(settings))
            self._engines[settings] = engine
        self._modules[key] = engine, engine.load(artifact)

    def map(self, descriptor: str, key: str, settings: str) -> None:
        """Make the code in a file ready that is open, and close that."""
        self.load(key, settings, f"/proc/self/fd/{descriptor}")
        os.close(int(descriptor))

    def _receive(self, key: str, settings: str, artifact: bytes) -> None:
        try:
            self.load(key, settings, artifact)
        except (wasmtime.WasmtimeError, MemoryError):
            # Its start reports that, and the host tries another worker.
            return


def main() -> None:
    """Run a worker with the arguments of the command line."""
    descriptor, parent, address_space, data = map(int, sys.argv[1:5])
    images, compute = sys.argv[5] == "images", int(sys.argv[6])
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    confine.die_with_parent(parent)
    sock = socket.socket(fileno=descriptor)
    # malloc arenas, one a thread, would reserve 64 MiB for each guest.
    ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1)
    worker = Worker(sock, compute=compute)
    load = partial(worker.map, *sys.argv[_MAPPED:]) if sys.argv[_MAPPED:] else None
    gc.freeze()
    guards = confine.confine(
        address_space=address_space, data=data, images=images, load=load
    )
    worker.channel.send(wire.frame(wire.READY, 0, codec.encode(guards)))
    worker.serve()


if __name__ == "__main__":
    main()
