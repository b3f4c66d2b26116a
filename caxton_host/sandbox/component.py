"""
The host functions of components: those of core modules, with JSON text.

No more of a text is read than a limit allows. JSON becomes msgpack before it leaves
this process, so that the host sees no difference between guests. A text that is not
JSON is sent as it is: no text is a msgpack map or array that the host would accept.
Params and batches over their limit are sent as those of core modules are.
"""

from __future__ import annotations

from collections.abc import Callable
from ctypes import string_at
from dataclasses import dataclass
from typing import cast

import wasmtime
from wasmtime.component import Component, Linker

from ..errors import BadBytes
from ..lib import codec
from . import component_engine as values
from . import engine, wire
from .interface import FUNCTIONS, INTERFACE, LEVELS
from .session import Ended, Execution, current, cut, said, tail
from .wire import STACK_OVERFLOW, End

#: How many instances of core modules one component may have.
INSTANCES = 128
#: A text for a tool stays in memory, twice, while the guest waits for the answer.
MAX_TEXT = 2 * 1024 * 1024


class Session(Execution):
    """The host functions of one component: addresses of arguments and of a result."""

    #: Why its last output was not valid JSON, or empty.
    fault = ""

    def mcp_call(self, args: int, result: int) -> None:
        """Carry out one tool call."""
        name, length = self._text(args, 0)
        params = self._packed(
            *self._text(args, 1), wire.params_cap(self.limits), codec.from_json
        )
        name_bytes = string_at(name, min(length, wire.MAX_NAME))
        answer = self.host.call(name_bytes, params, self.burnt())
        self._settle(answer)
        values.give_text(result, codec.to_json(answer.reply))

    def mcp_call_many(self, args: int, result: int) -> None:
        """Carry out several tool calls at once."""
        batch = self._packed(
            *self._text(args, 0), codec.BATCH_BYTES, codec.batch_from_json
        )
        answer = self.host.call_many(batch, self.burnt())
        self._settle(answer)
        values.give_text(result, codec.to_json(answer.reply))

    def tools(self, _args: int, result: int) -> None:
        """Return the granted catalogue."""
        values.give_text(result, codec.to_json(self.start.tools))

    def get_context(self, args: int, result: int) -> None:
        """Return one run variable."""
        address, length = values.text(args, 0)
        key = string_at(address, min(length, wire.MAX_NAME)).decode(errors="replace")
        value = self.start.context.get(key)
        if value is None:
            values.give_none(result)
        else:
            values.give_some(result, codec.to_json(value))

    def input(self, _args: int, result: int) -> None:
        """Return the run's input."""
        values.give_text(result, codec.to_json(self.start.input))

    def program(self, _args: int, result: int) -> None:
        """Return what a runtime is to execute."""
        values.give_text(result, codec.to_json(self.start.program))

    def set_output(self, args: int, _result: int) -> None:
        """Take the run's result."""
        address, length = values.text(args, 0)
        most = self.limits.output
        self.output, self.fault = None, ""
        if length > most:
            self._over("output", f"{length} bytes, of {most} allowed")
        try:
            data = codec.from_json(string_at(address, length), most, codec.RESULT_NODES)
        except BadBytes as exc:
            self.fault = f"output: {exc}"
            return
        if len(data) > most:
            self._over("output", f"{len(data)} bytes, of {most} allowed")
        self.output = data

    def now(self, _args: int, result: int) -> None:
        """Return the time of the last recorded event that the guest has seen."""
        values.give_s64(result, self._now)

    def random(self, _args: int, result: int) -> None:
        """Return the next eight bytes of the random stream."""
        values.give_u64(result, int.from_bytes(self._draw(8), "little"))

    def log(self, args: int, _result: int) -> None:
        """Pass on a log line."""
        level = LEVELS.index(values.enumeration(args, 0))
        self._log(level, *values.text(args, 1))

    def _text(self, args: int, place: int) -> tuple[int, int]:
        address, length = values.text(args, place)
        if length > MAX_TEXT:
            self._trap(f"a host function was given a text of {length} bytes")
        return address, length

    @staticmethod
    def _packed(
        address: int, length: int, most: int, pack: Callable[[bytes, int], bytes]
    ) -> bytes:
        if length > most:
            return cut(address, length, most)
        data = string_at(address, length)
        try:
            data = pack(data, most)
        except BadBytes:
            return data
        if len(data) > most:
            return data[:most] + tail(data)
        return data


_METHODS: dict[str, Callable[[Session, int, int], None]] = {
    "mcp-call": Session.mcp_call,
    "mcp-call-many": Session.mcp_call_many,
    "tools": Session.tools,
    "context": Session.get_context,
    "input": Session.input,
    "output": Session.set_output,
    "now": Session.now,
    "random": Session.random,
    "log": Session.log,
    "program": Session.program,
}
_TABLE = [_METHODS[name] for name in FUNCTIONS]


@values.host_callback
def _host_function(
    number: int,
    _context: int,
    _type: int,
    args: int,
    _count: int,
    results: int,
    _result_count: int,
) -> int:
    session = cast("Session", current())
    try:
        session.charge()
        _TABLE[number](session, args, results)
    except Ended:
        return engine.new_error()
    except BaseException as exc:  # noqa: BLE001 -- see session.py
        session.end(End(kind="failed", message=f"a host function: {exc!r}"))
        return engine.new_error()
    return 0


def link(built: wasmtime.Engine) -> Linker:
    """Return a linker with all host functions, for components of that engine."""
    linker = Linker(built)
    with linker.root() as root, root.add_instance(INTERFACE) as host:
        for number, name in enumerate(FUNCTIONS):
            values.define(host, name, _host_function, number)
    return linker


@dataclass(frozen=True, slots=True)
class ComponentCode:
    """A component ready to run; see `abi.ModuleCode`."""

    engine: wasmtime.Engine
    linker: Linker
    component: Component
    most: int = wire.MAX_MESSAGE
    instances: int = INSTANCES
    session = Session

    def run(self, store: wasmtime.Store, session: Execution) -> End:
        """Run a fresh instance to its end."""
        started = False
        try:
            instance = self.linker.instantiate(store, self.component)
            entry = values.entry(store, instance, session.start.entry)
            started = True
            error = values.call(store, entry, self.most)
        except wasmtime.WasmtimeError as exc:
            return session.stop or _failed(str(exc), started=started)
        fault = cast("Session", session).fault
        if error is None:
            return End(kind="returned", code=int(bool(fault)), message=fault)
        return End(kind="returned", code=1, message=said(error, self.most))


def load(
    built: wasmtime.Engine, linker: Linker, most: int, artifact: bytes | str
) -> ComponentCode:
    """Return a component that is ready to run; see `abi.deserialize`."""
    if isinstance(artifact, str):
        loaded = Component.deserialize_file(built, artifact)
    else:
        loaded = Component.deserialize(built, artifact)
    return ComponentCode(built, linker, loaded, most)


_TRAP = "wasm trap: "
_FUEL = "all fuel consumed by WebAssembly"
#: Names of traps in wasmtime, to those that events have.
_TRAPS = {
    "call stack exhausted": STACK_OVERFLOW,
    "undefined element: out of bounds table access": "out of bounds table access",
    "uninitialized element": "call of an empty table element",
    "indirect call type mismatch": "indirect call of another type",
    "integer divide by zero": "integer division by zero",
    "wasm `unreachable` instruction executed": "unreachable",
}
#: Not enough address space, and not enough descriptors for memory images.
_ROOMLESS = ("mmap", "os error 12", "memfd", "allocate")
_TOO_LARGE = ("limits", "resource limit", "os error 27")


def _failed(reason: str, *, started: bool) -> End:
    """Return the end of a guest that did not return, from the error of wasmtime."""
    # The last line is the cause. Those before it may have names that are the guest's.
    line = reason.rstrip().rpartition("\n")[2].strip()
    _, trapped, trap = line.rpartition(_TRAP)
    if trap == _FUEL:
        return End(kind="limit", limit="fuel", message="all fuel is burnt")
    if trapped or started:
        return End(kind="trap", message=_TRAPS.get(trap, trap))
    if any(word in line for word in _TOO_LARGE):
        return End(kind="limit", limit="memory", message=line)
    if any(word in line for word in _ROOMLESS):
        return End(kind="no_room", message=line)
    return End(kind="failed", message=line)
