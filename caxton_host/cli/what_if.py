"""``caxton grant what-if``: what other grants would have said to recorded calls."""

from __future__ import annotations

import os
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..core.analysis.rejudge import ALLOWED, ASKS, Judged
from ..core.calls import JSON, Denied
from .context import HostApi, as_json, wait
from .grant_trials import Trials
from .judgement import agent_of
from .options import Moment
from .output import FAILED, clipped, counted, note, patience, plain, say, to_json

if TYPE_CHECKING:
    from ..config import Config
    from .grant_trials import Changed


_WIDTH = 100
_WORDS = {ALLOWED: "allowed", ASKS: "asks people"}


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
    frame: HostApi,
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
    told = wait(_judge(frame, config, agent, since, as_json=as_json))
    if as_json:
        click.echo(to_json(told.document()))
    else:
        _sum_up(told, file)
    if told.changed:
        ctx.exit(FAILED)


async def _judge(
    frame: HostApi,
    config: Config,
    agent: str | None,
    since: int | None,
    *,
    as_json: bool,
) -> Trials:
    async with frame.log() as store:
        trials = Trials(store=store, config=config)
        source = store.of_runs(trials.types, since=since, agent=agent)
        with patience("judging recorded calls"):
            async with aclosing(trials.changes(source)) as found:
                async for one in found:
                    if as_json:
                        click.echo(to_json(_document(one)))
                    else:
                        say(line(one))
    return trials


def line(one: Changed) -> str:
    """Return a decision that changes, in two lines for people."""
    judged, call = one.judged, one.judged.invoked
    tool = f"{call.server}/{call.tool}" if call.server else call.name
    params = clipped(plain(to_json(call.params)), _WIDTH)
    was, now = _said(judged.was, judged.rule), _said(judged.code, _rule(judged))
    return (
        f"run {one.run_id} call {call.call} (event {judged.seq})  {tool} {params}\n"
        f"  {was} -> {now}"
    )


def _said(code: str, rule: str | None) -> str:
    word = _WORDS.get(code) or f"denied ({code})"
    return f"{word} by {plain(rule)}" if rule else word


def _rule(judged: Judged) -> str | None:
    now = judged.now
    return now.rule if isinstance(now, Denied) else now.rule.id


def _document(one: Changed) -> dict[str, JSON]:
    judged, call = one.judged, one.judged.invoked
    return {
        "$type": "caxton.changed-decision/v1",
        "run_id": one.run_id,
        "agent": one.agent,
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


def _sum_up(count: Trials, file: Path) -> None:
    note(
        f"{counted(count.calls, 'call')} of {counted(count.runs, 'run')} judged: "
        f"{counted(count.changed, 'decision')} would change"
    )
    if count.erased:
        are = "is" if count.erased == 1 else "are"
        note(f"not judged: {counted(count.erased, 'run')} that {are} erased")
    for name, runs in sorted(count.strangers.items()):
        note(f"not judged: {counted(runs, 'run')} of {plain(name)}, not in {file}")
