"""
The host's end of the wire: drives the guests of one worker process.

The worker is hostile. It may send only frames of the protocol, about runs that are its
own, one at a time, within each run's limits; anything else kills it. So does a guest
that has not ended within `GRACE_S` of a stop.
"""

from __future__ import annotations

import asyncio
import contextvars
import os
import socket
import subprocess
from collections.abc import Awaitable, Callable
from functools import partial
from signal import Signals
from typing import NamedTuple, TypeAlias

import anyio

from ..errors import BadBytes, SandboxError
from ..lib import codec
from ..ports.sandbox import Answer, Door, Ending, Guest
from . import confine, wire
from .artifacts import Artifact
from .wire import End, WireError

#: A worker that has not ended a guest this long after a stop is killed.
GRACE_S = 0.25
#: A worker that is not confined by then did not start. Long: machines are busy.
START_TIMEOUT_S = 60.0
#: Bytes. A worker that makes calls and leaves this much unread is killed.
BACKLOG = 256 * 1024 * 1024

_WORKER = "caxton_host.sandbox.worker"
_PLAIN, _IMAGES = "plain", "images"
#: Between two looks whether a killed process has ended.
_REAP_EVERY_S = 0.005
_CALLS = frozenset({wire.CALL, wire.CALLS})

#: A call, or a batch of calls, that the door carries out.
_Call: TypeAlias = Callable[[], Awaitable[Answer]]


class Mapped(NamedTuple):
    """
    An artifact that a worker maps.

    Attributes:
        descriptor: Of the sealed file that holds it.

        key: Its name.

        settings: Of its engine, as JSON.
    """

    descriptor: int
    key: str
    settings: str


class NoRoom(SandboxError):  # noqa: N818 -- a state, not a fault
    """A worker had no address space left to start a guest."""


class _Run:
    """
    One execution, as the host sees it.

    Either its guest computes, and the run waits for the next frame (`following`), or
    its guest waits for the door. No frame may come in the second case.

    Attributes:
        caps: The largest body of each kind of frame.

        gone: Done when the guest has ended, or its worker has.

        lost: Why the worker is gone, or ``None``.

        stopping: The worker was told to stop the guest.
    """

    def __init__(self, guest: Guest, door: Door) -> None:
        loop = asyncio.get_running_loop()
        self.limits = guest.limits
        self.caps = wire.to_host(guest.limits)
        self.door = door
        self.gone: asyncio.Future[None] = loop.create_future()
        self.lost: SandboxError | None = None
        self.stopping = False
        self._loop = loop
        self._context = contextvars.copy_context()
        self._next: asyncio.Future[_Call | End | BaseException] = loop.create_future()
        self._at_door = False
        self._frames = self._logged = 0

    async def following(self) -> _Call | End:
        """Return the guest's next call or its end, or raise what ends the run."""
        if self.lost:
            raise self.lost
        self._at_door = False
        self._next = self._loop.create_future()
        what = await self._next
        if isinstance(what, BaseException):
            raise what
        return what

    def called(self, body: bytes) -> None:
        """Take a call."""
        self._count()
        self._ask(partial(self.door.call, *wire.read_call(body, self.limits)))

    def called_many(self, body: bytes) -> None:
        """Take a batch of calls."""
        self._count()
        self._ask(partial(self.door.call_many, *wire.read_calls(body, self.limits)))

    def logged(self, body: bytes) -> None:
        """Take a log line."""
        self._check_turn()
        level, text = wire.read_log(body)
        if self._logged > self.limits.log or len(text) > self.limits.log + 1:
            raise WireError("more log than any guest may write")
        self._logged += max(len(text), wire.LINE_COST)
        if self._next.done():
            return
        try:
            self._context.run(self.door.log, level, text)
        except BaseException as exc:  # noqa: BLE001 -- it ends the run, there
            self._deliver(exc)

    def ended(self, body: bytes) -> None:
        """Take the end of the guest."""
        end = wire.read_end(body, self.limits)
        if (self._at_door or end.kind == "stopped") and not self.stopping:
            raise WireError("an end without a stop")
        self.gone.set_result(None)
        self._deliver(end)

    def lose(self, why: str) -> None:
        """
        Note that the worker is gone.

        A call that is under way is not interrupted: its outcome is recorded, and the
        run continues from there in another worker.
        """
        self.lost = SandboxError(why)
        self.gone.set_result(None)
        self._deliver(self.lost)

    def _ask(self, call: _Call) -> None:
        self._at_door = True
        self._deliver(call)

    def _check_turn(self) -> None:
        if self._at_door and not self.stopping:
            raise WireError("a host call during a call")

    def _count(self) -> None:
        self._check_turn()
        self._frames += 1
        if self._frames > self.limits.host_calls:
            raise WireError("more host calls than any guest may make")

    def _deliver(self, what: _Call | End | BaseException) -> None:
        # The first one counts: the guest did the second before it learned of it.
        if not self._next.done():
            self._next.set_result(what)


class Link(asyncio.BufferedProtocol):
    """
    Drives the guests of one worker process.

    Args:
        process: The worker.

    Attributes:
        guards: What confines it, once it has started.

        closed: Done when the process has ended.

        lost: Why it accepts no more runs, or empty.
    """

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        loop = asyncio.get_running_loop()
        self.guards: list[str] = []
        self.closed: asyncio.Future[None] = loop.create_future()
        self._loop = loop
        self._process = process
        self._ready: asyncio.Future[None] = loop.create_future()
        self._inbox = wire.Inbox(self._cap)
        self._transport: asyncio.Transport | None = None
        self._runs: dict[int, _Run] = {}
        self._last = 0
        self._modules: set[str] = set()
        self.lost = ""
        self._handlers = {
            wire.CALL: _Run.called,
            wire.CALLS: _Run.called_many,
            wire.LOG: _Run.logged,
            wire.END: _Run.ended,
        }

    @classmethod
    async def spawn(
        cls,
        address_space: int,
        data: int,
        compute: int | None = None,
        *,
        images: bool = False,
        mapped: Mapped | None = None,
    ) -> Link:
        """
        Start a worker, and return once it is confined.

        Args:
            address_space: Bytes that it may map.

            data: Bytes that it may write of these.

            compute: How many of its guests may compute at a time; by default as
                many as there are processors.

            images: Whether its guests share their initial memory.

            mapped: An artifact that it maps; it needs *images*.

        Raises:
            SandboxError: It did not start.
        """
        ours, theirs = socket.socketpair()
        with theirs:
            process = confine.spawn(
                _WORKER,
                *map(str, (theirs.fileno(), os.getpid(), address_space, data)),
                _IMAGES if images else _PLAIN,
                str(compute or 0),
                *map(str, mapped or ()),
                fds=[theirs.fileno(), *(mapped or ())[:1]],
            )
        link = cls(process)
        if mapped:
            link._modules.add(mapped.key)
        try:
            ours.setblocking(False)  # noqa: FBT003 -- its shape
            loop = asyncio.get_running_loop()
            await loop.create_connection(lambda: link, sock=ours)
            await link.started()
        except BaseException:
            link.kill("the worker did not start")
            await link.closed
            ours.close()
            raise
        return link

    async def started(self) -> None:
        """
        Return once the worker is confined.

        Raises:
            SandboxError: It ended, or took too long.
        """
        await asyncio.wait(
            {self._ready, self.closed},
            timeout=START_TIMEOUT_S,
            return_when=asyncio.FIRST_COMPLETED,
        )
        if not self._ready.done():
            raise SandboxError("the worker did not start", fix="run: caxton doctor")

    async def run(self, key: str, memory: int, guest: Guest, door: Door) -> Ending:
        """
        Execute a guest of a module that was sent; see `ports.Sandbox.run`.

        Raises:
            NoRoom: This worker has no address space left; the guest has not started.

            SandboxError: The worker died.
        """
        if self.lost:
            raise SandboxError(self.lost)
        self._last += 1
        number = self._last
        start = wire.start(number, key, memory, guest)
        run = self._runs[number] = _Run(guest, door)
        self._send(start)
        try:
            while not isinstance(what := await run.following(), End):
                self._send(wire.reply(number, await what()))
        finally:
            await self._stop(number, run)
        if what.kind == "no_room":
            raise NoRoom(what.message)
        if what.kind == "failed":
            raise SandboxError(what.message)
        return what.ending()

    def load(self, artifact: Artifact, settings: str) -> None:
        """Send a compiled module, unless the worker has it."""
        if artifact.key not in self._modules:
            self._modules.add(artifact.key)
            with artifact.view() as data:
                self._send(wire.module(artifact.key, settings, bytes(data)))

    def kill(self, why: str) -> None:
        """End the worker now. *why* is the error of its runs."""
        self.lost = self.lost or why
        self._process.kill()
        if self._transport:
            self._transport.abort()
        else:
            self.connection_lost(None)

    async def _stop(self, number: int, run: _Run) -> None:
        """Return once the guest has ended, or its worker has."""
        if run.gone.done():
            return
        run.stopping = True
        self._send(wire.frame(wire.STOP, number))
        # Also if the wait below is cancelled.
        self._loop.call_later(GRACE_S, self._overdue, number)
        with anyio.CancelScope(shield=True):
            await asyncio.wait({run.gone})

    def _overdue(self, number: int) -> None:
        if number in self._runs:
            self.kill("the worker did not stop a guest of another run")

    def _send(self, frame: bytes) -> None:
        assert self._transport is not None  # noqa: S101 -- connected before it is used
        # A run may still answer a worker that is gone.
        if not self.lost:
            self._transport.write(frame)

    def _unread(self) -> int:
        return self._transport.get_write_buffer_size() if self._transport else 0

    # -- called by asyncio -----------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 -- as above
        self._transport = transport

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return where to read to."""
        del sizehint
        return self._inbox.room()

    def buffer_updated(self, nbytes: int) -> None:
        """Take what was read."""
        try:
            for kind, number, body in self._inbox.received(nbytes):
                self._take(kind, number, body)
        except (WireError, BadBytes) as exc:
            self.kill(f"the worker broke the protocol: {exc}")

    def connection_lost(self, exc: Exception | None) -> None:
        """End all runs of the worker, and reap the process."""
        del exc
        self.lost = self.lost or _death(self._process.poll())
        self._process.kill()
        runs, self._runs = self._runs, {}
        for run in runs.values():
            run.lose(self.lost)
        self._reap()

    def _cap(self, kind: int, number: int) -> int:
        """Return the largest body that a frame may have, by the limits of its run."""
        if kind == wire.READY:
            if self._ready.done():
                raise WireError("ready twice")
            return wire.MAX_READY
        if number not in self._runs:
            raise WireError("a run that is not its own")
        return self._runs[number].caps.get(kind, -1)

    def _take(self, kind: int, number: int, body: bytes) -> None:
        if kind == wire.READY:
            guards = codec.decode(body, limit=wire.MAX_READY)
            self.guards = list(map(str, guards)) if isinstance(guards, list) else []
            self._ready.set_result(None)
            return
        run = self._runs[number]
        if kind in _CALLS and self._unread() > BACKLOG:
            raise WireError("calls without reading the answers")
        self._handlers[kind](run, body)
        if run.gone.done():
            del self._runs[number]

    def _reap(self) -> None:
        if self._process.poll() is None:
            self._loop.call_later(_REAP_EVERY_S, self._reap)
        elif not self.closed.done():
            self.closed.set_result(None)


def _death(code: int | None) -> str:
    """
    Return how a worker died; *code* is its exit code, if that is known already.

    >>> _death(-9), _death(1), _death(None)
    ('the worker died: SIGKILL', 'the worker died: exit code 1', 'the worker died')
    """
    if code is None:
        return "the worker died"
    how = Signals(-code).name if code < 0 else f"exit code {code}"
    return f"the worker died: {how}"
