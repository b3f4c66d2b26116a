"""Requests to a running host, and resolutions of calls in doubt."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias, assert_never

from ..calls import JSON, Completed, Failed
from .events import CallResolved, Event, RunCancelled, RunSuspended, settled

#: Prefix of the outcome of a request that failed.
FAILED = "failed: "
UNKNOWN = "refused: the host does not know this kind of request"

#: Outcomes of a request to restart a server.
RESTARTED = "restarted"
NOT_HERE = "not here: no run has needed it"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """
    A request to the host that drives a run, or to a host.

    Attributes:
        run_id: The run; ``None``: the request is to a host.

        kind: For a run: ``cancel``, ``answer``. For a host: ``reload``, ``restart``,
            ``go_on``.

        actor: Who requests it: ``{kind, id, authenticated}``.

        reason: The reason that the actor gives.

        subject: The part of the host that it concerns, such as a server; or the answer.
    """

    id: int
    run_id: str | None
    kind: str
    actor: dict[str, JSON]
    reason: str
    subject: str | None = None


def is_failure(outcome: str) -> bool:
    """
    Return whether a request failed.

    >>> is_failure("failed: no such file"), is_failure("generation 2")
    (True, False)
    """
    return outcome.startswith(FAILED) or outcome == UNKNOWN


@dataclass(frozen=True, slots=True)
class Resend:
    """Send the call again."""


@dataclass(frozen=True, slots=True)
class GiveResult:
    """Use this result as the answer of the tool."""

    completed: Completed


@dataclass(frozen=True, slots=True)
class Fail:
    """Let the call fail."""


@dataclass(frozen=True, slots=True)
class Abort:
    """Cancel the run."""


Resolution: TypeAlias = Resend | GiveResult | Fail | Abort
#: Resolutions without a result, by the words of people.
RESOLUTIONS: Mapping[str, type[Resend | Fail | Abort]] = {
    "retry": Resend,
    "fail": Fail,
    "abort": Abort,
}


def recorded_as(
    call: int,
    resolution: Resolution,
    actor: dict[str, JSON],
    reason: str,
    doubts: Collection[int] = (),
) -> tuple[Event, ...]:
    """
    Return the events that record a resolution, to store in one transaction.

    Args:
        call: The number of the call.

        resolution: The resolution.

        actor: Who resolves it.

        reason: The reason that the actor gives.

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
    Return *end*, after events that close the calls in doubt.

    A suspension closes none, since the run waits for their resolution.
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
