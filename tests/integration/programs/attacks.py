"""What a hostile program is, and how it may end."""

from __future__ import annotations

from dataclasses import dataclass, replace

from caxton_host.core.calls import JSON
from caxton_host.core.limits import Limits
from tests.programs import Programs, Ran, text

#: The name of an end that an interpreter cannot survive.
ABORTED = "the interpreter aborted"

#: Small, so that bombs are quick. No limit on time: the machine may be busy.
LIMITS = Limits(
    memory=128 * 1024 * 1024,
    module=64 * 1024 * 1024,
    fuel=1_000_000_000,
    compute=300.0,
    host_calls=2_000,
    total_calls=1_000_000,
)
_LITTLE = 200_000_000
_ASK = "mcp__x__ask"
CATALOGUE: list[dict[str, JSON]] = [
    {"name": _ASK, "description": "", "input_schema": {"type": "object"}}
]
TOOLS = {_ASK: lambda params: text(f"{len(params)}")}


@dataclass(frozen=True, slots=True)
class End:
    """
    How a program has to end.

    Attributes:
        kind: ``output``, ``limit`` or ``error``.

        names: The limit, or a part of the error; one of them.

        value: The output.
    """

    kind: str
    names: tuple[str, ...] = ()
    value: JSON = None

    def check(self, ran: Ran) -> None:
        """Fail unless *ran* ended like this."""
        ending = ran.ending
        if self.kind == "limit":
            assert (ending.kind, ending.limit in self.names) == ("limit", True), ending
        elif self.kind == "error":
            assert any(name in ran.error for name in self.names), ran.error
            assert ending.code
            assert len(ran.error.encode()) <= 4096
        else:
            assert ran.output == self.value


def limit(*names: str) -> End:
    """Return the end by one of these limits."""
    return End("limit", names)


def error(*names: str) -> End:
    """Return the end by an error that names one of these."""
    return End("error", names)


def completes(value: JSON) -> End:
    """Return the end with that output."""
    return End("output", value=value)


@dataclass(frozen=True, slots=True)
class Attack:
    """
    A hostile program.

    Attributes:
        sent: How many calls came through the door, at most.

        logs: How many log lines did, at most.
    """

    source: str
    end: End
    sent: int = 0
    logs: int = 200


def attempt(programs: Programs, attack: Attack, honest: str) -> None:
    """Run *attack*, and then the program *honest* beside it, whose output is 42."""
    # What only fuel ends burns all that it gets.
    limits = replace(LIMITS, fuel=_LITTLE) if "fuel" in attack.end.names else LIMITS
    ran = programs(attack.source, TOOLS, catalogue=CATALOGUE, limits=limits)
    attack.end.check(ran)
    assert sum(map(len, ran.tools.sent)) <= attack.sent
    assert len(ran.tools.logs) <= attack.logs
    assert programs(honest).output == 42
