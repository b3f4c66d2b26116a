"""Explanations of calls: why one was allowed or denied, or would be."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeAlias

from ..config import Agent, Config
from ..core.analysis.grant_hints import remedy, unoffered
from ..core.analysis.rejudge import ALLOWED, ASKS, Explanation, explain
from ..core.calls import JSON, Completed, Denied, Failed, Outcome, Route
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
from ..core.log.events import ApprovalRequested, ToolInvoked, outcome_of
from ..core.log.runs import call_of
from ..core.tools.schemas import Mismatch
from ..errors import NotFoundError, UsageError
from ..lib.codec import encode
from ..lib.json_schema import fits, input_check
from ..ports.log import Store
from .recording import Recording, schemas_of

#: By exposed name: compares parameters with the schema of the tool.
Checks: TypeAlias = Mapping[str, Callable[[JSON], Mismatch | None]]

#: Events that name a call. A call that people were asked about has both.
_INTENTS = (ToolInvoked, ApprovalRequested)
_OF_STORE: Mapping[str, Stage] = {"budget": "budget", "rate": "rate", "busy": "busy"}
#: A placeholder with the length of any idempotency key.
_KEY = "0" * 64


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedCall:
    """
    A recorded call, and the verdict of the recorded grants.

    Attributes:
        seq: Its first event in the stream.

        intent: The call; the approval request as long as it was not made.

        outcome: How it ended; ``None`` if it is in doubt, or waits for an approval.

        unoffered: What to look at if it was granted, but not offered to the run.
    """

    seq: int
    intent: ToolInvoked | ApprovalRequested
    outcome: Outcome | None
    explained: Explanation
    unoffered: str | None

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


def explained_call(recording: Recording, checks: Checks, seq: int) -> ExplainedCall:
    """
    Return the call that event *seq* of a run is about.

    Args:
        recording: The run.

        checks: Compare parameters with the schemas of tools, by exposed name.

        seq: Any event of the call.

    Raises:
        UsageError: It is not about a call.
    """
    history = recording.own
    chosen = next((e for e in history if e.seq == seq), None)
    number = call_of(chosen) if chosen else None
    intents = {
        e.event.call: (e, e.event) for e in history if isinstance(e.event, _INTENTS)
    }
    if number is None or number not in intents:
        what = f"is {chosen.type}, not of a call" if chosen else "does not exist"
        known = ", ".join(str(e.seq) for e, _ in intents.values()) or "none"
        raise UsageError(
            f"event {seq} {what}; calls of this run are at events: {known}",
            fix="name one of those events",
        )
    intent, call = intents[number]
    ends = (outcome_of(e.event) for e in history if e.event)
    outcome = next((end[1] for end in ends if end and end[0] == number), None)
    started = recording.started
    grant = Grant.from_payload(started.grants)
    route = None
    if call.server is not None and call.tool is not None:
        route = Route(server=call.server, tool=call.tool)
    explained = _explained(
        grant,
        route,
        call.params or {},
        recording.until(intent.seq - 1).journal().tallies.recorded,
        now=intent.recorded_at,
        schema=checks.get(call.name),
        refused=_refused(outcome),
    )
    return ExplainedCall(
        seq=intent.seq,
        intent=call,
        outcome=outcome,
        explained=explained,
        unoffered=None if route else unoffered(call.name, started.servers, grant),
    )


def explanation(recording: Recording, checks: Checks, seq: int) -> dict[str, JSON]:
    """Return `explained_call` as the ``caxton.explanation/v1`` document."""
    found = explained_call(recording, checks, seq)
    call, explained = found.intent, found.explained
    hint = None
    if found.verdict == explained.code:  # Otherwise the grants are not the reason.
        hint = found.unoffered or remedy(recording.started.agent, explained)
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
        "asks": _asks(explained),
        "considered": [_considered(one) for one in explained.considered],
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
    explained = _explained(agent.grant, route, params, tally, now=now, schema=schema)
    return {
        "$type": "caxton.judgement/v1",
        "agent": agent.name,
        "server": route.server,
        "tool": route.tool,
        "params": params,
        "verdict": explained.code,
        "rule": explained.rule,
        "asks": _asks(explained),
        "considered": [_considered(one) for one in explained.considered],
        "remedy": remedy(agent.name, explained),
    }


def _explained(  # noqa: PLR0913 -- each is a field of the attempt
    grant: Grant,
    route: Route | None,
    params: dict[str, JSON],
    tally: Tally,
    *,
    now: int,
    schema: Callable[[JSON], Mismatch | None] | None,
    refused: Mapping[str, Refusal] | None = None,
) -> Explanation:
    attempt = Attempt(
        route=route,
        params=params,
        size=len(encode(params)),
        now=now,
        matches=fits,
        schema=schema,
        refused=refused or {},
    )
    return explain(grant, attempt, tally)


def _refused(outcome: Outcome | None) -> dict[str, Refusal]:
    """Return what the store refused: budgets that runs share are not in the log."""
    if not isinstance(outcome, Denied) or outcome.rule is None:
        return {}
    stage = _OF_STORE.get(outcome.code)
    return {outcome.rule: Refusal(stage, outcome.message)} if stage else {}


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


def _asks(explained: Explanation) -> list[JSON]:
    """Return whose approval the call needs, by rule."""
    if not isinstance(explained.verdict, Allowed):
        return []
    return [
        {"rule": rule, "by": [*approve.by]}
        for rule, approve in explained.verdict.approves
    ]


def _considered(one: Considered) -> JSON:
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
