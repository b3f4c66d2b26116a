"""
Approvals: which calls need one, and the decisions of people.

An approval covers one call of one run: its number, its name, and the agent's own bytes,
which the journal compares. No answer means no.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Literal, TypeAlias

from ...errors import Suspend, UsageError
from ..calls import JSON, Denied
from ..log.asked import Asked, counted
from ..log.events import ApprovalDecided, ApprovalRequested, Payload, ToolInvoked
from ..provenance import Sources
from .conditions import Conditions
from .constraints import Matcher

Verdict: TypeAlias = Literal["approve", "deny"]
VERDICTS: tuple[Verdict, ...] = ("approve", "deny")

#: The actor of a decision by expiry.
NOBODY: Payload = {"kind": "service", "id": "caxton", "authenticated": True}


@dataclass(frozen=True, slots=True, kw_only=True)
class Approve:
    """
    The ``approve`` table of a rule.

    Attributes:
        by: The roles that may approve; empty: any role.

        within: Seconds after which the request expires, which is a denial; ``None``:
            never.

        when: Conditions on the calls that need approval; ``None``: all calls.

        count: How many people have to approve.

        not_requester: The actor who started the run may not approve.

        fresh: Seconds within which one who approves has to have signed in; ``None``:
            any sign-in will do.
    """

    by: tuple[str, ...] = ()
    within: float | None = None
    when: Conditions | None = None
    count: int = 1
    not_requester: bool = False
    fresh: float | None = None

    def concerns(
        self,
        params: Mapping[str, JSON],
        matches: Matcher,
        sources: Sources | None = None,
    ) -> bool:
        """
        Return whether a call needs approval.

        It does unless all of `when` can be judged and a condition fails.
        """
        when = self.when
        return when is None or when.spared(params, matches, sources) is None

    def until(self, now: int) -> int | None:
        """Return when a request made *now* expires, in microseconds."""
        return None if self.within is None else now + round(self.within * 1e6)

    def not_by(self, requester: Payload) -> Payload | None:
        """Return the actor who may not approve, if *requester* started the run."""
        return requester if self.not_requester else None

    def met_by(self, given: Iterable[ApprovalDecided], requester: Payload) -> bool:
        """Return whether approvals suffice for a run that *requester* started."""
        barred = self.not_by(requester)
        return len(counted(given, self.by, barred, self.fresh)) >= self.count

    def to_payload(self) -> dict[str, JSON]:
        """Return it as ``RunStarted.grants`` holds it."""
        payload: dict[str, JSON] = {
            "by": list(self.by),
            "within": self.within,
            "when": self.when.to_payload() if self.when else None,
            "count": self.count if self.count > 1 else None,
            "not_requester": self.not_requester,
            "fresh": self.fresh,
        }
        return {key: value for key, value in payload.items() if value}

    @classmethod
    def from_payload(cls, payload: JSON) -> Approve:
        """
        Parse what a ``RunStarted`` holds.

        Raises:
            UsageError: It has a key that this version does not know.
        """
        assert isinstance(payload, dict)  # noqa: S101 -- read from our own log
        # law 4: a condition that is not understood must not widen the grant
        if unknown := sorted(payload.keys() - _KEYS):
            raise UsageError(
                f"the recorded grant has the unknown key 'approve.{unknown[0]}'",
                fix="use the version that recorded it, or a newer one",
            )
        by, within = payload.get("by"), payload.get("within")
        count, fresh = payload.get("count", 1), payload.get("fresh")
        return cls(
            by=tuple(map(str, by)) if isinstance(by, list) else (),
            within=within if isinstance(within, (int, float)) else None,
            when=Conditions.from_payload(payload["when"], deny=True)
            if "when" in payload
            else None,
            count=count if isinstance(count, int) else 1,
            not_requester=payload.get("not_requester") is True,
            fresh=fresh if isinstance(fresh, (int, float)) else None,
        )


_KEYS = frozenset(one.name for one in fields(Approve))


class Unapproved(Suspend):
    """
    A call waits for an approval.

    Attributes:
        requests: The requests that are not in the log yet.
    """

    def __init__(
        self,
        call: int,
        requests: Sequence[ApprovalRequested] = (),
        *,
        where: str = "",
        fix: str = "",
    ) -> None:
        super().__init__(call, f"{where}call {call} waits for an approval", fix=fix)
        self.requests = requests


def unmet(
    intent: ToolInvoked,
    wanted: Iterable[tuple[str, Approve]],
    asked: Asked | None,
    now: int,
    requester: Payload,
) -> Denied | ApprovalRequested | None:
    """
    Return the denial or the open request of a call; ``None``: it is approved.

    Args:
        intent: The call. The grants allow it.

        wanted: The approvals that its rules require, by the id of the rule.

        asked: The requests so far and the decisions.

        now: The time, in microseconds since 1970.

        requester: The actor who started the run.
    """
    if asked and asked.waits:
        return asked.requested
    if asked and (denied := _denied(asked)):
        return denied
    given = asked.given if asked else ()
    for rule, approve in wanted:
        if not approve.met_by(given, requester):
            return _request(intent, rule, approve, now, requester)
    return None


def _request(
    intent: ToolInvoked, rule: str, approve: Approve, now: int, requester: Payload
) -> ApprovalRequested:
    return ApprovalRequested(
        call=intent.call,
        name=intent.name,
        server=intent.server or "",
        tool=intent.tool or "",
        params=intent.params or {},
        params_sha256=intent.params_sha256,
        rule=rule,
        fuel=intent.fuel,
        by=approve.by,
        until=approve.until(now),
        count=approve.count,
        not_by=approve.not_by(requester),
        sources=intent.sources,
        fresh=approve.fresh,
    )


def _denied(asked: Asked) -> Denied | None:
    decided = asked.decided
    if decided is None or decided.verdict == "approve":
        return None
    late = " in time" if decided.actor == NOBODY else ""
    return Denied(
        code="approval",
        rule=asked.requested.rule,
        message=f"that call was not approved{late}",
    )


def lapsed(asked: Iterable[Asked], now: int) -> list[ApprovalDecided]:
    """Return the decisions that record the expired requests."""
    return [
        ApprovalDecided(
            call=one.requested.call,
            verdict="deny",
            actor=NOBODY,
            reason="nobody decided in time",
        )
        for one in asked
        if one.waits and one.is_over(now)
    ]
