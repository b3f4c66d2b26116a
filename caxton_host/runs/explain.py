"""Why calls were allowed or denied, and whether others would be."""

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
from ..core.log.attribution import call_of
from ..core.log.events import ApprovalRequested, Recorded, ToolInvoked
from ..core.log.payloads import outcome_of
from ..core.tools.schemas import Mismatch
from ..errors import NotFoundError, UsageError
from ..lib.codec import encode
from ..lib.json_schema import fits, input_check
from ..ports import Store
from .recording import Recording, schemas_of

#: By exposed name: where parameters are not as the schema of the tool wants them.
Checks: TypeAlias = Mapping[str, Callable[[JSON], Mismatch | None]]

#: What says what a call is; of one that people were asked about, there are two.
_INTENTS = (ToolInvoked, ApprovalRequested)
_OF_STORE: Mapping[str, Stage] = {"budget": "budget", "rate": "rate", "busy": "busy"}
#: As long as any key of a call.
_KEY = "0" * 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """
    A call that was made, and everything that decided about it.

    Attributes:
        seq: The place of its intent in the stream.

        invoked: Its intent, or, as long as it was not made, what people were asked.

        outcome: How it ended, or ``None``: it is in doubt, or waits for a word.

        explained: What the recorded grants say of it.

        tally: What the run had done by then.

        unoffered: What to look at if it was granted, but not offered to the run.
    """

    run_id: str
    agent: str
    seq: int
    invoked: ToolInvoked | ApprovalRequested
    outcome: Outcome | None
    explained: Explanation
    tally: Tally
    unoffered: str | None = None

    @property
    def verdict(self) -> str:
        """``allowed``, ``asks``, or the code of the denial, as recorded."""
        if isinstance(self.outcome, Denied):
            return self.outcome.code
        return ASKS if isinstance(self.invoked, ApprovalRequested) else ALLOWED

    @property
    def ending(self) -> str:
        """How it ended, in words."""
        if isinstance(self.invoked, ApprovalRequested):
            return "waits for a person's word"
        return _ending(self.outcome)

    @property
    def rule(self) -> str | None:
        """The rule that decided, as recorded."""
        if isinstance(self.outcome, Denied):
            return self.outcome.rule
        return self.invoked.rule

    @property
    def remedy(self) -> str | None:
        """What would allow it, to paste; nothing if the grants are not the reason."""
        if self.verdict != self.explained.code:
            return None
        return self.unoffered or remedy(self.agent, self.explained, self.tally)


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
    """Return *check* for parameters to which the host adds a key of its own."""
    known = config.servers.get(server)
    name = known.options(tool).key_argument if known else None
    if name is None:
        return check

    def keyed(params: JSON) -> Mismatch | None:
        return check({**(params if isinstance(params, dict) else {}), name: _KEY})

    return keyed


def find(recording: Recording, checks: Checks, seq: int) -> Call:
    """
    Return the call that event *seq* of a run is about.

    Args:
        recording: The run.

        checks: Compare parameters with the schemas of tools, by exposed name.

        seq: Any event of the call.

    Raises:
        UsageError: It is about none.
    """
    history = recording.own
    chosen = next((e for e in history if e.seq == seq), None)
    number = call_of(chosen) if chosen else None
    intents = {e.event.call: e for e in history if isinstance(e.event, _INTENTS)}
    if number is None or number not in intents:
        what = f"is {chosen.type}, not of a call" if chosen else "does not exist"
        known = ", ".join(str(e.seq) for e in intents.values()) or "none"
        raise UsageError(
            f"event {seq} {what}; calls of this run are at events: {known}",
            fix="name one of those events",
        )
    ends = (outcome_of(e.event) for e in history if e.event)
    outcome = next((end[1] for end in ends if end and end[0] == number), None)
    return _call(recording, checks, intents[number], outcome)


def _call(
    recording: Recording, checks: Checks, intent: Recorded, outcome: Outcome | None
) -> Call:
    invoked = intent.event
    assert isinstance(invoked, _INTENTS)  # noqa: S101 -- see `find`
    route = None
    if invoked.server is not None and invoked.tool is not None:
        route = Route(server=invoked.server, tool=invoked.tool)
    params = invoked.params or {}
    attempt = Attempt(
        route=route,
        params=params,
        size=len(encode(params)),
        now=intent.recorded_at,
        matches=fits,
        schema=checks.get(invoked.name),
        refused=_refused(outcome),
    )
    tally = recording.until(intent.seq - 1).journal().tally
    started = recording.started
    grant = Grant.from_payload(started.grants)
    return Call(
        run_id=recording.run_id,
        agent=started.agent,
        seq=intent.seq,
        invoked=invoked,
        outcome=outcome,
        explained=explain(grant, attempt, tally),
        tally=tally,
        unoffered=None if route else unoffered(invoked.name, started.servers, grant),
    )


def _refused(outcome: Outcome | None) -> dict[str, Refusal]:
    """Return what the store refused: what runs had spent together is not in the log."""
    if not isinstance(outcome, Denied) or outcome.rule is None:
        return {}
    stage = _OF_STORE.get(outcome.code)
    return {outcome.rule: Refusal(stage, outcome.message)} if stage else {}


def document(found: Call) -> dict[str, JSON]:
    """Return the ``caxton.explanation/v1`` document of a call that was made."""
    call = found.invoked
    return {
        "$type": "caxton.explanation/v1",
        "run_id": found.run_id,
        "seq": found.seq,
        "call": call.call,
        "name": call.name,
        "server": call.server,
        "tool": call.tool,
        "effect": call.effect if isinstance(call, ToolInvoked) else None,
        "params": call.params,
        "verdict": found.verdict,
        "rule": found.rule,
        "asks": _asks(found.explained),
        "considered": _considered(found.explained),
        "ended": found.ending,
        "remedy": found.remedy,
    }


def _ending(outcome: Outcome | None) -> str:
    if outcome is None:
        return "in doubt"
    if isinstance(outcome, Completed):
        how = "tool error" if outcome.is_error else "ok"
        return f"{how}{', cached' if outcome.cached else ''}: {outcome.message}"
    if isinstance(outcome, Failed):
        how = f"failed ({outcome.kind}, sent {outcome.sent})"
        return f"{how}: {outcome.message}"
    return f"denied: {outcome.message}"


def _asks(explained: Explanation) -> list[JSON]:
    """Return whose word is wanted, by which rule, for documents."""
    if not isinstance(explained.verdict, Allowed):
        return []
    return [
        {"rule": rule, "by": [*approve.by]}
        for rule, approve in explained.verdict.approves
    ]


def _considered(explained: Explanation) -> list[JSON]:
    """Return what each rule says, for documents."""
    return [
        {
            **one.rule.to_payload(),
            "kind": one.kind,
            "fits": one.speaks,
            "refusal": _refusal_document(one),
        }
        for one in explained.considered
    ]


def _refusal_document(one: Considered) -> dict[str, JSON] | None:
    if one.refusal is None:
        return None
    failure = one.refusal.failure
    wanted: JSON = {failure.kind: failure.wanted} if failure else None
    return {
        "code": one.refusal.code,
        "message": one.refusal.message,
        "path": one.refusal.path or None,
        "wanted": wanted,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """
    What the grants of an agent say of a call that nobody made.

    Attributes:
        remedy: What would allow it, to paste, if anything would.
    """

    agent: str
    target: tuple[str, str]
    params: dict[str, JSON]
    explained: Explanation
    remedy: str | None

    def to_document(self) -> dict[str, JSON]:
        """Return the ``caxton.judgement/v1`` document."""
        server, tool = self.target
        return {
            "$type": "caxton.judgement/v1",
            "agent": self.agent,
            "server": server,
            "tool": tool,
            "params": self.params,
            "verdict": self.explained.code,
            "rule": self.explained.rule,
            "asks": _asks(self.explained),
            "considered": _considered(self.explained),
            "remedy": self.remedy,
        }


def judge(  # noqa: PLR0913 -- each may be left out
    agent: Agent,
    target: tuple[str, str],
    params: dict[str, JSON],
    *,
    after: Iterable[tuple[str, str]] = (),
    schema: Callable[[JSON], Mismatch | None] | None = None,
    now: int,
) -> Judgement:
    """
    Return what the grants of *agent* say of a call, as the first one of a run.

    Args:
        agent: Would make it.

        target: Server and tool.

        params: Those of the call.

        after: As if the run had called these before, with success.

        schema: Compares parameters with what the tool wants.

        now: The time, in microseconds since 1970.
    """
    tally = Tally()
    for before in after:
        _spend(agent.grant, before, tally)
    attempt = Attempt(
        route=Route(server=target[0], tool=target[1]),
        params=params,
        size=len(encode(params)),
        now=now,
        matches=fits,
        schema=schema,
    )
    explained = explain(agent.grant, attempt, tally)
    return Judgement(
        agent=agent.name,
        target=target,
        params=params,
        explained=explained,
        remedy=remedy(agent.name, explained, tally),
    )


def _spend(grant: Grant, target: tuple[str, str], tally: Tally) -> None:
    server, tool = target
    verdict = decide(grant, Attempt(route=Route(server=server, tool=tool)), tally)
    if isinstance(verdict, Allowed):
        tally.used[verdict.rule.id] += 1
    tally.called.add(target)
    tally.done.add(target)
