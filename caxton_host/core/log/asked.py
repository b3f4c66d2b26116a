"""What people were asked about a call, and what they decided so far."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from ..calls import JSON
from .events import ApprovalDecided, ApprovalRequested

#: Kind and id of an actor, which tell people apart.
Person: TypeAlias = tuple[str, str]


def person(actor: Mapping[str, JSON]) -> Person:
    """
    Return what tells an actor from others.

    >>> person({"kind": "token", "id": "0f3c", "authenticated": True})
    ('token', '0f3c')
    """
    return str(actor.get("kind")), str(actor.get("id"))


def seconds_since(at: int | None, now: int) -> float | None:
    """Return the seconds between two times in microseconds; ``None``: there is none."""
    return None if at is None else (now - at) / 1e6


def is_fresh(signed_in_for: float | None, fresh: float | None) -> bool:
    """
    Return whether a sign-in so many seconds ago is recent enough.

    >>> is_fresh(299.5, 300), is_fresh(301, 300), is_fresh(None, 300)
    (True, False, False)
    """
    if fresh is None:
        return True
    # law 4: less than nothing is a clock that was set back
    return signed_in_for is not None and 0 <= signed_in_for <= fresh


def counted(
    given: Iterable[ApprovalDecided],
    by: Collection[JSON] = (),
    not_by: Mapping[str, JSON] | None = None,
    fresh: float | None = None,
) -> dict[Person, ApprovalDecided]:
    """
    Return the approvals that count, one for each person.

    Args:
        given: Approvals of one call, in any order.

        by: The roles that count; empty: all.

        not_by: The actor whose approval does not count.

        fresh: Seconds within which they have to have signed in; ``None``: at any time.
    """
    barred = person(not_by) if not_by is not None else None
    return {
        who: one
        for one in given
        if (not by or one.role in by)
        and is_fresh(one.signed_in_for, fresh)
        and (who := person(one.actor)) != barred
    }


@dataclass(frozen=True, slots=True)
class Asked:
    """
    A call that needs approval, and the decisions so far.

    Attributes:
        requested: The newest request.

        seq: Its place in the stream, if known.

        given: The approvals of this and of earlier requests.

        decided: The last decision about the newest request; ``None``: none yet.
    """

    requested: ApprovalRequested
    seq: int | None = None
    given: tuple[ApprovalDecided, ...] = ()
    decided: ApprovalDecided | None = None

    @property
    def counted(self) -> Mapping[Person, ApprovalDecided]:
        """The approvals that count for the newest request, one for each person."""
        wanted = self.requested
        return counted(self.given, wanted.by, wanted.not_by, wanted.fresh)

    @property
    def waits(self) -> bool:
        """Whether the newest request is undecided, or needs more approvals."""
        if self.decided is None or self.decided.verdict != "approve":
            return self.decided is None
        return len(self.counted) < self.requested.count

    def again(self, requested: ApprovalRequested, seq: int | None) -> Asked:
        """Return the same after another request."""
        return replace(self, requested=requested, seq=seq, decided=None)

    def after(self, decided: ApprovalDecided) -> Asked:
        """Return the same after a decision; after a denial, nothing changes it."""
        if self.decided and self.decided.verdict != "approve":
            return self
        given = (decided,) if decided.verdict == "approve" else ()
        return replace(self, given=(*self.given, *given), decided=decided)

    def is_over(self, now: int) -> bool:
        """Return whether the request has expired at *now* (microseconds)."""
        until = self.requested.until
        return until is not None and now >= until
