"""
Decisions of people about calls that wait for an approval.

The run is suspended, so no host drives it. The process that records a decision takes
the lease of the run for that one event.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..core.calls import JSON
from ..core.grants.approvals import Unapproved, Verdict
from ..core.log.asked import Asked, is_fresh, person, seconds_since
from ..core.log.events import ApprovalDecided, ApprovalRequested
from ..core.log.runs import GOING_ON
from ..core.names import stream_of
from ..errors import BusyError, StaleSignInError, UsageError
from ..ports.log import Store
from .recording import Recording

#: A session lets go of its run soon after a call: seconds between two tries to decide,
#: and how many there are.
_PAUSE_S, _TRIES = 0.1, 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Word:
    """
    The decision of a person.

    Attributes:
        verdict: Whether the call may be made.

        actor: Who decides: ``{kind, id, authenticated}``.

        reason: Why; it is recorded.

        role: The role in which they decide, as they state it; or ``""``.

        signed_in_at: When they signed in, in microseconds since 1970; ``None``: they
            did not. A person at a terminal of this machine is signed in now.
    """

    verdict: Verdict
    actor: dict[str, JSON]
    reason: str
    role: str = ""
    signed_in_at: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """
    A call that waits, and its run.

    Attributes:
        asked_at: When the question was recorded, in microseconds since 1970.

        is_over: The time to decide is over.
    """

    run_id: str
    agent: str
    asked: Asked
    asked_at: int
    is_over: bool

    @property
    def call(self) -> ApprovalRequested:
        """What is asked."""
        return self.asked.requested

    def to_document(self) -> dict[str, JSON]:
        """Return the ``caxton.approval/v1`` document."""
        call = self.call
        return {
            "$type": "caxton.approval/v1",
            "run_id": self.run_id,
            "agent": self.agent,
            "seq": self.asked.seq,
            "call": call.call,
            "name": call.name,
            "server": call.server,
            "tool": call.tool,
            "params": call.params,
            "params_sha256": call.params_sha256,
            "rule": call.rule,
            "sources": call.sources,
            "by": list(call.by),
            "count": call.count,
            "not_by": call.not_by,
            "fresh": call.fresh,
            "given": [
                {
                    "actor": one.actor,
                    "role": one.role,
                    "signed_in_for": one.signed_in_for,
                }
                for one in self.asked.counted.values()
            ],
            "asked_at": self.asked_at,
            "until": call.until,
            "expired": self.is_over,
        }


def waiting_in(recording: Recording, now: int) -> list[Waiting]:
    """Return the calls that a run waits for; one that is no session, if suspended."""
    # A session serves other calls meanwhile, and stays so if its host is killed.
    if recording.state not in (GOING_ON if recording.is_session else {"suspended"}):
        return []
    times = {item.seq: item.recorded_at for item in recording.own}
    return [
        Waiting(
            run_id=recording.run_id,
            agent=recording.started.agent,
            asked=asked,
            asked_at=times.get(asked.seq or 0, 0),
            is_over=asked.is_over(now),
        )
        for asked in recording.journal().waiting
    ]


async def say(
    store: Store, run_id: str, seq: int | None, word: Word, *, now: int
) -> ApprovalRequested:
    """
    Record the decision of a person about a call, and return what was asked.

    Args:
        store: Where the run is.

        run_id: The run.

        seq: The number of the call's `ApprovalRequested`; ``None`` for the only one
            that waits.

        word: The decision.

        now: The time, in microseconds since 1970.

    Raises:
        NotFoundError: There is no such run.

        UsageError: It has ended, no such call waits, it is not for this role, or
            an approval of this actor does not count.

        StaleSignInError: To approve it, they have to sign in again.

        BusyError: A living host drives it, and does not let go for three seconds.

        StoreError: It could not be recorded.
    """
    for _ in range(_TRIES - 1):
        try:
            return await _say(store, run_id, seq, word, now)
        except BusyError:
            await asyncio.sleep(_PAUSE_S)
    return await _say(store, run_id, seq, word, now)


async def _say(
    store: Store, run_id: str, seq: int | None, word: Word, now: int
) -> ApprovalRequested:
    recording = await Recording.load(run_id, store.reader)
    recording.check_unended()
    asked = meant(run_id, seq, recording.journal().waiting)
    if asked.is_over(now):
        raise UsageError(
            f"the time to decide about event {asked.seq} of run {run_id} is over: the "
            "call is denied",
            fix=f"caxton runs resume {run_id}",
        )
    by = asked.requested.by
    if by and word.role not in by:
        known = " or ".join(f"--as {role}" for role in by)
        raise UsageError(
            f"event {asked.seq} of run {run_id} is to be decided by others: "
            f"{', '.join(map(str, by))}",
            fix=f"if you are one of them, say {known}; it is recorded",
        )
    signed_in_for = seconds_since(word.signed_in_at, now)
    if word.verdict == "approve":
        where = f"event {asked.seq} of run {run_id}"
        _check_other(where, asked, word.actor)
        _check_fresh(where, asked, signed_in_for)
    decided = ApprovalDecided(
        call=asked.requested.call,
        verdict=word.verdict,
        actor=word.actor,
        reason=word.reason,
        role=word.role,
        signed_in_for=signed_in_for,
    )
    await store.claim(stream_of(run_id), decided, after=recording.history[-1].seq)
    return asked.requested


def counts(asked: Asked, actor: Mapping[str, JSON]) -> bool:
    """Return whether an approval of *actor* would count, in a role that may decide."""
    who, barred = person(actor), asked.requested.not_by
    return who not in asked.counted and (barred is None or who != person(barred))


def _check_other(where: str, asked: Asked, actor: Mapping[str, JSON]) -> None:
    if counts(asked, actor):
        return
    given, count = len(asked.counted), asked.requested.count
    raise UsageError(
        f"{where}: {actor.get('id')} has approved it, and it needs {count} people: "
        f"{given} of {count} approved"
        if person(actor) in asked.counted
        else f"{where}: {actor.get('id')} started the run, and may not approve it",
        fix="ask another person to approve it",
    )


def _check_fresh(where: str, asked: Asked, signed_in_for: float | None) -> None:
    fresh = asked.requested.fresh
    if is_fresh(signed_in_for, fresh):
        return
    yours = (
        "a token alone is no sign-in"
        if signed_in_for is None
        else f"yours was {signed_in_for:.0f} s ago"
    )
    raise StaleSignInError(
        f"{where}: who approves it must have signed in within {fresh:g} s, and {yours}",
        fix="sign in to the console again and approve it there, or use caxton approval "
        "approve at a terminal of the host",
    )


def meant(run_id: str, seq: int | None, waiting: Sequence[Asked]) -> Asked:
    """
    Return the waiting call that event *seq* asks about, or the only one that waits.

    Raises:
        UsageError: No call waits, or more than one.
    """
    if seq is None and len(waiting) == 1:
        return waiting[0]
    for one in waiting:
        if one.seq == seq:
            return one
    known = ", ".join(str(one.seq) for one in waiting) or "none"
    what = f"event {seq} of run {run_id} does not wait" if seq else f"run {run_id}"
    raise UsageError(
        f"{what}: the events that wait for an approval are: {known}",
        fix="name one of them; caxton approval list shows what waits",
    )


def open_questions(recording: Recording, now: int) -> list[Asked]:
    """Return the open questions of a suspended run that can be decided, in order."""
    if recording.state != "suspended":
        return []
    return [one for one in recording.journal().waiting if not one.is_over(now)]


def still_waiting(run_id: str, waiting: Sequence[Asked], now: int) -> Unapproved:
    """Return the exception to raise when a run that waits for people is resumed."""
    first = next(one for one in waiting if not one.is_over(now))
    return Unapproved(
        first.requested.call,
        where=f"run {run_id}, event {first.seq}: ",
        fix=f"caxton approval show {run_id} {first.seq}",
    )
