"""
One execution of a guest: its state, its limits, and its start and end.

Counts what a guest uses, and holds its time, its random stream and its stop slot: the
reason why it has to end. `abi` and `component` add their forms of the host functions.
Their callbacks never raise: wasmtime-py would keep the exception in a global, where
another guest meets it. They fill the stop slot and return a trap.
"""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Callable, Generator
from contextlib import contextmanager
from threading import get_ident
from typing import NoReturn, Protocol

import wasmtime

from ..core.limits import Limits
from ..ports.sandbox import Answer
from . import engine, wire
from .wire import End, Start

#: Fuel of each host call, so that fuel bounds their number.
CALL_FUEL = 10_000
#: Bytes of its random stream that a guest can read: they are kept in memory.
MAX_RANDOM = 4 * 1024 * 1024


class Ended(BaseException):
    """The guest must end; the reason is in its stop slot."""


class Host(Protocol):
    """Carries out the host functions that the worker cannot answer."""

    def call(self, name: bytes, params: bytes, fuel: int) -> Answer:
        """Carry out a tool call. Raises `Ended` if the guest is to stop."""
        ...

    def call_many(self, batch: bytes, fuel: int) -> Answer:
        """Carry out a batch of tool calls. Raises `Ended` as `call` does."""
        ...

    def log(self, level: int, text: bytes) -> None:
        """Send a log line."""
        ...

    def tick(self) -> bool:
        """Return whether a computing guest may continue."""
        ...


class Execution:
    """
    One execution. Used by one thread.

    Args:
        start: The guest's input, limits and the like.

        host: Where its calls go.

    Attributes:
        fuel: Its fuel at the start.

        context: Address of its store's context, once it has a store.

        stop: Why it has to end, or ``None``. The first reason is kept.

        output: The last output it set, as msgpack, or ``None``.
    """

    def __init__(self, start: Start, host: Host) -> None:
        self.start = start
        self.limits: Limits = start.limits
        self.fuel = min(start.limits.fuel, 2**63 - 1)
        self.host = host
        self.context = 0
        self.stop: End | None = None
        self.output: bytes | None = None
        self._now = start.now
        self._calls = self._logged = self._drawn = 0
        self._seed, self._stream = start.seed, b""

    def end(self, end: End) -> None:
        """Fill the stop slot, unless it is full."""
        if self.stop is None:
            self.stop = end

    def charge(self) -> None:
        """Count a host call, and charge for it."""
        self._calls += 1
        if self._calls > self.limits.host_calls:
            self._over("host_calls", f"more than {self.limits.host_calls} host calls")
        self.burn()

    def burn(self) -> None:
        """Charge the fuel of a host call."""
        if self.stop:
            raise Ended
        left = engine.get_fuel(self.context)
        if left < CALL_FUEL:
            engine.set_fuel(self.context, 0)
            self._over("fuel", "no fuel left for a host call")
        engine.set_fuel(self.context, left - CALL_FUEL)

    def finished(self, end: End) -> End:
        """Return how the guest ended, once it has: what it left open is sent."""
        return end

    def burnt(self) -> int:
        """Return how much fuel the guest has used."""
        return self.fuel - engine.get_fuel(self.context)

    def _draw(self, length: int) -> bytes:
        """Return the next bytes of the SHAKE-256 stream of the seed."""
        wanted = self._drawn + length
        if wanted > MAX_RANDOM:
            self._trap(f"more than {MAX_RANDOM} random bytes")
        if wanted > len(self._stream):
            # hashlib cannot continue a digest: read twice as much each time.
            size = min(max(4096, 2 * wanted), MAX_RANDOM)
            self._stream = hashlib.shake_256(self._seed).digest(size)
        data = self._stream[self._drawn : wanted]
        self._drawn = wanted
        return data

    def _log(self, level: int, pointer: int, length: int) -> None:
        """Send a log line, until the run is over its limit by one."""
        if self._logged > self.limits.log:
            return
        most = wire.log_cap(self.limits)
        self._say(level, ctypes.string_at(pointer, min(length, most)))

    def _say(self, level: int, text: bytes) -> None:
        self._logged += max(len(text), wire.LINE_COST)
        self.host.log(level, text)

    def _settle(self, answer: Answer) -> None:
        self._now = answer.at or self._now
        if answer.seed:
            self._seed, self._stream, self._drawn = answer.seed, b"", 0

    def _trap(self, message: str) -> NoReturn:
        self.end(End(kind="trap", message=message))
        raise Ended

    def _over(self, limit: str, message: str) -> NoReturn:
        self.end(End(kind="limit", limit=limit, message=message))
        raise Ended


def cut(address: int, length: int, most: int) -> bytes:
    """
    Return a guest's bytes; of more than *most*, so many, their size and the SHA-256.

    So they are still over the limit, and still differ where the guest's differ.
    """
    if length <= most:
        return ctypes.string_at(address, length)
    whole = (ctypes.c_char * length).from_address(address)
    return ctypes.string_at(address, most) + tail(whole)


def tail(whole: bytes | ctypes.Array[ctypes.c_char]) -> bytes:
    """Return what replaces the rest of bytes that are cut: their size and SHA-256."""
    return len(whole).to_bytes(8, "big") + hashlib.sha256(whole).digest()


def said(reason: bytes, most: int) -> str:
    """Return the text of a guest's reason, of at most *most* bytes."""
    text = reason[:most].decode(errors="replace")
    return text.encode()[:most].decode(errors="ignore")


#: Identifier of a thread to the guest that it runs.
_executions: dict[int, Execution] = {}


def current() -> Execution:
    """Return the execution of this thread."""
    return _executions[get_ident()]


@engine.epoch_callback
def _on_epoch(_context: int, _data: int, delta: int, kind: int) -> int:
    execution = current()
    try:
        if execution.host.tick():
            ctypes.c_uint64.from_address(delta).value = 1
            ctypes.c_uint8.from_address(kind).value = 0
            return 0
    except BaseException as exc:  # noqa: BLE001 -- see the top of this file
        execution.end(End(kind="failed", message=f"a tick: {exc!r}"))
    return engine.new_error()


def _watch(store: wasmtime.Store) -> None:
    """Check at every tick whether the guest of *store* may continue."""
    engine.on_epoch(store, _on_epoch)
    engine.set_epoch_deadline(engine.context_of(store), 1)


@contextmanager
def _entered(execution: Execution) -> Generator[None]:
    """Make the host functions of this thread those of one execution."""
    _executions[get_ident()] = execution
    try:
        yield
    finally:
        del _executions[get_ident()]


class Code(Protocol):
    """A module or component that is ready to run."""

    @property
    def engine(self) -> wasmtime.Engine:
        """What it was compiled for."""
        ...

    @property
    def session(self) -> Callable[[Start, Host], Execution]:
        """What makes the host functions of one execution."""
        ...

    @property
    def instances(self) -> int:
        """How many instances of core modules one execution may have."""
        ...

    def run(self, store: wasmtime.Store, session: Execution) -> End:
        """Run a fresh instance to its end."""
        ...


def execute(code: Code, session: Execution) -> End:
    """Run the guest of *session* to its end, in this thread."""
    with wasmtime.Store(code.engine) as store:
        limits = session.limits
        store.set_limits(
            session.start.memory,
            limits.table_elements,
            code.instances,
            limits.tables,
            limits.memories,
        )
        store.set_fuel(session.fuel)
        session.context = engine.context_of(store)
        _watch(store)
        with _entered(session):
            end = session.finished(code.run(store, session))
        if end.kind in {"returned", "trap"} or end.limit not in {"", "compute"}:
            end.fuel = session.burnt()
        end.output = session.output
        return end
