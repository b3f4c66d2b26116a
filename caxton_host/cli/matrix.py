"""``caxton grant matrix``: which agent may call which tool."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from ..core.analysis.matrix import Cell, matrix
from ..core.calls import JSON
from .context import HostApi, as_json
from .judgement import agent_of
from .output import note, on_terminal, show, table
from .server_probe import known, tell_unasked

if TYPE_CHECKING:
    from ..core.grants.grants import Grant


@click.command("matrix")
@click.argument("agent", required=False)
@click.option("--start", is_flag=True, help="Ask the servers what they offer now.")
@as_json
@click.pass_obj
def command(frame: HostApi, agent: str | None, start: bool, as_json: bool) -> None:
    """
    Show which agent may call which tool.

    \b
      yes   whenever it wants
      if    if the conditions of a rule hold
      deny  never: a rule forbids it
      -     never: no rule allows it

    The tools are those that grants name, and those that servers are known to offer.

    \b
    Examples:
      caxton grant matrix
      caxton grant matrix weather --json
    """
    config = frame.load()
    agents = [agent_of(config, agent)] if agent else [*config.agents.values()]
    offered = known(config, start=start)
    tools = [(server, tool) for server in offered for tool in offered[server] or ()]
    grants: Mapping[str, Grant] = {one.name: one.grant for one in agents}
    found = matrix(grants, tools)
    if as_json:
        show([_document(cell) for row in found.values() for cell in row])
        return
    if on_terminal():
        table(
            ("tool", *grants),
            ((tool, *(cell.word for cell in row)) for tool, row in found.items()),
        )
    else:
        table(
            (),
            (
                (cell.tool, cell.agent, cell.word, cell.rule or "")
                for row in found.values()
                for cell in row
            ),
        )
    tell_unasked(offered)
    if not found:
        note("no tools are known, and no grant names one")


def _document(cell: Cell) -> dict[str, JSON]:
    return {
        "$type": "caxton.grant-cell/v1",
        "agent": cell.agent,
        "tool": cell.tool,
        "may": cell.word,
        "rule": cell.rule,
    }
