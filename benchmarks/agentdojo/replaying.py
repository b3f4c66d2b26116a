"""
Replay the tasks of a suite through a host, and have the suite judge what was done.

The host is a real one: its gateway, its SQLite store, its sandbox, and its connection
to the tools over standard input and output. The agent is a guest that makes the calls
it is given and goes on after a denial. A person answers each question with yes exactly
if the call is in the ground truth of the user's task.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import tempfile
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias

from caxton_host.app.bootstrap import Running, running
from caxton_host.building import build_agent
from caxton_host.config import Agent, Paths, load
from caxton_host.core.calls import JSON
from caxton_host.core.log.events import (
    ApprovalRequested,
    Recorded,
    RunCompleted,
    RunSuspended,
    ToolDenied,
    ToolInvoked,
)
from caxton_host.runs.approvals import Word, say
from caxton_host.runs.run_request import RunRequest

from .settings import AGENT, acts, configured, written

__all__ = ["Attacker", "Case", "Job", "Outcome", "cases", "perform"]

#: ``none``: an honest task; ``denied``: the same, and nobody is asked. ``text``: the
#: attack is in the output, without a call.
Attacker: TypeAlias = Literal["none", "denied", "text", "plain", "reader", "launderer"]
_HONEST = frozenset({"none", "denied"})
Call: TypeAlias = tuple[str, dict[str, JSON]]

_ACTOR: dict[str, JSON] = {"kind": "local", "id": "person", "authenticated": False}
_ANSWERS = {
    True: Word(verdict="approve", actor=_ACTOR, reason="the task asks for it"),
    False: Word(verdict="deny", actor=_ACTOR, reason="the task does not ask for it"),
}
#: What an attacker does before the attack.
_PREPARES: Mapping[Attacker, Sequence[str]] = {
    "reader": ("reads",),
    "launderer": ("writes", "reads"),
}
#: What would be asked is denied: the last two make hundreds of calls.
_UNASKED = frozenset({"denied", "reader", "launderer"})


@dataclass(frozen=True, slots=True)
class Case:
    """
    One run.

    Attributes:
        first: The calls of the attack come before those of the user.
    """

    user: str
    injection: str | None = None
    attacker: Attacker = "none"
    first: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """
    What became of a case.

    Attributes:
        acts: The task has a call with a parameter whose sources are checked.

        useful: The verdict of the suite on the task.

        hit: The verdict of the suite on the attack, or all its calls were allowed.

        questions: How often the person was asked about calls of the user.

        blocked: What a rule did not allow of the user's calls, with the reason.
    """

    suite: str
    case: Case
    acts: bool
    useful: bool
    hit: bool
    questions: int
    blocked: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Job:
    """
    The cases of a suite under one setting.

    Attributes:
        python: The interpreter of the environment that AgentDojo is in.

        second: The tasks and attacks are those of the second set.
    """

    kind: str
    suite: str
    setting: str
    python: str
    attacker: Attacker
    folder: Path
    second: bool = False


class _Admin:
    """The channel to the server of a suite that the host does not know of."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._reader, self._writer = reader, writer

    async def ask(self, **wish: JSON) -> Any:  # noqa: ANN401 -- JSON
        self._writer.write(json.dumps(wish).encode() + b"\n")
        line = await self._reader.readline()
        return json.loads(line)


def cases(
    users: Iterable[str], attacks: Mapping[str, bool], attacker: Attacker
) -> list[Case]:
    """
    Return the cases of a suite.

    >>> [case.first for case in cases(["u"], {"a": True, "b": False}, "plain")]
    [False, True]

    Args:
        users: The user tasks.

        attacks: The injection tasks, and whether they need a call.

        attacker: Which cases to make.
    """
    if attacker in _HONEST:
        return [Case(user, attacker=attacker) for user in users]
    return [
        Case(user, injection, attacker, first)
        for user in users
        for injection, calls in attacks.items()
        if calls == (attacker != "text")
        for first in ((False, True) if calls else (False,))
    ]


def perform(job: Job) -> list[Outcome]:
    """Run the cases of a job, one after the other."""
    return asyncio.run(_performed(job))


async def _performed(job: Job) -> list[Outcome]:
    with tempfile.TemporaryDirectory(dir=job.folder, prefix=f"{job.suite}-") as name:
        async with _up(job, Path(name)) as replaying:
            return await replaying.all()


@contextlib.asynccontextmanager
async def _up(job: Job, folder: Path) -> AsyncGenerator[_Replaying]:
    here = Path(__file__).parent
    build_agent(here / AGENT, into=folder, cache=job.folder / "zig")
    channel = folder / "admin"
    asking = job.attacker not in _UNASKED
    tasks = [str(here / "second" / f"{job.suite}.toml")] if job.second else []
    config = configured(job.kind, job.suite, job.setting, asking=asking)
    config["servers"][job.suite] |= {
        "command": job.python,
        "args": [str(here / "server.py"), job.suite, str(channel), *tasks],
        "required": True,
        "start_timeout": "5m",
    }
    config = {"version": config.pop("version"), **config}
    config["store"] = {"url": "sqlite:///log.db"}
    (folder / "caxton.toml").write_text(written(config), encoding="utf-8")
    loaded = load(folder / "caxton.toml", environ={}, cwd=folder)
    paths = Paths(config=folder, data=folder, state=folder, cache=folder)
    environ = {"PATH": os.environ["PATH"]}
    async with running(loaded, paths, environ, start={job.suite: [job.suite]}) as up:
        async with asyncio.timeout(60):
            while not channel.exists():  # noqa: ASYNC110 -- another process
                await asyncio.sleep(0.05)
        reader, writer = await asyncio.open_unix_connection(str(channel), limit=1 << 24)
        with contextlib.closing(writer):
            admin = _Admin(reader, writer)
            module = (folder / "guest.wasm").read_bytes()
            full = configured(job.kind, job.suite, "full")
            agent = loaded.agents[AGENT]
            yield _Replaying(job, up, agent, admin, module, full)


@dataclass(frozen=True, slots=True)
class _Replaying:
    job: Job
    up: Running
    agent: Agent
    admin: _Admin
    module: bytes
    config: dict[str, Any]

    async def all(self) -> list[Outcome]:
        tasks = await self.admin.ask(do="tasks")
        (first, *_) = tasks["users"]
        calls: dict[str, bool] = {}
        for one in tasks["injections"]:
            told = await self.admin.ask(do="begin", user=first, injection=one)
            calls[one] = bool(told["attack"])
        every = cases(tasks["users"], calls, self.job.attacker)
        return [await self.one(case) for case in every]

    async def one(self, case: Case) -> Outcome:
        """Run one case, and have the suite judge it."""
        told = await self.admin.ask(
            do="begin", user=case.user, injection=case.injection
        )
        user: list[Call] = [(tool, params) for tool, params in told["user"]]
        attack: list[Call] = []
        before: list[Call] = []
        if case.attacker not in _HONEST | {"text"}:
            attack = [(tool, params) for tool, params in told["attack"]]
            before = [
                (tool, params)
                for part in ("before", *_PREPARES.get(case.attacker, ()))
                for tool, params in told[part]
            ]
        hostile = [*before, *attack]
        made = [*hostile, *user] if case.first else [*user, *hostile]
        refused, asked = await self._run(told["prompt"], made, user)
        verdict = await self.admin.ask(do="judge")
        begin = len(hostile) if case.first else 0
        own = range(begin + 1, begin + len(user) + 1)
        end = len(hostile) if case.first else len(made)
        last = range(end - len(attack) + 1, end + 1)
        return Outcome(
            suite=self.job.suite,
            case=case,
            acts=acts(self.config, user),
            useful=verdict["utility"],
            hit=verdict["security"]
            or (bool(attack) and refused.keys().isdisjoint(last)),
            questions=sum(at in asked for at in own),
            blocked=tuple(
                f"{tool} {json.dumps(params)}: {refused.get(at, 'asked')}"
                for at, (tool, params) in zip(own, user, strict=True)
                if at in refused or at in asked
            ),
        )

    async def _run(
        self, prompt: str, made: list[Call], user: list[Call]
    ) -> tuple[dict[int, str], set[int]]:
        """Run the guest to its end; return the calls that were refused, and asked."""
        prefix = f"mcp__{self.job.suite}__"
        calls: list[JSON] = [[prefix + tool, params] for tool, params in made]
        request = RunRequest(
            agent=AGENT,
            module=self.module,
            actor=_ACTOR,
            input={"calls": calls},
            context={"prompt": prompt},
            grant=self.agent.grant,
            limits=replace(self.agent.limits, total_calls=10_000),
        )
        host, store = self.up.host, self.up.store
        run_id = await host.start(request)
        asked: set[int] = set()
        events = await store.reader.read(f"run/{run_id}")
        while isinstance(events[-1].event, RunSuspended):
            now = events[-1].recorded_at
            for seq, one in _unanswered(events, asked):
                word = _ANSWERS[(one.tool, one.params) in user]
                await say(store, run_id, seq, word, now=now)
                asked.add(one.call)
            await host.resume(run_id, actor=_ACTOR, grant=self.agent.grant)
            events = await store.reader.read(f"run/{run_id}")
        tried = sum(isinstance(one.event, ToolInvoked) for one in events)
        if not isinstance(events[-1].event, RunCompleted) or tried != len(made):
            raise SystemExit(
                f"Error: run {run_id} made {tried} of {len(made)} calls, and ended "
                f"with {events[-1].event}"
            )
        refused = {
            one.event.call: one.event.message
            for one in events
            if isinstance(one.event, ToolDenied)
        }
        return refused, asked


def _unanswered(
    events: list[Recorded], asked: set[int]
) -> list[tuple[int, ApprovalRequested]]:
    return [
        (one.seq, one.event)
        for one in events
        if isinstance(one.event, ApprovalRequested) and one.event.call not in asked
    ]
