"""
The engine of grant analysis: calls judged by a grant, with the reasons.

`explain` judges one call, recorded or imagined. A `Rejudger` judges the calls of a
recorded run by another grant, as its events are read. Neither decides by itself:
`decisions.decide` does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from ..calls import JSON, Completed, Denied, Outcome, Route
from ..grants.bounds import TODAY, grant_of
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
from ..grants.findings import findings
from ..grants.grants import Grant, Rule
from ..grants.journal import spends_of
from ..grants.settlement import settled
from ..limits import Limits
from ..log.events import ApprovalRequested, Event, RunStarted, ToolInvoked, outcome_of
from ..provenance import Sources
from ..tools.schemas import Mismatch

ALLOWED = "allowed"
#: Allowed once it is approved.
ASKS = "asks"

#: Codes of denials that no grant decides.
_BEFORE = frozenset({"bad_request", "limit"})
_GOOD = frozenset({ALLOWED, ASKS})
_WORDS = {ALLOWED: "allowed", ASKS: "asks people"}
_UNREADABLE = Denied(code="bad_request", rule=None, message="")


def verdict_code(verdict: Allowed | Denied) -> str:
    """Return ``allowed``, ``asks``, or the code of the denial."""
    if isinstance(verdict, Denied):
        return verdict.code
    return ASKS if verdict.approves else ALLOWED


def verdict_rule(verdict: Allowed | Denied) -> str | None:
    """Return the rule that decided, or ``None`` where the lack of one did."""
    return verdict.rule.id if isinstance(verdict, Allowed) else verdict.rule


def verdict_text(code: str, rule: str | None) -> str:
    """
    Return a verdict in words.

    >>> verdict_text(ALLOWED, "allow[1]"), verdict_text("not_granted", None)
    ('allowed by allow[1]', 'denied (not_granted)')
    """
    word = _WORDS.get(code) or f"denied ({code})"
    return f"{word} by {rule}" if rule else word


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """
    The verdict of a grant on a call, with its reasons.

    Attributes:
        tally: What the run had done before the call.

        considered: The result of each rule, in the order in which they are tried.
    """

    attempt: Attempt
    tally: Tally
    verdict: Allowed | Denied
    considered: tuple[Considered, ...]

    @property
    def code(self) -> str:
        """``allowed``, ``asks``, or the code of the denial."""
        return verdict_code(self.verdict)

    @property
    def rule(self) -> str | None:
        """The rule that decided, or ``None`` where the lack of one did."""
        return verdict_rule(self.verdict)


def explain(grant: Grant, attempt: Attempt, tally: Tally) -> Explanation:
    """Return the verdict of *grant* on a call, with its reasons."""
    return Explanation(
        attempt=attempt,
        tally=tally,
        verdict=decide(grant, attempt, tally),
        considered=tuple(considered(grant, attempt, tally)),
    )


@dataclass(slots=True, kw_only=True)
class RejudgedCall:
    """
    A recorded call, judged again.

    Attributes:
        invoked: The call.

        at: When it was recorded, in microseconds since 1970.

        seq: Its event in the stream.

        was: ``allowed``, ``asks``, or the code of its denial, as recorded. A call that
            needed an approval was ``asks``, whatever the answer.

        rule: The rule that was recorded.

        target: Server and tool that its name leads to, or ``None``.

        now: The verdict of the other grant.

        attempts: How often the run has attempted this tool, this call included.

        made: How many of those attempts were allowed.
    """

    invoked: ToolInvoked
    at: int
    seq: int
    was: str
    rule: str | None
    target: tuple[str, str] | None
    now: Allowed | Denied
    attempts: int = 0
    made: int = 0

    @property
    def code(self) -> str:
        """``allowed``, ``asks``, or the code of the denial, by the other grant."""
        return verdict_code(self.now)

    @property
    def changed(self) -> bool:
        """Whether one allows the call, or asks people, and the other does not."""
        if self.was in _BEFORE or self.was == self.code:
            return False
        if grant_of(self.rule) not in {"", TODAY}:
            return False  # The run is still bound by that one.
        return self.was in _GOOD or self.code in _GOOD


def _nowhere(_: str) -> Route | None:
    return None


def _roomy(_: Allowed, __: ToolInvoked, ___: int) -> Refusal | None:
    return None


def _unsettled(
    _: Mapping[str, int], __: Mapping[str, int], ___: int, ____: int
) -> None:
    """Correct nothing."""


def _unmeasured(_: Mapping[str, JSON]) -> int:
    return 0


@dataclass(frozen=True, slots=True)
class _Made:
    """
    A call that the other grant allows.

    Attributes:
        spends: What it takes of budgets, by key.
    """

    target: tuple[str, str]
    attempt: Attempt
    spends: Mapping[str, int]


@dataclass(slots=True, kw_only=True)
class Rejudger:
    """
    Judges the calls of one run again, as its events are read.

    The recorded calls are judged, whatever the agent would have done after another
    verdict. A call that only the other grant allows has no answer. A question to people
    has the recorded answer, and is approved if it was not recorded.

    Attributes:
        grant: The other grant.

        leads: Where a name leads now that led nowhere then.

        measure: Returns the size of parameters in bytes.

        matches: Says whether a text fits a regular expression.

        schemas: Compares parameters with the schema of a tool, by its exposed name.

        reserve: Reserves what a call takes of budgets that runs share, or returns why
            the rule that allows it cannot.

        settle: Corrects these by an answer: what the call reserved, what it took in
            truth, when it was answered, and how long after its intent.

        tally: What the run did so far, as the other grant counts it.

        sources: What the run knows about the sources of values; ``None``: no rule of
            the other grant asks for them.
    """

    grant: Grant
    leads: Callable[[str], Route | None] = _nowhere
    measure: Callable[[Mapping[str, JSON]], int] = _unmeasured
    matches: Matcher = no_engine
    schemas: Mapping[str, Callable[[JSON], Mismatch | None]] = field(
        default_factory=dict[str, "Callable[[JSON], Mismatch | None]"]
    )
    reserve: Callable[[Allowed, ToolInvoked, int], Refusal | None] = _roomy
    settle: Callable[[Mapping[str, int], Mapping[str, int], int, int], None] = (
        _unsettled
    )
    tally: Tally = field(default_factory=Tally)
    sources: Sources | None = None
    #: Calls without a recorded rule, until the event that says why.
    _denied: dict[int, RejudgedCall] = field(default_factory=dict[int, RejudgedCall])
    #: Calls that the other grant allows, until they end.
    _open: dict[int, _Made] = field(default_factory=dict[int, "_Made"])
    _asked: set[int] = field(default_factory=set[int])
    _attempts: Counter[tuple[str, str]] = field(
        default_factory=Counter[tuple[str, str]]
    )
    _made: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])

    def take(self, event: Event, at: int, seq: int) -> RejudgedCall | None:
        """
        Take the next event of the run; return the call whose recorded verdict it ends.

        Args:
            event: Any event of the run; those that are not of a call are skipped.

            at: When it was recorded, in microseconds since 1970.

            seq: Its place in the stream.
        """
        if isinstance(event, RunStarted):
            self._begin(event)
            return None
        if isinstance(event, ToolInvoked):
            judged = self._judge(event, at, seq)
            if event.rule is not None:
                return self._counted(judged)
            # Why it was denied is in the event that follows.
            self._denied[event.call] = judged
            return None
        if isinstance(event, ApprovalRequested):
            self._asked.add(event.call)
            return None
        if self.sources:
            self.sources.apply(event)
        end = outcome_of(event)
        return self._end(*end, at) if end else None

    def count_on(self, before: Rejudger) -> None:
        """Count on from the session before, which its client sees as one."""
        self.tally = before.tally
        self._attempts, self._made = before._attempts, before._made

    def _begin(self, started: RunStarted) -> None:
        """Note what the run was given. A fork is given what its parent was given."""
        if started.carried:
            self.tally.carry(started.carried)
        if self.sources is None and (wanted := [*self.grant.wanted]):
            limits = Limits.from_payload(started.limits)
            self.sources = Sources(wanted, limits.sources)
            self.sources.apply(started)

    def _note_sources(self, invoked: ToolInvoked, now: Allowed | Denied) -> None:
        """Note a call as the other grant would have recorded it."""
        if self.sources is None:
            return
        rule = now.rule if isinstance(now, Allowed) else None
        looked = findings([rule] if rule else [], invoked.params or {}, self.sources)
        self.sources.apply(
            replace(invoked, rule=rule.id if rule else None, sources=looked)
        )

    def _judge(self, invoked: ToolInvoked, at: int, seq: int) -> RejudgedCall:
        if invoked.server is None or invoked.tool is None:
            route = self.leads(invoked.name)
        else:
            route = Route(server=invoked.server, tool=invoked.tool)
        now: Allowed | Denied = _UNREADABLE
        if (params := invoked.params) is not None:
            attempt = Attempt(
                route=route,
                params=params,
                size=self.measure(params),
                now=at,
                matches=self.matches,
                schema=self.schemas.get(invoked.name),
                sources=self.sources,
            )
            now = self._decided(attempt, invoked)
        self._note_sources(invoked, now)
        return RejudgedCall(
            invoked=invoked,
            at=at,
            seq=seq,
            was=ASKS if invoked.call in self._asked else ALLOWED,
            rule=invoked.rule,
            target=(route.server, route.tool) if route else None,
            now=now,
        )

    def _decided(self, attempt: Attempt, invoked: ToolInvoked) -> Allowed | Denied:
        """Return the verdict of the other grant, and spend what the call takes."""
        full: dict[str, Refusal] = {}
        while True:
            verdict = decide(self.grant, attempt, self.tally)
            if isinstance(verdict, Denied):
                return verdict
            if (
                verdict.approves
                and invoked.rule is None
                and invoked.call in self._asked
            ):
                return verdict  # It was not approved.
            refusal = self.reserve(verdict, invoked, attempt.now)
            if refusal is None:
                break
            full[verdict.rule.id] = refusal
            attempt = replace(attempt, refused=full)
        self._spend(verdict.rule, attempt, invoked)
        return verdict

    def _spend(self, rule: Rule, attempt: Attempt, invoked: ToolInvoked) -> None:
        assert attempt.route  # noqa: S101 -- or it was not allowed
        target = attempt.route.server, attempt.route.tool
        spends = spends_of(rule, attempt.params)
        self.tally.used[rule.id] += 1
        self.tally.spent.update(spends)
        self.tally.called.add(target)
        self._open[invoked.call] = _Made(target, attempt, spends)

    def _end(self, number: int, outcome: Outcome, at: int) -> RejudgedCall | None:
        made = self._open.pop(number, None)
        if made and isinstance(outcome, Completed):
            if not outcome.is_error:
                self.tally.done.add(made.target)
            # The log may lack that part of the answer. Then it has what that run spent.
            params, known = made.attempt.params, outcome.settles or {}
            truth = known | settled(
                self.grant, made.target, params, outcome, made.spends
            )
            self.tally.settle(made.spends, truth)
            self.settle(made.spends, truth, at, at - made.attempt.now)
        judged = self._denied.pop(number, None)
        if judged is None or not isinstance(outcome, Denied):
            return None
        judged.was = ASKS if outcome.code == "approval" else outcome.code
        judged.rule = outcome.rule
        return self._counted(judged)

    def _counted(self, judged: RejudgedCall) -> RejudgedCall:
        """Return the call with how often the run has attempted its tool."""
        if judged.target is not None and judged.was not in _BEFORE:
            self._attempts[judged.target] += 1
            self._made[judged.target] += judged.invoked.rule is not None
            judged.attempts = self._attempts[judged.target]
            judged.made = self._made[judged.target]
        return judged
