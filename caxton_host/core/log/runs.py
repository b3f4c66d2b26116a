"""What is known of a run besides its events, and the states that these make."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..calls import JSON

#: What a run's state is after each of these events.
ENDS: Mapping[str, str] = {
    "RunStarted": "running",
    "RunResumed": "running",
    "RunSuspended": "suspended",
    "RunCompleted": "completed",
    "RunFailed": "failed",
    "RunCancelled": "cancelled",
}

#: The states of a run that has not ended.
GOING_ON = frozenset({"running", "suspended"})


#: Why a run of a restored log is suspended: a person has to say that it goes on.
RESTORED = "restored"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRow:
    """
    A run, as lists show it.

    Attributes:
        actor: JSON.

        state: ``running``, ``suspended``, ``completed``, ``failed``, ``cancelled``.

        started_at: Microseconds since 1970, UTC.

        ended_at: The same; ``None`` while it goes on.

        host: The stream of the host process that started it.

        owner: The stream of the one that drives it, or did until it died; ``None``
            while nobody has to.

        epoch: How often a host has begun to drive it.
    """

    run_id: str
    agent: str
    actor: str
    module_sha256: str
    state: str
    started_at: int
    ended_at: int | None
    host: str | None
    trace_id: str | None
    owner: str | None
    epoch: int


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
