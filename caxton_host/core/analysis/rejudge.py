"""
A verdict with its reasons, and the calls of a run judged again by another grant.

Nothing here decides: `decisions` does, and what it says is kept together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from ..calls import JSON, Completed, Denied, Outcome, Route
from ..grants.conditions import no_engine
from ..grants.constraints import Matcher
from ..grants.decisions import (
    Allowed,
    Attempt,
    Considered,
    Refusal,
    Tally,
    considered,
    decide,
)
from ..grants.grants import Grant, Rule
from ..grants.journal import spends_of
from ..log.events import ApprovalRequested, Event, ToolInvoked, outcome_of
from ..tools.schemas import Mismatch

ALLOWED = "allowed"
#: Allowed, if people say yes.
ASKS = "asks"

#: What was denied before any grant was asked.
_BEFORE = frozenset({"bad_request", "limit"})
_GOOD = frozenset({ALLOWED, ASKS})


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """
    What a grant says of a call, and why.

    Attributes:
        considered: What each rule has to say, in the order in which it is asked.
    """

    attempt: Attempt
    verdict: Allowed | Denied
    considered: tuple[Considered, ...]

    @property
    def code(self) -> str:
        """``allowed``, ``asks``, or the code of the denial."""
        return _code(self.verdict)

    @property
    def rule(self) -> str | None:
        """The rule that decided, or ``None`` where the lack of one did."""
        verdict = self.verdict
        return verdict.rule.id if isinstance(verdict, Allowed) else verdict.rule


def explain(grant: Grant, attempt: Attempt, tally: Tally) -> Explanation:
    """Return what *grant* says of a call, and why."""
    return Explanation(
        attempt=attempt,
        verdict=decide(grant, attempt, tally),
        considered=tuple(considered(grant, attempt, tally)),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """
    A recorded call, judged again.

    Attributes:
        invoked: The call.

        at: When it was recorded.

        seq: Its place in the stream.

        was: ``allowed``, ``asks``, or the code of its denial, as recorded. What people
            said to a question does not matter: that it was asked does.

        rule: The rule that was recorded.

        now: What the other grant says.
    """

    invoked: ToolInvoked
    at: int
    seq: int
    was: str
    rule: str | None
    now: Allowed | Denied

    @property
    def code(self) -> str:
        """``allowed``, ``asks``, or the code of the denial, by the other grant."""
        return _code(self.now)

    @property
    def changed(self) -> bool:
        """Whether one allows the call, or asks people, and the other does not."""
        if self.was in _BEFORE or self.was == self.code:
            return False
        return self.was in _GOOD or self.code in _GOOD


def _nowhere(_: str) -> Route | None:
    return None


def _roomy(_: Allowed, __: ToolInvoked, ___: int) -> Refusal | None:
    return None


def _unmeasured(_: Mapping[str, JSON]) -> int:
    return 0


@dataclass(slots=True, kw_only=True)
class Retrial:
    """
    One run, judged again as its events come by.

    What the run did is judged. Whatever is denied now, it stays what the agent did
    next; whatever is allowed now has no answer; who is asked now says what they said
    then, and yes if they were not asked.

    Attributes:
        grant: The other grant.

        leads: Where a name leads now that led nowhere then.

        measure: How many bytes parameters have.

        matches: Says whether a text fits a regular expression.

        schemas: Compares parameters with the schema of a tool, by its exposed name.

        reserve: Spends what a call takes of budgets that runs share, or says why the
            rule that allows it cannot.

        tally: What the run did so far, as the other grant counts it.
    """

    grant: Grant
    leads: Callable[[str], Route | None] = _nowhere
    measure: Callable[[Mapping[str, JSON]], int] = _unmeasured
    matches: Matcher = no_engine
    schemas: Mapping[str, Callable[[JSON], Mismatch | None]] = field(
        default_factory=dict[str, "Callable[[JSON], Mismatch | None]"]
    )
    reserve: Callable[[Allowed, ToolInvoked, int], Refusal | None] = _roomy
    tally: Tally = field(default_factory=Tally)
    _denied: dict[int, Judged] = field(default_factory=dict[int, Judged])
    _open: dict[int, tuple[str, str]] = field(
        default_factory=dict[int, tuple[str, str]]
    )
    _asked: set[int] = field(default_factory=set[int])

    def take(self, event: Event, at: int, seq: int) -> Judged | None:
        """
        Take the next event of the run; with the end of a verdict, return the call.

        Args:
            event: Any event of the run; those that are not of a call are skipped.

            at: When it was recorded.

            seq: Its place in the stream.
        """
        if isinstance(event, ToolInvoked):
            judged = self._judge(event, at, seq)
            if event.rule is not None:
                return judged
            # Why it was denied is in the event that follows.
            self._denied[event.call] = judged
            return None
        if isinstance(event, ApprovalRequested):
            self._asked.add(event.call)
            return None
        end = outcome_of(event)
        return self._end(*end) if end else None

    def _judge(self, invoked: ToolInvoked, at: int, seq: int) -> Judged:
        now: Allowed | Denied = _UNREADABLE
        if invoked.params is not None:
            now = self._decided(self._attempt(invoked, at), invoked)
        return Judged(
            invoked=invoked,
            at=at,
            seq=seq,
            was=ASKS if self._was_asked(invoked) else ALLOWED,
            rule=invoked.rule,
            now=now,
        )

    def _decided(self, attempt: Attempt, invoked: ToolInvoked) -> Allowed | Denied:
        """Return what the other grant says, and spend what it would have spent."""
        full: dict[str, Refusal] = {}
        while True:
            verdict = decide(self.grant, attempt, self.tally)
            if isinstance(verdict, Denied):
                return verdict
            if verdict.approves and invoked.rule is None and self._was_asked(invoked):
                return verdict  # They said no.
            refusal = self.reserve(verdict, invoked, attempt.now)
            if refusal is None:
                break
            full[verdict.rule.id] = refusal
            attempt = replace(attempt, refused=full)
        self._spend(verdict.rule, attempt, invoked)
        return verdict

    def _was_asked(self, invoked: ToolInvoked) -> bool:
        return invoked.call in self._asked

    def _spend(self, rule: Rule, attempt: Attempt, invoked: ToolInvoked) -> None:
        assert attempt.route  # noqa: S101 -- or it was not allowed
        target = attempt.route.server, attempt.route.tool
        self.tally.used[rule.id] += 1
        self.tally.spent.update(spends_of(rule, attempt.params))
        self.tally.called.add(target)
        self._open[invoked.call] = target

    def _attempt(self, invoked: ToolInvoked, at: int) -> Attempt:
        if invoked.server is None or invoked.tool is None:
            route = self.leads(invoked.name)
        else:
            route = Route(server=invoked.server, tool=invoked.tool)
        params = invoked.params or {}
        return Attempt(
            route=route,
            params=params,
            size=self.measure(params),
            now=at,
            matches=self.matches,
            schema=self.schemas.get(invoked.name),
        )

    def _end(self, number: int, outcome: Outcome) -> Judged | None:
        target = self._open.pop(number, None)
        if target and isinstance(outcome, Completed) and not outcome.is_error:
            self.tally.done.add(target)
        judged = self._denied.pop(number, None)
        if judged is None or not isinstance(outcome, Denied):
            return None
        was = ASKS if outcome.code == "approval" else outcome.code
        return replace(judged, was=was, rule=outcome.rule)


_UNREADABLE = Denied(code="bad_request", rule=None, message="")


def _code(verdict: Allowed | Denied) -> str:
    if isinstance(verdict, Denied):
        return verdict.code
    return ASKS if verdict.approves else ALLOWED
