"""Requests to a running host, and resolutions of calls in doubt."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import TypeAlias, assert_never

from ..calls import JSON, Completed, Failed
from .events import CallResolved, Event, RunCancelled, RunSuspended, settled


@dataclass(frozen=True, slots=True)
class Resend:
    """Send it once more."""


@dataclass(frozen=True, slots=True)
class GiveResult:
    """This is what the tool answered."""

    completed: Completed


@dataclass(frozen=True, slots=True)
class Fail:
    """The agent is to see a failure."""


@dataclass(frozen=True, slots=True)
class Abort:
    """The run is to end."""


Resolution: TypeAlias = Resend | GiveResult | Fail | Abort


def recorded_as(
    call: int,
    resolution: Resolution,
    actor: dict[str, JSON],
    reason: str,
    doubts: Collection[int] = (),
) -> tuple[Event, ...]:
    """
    Return the events that record a resolution. They are stored together.

    Args:
        call: The call.

        resolution: What is said of it.

        actor: By whom.

        reason: Why.

        doubts: Other calls of the run that are in doubt.

    >>> who = {"kind": "local", "id": "ann", "authenticated": False}
    >>> [type(event).__name__ for event in recorded_as(3, Fail(), who, "it is down")]
    ['CallResolved', 'ToolFailed']
    """

    def resolved(verdict: str) -> CallResolved:
        return CallResolved(call=call, verdict=verdict, actor=actor, reason=reason)

    match resolution:
        case Resend():
            return (resolved("retry"),)
        case GiveResult(completed):
            return resolved("result"), settled(call, completed)
        case Fail():
            return resolved("fail"), settled(call, _unknown())
        case Abort():
            end = RunCancelled(actor=actor, reason=reason)
            return resolved("abort"), *closing(sorted({call, *doubts}), end)
        case _:
            assert_never(resolution)


def closing(doubts: Iterable[int], end: Event) -> tuple[Event, ...]:
    """
    Return *end*, after what closes the calls that nobody will ask about again.

    A run that is suspended leaves its calls in doubt open: it is about them.
    """
    if isinstance(end, RunSuspended):
        return (end,)
    return *(settled(call, _unknown()) for call in doubts), end


def _unknown() -> Failed:
    return Failed(
        kind="cancelled",
        sent="unknown",
        message="the call was given up; whether it happened is unknown",
    )


#: How it begins if it could not be done.
FAILED = "failed: "
UNKNOWN = "refused: the host does not know this kind of request"

#: Of a server that was to be started anew.
RESTARTED = "restarted"
NOT_HERE = "not here: no run has needed it"


def is_failure(outcome: str) -> bool:
    """
    Return whether what was asked was not done.

    >>> is_failure("failed: no such file"), is_failure("generation 2")
    (True, False)
    """
    return outcome.startswith(FAILED) or outcome == UNKNOWN


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """
    What somebody asks of the host that drives a run, or of a host as such.

    Attributes:
        run_id: The run; ``None``: it is for the host, whatever that drives.

        kind: Of a run: ``cancel``. Of a host: ``reload``, ``restart``, ``go_on``.

        actor: Who asks: ``{kind, id, authenticated}``.

        reason: Why, in their words.

        subject: What of the host it is about.
    """

    id: int
    run_id: str | None
    kind: str
    actor: dict[str, JSON]
    reason: str
    subject: str | None = None
