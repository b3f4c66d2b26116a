"""Limits of one run, and of one host. The limits of a run are recorded with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from .calls import JSON
from .commands import is_command
from .sections import is_interpreter

_MIB = 1024 * 1024
CORE_MEMORY = 64 * _MIB
#: Of a component, and of a module that interprets a program.
LARGE_MEMORY = 256 * _MIB

#: The first bytes of a component. A core module differs from the fifth on.
COMPONENT = b"\0asm\x0d\0\1\0"


def is_component(module: bytes) -> bool:
    r"""
    Return whether these bytes begin like a component.

    >>> is_component(b"\0asm\1\0\0\0")
    False
    """
    return module.startswith(COMPONENT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """
    The limits of one run. Sizes in bytes, times in seconds.

    Attributes:
        module: Size of the module.

        compile_cpu: Processor time for compiling it.

        compile_memory: Address space for compiling it.

        memory: All linear memories together. ``None``: the default of the kind of
            module, which `of` fills in.

        memories: Number of memories.

        tables: Number of tables.

        table_elements: Elements of each table.

        fuel: Deterministic measure of work; about 1.2e10 a second.

        compute: Time in the guest between two tool calls.

        wall: Time that the run is driven. Suspended time does not count.

        total_calls: Attempted tool calls.

        host_calls: Calls of any host function.

        params: Parameters of one call, as the agent packed them.

        input: The input of the run.

        result: One result of a tool.

        output: The result of the run.

        log: All log lines of the run.

        recorded: All payloads of the events of the run.

        sources: The index of the sources of values, if a rule asks for them.

        wasi_calls: Calls of WASI. It and the next two are for WASI programs; ``None``:
            the default, which `of` fills in for them.

        files: The configured files of a WASI program.

        scratch: What it writes into files, in memory.

        depth: Levels of runs below it: those that it calls, those that these call.

        children: Runs that it calls.

        descendants: Runs below it in all. Of the run at the top, this counts.
    """

    module: int = 32 * _MIB
    compile_cpu: float = 60.0
    compile_memory: int = 2048 * _MIB
    memory: int | None = None
    memories: int = 4
    tables: int = 8
    table_elements: int = 20_000
    fuel: int = 20_000_000_000
    compute: float = 5.0
    wall: float = 600.0
    total_calls: int = 1_000
    host_calls: int = 100_000
    params: int = 512 * 1024
    input: int = _MIB
    result: int = _MIB
    output: int = _MIB
    log: int = 64 * 1024
    recorded: int = 256 * _MIB
    sources: int = 64 * _MIB
    wasi_calls: int | None = None
    files: int | None = None
    scratch: int | None = None
    depth: int = 4
    children: int = 100
    descendants: int = 1_000

    def memory_of(self, *, large: bool) -> int:
        """Return the limit on memory; *large*: for a component or an interpreter."""
        default = LARGE_MEMORY if large else CORE_MEMORY
        return default if self.memory is None else self.memory

    def of(self, module: bytes) -> Limits:
        """Return these limits with the defaults of that kind of module filled in."""
        command = is_command(module)
        large = command or is_component(module) or is_interpreter(module)
        limits = replace(self, memory=self.memory_of(large=large))
        return limits.of_command() if command else limits

    def of_command(self) -> Limits:
        """Return these limits with the defaults of a WASI program filled in."""
        missing = {key: _OF_COMMANDS[key] for key in _OF_COMMANDS if self._lacks(key)}
        return replace(self, **missing) if missing else self

    def _lacks(self, key: str) -> bool:
        return getattr(self, key) is None

    def to_payload(self) -> dict[str, JSON]:
        """Return the limits as ``RunStarted.limits`` holds them."""
        return {
            name: getattr(self, name)
            for name in _NAMES
            if not (name in _OF_COMMANDS and self._lacks(name))
        }

    @classmethod
    def from_payload(cls, payload: Mapping[str, Any]) -> Limits:
        """Return recorded limits. A limit that was not recorded has its default."""
        return cls(**{key: payload[key] for key in payload if key in _NAMES})


_OF_COMMANDS: Mapping[str, int] = {
    "wasi_calls": 1_000_000,
    "files": 16 * _MIB,
    "scratch": 16 * _MIB,
}
_NAMES = tuple(field.name for field in fields(Limits))


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """
    The limits of one host.

    Attributes:
        runs: Runs in progress, waiting ones included. Further runs are refused.

        workers: Worker processes.

        guests: Guests in one worker, waiting for a tool or computing.

        compute: Guests in one worker that compute at the same time; ``None``: the
            number of processors.
    """

    runs: int = 2048
    workers: int = 16
    guests: int = 128
    compute: int | None = None
