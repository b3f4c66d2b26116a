"""
The decision about a call: the second step of `gateway`. No I/O.

A call is judged by every grant that binds its run, and by the approvals that the rules
ask for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ..core.calls import JSON, REPEATABLE, Denied, Route, ToolCall
from ..core.grants.approvals import Unapproved, unmet
from ..core.grants.bounds import TODAY, Bound, Permitted, decide_all, handed
from ..core.grants.call_terms import Terms
from ..core.grants.decisions import Attempt, may_again
from ..core.grants.findings import findings
from ..core.grants.freezes import Freezes, Halted
from ..core.grants.grants import Grant, Rule
from ..core.grants.journal import InDoubt, Journal, Tallies
from ..core.limits import Limits
from ..core.log.events import ApprovalRequested, ToolInvoked, ToolRetried
from ..core.names import AGENTS, idempotency_key
from ..core.text.redact import Redactor
from ..core.tools.schemas import Mismatch
from ..errors import Sent, Suspend
from ..lib.json_schema import fits
from .call_budgets import Judged, Out, Want, calls_of, wants

NOWHERE = Route(server="", tool="")

#: The limit on all runs below one, in the form of a rule.
_LIMITS = Bound(name="limits", grant=Grant())
_DESCENDANTS = Rule(id="descendants", tools=())


def is_agent(route: Route | None) -> bool:
    """Return whether a call is one of an agent."""
    return route is not None and route.server == AGENTS


def _too_many(limit: str, message: str) -> Denied:
    return Denied(
        code="budget", rule=f"limits.{limit}", message=f"{message}, which is the most"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Judge:
    """
    Decides about the calls of one run.

    Attributes:
        run_id: The run.

        agent: The agent whose budgets the run spends.

        grant: What the agent may do. Fixed for the life of the run.

        routes: Where each exposed name leads. Fixed as well.

        journal: What the log says so far, and which grants bind the run as well.

        inputs: Compares parameters with the schema of a tool, by its exposed name.

        redact: Removes configured secrets from what is recorded.

        now: Returns the time, in microseconds since 1970.

        freezes: Returns what is frozen.

        changed: Returns the grant of the agent if its configuration has changed since
            it was asked last; ``None``: it has not.
        callers: The runs that wait for this one, the top one first.

        limits: The bounds of the run.

        own: *grant*, as one of the grants that bind the run.
    """

    run_id: str
    agent: str = ""
    grant: Grant
    routes: Mapping[str, Route]
    journal: Journal
    inputs: Mapping[str, Callable[[JSON], Mismatch | None]] = field(
        default_factory=dict[str, Callable[[JSON], Mismatch | None]]
    )
    redact: Redactor = field(default_factory=Redactor)
    now: Callable[[], int]
    freezes: Callable[[], Freezes] = Freezes
    changed: Callable[[], Grant | None] = lambda: None
    callers: tuple[str, ...] = ()
    limits: Limits = field(default_factory=Limits)
    own: Bound = field(init=False, repr=False, compare=False)
    _calls_agents: bool = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "own", Bound(grant=self.grant))
        calls_agents = bool(self.grant.servers([AGENTS]))
        object.__setattr__(self, "_calls_agents", calls_agents)

    @property
    def handed(self) -> tuple[Bound, ...]:
        """The grants that bind the runs that this one calls."""
        return handed(self.bounds, self.agent, self.journal.tallies.of)

    @property
    def bounds(self) -> tuple[Bound, ...]:
        """Every grant that binds the run; the recorded one first."""
        return (self.own, *self.journal.bounds)

    def bind_today(self) -> None:
        """Let a grant that was configured since bind the run as well."""
        if (grant := self.changed()) is not None:
            self.journal.bind(Bound(name=TODAY, grant=grant))

    def check_thawed(self, call: ToolCall, sent: Sent = "unknown") -> None:
        """
        Return if a call may be sent: neither it nor its run is frozen.

        Args:
            call: Is about to be recorded, or sent.

            sent: Whether it was sent, if its intent is recorded.

        Raises:
            Halted: It may not.
        """
        server = self.routes.get(call.name, NOWHERE).server
        if on := self.freezes().on(self.agent, self.journal.requester, server):
            raise Halted(call.number, on, [call.number] if sent == "no" else ())

    def judge(
        self,
        call: ToolCall,
        params: dict[str, JSON] | None,
        out: Out,
        tallies: Tallies,
    ) -> Judged:
        """
        Decide about a call: return its intent, and what the grants and people say.

        Args:
            call: What the agent asks.

            params: Its parameters as the log is to hold them.

            out: What the store has refused of it.

            tallies: What the run did before it.
        """
        route = self.routes.get(call.name)
        verdict = self._decide(call, route, out, tallies)
        permitted = verdict if isinstance(verdict, Permitted) else None
        asked: list[Want] = []
        spends: dict[str, int] = {}
        if permitted:
            also = self._of_agents() if is_agent(route) else ()
            asked, spends = wants(permitted.by, call.params or {}, self._shared, also)
        intent = ToolInvoked(
            call=call.number,
            name=call.name,
            server=route.server if route else None,
            tool=route.tool if route else None,
            params=params,
            params_sha256=call.digest,
            effect=(route or NOWHERE).effect,
            rule=permitted.rule.id if permitted else None,
            idempotency_key=idempotency_key(self.run_id, call.number),
            fuel=call.fuel,
            spends={**spends} or None,
            sources=self._findings(call, route, permitted),
        )
        if isinstance(verdict, Denied):
            # It names a parameter as the agent did (law 8).
            said = self.redact.text(verdict.message)
            return Judged(intent, replace(verdict, message=said))
        question = self.journal.question(call.number)
        requester = self.journal.requester
        against = unmet(intent, verdict.approves, question, self.now(), requester)
        if isinstance(against, Denied):
            return Judged(replace(intent, rule=None, spends=None), against)
        return Judged(
            intent,
            asks=against,
            terms=Terms.of(verdict.rules),
            wants=asked,
            reserve=[want.reservation(self.agent, call.number) for want in asked],
        )

    def _shared(self, bound: Bound) -> str:
        """Return the run that shares its budgets by *bound* with the runs below it."""
        run = bound.run((*self.callers, self.run_id))
        return run if run != self.run_id or self._calls_agents else ""

    def _of_agents(self) -> tuple[Want, ...]:
        """Return what a call of an agent takes of the number of runs in all."""
        top = next(iter(self.callers), self.run_id)
        cost = calls_of(self.limits.descendants, "limits")
        return (Want(cost, 1, _DESCENDANTS, _LIMITS, top),)

    def _over(self, tallies: Tallies, out: Out) -> Denied | None:
        """Return why another run may not be called, if its number is limited."""
        limits = self.limits
        if limits.depth < 1:
            return _too_many("depth", "this run is too deep below the first one")
        if tallies.recorded.agents >= limits.children:
            text = f"this run has called agents {limits.children} times"
            return _too_many("children", text)
        if out.of(_LIMITS.name):
            text = f"{limits.descendants} runs were called below the first one"
            return _too_many("descendants", text)
        return None

    def unapproved(self, requests: Sequence[ApprovalRequested]) -> Unapproved:
        """Return the exception to raise when calls need an approval first."""
        waiting = [one.requested for one in self.journal.waiting]
        return Unapproved(
            requests[0].call, [one for one in requests if one not in waiting]
        )

    def _decide(
        self, call: ToolCall, route: Route | None, out: Out, tallies: Tallies
    ) -> Permitted | Denied:
        if call.over:
            return Denied(
                code="limit",
                rule=f"limits.{call.over}",
                message=f"the run reached its limit {call.over}",
            )
        if call.fault:
            return Denied(code="bad_request", rule=None, message=call.fault)
        if is_agent(route) and (denied := self._over(tallies, out)):
            return denied
        try:
            attempt = self._attempt(call, route)
            return decide_all(self.bounds, attempt, tallies.of, out.of)
        except Exception:  # noqa: BLE001 -- law 4: an error while deciding is a denial
            return Denied(
                code="error", rule=None, message="the call could not be judged"
            )

    def _attempt(self, call: ToolCall, route: Route | None) -> Attempt:
        return Attempt(
            route=route,
            params=call.params or {},
            size=call.size,
            now=self.now(),
            matches=fits,
            sources=self.journal.sources,
            schema=self._schema(call, route),
        )

    def _findings(
        self, call: ToolCall, route: Route | None, permitted: Permitted | None
    ) -> dict[str, JSON] | None:
        """Return where the values came from that the rules of a call asked for."""
        if self.journal.sources is None or route is None:
            return None
        looked = permitted.by if permitted else self._speaking(route)
        rules = [rule for bound, rule in looked if not bound.narrows]
        narrowing = [rule for bound, rule in looked if bound.narrows]
        params = call.params or {}
        try:
            found = findings(rules, params, self.journal.sources, narrowing)
        except Exception:  # noqa: BLE001 -- law 4: then no parameter was checked
            return None
        return self.redact.value(found)

    def _speaking(self, route: Route) -> list[tuple[Bound, Rule]]:
        """Return every rule that names the tool of a call."""
        return [
            (bound, rule)
            for bound in self.bounds
            for part in bound.grant.speaking(route.server, route.tool)
            for rule in part
        ]

    def _schema(
        self, call: ToolCall, route: Route | None
    ) -> Callable[[JSON], Mismatch | None] | None:
        """Return the check of the parameters, as they are sent, by the schema."""
        check = self.inputs.get(call.name)
        if check is None or route is None or route.key_argument is None:
            return check
        key = idempotency_key(self.run_id, call.number)
        sent: JSON = {**(call.params or {}), route.key_argument: key}
        return lambda _: check(sent)

    def retry(self, call: ToolCall, known: InDoubt) -> ToolRetried:
        """
        Return the event that records that a call in doubt is sent again.

        Raises:
            Suspend: It may not be sent again without a person's decision.
        """
        # It may have happened, and asking twice could pay a bill twice. Only the
        # tool's effect class, or a person, may repeat it; and what binds the run now.
        route = self.routes.get(call.name, NOWHERE)
        effects = {known.invoked.effect, route.effect}
        if not (known.resolved or effects <= REPEATABLE):
            raise Suspend(call.number, f"call {call.number} is in doubt")
        attempt = self._attempt(call, route)
        for bound in self.journal.bounds:
            if not may_again(bound.grant, attempt):
                raise Suspend(
                    call.number,
                    f"call {call.number} is in doubt, and the grant {bound.name!r} "
                    "does not allow it",
                )
        return ToolRetried(
            call=call.number,
            attempt=known.attempts + 1,
            reason="resolved" if known.resolved else "resumed",
        )

    def terms_of(self, known: InDoubt) -> Terms:
        """Return the terms of a call in doubt, if it is sent again."""
        others = [bound.grant for bound in self.journal.bounds]
        return Terms.of_call(known.invoked, self.grant, others)
