"""Explanations of calls: why one was allowed or denied, or would be."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import TypeAlias

from ..config import Agent, Config
from ..core.analysis.grant_hints import remedy, unoffered
from ..core.analysis.rejudge import ALLOWED, ASKS, Explanation, explain
from ..core.calls import JSON, Completed, Denied, Failed, Outcome, Route
from ..core.grants.bounds import TODAY, Bound
from ..core.grants.constraints import FROM, URLS
from ..core.grants.decisions import (
    Allowed,
    Attempt,
    Considered,
    Refusal,
    Stage,
    Tally,
    decide,
)
from ..core.grants.grants import Grant
from ..core.grants.tool_catalog import routes_from_payload
from ..core.log.events import ApprovalRequested, RunResumed, ToolInvoked, outcome_of
from ..core.log.runs import call_of
from ..core.provenance import Sources
from ..core.tools.schemas import Mismatch
from ..errors import NotFoundError, UsageError
from ..lib.codec import encode
from ..lib.json_schema import fits, input_check
from ..ports.log import Store
from .recording import Recording, schemas_of
from .run_request import grants_digest

#: By exposed name: compares parameters with the schema of the tool.
Checks: TypeAlias = Mapping[str, Callable[[JSON], Mismatch | None]]

#: Events that name a call. A call that people were asked about has both.
_INTENTS = (ToolInvoked, ApprovalRequested)
_OF_STORE: Mapping[str, Stage] = {"budget": "budget", "rate": "rate", "busy": "busy"}
#: Calls that a message names.
_NAMED = 20
#: A placeholder with the length of any idempotency key.
_KEY = "0" * 64


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedCall:
    """
    A recorded call, and the verdicts of the grants that bound the run.

    Attributes:
        seq: Its first event in the stream.

        intent: The call; the approval request as long as it was not made.

        outcome: How it ended; ``None`` if it is in doubt, or waits for an approval.

        verdicts: What each grant says, the recorded one first, up to the first that
            denies the call. The grant of today is included as far as it is known.

        unoffered: What to look at if it was granted, but not offered to the run.
    """

    seq: int
    intent: ToolInvoked | ApprovalRequested
    outcome: Outcome | None
    verdicts: tuple[tuple[Bound, Explanation], ...]
    unoffered: str | None

    @property
    def explained(self) -> Explanation:
        """What the grant says that decided: a denial, an approval, or the last."""
        found = [said for _, said in self.verdicts]
        return next((said for said in found if said.code != ALLOWED), found[0])

    @property
    def waits(self) -> bool:
        """Whether it waits for an approval."""
        return isinstance(self.intent, ApprovalRequested)

    @property
    def verdict(self) -> str:
        """``allowed``, ``asks``, or the code of the denial, as recorded."""
        if isinstance(self.outcome, Denied):
            return self.outcome.code
        return ASKS if self.waits else ALLOWED

    @property
    def rule(self) -> str | None:
        """The rule that decided, as recorded."""
        end = self.outcome
        return end.rule if isinstance(end, Denied) else self.intent.rule


async def checks_of(recording: Recording, store: Store, config: Config) -> Checks:
    """Return what compares parameters with the tools that a run could see."""
    schemas: dict[str, dict[str, JSON]] = {}
    with suppress(NotFoundError):  # Its definitions are not kept here.
        schemas = schemas_of(await recording.guest("", store.reader))
    routes = routes_from_payload(recording.started.catalogue)
    return {
        name: as_sent(
            config, routes[name].server, routes[name].tool, input_check(schema)
        )
        for name, schema in schemas.items()
    }


def as_sent(
    config: Config, server: str, tool: str, check: Callable[[JSON], Mismatch | None]
) -> Callable[[JSON], Mismatch | None]:
    """Return *check* for parameters to which the host adds the idempotency key."""
    known = config.servers.get(server)
    name = known.options(tool).key_argument if known else None
    if name is None:
        return check

    def keyed(params: JSON) -> Mismatch | None:
        return check({**(params if isinstance(params, dict) else {}), name: _KEY})

    return keyed


def explained_call(
    recording: Recording, checks: Checks, seq: int, agent: Agent | None = None
) -> ExplainedCall:
    """
    Return the call that event *seq* of a run is about.

    Args:
        recording: The run.

        checks: Compare parameters with the schemas of tools, by exposed name.

        seq: Any event of the call.

        agent: The agent as it is configured now, if it is.

    Raises:
        UsageError: It is not about a call.
    """
    history = recording.own
    chosen = next((e for e in history if e.seq == seq), None)
    number = call_of(chosen) if chosen else None
    events = [e for e in history if call_of(e) == number]
    intents = [(e, e.event) for e in events if isinstance(e.event, _INTENTS)]
    if not intents:
        calls = {
            e.event.call: str(e.seq) for e in history if isinstance(e.event, _INTENTS)
        }
        what = f"is {chosen.type}, not of a call" if chosen else "does not exist"
        known = ", ".join(islice(calls.values(), _NAMED)) or "none"
        known += " and more" if len(calls) > _NAMED else ""
        raise UsageError(
            f"event {seq} {what}; calls of this run are at events: {known}",
            fix="name one of those events",
        )
    intent, call = intents[-1]
    ends = (outcome_of(e.event) for e in events if e.event)
    outcome = next((end[1] for end in ends if end), None)
    started = recording.started
    grant = Grant.from_payload(started.grants)
    route = None
    if call.server is not None and call.tool is not None:
        route = Route(server=call.server, tool=call.tool)
    before = recording.until(intent.seq - 1)
    journal, today = recording.past.journal, None
    if agent and _today(before) == grants_digest(agent.grant):
        today = Bound(name=TODAY, grant=agent.grant)
    if today or journal.sources:
        journal = before.journal(judging=True)
        if today:
            journal.bind(today)
        tallies = journal.tallies
    else:
        tallies = recording.past.before(intent.seq)
    verdicts: list[tuple[Bound, Explanation]] = []
    for bound in (Bound(grant=grant), *journal.bounds):
        explained = _explained(
            bound.grant,
            route,
            call.params or {},
            tallies.of(bound.name),
            sources=journal.sources,
            now=intent.recorded_at,
            schema=checks.get(call.name),
            refused=_refused(outcome, bound),
        )
        verdicts.append((bound, explained))
        if isinstance(explained.verdict, Denied):
            break
    return ExplainedCall(
        seq=intent.seq,
        intent=call,
        outcome=outcome,
        verdicts=tuple(verdicts),
        unoffered=None if route else unoffered(call.name, started.servers, grant),
    )


def _today(recording: Recording) -> str | None:
    """Return the digest of the grant of today that binds a run, if it was resumed."""
    resumed = (e.event for e in reversed(recording.own))
    return next((e.grants_sha256 for e in resumed if isinstance(e, RunResumed)), None)


def explanation(
    recording: Recording, checks: Checks, seq: int, agent: Agent | None = None
) -> dict[str, JSON]:
    """Return `explained_call` as the ``caxton.explanation/v1`` document."""
    found = explained_call(recording, checks, seq, agent)
    call = found.intent
    hint = None
    if found.verdict == found.explained.code:  # Otherwise grants are not the reason.
        hint = found.unoffered or _remedy(recording.table, *found.verdicts[-1])
        hint = _with_trace(hint, recording.run_id, call.call, found.explained)
    return {
        "$type": "caxton.explanation/v1",
        "run_id": recording.run_id,
        "seq": found.seq,
        "call": call.call,
        "name": call.name,
        "server": call.server,
        "tool": call.tool,
        "effect": call.effect if isinstance(call, ToolInvoked) else None,
        "params": call.params,
        "verdict": found.verdict,
        "rule": found.rule,
        "asks": [ask for verdict in found.verdicts for ask in _asks(*verdict)],
        "considered": [
            _considered(bound, one)
            for bound, explained in found.verdicts
            for one in explained.considered
        ],
        "ended": "waits for a person's word" if found.waits else _ending(found.outcome),
        "remedy": hint,
    }


def judgement(  # noqa: PLR0913 -- each may be left out
    agent: Agent,
    target: tuple[str, str],
    params: dict[str, JSON],
    *,
    after: Iterable[tuple[str, str]] = (),
    schema: Callable[[JSON], Mismatch | None] | None = None,
    now: int,
) -> dict[str, JSON]:
    """
    Return the ``caxton.judgement/v1`` document of a call that was not made.

    Args:
        agent: Would make it, as the first call of a run.

        target: Server and tool.

        params: Those of the call.

        after: Tools that the run is assumed to have called before, with success.

        schema: Compares parameters with the schema of the tool.

        now: The time, in microseconds since 1970.
    """
    tally = Tally()
    for before in after:
        _assume(agent.grant, before, tally)
    route = Route(server=target[0], tool=target[1])
    own = Bound(grant=agent.grant)
    explained = _explained(own.grant, route, params, tally, now=now, schema=schema)
    return {
        "$type": "caxton.judgement/v1",
        "agent": agent.name,
        "server": route.server,
        "tool": route.tool,
        "params": params,
        "verdict": explained.code,
        "rule": explained.rule,
        "asks": _asks(own, explained),
        "considered": [_considered(own, one) for one in explained.considered],
        "remedy": remedy(agent.table, explained),
    }


def _with_trace(
    hint: str | None, run_id: str, call: int, explained: Explanation
) -> str | None:
    """Return a remedy with the command that shows where a denied value came from."""
    refusals = (o.refusal for o in explained.considered if o.rule.id == explained.rule)
    failed = [one.failure for one in refusals if one and one.failure]
    if not hint or not failed or failed[0].kind not in {FROM, URLS}:
        return hint
    command = f"caxton runs trace {run_id} call {call} '{failed[0].path}'"
    return f"{hint}\n# to see where it came from: {command}"


def _remedy(table: str, bound: Bound, explained: Explanation) -> str | None:
    route = explained.attempt.route
    if bound.name in {"", TODAY} or explained.code != "not_granted":
        return remedy(table, explained)
    assert route  # noqa: S101 -- or the recorded grant denies it
    return f"# no rule of {bound.name} allows {route.server}/{route.tool}"


def _explained(  # noqa: PLR0913 -- each is a field of the attempt
    grant: Grant,
    route: Route | None,
    params: dict[str, JSON],
    tally: Tally,
    *,
    now: int,
    schema: Callable[[JSON], Mismatch | None] | None,
    sources: Sources | None = None,
    refused: Mapping[str, Refusal] | None = None,
) -> Explanation:
    attempt = Attempt(
        route=route,
        params=params,
        size=len(encode(params)),
        now=now,
        matches=fits,
        sources=sources,
        schema=schema,
        refused=refused or {},
    )
    return explain(grant, attempt, tally)


def _refused(outcome: Outcome | None, bound: Bound) -> dict[str, Refusal]:
    """Return what the store refused: budgets that runs share are not in the log."""
    if not isinstance(outcome, Denied):
        return {}
    stage = _OF_STORE.get(outcome.code)
    return {
        rule.id: Refusal(stage, outcome.message)
        for rule in bound.grant.allow
        if stage and bound.rule(rule.id) == outcome.rule
    }


def _assume(grant: Grant, target: tuple[str, str], tally: Tally) -> None:
    server, tool = target
    verdict = decide(grant, Attempt(route=Route(server=server, tool=tool)), tally)
    if isinstance(verdict, Allowed):
        tally.used[verdict.rule.id] += 1
    tally.called.add(target)
    tally.done.add(target)


def _ending(outcome: Outcome | None) -> str:
    if outcome is None:
        return "in doubt"
    if isinstance(outcome, Completed):
        status = "tool error" if outcome.is_error else "ok"
        return f"{status}{', cached' if outcome.cached else ''}: {outcome.message}"
    if isinstance(outcome, Failed):
        status = f"failed ({outcome.kind}, sent {outcome.sent})"
        return f"{status}: {outcome.message}"
    return f"denied: {outcome.message}"


def _asks(bound: Bound, explained: Explanation) -> list[JSON]:
    """Return whose approval the call needs, by rule."""
    if not isinstance(explained.verdict, Allowed):
        return []
    return [
        {"rule": bound.rule(rule), "by": [*approve.by], "count": approve.count}
        for rule, approve in explained.verdict.approves
    ]


def _considered(bound: Bound, one: Considered) -> JSON:
    """Return the result of a rule."""
    refusal: JSON = None
    if one.refusal is not None:
        failure = one.refusal.failure
        refusal = {
            "code": one.refusal.code,
            "message": one.refusal.message,
            "path": one.refusal.path or None,
            "wanted": {failure.kind: failure.wanted} if failure else None,
        }
    return {
        **one.rule.to_payload(),
        "id": bound.rule(one.rule.id),
        "kind": one.kind,
        "fits": one.speaks,
        "refusal": refusal,
    }


def told_astray(told: Mapping[str, JSON], lost: str | None) -> Mapping[str, JSON]:
    """Return *told* with *lost* as the remedy: why no grant would allow the call."""
    if lost is None or told["verdict"] != "not_granted":
        return told
    hint = str(told["remedy"] or "")
    # Comments only: a pasted grant would have no effect.
    lines = [f"# {lost}", *(hint.splitlines() if hint.startswith("#") else ())]
    return {**told, "remedy": "\n".join(lines)}
