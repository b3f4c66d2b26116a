"""
The host functions: all that a guest can reach.

Every pointer and length comes as an unsigned number and is checked against the
memory before anything happens, the answer's place included: no call is sent whose
answer could not be delivered. Outside memory is a trap; bad bytes are not, they are
the host's to judge and to record.

Bytes that no tool may get are not carried: a name is cut at 64 KiB. Params and
batches over their limit are sent as their first bytes, up to the limit, and the
SHA-256 of all of them; so they are still over the limit, and still differ where the
guest's differ.

A callback never raises: wasmtime-py would keep the exception where another guest
finds it. It puts the reason into its guest's stop slot and returns a trap.
"""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Callable, Generator
from contextlib import contextmanager
from ctypes import string_at
from struct import Struct
from threading import get_ident
from typing import Any, NoReturn, Protocol

import wasmtime

from .. import codec
from ..core.limits import Limits
from ..ports import Answer
from . import engine, wire
from .gate import HOST_FUNCTIONS, NAMESPACE
from .wire import End, Start

__all__ = ["CALL_FUEL", "Ended", "Host", "Session", "entered", "link", "watch"]

#: What each host call costs, so that fuel bounds how many there can be.
CALL_FUEL = 10_000
#: How much of its random stream a guest can read: it is kept in memory.
MAX_RANDOM = 4 * 1024 * 1024

_OK, _BAD_REQUEST = 0, 4
_TYPES = {"i32": wasmtime.ValType.i32, "i64": wasmtime.ValType.i64}
_LEVELS = 3

_NO_KEY = "the run has no context of that key"
_UNKNOWN_KEY = codec.encode(
    {
        "status": "bad_request",
        "message": _NO_KEY,
        "data": None,
        "error": {"code": "unknown_key", "message": _NO_KEY},
    }
)


class Ended(BaseException):
    """The guest goes no further; its stop slot says why."""


class Host(Protocol):
    """Where host functions lead that the worker cannot answer."""

    def call(self, name: bytes, params: bytes, fuel: int) -> Answer:
        """Carry out a tool call. Raises `Ended` if the guest is to stop."""
        ...

    def call_many(self, batch: bytes, fuel: int) -> Answer:
        """Carry out a batch of tool calls. Raises `Ended` as `call` does."""
        ...

    def log(self, level: int, text: bytes) -> None:
        """Pass on a log line."""
        ...

    def tick(self) -> bool:
        """Return whether a computing guest may go on."""
        ...


class Session:
    """
    One execution, as its host functions see it. Used by one thread.

    Args:
        start: What the guest is given.

        host: Where its calls go.

    Attributes:
        fuel: What it has at first.

        context: Address of its store's context, once it has a store.

        stop: Why it has to end, or ``None``. The first reason stays.

        output: The last output it set, or ``None``.
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
        self._reply = b""
        self._calls = self._logged = self._drawn = 0
        self._seed, self._stream = start.seed, b""
        self._memory: Any = None
        self._base = self._size = 0

    def end(self, end: End) -> None:
        """Fill the stop slot, unless it is full."""
        if self.stop is None:
            self.stop = end

    def enter(self, caller: int) -> None:
        """Charge for a host call, and find the guest's memory."""
        if self.stop:
            raise Ended
        self._calls += 1
        if self._calls > self.limits.host_calls:
            self._over("host_calls", f"more than {self.limits.host_calls} host calls")
        left = engine.get_fuel(self.context)
        if left < CALL_FUEL:
            engine.set_fuel(self.context, 0)
            self._over("fuel", "no fuel left for a host call")
        engine.set_fuel(self.context, left - CALL_FUEL)
        if self._memory is None:
            self._memory = engine.caller_memory(caller)
            if self._memory is None:
                self._trap("no memory is exported")
        memory = ctypes.byref(self._memory)
        self._base = engine.memory_base(self.context, memory)
        self._size = engine.memory_size(self.context, memory)

    def burnt(self) -> int:
        """Return how much fuel the guest has used."""
        return self.fuel - engine.get_fuel(self.context)

    # One method a host function: unsigned arguments, unsigned result.

    def mcp_call(  # noqa: PLR0913, PLR0917 -- the shape of the host function
        self, name: int, name_len: int, params: int, params_len: int, out: int, cap: int
    ) -> int:
        """Carry out one tool call."""
        self._check(name, name_len)
        self._check(params, params_len)
        self._check(out, cap)
        answer = self.host.call(
            string_at(self._base + name, min(name_len, wire.MAX_NAME)),
            self._cut(params, params_len, wire.params_cap(self.limits)),
            self.burnt(),
        )
        return self._answered(answer, out, cap)

    def mcp_call_many(self, batch: int, batch_len: int, out: int, cap: int) -> int:
        """Carry out several tool calls at once."""
        self._check(batch, batch_len)
        self._check(out, cap)
        answer = self.host.call_many(
            self._cut(batch, batch_len, codec.BATCH_BYTES), self.burnt()
        )
        return self._answered(answer, out, cap)

    def take_reply(self, out: int, cap: int) -> int:
        """Give the last reply again."""
        self._check(out, cap)
        return self._write(self._reply, out, cap)

    def tools(self, out: int, cap: int) -> int:
        """Give the granted catalogue."""
        self._check(out, cap)
        return self._give(_OK, self.start.tools, out, cap)

    def input(self, out: int, cap: int) -> int:
        """Give the run's input."""
        self._check(out, cap)
        return self._give(_OK, self.start.input, out, cap)

    def get_context(self, key: int, key_len: int, out: int, cap: int) -> int:
        """Give one run variable."""
        self._check(key, key_len)
        self._check(out, cap)
        name = self._read(key, min(key_len, wire.MAX_NAME))
        value = self.start.context.get(name.decode(errors="replace"))
        if value is None:
            return self._give(_BAD_REQUEST, _UNKNOWN_KEY, out, cap)
        return self._give(_OK, value, out, cap)

    def set_output(self, pointer: int, length: int) -> None:
        """Take the run's result."""
        self._check(pointer, length)
        if length > self.limits.output:
            self._over("output", f"{length} bytes, of {self.limits.output} allowed")
        self.output = self._read(pointer, length)

    def now(self) -> int:
        """Give the time of the last recorded event that the guest has seen."""
        return self._now & 0xFFFF_FFFF_FFFF_FFFF

    def random(self, pointer: int, length: int) -> None:
        """Give the next bytes of the SHAKE-256 stream of the seed."""
        self._check(pointer, length)
        wanted = self._drawn + length
        if wanted > MAX_RANDOM:
            self._trap(f"more than {MAX_RANDOM} random bytes")
        if wanted > len(self._stream):
            # hashlib cannot go on where it was: twice as much each time.
            size = min(max(4096, 2 * wanted), MAX_RANDOM)
            self._stream = hashlib.shake_256(self._seed).digest(size)
        data = self._stream[self._drawn : wanted]
        self._drawn = wanted
        ctypes.memmove(self._base + pointer, data, length)

    def log(self, level: int, pointer: int, length: int) -> None:
        """Pass on a log line, until the run has written its share and one more."""
        self._check(pointer, length)
        if self._logged > self.limits.log:
            return
        most = min(self.limits.log, wire.MAX_LINE) + 1
        text = self._read(pointer, min(length, most))
        self._logged += max(len(text), wire.LINE_COST)
        self.host.log(min(level, _LEVELS), text)

    def _read(self, pointer: int, length: int) -> bytes:
        return string_at(self._base + pointer, length)

    def _cut(self, pointer: int, length: int, most: int) -> bytes:
        if length <= most:
            return self._read(pointer, length)
        whole = (ctypes.c_char * length).from_address(self._base + pointer)
        return self._read(pointer, most) + hashlib.sha256(whole).digest()

    def _answered(self, answer: Answer, out: int, cap: int) -> int:
        self._now = answer.at or self._now
        if answer.seed:
            self._seed, self._stream, self._drawn = answer.seed, b"", 0
        return self._give(answer.status, answer.reply, out, cap)

    def _give(self, status: int, reply: bytes, out: int, cap: int) -> int:
        self._reply = reply
        return status << 32 | self._write(reply, out, cap)

    def _write(self, data: bytes, out: int, cap: int) -> int:
        if len(data) <= cap:
            ctypes.memmove(self._base + out, data, len(data))
        return len(data)

    def _check(self, pointer: int, length: int) -> None:
        if pointer + length > self._size:
            self._trap("a host function was given a place outside memory")

    def _trap(self, message: str) -> NoReturn:
        self.end(End(kind="trap", message=message))
        raise Ended

    def _over(self, limit: str, message: str) -> NoReturn:
        self.end(End(kind="limit", limit=limit, message=message))
        raise Ended


_METHODS: dict[str, Callable[..., int | None]] = {
    "mcp_call": Session.mcp_call,
    "mcp_call_many": Session.mcp_call_many,
    "take_reply": Session.take_reply,
    "tools": Session.tools,
    "context": Session.get_context,
    "input": Session.input,
    "output": Session.set_output,
    "now": Session.now,
    "random": Session.random,
    "log": Session.log,
}


def _types(text: str) -> list[wasmtime.ValType]:
    return [_TYPES[name]() for name in text.strip("()").split(", ") if name]


def _prepare(name: str, signature: str) -> tuple[Callable[..., int | None], Struct]:
    # Each value has 16 bytes; all parameters are i32, of which 12 are unused.
    parameters, _, _ = signature.partition(" -> ")
    return _METHODS[name], Struct("<" + "I12x" * len(_types(parameters)))


_TABLE = [_prepare(*item) for item in HOST_FUNCTIONS.items()]
#: Thread to the guest that it runs.
_sessions: dict[int, Session] = {}


@engine.host_callback
def _host_function(number: int, caller: int, values: int, _count: int) -> int:
    session = _sessions[get_ident()]
    try:
        session.enter(caller)
        method, arguments = _TABLE[number]
        result = method(session, *arguments.unpack(string_at(values, arguments.size)))
        if result is not None:
            ctypes.c_uint64.from_address(values).value = result
    except Ended:
        return engine.new_trap()
    except BaseException as exc:  # noqa: BLE001 -- see the top of this file
        session.end(End(kind="failed", message=f"a host function: {exc!r}"))
        return engine.new_trap()
    return 0


@engine.epoch_callback
def _on_epoch(_context: int, _data: int, delta: int, kind: int) -> int:
    session = _sessions[get_ident()]
    try:
        if session.host.tick():
            ctypes.c_uint64.from_address(delta).value = 1
            ctypes.c_uint8.from_address(kind).value = 0
            return 0
    except BaseException as exc:  # noqa: BLE001 -- see the top of this file
        session.end(End(kind="failed", message=f"a tick: {exc!r}"))
    return engine.new_error()


def link(built: wasmtime.Engine) -> wasmtime.Linker:
    """Return a linker with all host functions, for modules of that engine."""
    linker = wasmtime.Linker(built)
    for number, (name, signature) in enumerate(HOST_FUNCTIONS.items()):
        parameters, _, results = signature.partition(" -> ")
        type_ = wasmtime.FuncType(_types(parameters), _types(results))
        engine.define(linker, (NAMESPACE, name), type_, _host_function, number)
    return linker


def watch(store: wasmtime.Store) -> None:
    """Ask the guest of *store* at every tick whether it may go on."""
    engine.on_epoch(store, _on_epoch)
    engine.set_epoch_deadline(engine.context_of(store), 1)


@contextmanager
def entered(session: Session) -> Generator[None]:
    """Make the host functions of this thread those of one session."""
    _sessions[get_ident()] = session
    try:
        yield
    finally:
        del _sessions[get_ident()]
