"""``caxton grant check``: what is odd about what agents may do."""

from __future__ import annotations

from dataclasses import asdict

import click

from ..core.analysis.checking import Finding, findings
from .context import HostApi, as_json
from .judgement import agent_of
from .output import FAILED, counted, note, plain, say, show
from .server_probe import known, tell_unasked


@click.command("check")
@click.argument("agent", required=False)
@click.option("--start", is_flag=True, help="Ask the servers what they offer now.")
@as_json
@click.pass_obj
@click.pass_context
def command(
    ctx: click.Context, frame: HostApi, agent: str | None, start: bool, as_json: bool
) -> None:
    """
    Show what is odd about the grants of AGENT, or of all agents.

    Rules that have expired or never do anything, tools that no server offers, names
    that lead nowhere. Without --start no server is asked: what they offer is what was
    accepted when a run saw them first. What cannot be read at all is an error of the
    configuration.

    \b
    Exit codes: 0 nothing is odd; 1 something is; 2 usage or configuration.

    \b
    Examples:
      caxton grant check
      caxton grant check weather --start --json
    """
    from ..lib.clock import SystemClock

    config = frame.load()
    agents = [agent_of(config, agent)] if agent else [*config.agents.values()]
    offered = known(config, start=start)
    now = SystemClock().now()
    found = [
        finding
        for one in agents
        for finding in findings(one.name, one.grant, one.names, offered, now)
    ]
    if as_json:
        show([{"$type": "caxton.finding/v1", **asdict(one)} for one in found])
    else:
        for one in found:
            _tell(one)
        tell_unasked(offered)
        note(f"{counted(len(found), 'finding')} in {counted(len(agents), 'agent')}")
    if found:
        ctx.exit(FAILED)


def _tell(one: Finding) -> None:
    where = f"{one.source}: " if one.source else ""
    say(f"{where}agents.{one.agent}.{one.place}: {plain(one.problem)}")
    first, *rest = one.fix.split("\n")
    for line in (f"to fix: {first}", *rest):
        say(f"  {plain(line)}")
