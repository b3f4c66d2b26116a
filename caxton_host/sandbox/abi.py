"""
The host functions of core modules, and how such a guest is run.

Every pointer and length comes as an unsigned number and is checked against the
memory before anything happens, the answer's place included: no call is sent whose
answer could not be delivered. A place outside memory is a trap. Bad bytes are not: the
host denies and records them.

Bytes that no tool may get are not sent: a name is cut at 64 KiB. Params and
batches over their limit are sent as their first bytes, up to the limit, and the
SHA-256 of all of them; so they are still over the limit, and still differ where the
guest's differ.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from ctypes import string_at
from dataclasses import dataclass
from struct import Struct
from typing import Any, cast

import wasmtime
from wasmtime import TrapCode

from ..lib import codec
from ..ports.sandbox import Answer
from . import engine, wire
from .interface import HOST_FUNCTIONS, NAMESPACE
from .session import Ended, Execution, Host, current, cut, said
from .wire import STACK_OVERFLOW, End, Start

_OK, _BAD_REQUEST = 0, 4
_TYPES = {"i32": wasmtime.ValType.i32, "i64": wasmtime.ValType.i64}
_LAYOUTS = {"i32": "I12x", "i64": "Q8x"}
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


class Session(Execution):
    """The host functions of one core module: numbers in, a number out."""

    #: Why the guest says that it failed, or empty.
    reason = b""

    def __init__(self, start: Start, host: Host) -> None:
        super().__init__(start, host)
        self._reply = b""
        self._memory: Any = None
        self._base = self._size = 0

    def enter(self, caller: int) -> None:
        """Charge for a host call, and find the guest's memory."""
        self.charge()
        self._reach(caller)

    def _reach(self, caller: int) -> None:
        if self._memory is None:
            self._memory = engine.caller_memory(caller)
            if self._memory is None:
                self._trap("no memory is exported")
        memory = ctypes.byref(self._memory)
        self._base = engine.memory_base(self.context, memory)
        self._size = engine.memory_size(self.context, memory)

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
            cut(self._base + params, params_len, wire.params_cap(self.limits)),
            self.burnt(),
        )
        return self._answered(answer, out, cap)

    def mcp_call_many(self, batch: int, batch_len: int, out: int, cap: int) -> int:
        """Carry out several tool calls at once."""
        self._check(batch, batch_len)
        self._check(out, cap)
        answer = self.host.call_many(
            cut(self._base + batch, batch_len, codec.BATCH_BYTES), self.burnt()
        )
        return self._answered(answer, out, cap)

    def take_reply(self, out: int, cap: int) -> int:
        """Write the last reply again."""
        self._check(out, cap)
        return self._write(self._reply, out, cap)

    def tools(self, out: int, cap: int) -> int:
        """Write the granted catalogue."""
        self._check(out, cap)
        return self._give(_OK, self.start.tools, out, cap)

    def input(self, out: int, cap: int) -> int:
        """Write the run's input."""
        self._check(out, cap)
        return self._give(_OK, self.start.input, out, cap)

    def program(self, out: int, cap: int) -> int:
        """Write what a runtime is to execute."""
        self._check(out, cap)
        return self._give(_OK, self.start.program, out, cap)

    def get_context(self, key: int, key_len: int, out: int, cap: int) -> int:
        """Write one run variable."""
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

    def fail(self, pointer: int, length: int) -> None:
        """Take the reason of a failure, for when the entry point returns a code."""
        self._check(pointer, length)
        self.reason = self._read(pointer, min(length, wire.MAX_REASON))

    def now(self) -> int:
        """Return the time of the last recorded event that the guest has seen."""
        return self._now & 0xFFFF_FFFF_FFFF_FFFF

    def random(self, pointer: int, length: int) -> None:
        """Write the next bytes of the random stream."""
        self._check(pointer, length)
        ctypes.memmove(self._base + pointer, self._draw(length), length)

    def log(self, level: int, pointer: int, length: int) -> None:
        """Pass on a log line."""
        self._check(pointer, length)
        self._log(min(level, _LEVELS), self._base + pointer, length)

    def _read(self, pointer: int, length: int) -> bytes:
        return string_at(self._base + pointer, length)

    def _answered(self, answer: Answer, out: int, cap: int) -> int:
        self._settle(answer)
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
    "program": Session.program,
    "fail": Session.fail,
}


def _types(text: str) -> list[wasmtime.ValType]:
    return [_TYPES[name]() for name in text.strip("()").split(", ") if name]


def _arguments(signature: str) -> Struct:
    # Each value has 16 bytes, of which an i32 uses 4.
    parameters, _, _ = signature.partition(" -> ")
    names = [name for name in parameters.strip("()").split(", ") if name]
    return Struct("<" + "".join(_LAYOUTS[name] for name in names))


def callback(
    functions: Mapping[str, str],
    methods: Mapping[str, Callable[..., int | None]],
    enter: Callable[[Any, int], None],
) -> object:
    """
    Return the callback of host functions, which knows them by their order.

    Args:
        functions: Their names, with their types.

        methods: Of the session, by the same names.

        enter: Of the session, called before each of them.
    """
    table = [(methods[name], _arguments(types)) for name, types in functions.items()]

    @engine.host_callback
    def called(number: int, caller: int, values: int, _count: int) -> int:
        session = current()
        try:
            enter(session, caller)
            method, arguments = table[number]
            given = arguments.unpack(string_at(values, arguments.size))
            result = method(session, *given)
            if result is not None:
                ctypes.c_uint64.from_address(values).value = result
        except Ended:
            return engine.new_trap()
        except BaseException as exc:  # noqa: BLE001 -- see session.py
            session.end(End(kind="failed", message=f"a host function: {exc!r}"))
            return engine.new_trap()
        return 0

    return called


def define(
    linker: wasmtime.Linker,
    namespace: str,
    functions: Mapping[str, str],
    called: object,
) -> None:
    """Define host functions; *called* is their `callback`."""
    for number, (name, signature) in enumerate(functions.items()):
        parameters, _, results = signature.partition(" -> ")
        type_ = wasmtime.FuncType(_types(parameters), _types(results))
        engine.define(linker, (namespace, name), type_, called, number)


_CALLED = callback(HOST_FUNCTIONS, _METHODS, Session.enter)


def link(built: wasmtime.Engine) -> wasmtime.Linker:
    """Return a linker with all host functions, for modules of that engine."""
    linker = wasmtime.Linker(built)
    define(linker, NAMESPACE, HOST_FUNCTIONS, _CALLED)
    return linker


@dataclass(frozen=True, slots=True)
class ModuleCode:
    """
    A core module ready to run: its engine, and itself with its imports resolved.

    Attributes:
        most: Bytes of the reason that it may give when it fails.
    """

    engine: wasmtime.Engine
    pre: wasmtime.InstancePre
    most: int = wire.MAX_MESSAGE
    instances: int = 1
    session = Session

    def run(self, store: wasmtime.Store, session: Execution) -> End:
        """Run a fresh instance to its end."""
        try:
            instance = self.pre.instantiate(store)
            run = engine.exported_function(store, instance, session.start.entry)
            code = run(store) or 0
        except wasmtime.Trap as trap:
            return session.stop or _trapped(trap)
        except wasmtime.WasmtimeError as exc:
            return session.stop or _unstarted(str(exc))
        reason = cast("Session", session).reason if code else b""
        return End(kind="returned", code=code, message=said(reason, self.most))


def deserialize(built: wasmtime.Engine, artifact: bytes | str) -> wasmtime.Module:
    """
    Return the module in an artifact.

    Args:
        built: What it was compiled for.

        artifact: Native code that this host must have made, or the path of a file of
            it, which is mapped.
    """
    if isinstance(artifact, str):
        return wasmtime.Module.deserialize_file(built, artifact)
    return wasmtime.Module.deserialize(built, artifact)


#: Traps of wasmtime, by the names that events have for them.
_TRAPS = {
    TrapCode.STACK_OVERFLOW: STACK_OVERFLOW,
    TrapCode.MEMORY_OUT_OF_BOUNDS: "out of bounds memory access",
    TrapCode.HEAP_MISALIGNED: "misaligned memory access",
    TrapCode.TABLE_OUT_OF_BOUNDS: "out of bounds table access",
    TrapCode.INDIRECT_CALL_TO_NULL: "call of an empty table element",
    TrapCode.BAD_SIGNATURE: "indirect call of another type",
    TrapCode.INTEGER_OVERFLOW: "integer overflow",
    TrapCode.INTEGER_DIVISION_BY_ZERO: "integer division by zero",
    TrapCode.BAD_CONVERSION_TO_INTEGER: "invalid conversion to integer",
    TrapCode.UNREACHABLE: "unreachable",
}
# Words in the errors of wasmtime: no address space is left, or a limit is exceeded.
_ROOMLESS = ("mmap", "os error 12", "allocate")
_TOO_LARGE = ("limits", "resource limit")


def _trapped(trap: wasmtime.Trap) -> End:
    if trap.trap_code is TrapCode.OUT_OF_FUEL:
        return End(kind="limit", limit="fuel", message="all fuel is burnt")
    message = _TRAPS.get(trap.trap_code, "trap") if trap.trap_code else "trap"
    return End(kind="trap", message=message)


def _unstarted(reason: str) -> End:
    if any(word in reason for word in _TOO_LARGE):
        return End(kind="limit", limit="memory", message=reason.splitlines()[0])
    if any(word in reason for word in _ROOMLESS):
        return End(kind="no_room", message=reason.splitlines()[0])
    return End(kind="failed", message=reason.splitlines()[0])
