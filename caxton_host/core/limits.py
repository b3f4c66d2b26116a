"""The bounds of one run. Every figure is recorded with the run it bounded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from .calls import JSON

__all__ = ["Limits"]

_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """
    What one run may use. Sizes in bytes, times in seconds.

    Attributes:
        module: Size of the module.

        compile_cpu: Processor time for compiling it.

        compile_memory: Address space for compiling it.

        memory: All linear memories together.

        memories: Number of memories.

        tables: Number of tables.

        table_elements: Elements of each table.

        fuel: Deterministic measure of work; about 1.2e10 a second.

        compute: Time between two tool calls spent in the guest.

        wall: Driven time of the run; a suspended run does not age.

        total_calls: Attempted tool calls.

        host_calls: Calls of any host function.

        params: Parameters of one call, as the agent packed them.

        input: The input of the run.

        result: One result of a tool.

        output: The result of the run.

        log: All log lines of the run.

        recorded: All payloads that the run writes.
    """

    module: int = 32 * _MIB
    compile_cpu: float = 60.0
    compile_memory: int = 2048 * _MIB
    memory: int = 64 * _MIB
    memories: int = 4
    tables: int = 8
    table_elements: int = 20_000
    fuel: int = 20_000_000_000
    compute: float = 5.0
    wall: float = 600.0
    total_calls: int = 1_000
    host_calls: int = 100_000
    params: int = 64 * 1024
    input: int = _MIB
    result: int = _MIB
    output: int = _MIB
    log: int = 64 * 1024
    recorded: int = 256 * _MIB

    def to_payload(self) -> dict[str, JSON]:
        """Return the limits as ``RunStarted.limits`` holds them."""
        return asdict(self)

    @classmethod
    def from_payload(cls, payload: Mapping[str, Any]) -> Limits:
        """Return recorded limits; one that a later version added has its default."""
        names = {field.name for field in fields(cls)}
        return cls(**{key: payload[key] for key in payload if key in names})
