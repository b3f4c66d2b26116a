"""
The decision about a call: the second step of `gateway`. No I/O.

A call is judged by the recorded grants of its run; by today's grants as well if the run
was resumed; and by the approvals that the rules ask for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ..core.calls import JSON, REPEATABLE, Denied, Route, ToolCall
from ..core.grants.approvals import Unapproved, unmet
from ..core.grants.call_terms import Terms
from ..core.grants.decisions import (
    Allowed,
    Attempt,
    Refusal,
    Tally,
    decide,
    may_again,
)
from ..core.grants.grants import Grant
from ..core.grants.journal import InDoubt, Journal, Tallies
from ..core.log.events import ApprovalRequested, ToolInvoked, ToolRetried
from ..core.names import idempotency_key
from ..core.text.redact import Redactor
from ..core.tools.schemas import Mismatch
from ..errors import Suspend
from ..lib.json_schema import fits
from .call_budgets import Judged, Out, wants

NOWHERE = Route(server="", tool="")


@dataclass(frozen=True, slots=True, kw_only=True)
class Judge:
    """
    Decides about the calls of one run.

    Attributes:
        run_id: The run.

        agent: The agent whose budgets the run spends.

        grant: What the agent may do. Fixed for the life of the run.

        routes: Where each exposed name leads. Fixed as well.

        journal: What the log says so far. If it has grants of today, they have to
            allow a call as well.

        inputs: Compares parameters with the schema of a tool, by its exposed name.

        redact: Removes configured secrets from what is recorded.

        now: Returns the time, in microseconds since 1970.
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
        allowed = verdict if isinstance(verdict, Allowed) else None
        asked, spends = wants(allowed, call.params or {})
        intent = ToolInvoked(
            call=call.number,
            name=call.name,
            server=route.server if route else None,
            tool=route.tool if route else None,
            params=params,
            params_sha256=call.digest,
            effect=(route or NOWHERE).effect,
            rule=allowed.rule.id if allowed else None,
            idempotency_key=idempotency_key(self.run_id, call.number),
            fuel=call.fuel,
            spends={**spends} or None,
        )
        if isinstance(verdict, Denied):
            # It names a parameter as the agent did (law 8).
            said = self.redact.text(verdict.message)
            return Judged(intent, replace(verdict, message=said))
        question = self.journal.question(call.number)
        against = unmet(intent, verdict.approves, question, self.now())
        if isinstance(against, Denied):
            return Judged(replace(intent, rule=None, spends=None), against)
        return Judged(
            intent,
            asks=against,
            terms=Terms.of(verdict.rules),
            wants=asked,
            reserve=[want.reservation(self.agent, call.number) for want in asked],
        )

    def unapproved(self, requests: Sequence[ApprovalRequested]) -> Unapproved:
        """Return the exception to raise when calls need an approval first."""
        waiting = [one.requested for one in self.journal.waiting]
        return Unapproved(
            requests[0].call, [one for one in requests if one not in waiting]
        )

    def _decide(
        self, call: ToolCall, route: Route | None, out: Out, tallies: Tallies
    ) -> Allowed | Denied:
        if call.over:
            return Denied(
                code="limit",
                rule=f"limits.{call.over}",
                message=f"the run reached its limit {call.over}",
            )
        if call.fault:
            return Denied(code="bad_request", rule=None, message=call.fault)
        try:
            attempt = self._attempt(call, route, out.recorded)
            verdict = decide(self.grant, attempt, tallies.recorded)
            if isinstance(verdict, Denied):
                return verdict
            today = self._decide_today(attempt, out, tallies.today)
        except Exception:  # noqa: BLE001 -- law 4: an error while deciding is a denial
            return Denied(
                code="error", rule=None, message="the call could not be judged"
            )
        if isinstance(today, Denied):
            return today
        return verdict.and_today(today) if today else verdict

    def _attempt(
        self, call: ToolCall, route: Route | None, refused: Mapping[str, Refusal]
    ) -> Attempt:
        return Attempt(
            route=route,
            params=call.params or {},
            size=call.size,
            now=self.now(),
            matches=fits,
            schema=self._schema(call, route),
            refused=refused,
        )

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

    def _decide_today(
        self, attempt: Attempt, out: Out, tally: Tally
    ) -> Allowed | Denied | None:
        """Return the decision of today's grants, if the run was resumed."""
        today = self.journal.today
        if today is None:
            return None
        attempt = replace(attempt, refused=out.today)
        verdict = decide(today, attempt, tally)
        if isinstance(verdict, Allowed):
            return verdict
        return replace(
            verdict,
            rule=verdict.rule and f"today.{verdict.rule}",
            message=f"{verdict.message}, in the grants of today",
        )

    def retry(self, call: ToolCall, known: InDoubt) -> ToolRetried:
        """
        Return the event that records that a call in doubt is sent again.

        Raises:
            Suspend: It may not be sent again without a person's decision.
        """
        # It may have happened, and asking twice could pay a bill twice. Only the
        # tool's effect class, or a person, may repeat it; and today's grants.
        route = self.routes.get(call.name, NOWHERE)
        effects = {known.invoked.effect, route.effect}
        if not (known.resolved or effects <= REPEATABLE):
            raise Suspend(call.number, f"call {call.number} is in doubt")
        today = self.journal.today
        if today is not None and not may_again(today, self._attempt(call, route, {})):
            raise Suspend(
                call.number,
                f"call {call.number} is in doubt, and the grants of today do not "
                "allow it",
            )
        return ToolRetried(
            call=call.number,
            attempt=known.attempts + 1,
            reason="resolved" if known.resolved else "resumed",
        )

    def terms_of(self, known: InDoubt) -> Terms:
        """Return the terms of a call in doubt, if it is sent again."""
        return Terms.of_call(known.invoked, self.grant, self.journal.today)
