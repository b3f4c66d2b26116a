"""
One execution of a guest, from a fresh instance, and how it ended.

Here for core modules, and in `component` for components.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import wasmtime
from wasmtime import TrapCode

from . import abi, component, engine
from .component import ComponentCode
from .session import Execution, entered, watch
from .wire import End

_TRAPS = {
    TrapCode.STACK_OVERFLOW: "stack overflow",
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
_ROOMLESS = ("mmap", "os error 12", "allocate")
_TOO_LARGE = ("limits", "resource limit")


@dataclass(frozen=True, slots=True)
class Code:
    """A module ready to run: its engine, and itself with its imports resolved."""

    engine: wasmtime.Engine
    pre: wasmtime.InstancePre
    instances: int = 1

    def run(self, store: wasmtime.Store, session: Execution) -> End:
        """Run a fresh instance to its end."""
        try:
            instance = self.pre.instantiate(store)
            run = engine.exported_function(store, instance, session.start.entry)
            return End(kind="returned", code=run(store))
        except wasmtime.Trap as trap:
            return session.stop or _trapped(trap)
        except wasmtime.WasmtimeError as exc:
            return session.stop or _unstarted(str(exc))


AnyCode: TypeAlias = Code | ComponentCode


Loader: TypeAlias = Callable[[bytes], AnyCode]


def loader(built: wasmtime.Engine, *, components: bool) -> Loader:
    """
    Return what makes code of an artifact: native code, so that must be ours.

    Args:
        built: What it was compiled for.

        components: Whether it holds components.
    """
    if components:
        return partial(component.load, built, component.link(built))
    return partial(load, built, abi.link(built))


def load(built: wasmtime.Engine, linker: wasmtime.Linker, artifact: bytes) -> Code:
    """Return the module that *artifact* holds: native code, so it must be ours."""
    module = wasmtime.Module.deserialize(built, artifact)
    return Code(built, linker.instantiate_pre(module))


def execute(code: AnyCode, session: Execution) -> End:
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
        watch(store)
        with entered(session):
            end = code.run(store, session)
        if end.kind in {"returned", "trap"} or end.limit not in {"", "compute"}:
            end.fuel = session.burnt()
        end.output = session.output
        return end


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
