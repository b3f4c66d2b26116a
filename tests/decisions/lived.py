"""Runs what a line of the page says that happened before, and then its call."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import count

from caxton_host.core.calls import Denied, Route, ToolCall
from caxton_host.core.grants.approvals import NOBODY, Unapproved
from caxton_host.core.grants.grants import Grant
from caxton_host.core.grants.journal import Answered, Journal
from caxton_host.core.log.events import ApprovalDecided, ToolInvoked
from caxton_host.gateway.call_budgets import Out
from caxton_host.gateway.gateway import Gateway
from caxton_host.gateway.judge import Judge
from caxton_host.gateway.recorder import Recorder
from caxton_host.store.memory import MemoryLog, MemoryStore
from caxton_host.testing import FakeClock, FakeEntropy, FakeTools

__all__ = ["lived"]

_STEP = re.compile(
    r"(?:(?P<how>elsewhere|open) )?`(?P<call>[^`]+)`"
    r"|(?P<verdict>yes|no)(?: as (?P<role>\w+))?"
    r"|(?P<amount>[0-9]+) (?P<unit>s|min|h|d) later"
)
_SECONDS = {"s": 1, "min": 60, "h": 3600, "d": 86400}


def lived(grant: Grant, before: str, call: str) -> tuple[str, str, str]:
    """Return the verdict on *call*, the rule, and what the agent is told."""
    return asyncio.run(_World(grant).live(before, call))


@dataclass
class _World:
    grant: Grant
    clock: FakeClock = field(default_factory=FakeClock)
    runs: Iterator[int] = field(default_factory=lambda: count(1))

    def __post_init__(self) -> None:
        self.store = MemoryStore(clock=self.clock, entropy=FakeEntropy())
        self.here = self.run()
        self.number = 1

    def run(self) -> Gateway:
        run_id = f"{next(self.runs)}"
        journal = Journal()
        return Gateway(
            judge=Judge(
                run_id=run_id,
                agent="a",
                grant=self.grant,
                routes={},
                journal=journal,
                now=self.clock.now,
            ),
            recorder=Recorder(self.store.create(f"run/{run_id}"), journal),
            tools=FakeTools({}),
            wait=self.wait,
        )

    async def wait(self, seconds: float) -> None:
        self.clock.time += round(seconds * 1e6)

    async def live(self, before: str, call: str) -> tuple[str, str, str]:
        for step in filter(None, before.split(", ")):
            found = _STEP.fullmatch(step)
            assert found, step
            await self.step(found)
        return await self.ask(self.here, call, self.number)

    async def step(self, found: re.Match[str]) -> None:
        if found["amount"]:
            await self.wait(int(found["amount"]) * _SECONDS[found["unit"]])
        elif found["verdict"]:
            self.say("approve" if found["verdict"] == "yes" else "deny", found["role"])
        elif found["how"] == "open":
            gateway, made = _made(self.run(), found["call"], 1)
            await _begin(gateway, made)
        elif found["how"]:
            assert (await self.ask(self.run(), found["call"], 1))[0] == "allowed"
        else:
            said, *_ = await self.ask(self.here, found["call"], self.number)
            self.number += said != "asked"

    def say(self, verdict: str, role: str | None) -> None:
        event = ApprovalDecided(
            call=self.number,
            verdict=verdict,
            actor={**NOBODY, "kind": "local", "id": "ada"},
            reason="said so",
            role=role or "",
        )
        self.here.recorder.journal.apply(event, self.clock.now())

    async def ask(self, run: Gateway, call: str, number: int) -> tuple[str, str, str]:
        gateway, made = _made(run, call, number)
        try:
            answer = await gateway.call(made)
        except Unapproved as exc:
            for request in exc.requests:
                gateway.recorder.journal.apply(request, self.clock.now())
            rule = gateway.recorder.journal.question(number)
            assert rule
            return "asked", rule.requested.rule, ""
        return _told(gateway, number, answer)


def _made(run: Gateway, call: str, number: int) -> tuple[Gateway, ToolCall]:
    name, _, params = call.partition(" ")
    server, _, tool = name.partition("/")
    routes = {**run.judge.routes, name: Route(server=server, tool=tool)}
    tools = FakeTools({(server, tool): "done"})
    made = ToolCall(number=number, name=name, params=json.loads(params), digest=call)
    return replace(run, judge=replace(run.judge, routes=routes), tools=tools), made


async def _begin(gateway: Gateway, made: ToolCall) -> None:
    """Record the intent of a call, and no end."""
    out = Out()
    while True:
        judged = gateway.judge.judge(
            made, made.params, out, gateway.recorder.journal.tallies
        )
        assert judged.denied is None
        refused = await gateway.recorder.append(judged.intent, reserve=judged.reserve)
        if refused is None:
            return
        out.take(judged.wants[refused.index], refused)


def _told(gateway: Gateway, number: int, answer: Answered) -> tuple[str, str, str]:
    outcome = answer.outcome
    if isinstance(outcome, Denied):
        return outcome.code, outcome.rule or "", outcome.message
    assert isinstance(gateway.recorder.log, MemoryLog)
    made = [e for e in gateway.recorder.log.events if isinstance(e, ToolInvoked)]
    [rule] = [intent.rule for intent in made if intent.call == number]
    return "allowed", rule or "", ""
