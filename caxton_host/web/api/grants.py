"""What an agent may do, what its rules did, and what changed rules would have done."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from dataclasses import asdict, dataclass, field, replace

from starlette.responses import Response

from ...config import Agent, Config
from ...config.changed_rules import changed_grant
from ...core.analysis.checking import Known, matrix
from ...core.analysis.rule_uses import RuleUses, budget_documents
from ...core.calls import JSON
from ...core.log.events import Recorded
from ...core.log.runs import RunFilter
from ...ports.history import LogReader
from ...runs.rejudging import LogRejudger
from .agents import agent_of, offered
from .operations import Answer, Asked, Operation, Page, answer, takes
from .runs import SINCE

#: The newest runs that are read, their events, and the seconds that it may take.
_RUNS = 500
_EVENTS = 100_000
_SECONDS = 10.0
#: Changed decisions of one answer.
_CHANGES = 200


async def show(asked: Asked) -> Response:
    """Return the rules of an agent, its tools, and its budgets."""
    agent, who = agent_of(asked, asked.path["name"]), asked.who
    grant, texts = agent.grant, agent.rule_texts
    # Who may not see the servers learns only of tools that its rules name.
    known: Known = await offered(asked) if who.may("auditor") else {}
    tools = [(server, tool) for server in known for tool in known[server] or ()]
    cells = matrix({agent.name: grant}, tools).values()
    rules: list[JSON] = [
        {"id": rule.id, "source": rule.source, "toml": texts.get(rule.id, "")}
        for rule in (*grant.deny, *grant.allow)
    ]
    budgets: list[JSON] | None = None
    if who.tenant is None and who.may("read", agent.name):
        spent = await asked.service.store.spent(agent.name)
        budgets = [*budget_documents(agent.name, grant, spent)]
    return answer(
        {
            "$type": "caxton.agent-grants/v1",
            "agent": agent.name,
            "table": agent.table,
            "pin": agent.pin.to_document(),
            "rules": rules,
            "tools": [asdict(cell) for row in cells for cell in row],
            "budgets": budgets,
        }
    )


@dataclass(slots=True, kw_only=True)
class _Look:
    """
    A look at recorded runs of an agent, which ends.

    Attributes:
        only: Which runs.

        most: Events to read.

        clock: Seconds.

        changes: The first decisions that would change.

        complete: Whether all runs were read.

        until: When the last event that was read was recorded.
    """

    log: LogReader
    config: Config
    only: RunFilter
    most: int
    clock: Callable[[], float]
    uses: RuleUses
    changes: Page = field(default_factory=Page)
    complete: bool = True
    until: int | None = None

    async def go(self) -> LogRejudger:
        """Read, judge again, and count."""
        rows = await self.log.runs(_RUNS, self.only)
        if len(rows) == _RUNS:
            self.complete = False
            self.only = replace(self.only, since=rows[-1].started_at)
        rejudger = LogRejudger(log=self.log, config=self.config)
        async with aclosing(rejudger.calls_of(self._events(rejudger))) as calls:
            async for one in calls:
                full = self.changes.is_full or len(self.changes) == _CHANGES
                if one.judged.changed and not one.inherited and not full:
                    self.changes.add(one.to_document())
        return rejudger

    async def _events(self, rejudger: LogRejudger) -> AsyncGenerator[Recorded]:
        end, read = self.clock() + _SECONDS, 0
        found = self.log.of_runs(rejudger.types, self.only)
        async with aclosing(found) as events:
            async for one in events:
                if read == self.most or self.clock() > end:
                    self.complete = False
                    return
                read += 1
                self.until = one.recorded_at
                self.uses.take(one)
                yield one


async def judge(asked: Asked) -> Response:
    """Judge recorded calls of an agent by its rules, or with one of them changed."""
    service, body = asked.service, asked.body
    agent = agent_of(asked, asked.path["name"])
    config, changed = service.config(), _changed(agent, body.get("toml"), body)
    look = _Look(
        log=service.store.reader,
        config=replace(config, agents={agent.name: changed}),
        only=RunFilter(
            agent=agent.name,
            tenant=asked.who.tenant,
            since=_number(body.get("since")),
            until=_number(body.get("until")),
        ),
        most=_number(body.get("events")) or _EVENTS,
        clock=service.host.clock.monotonic,
        uses=RuleUses(agent.grant),
    )
    # It computes for seconds: not where every request waits.
    judged = await asyncio.to_thread(lambda: asyncio.run(look.go()))
    return look.changes.answer(
        {
            "$type": "caxton.judged-history/v1",
            "agent": agent.name,
            "since": look.only.since,
            "until": look.until,
            "complete": look.complete,
            "runs": judged.runs.total(),
            "calls": judged.calls,
            "changed": judged.changed,
            "erased": len(judged.erased),
            "uses": look.uses.document(),
        },
        "changes",
    )


def _changed(agent: Agent, toml: JSON, body: Mapping[str, JSON]) -> Agent:
    rule = body.get("rule")
    if toml is None and rule is None:
        return agent
    grant = changed_grant(agent, str(toml or ""), None if rule is None else str(rule))
    return replace(agent, grant=grant)


def _number(value: JSON) -> int | None:
    return value if isinstance(value, int) else None


OPERATIONS: tuple[Operation, ...] = (
    Operation(
        id="showGrants",
        reads=True,
        method="GET",
        path="/agents/{name}/grants",
        about="Show the rules of an agent as TOML, which tools it may call, and its "
        "budgets, which need the scope read and no tenant. Without the scope auditor, "
        "only tools that its rules name are shown.",
        scopes=("run", "read", "decide"),
        handler=show,
        answers={200: Answer(about="The rules.", schema="AgentGrants")},
        problems=("not-found",),
    ),
    Operation(
        id="judgeHistory",
        reads=True,
        method="POST",
        path="/agents/{name}/what-if",
        about="Judge the recorded calls of an agent as if one of its rules were "
        "another. Nothing is called or changed. The newest 500 runs are judged, at "
        "most, and `complete` says whether those were all. Without a rule and a text, "
        "the calls are judged by the rules of today.",
        scopes=("read",),
        shows="history",
        handler=judge,
        body=takes(
            rule={
                "type": "string",
                "pattern": r"^(allow|deny)\[[0-9]{1,6}\]$",
                "description": "The rule that `toml` replaces. Without it, the rules "
                "of `toml` are added.",
            },
            toml={
                "type": "string",
                "maxLength": 65_536,
                "description": "Tables `[[agents.NAME.allow]]` or "
                "`[[agents.NAME.deny]]`. Without it, the rule is taken away.",
            },
            since=SINCE,
            until=SINCE,
            events={"type": "integer", "minimum": 1, "maximum": _EVENTS},
        ),
        answers={200: Answer(about="What would change.", schema="JudgedHistory")},
        problems=("not-found", "refused"),
    ),
)
