"""``caxton grant what-if``: what other grants would have said to recorded calls."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..core.calls import JSON, Denied, Route
from ..core.events import Recorded, RunStarted
from ..core.judging import ALLOWED, Judged, Retrial
from ..core.names import meant_tool, run_of
from ..errors import NotKeptError
from .exits import FAILED
from .explain import agent_of
from .frame import Frame, as_json, wait
from .screen import clipped, counted, note, patience, plain, say, to_json
from .times import Moment

if TYPE_CHECKING:
    from ..config import Agent, Config
    from ..core.grants import Grant
    from ..store.sql import SqlStore

__all__ = ["command"]

_WIDTH = 100
_ENDS = ("RunCompleted", "RunFailed", "RunCancelled")
_TYPES = ("RunStarted", "ToolInvoked", "ToolDenied", *_ENDS)


@dataclass(slots=True, kw_only=True)
class _Count:
    """What was looked at."""

    runs: int = 0
    calls: int = 0
    changed: int = 0
    erased: int = 0
    strangers: Counter[str] = field(default_factory=Counter[str])

    def document(self) -> dict[str, JSON]:
        return {
            "$type": "caxton.what-if/v1",
            "runs": self.runs,
            "calls": self.calls,
            "changed": self.changed,
            "erased": self.erased,
            "without_agent": {**self.strangers},
        }


@click.command("what-if")
@click.argument(
    "file", metavar="NEW.toml", type=click.Path(dir_okay=False, path_type=Path)
)
@click.option("--agent", help="Only runs of this agent.")
@click.option("--since", type=Moment(), help="Only runs that began then or later.")
@as_json
@click.pass_obj
@click.pass_context
def command(
    ctx: click.Context,
    frame: Frame,
    file: Path,
    agent: str | None,
    since: int | None,
    as_json: bool,
) -> None:
    """
    Judge the recorded calls again by the grants of NEW.toml, and show what changes.

    Each run is judged in its order, at its times, with what it did before each call.
    Nothing is called, started or written. What the agent would have done after
    another decision is not known: what it did is judged. With --json, each decision
    that changes is a line, and the last line is the sum.

    \b
    Exit codes: 0 every decision stays; 1 some change; 2 usage or configuration.

    \b
    Examples:
      caxton grant what-if new.toml
      caxton grant what-if new.toml --agent weather --since 7d --json
    """
    from ..config import load

    config = load(file, environ=os.environ, cwd=Path.cwd())
    if agent is not None:
        agent_of(config, agent)
    count = _Count()
    with patience("judging recorded calls"):
        wait(_judge(frame, config, count, agent, since, as_json=as_json))
    if as_json:
        click.echo(to_json(count.document()))
    else:
        _sum_up(count, file)
    if count.changed:
        ctx.exit(FAILED)


async def _judge(
    frame: Frame,
    config: Config,
    count: _Count,
    agent: str | None,
    since: int | None,
    *,
    as_json: bool,
) -> None:
    async with frame.log() as store:
        changes = _changes(store, config, count, agent, since)
        async with aclosing(changes) as found:
            async for name, run_id, judged in found:
                if as_json:
                    click.echo(to_json(_document(name, run_id, judged)))
                else:
                    say(_line(run_id, judged))


async def _changes(
    store: SqlStore,
    config: Config,
    count: _Count,
    agent: str | None,
    since: int | None,
) -> AsyncGenerator[tuple[str, str, Judged]]:
    """Yield agent, run and call of each decision that changes."""
    trials: dict[str, tuple[str, Retrial]] = {}
    types = (*_TYPES, *(("ToolCompleted",) if _ordered(config) else ()))
    async with aclosing(store.of_runs(types, since=since, agent=agent)) as found:
        async for recorded in found:
            stream, event = recorded.stream, recorded.event
            if recorded.type == "RunStarted":
                if begun := await _begun(store, config, count, recorded):
                    trials[stream] = begun
            elif recorded.type in _ENDS:
                trials.pop(stream, None)
            elif (known := trials.get(stream)) and event:
                name, trial = known
                judged = trial.take(event, recorded.recorded_at, recorded.seq)
                if judged is None:
                    continue
                count.calls += 1
                if judged.changed:
                    count.changed += 1
                    yield name, run_of(stream), judged


def _ordered(config: Config) -> bool:
    """Return whether it matters which calls were answered. Answers may be large."""
    return any(
        rule.only_after for one in config.agents.values() for rule in one.grant.allow
    )


async def _begun(
    store: SqlStore, config: Config, count: _Count, recorded: Recorded
) -> tuple[str, Retrial] | None:
    started = recorded.event
    if not isinstance(started, RunStarted):
        count.erased += 1
        return None
    agent = config.agents.get(started.agent)
    if agent is None:
        count.strangers[started.agent] += 1
        return None
    trial = Retrial(
        grant=agent.grant,
        leads=partial(_leads, config, agent),
        measure=_measure(agent.grant),
    )
    if started.forked_from and not await _inherited(store, recorded, trial):
        count.erased += 1
        return None
    count.runs += 1
    return agent.name, trial


async def _inherited(store: SqlStore, recorded: Recorded, trial: Retrial) -> bool:
    """Let a fork know the calls that it inherited, unless they are erased."""
    from ..recording import Recording

    try:
        recording = await Recording.load(run_of(recorded.stream), store)
    except NotKeptError:
        return False
    for inherited in recording.lineage:
        for one in inherited.events:
            if one.event:
                trial.take(one.event, one.recorded_at, one.seq)
    return True


def _measure(grant: Grant) -> Callable[[Mapping[str, JSON]], int]:
    from ..codec import encode

    if all(rule.max_params is None for rule in grant.allow):
        return _nothing
    return lambda params: len(encode(params))


def _nothing(_: Mapping[str, JSON]) -> int:
    return 0


def _leads(config: Config, agent: Agent, name: str) -> Route | None:
    from ..tooling import server_names

    target = agent.names.get(name) or meant_tool(name, server_names(config))
    return Route(server=target[0], tool=target[1]) if target else None


def _line(run_id: str, judged: Judged) -> str:
    call = judged.invoked
    tool = f"{call.server}/{call.tool}" if call.server else call.name
    params = clipped(plain(to_json(call.params)), _WIDTH)
    was, now = _said(judged.was, judged.rule), _said(judged.code, _rule(judged))
    return (
        f"run {run_id} call {call.call} (event {judged.seq})  {tool} {params}\n"
        f"  {was} -> {now}"
    )


def _said(code: str, rule: str | None) -> str:
    word = code if code == ALLOWED else f"denied ({code})"
    return f"{word} by {plain(rule)}" if rule else word


def _rule(judged: Judged) -> str | None:
    now = judged.now
    return now.rule if isinstance(now, Denied) else now.rule.id


def _document(agent: str, run_id: str, judged: Judged) -> dict[str, JSON]:
    call = judged.invoked
    return {
        "$type": "caxton.changed-decision/v1",
        "run_id": run_id,
        "agent": agent,
        "seq": judged.seq,
        "call": call.call,
        "recorded_at": judged.at,
        "name": call.name,
        "server": call.server,
        "tool": call.tool,
        "params": call.params,
        "was": {"verdict": judged.was, "rule": judged.rule},
        "now": {"verdict": judged.code, "rule": _rule(judged)},
    }


def _sum_up(count: _Count, file: Path) -> None:
    note(
        f"{counted(count.calls, 'call')} of {counted(count.runs, 'run')} judged: "
        f"{counted(count.changed, 'decision')} would change"
    )
    if count.erased:
        note(f"not judged: {counted(count.erased, 'run')} that is erased")
    for name, runs in sorted(count.strangers.items()):
        note(f"not judged: {counted(runs, 'run')} of {plain(name)}, not in {file}")
