"""``caxton grant``: check, explain and suggest grants."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click
from click.exceptions import Exit

from ..core.analysis.checking import Finding, findings, matrix
from ..core.analysis.rule_uses import budget_documents
from .context import HostApi, on_host, wait
from .grant_explain import command as explain
from .grant_history import suggest, what_if
from .judgement import agent_of
from .output import FAILED, counted, note, on_terminal, plain, say, show, table
from .run_text import moment
from .server_probe import known, tell_unasked

if TYPE_CHECKING:
    from ..core.grants.grants import Grant


@click.group("grant")
def command() -> None:
    """
    Check, explain and suggest grants.

    \b
    Examples:
      caxton grant check
      caxton grant explain weather demo/get_weather '{"location": "Oslo"}'
      caxton grant matrix
      caxton grant what-if new.toml --since 7d
      caxton grant suggest --manifest hello.wasm
      caxton grant budgets
    """


@on_host(command.command("check"))
@click.argument("agent", required=False)
@click.option("--start", is_flag=True, help="Ask the servers what they offer now.")
def check(frame: HostApi, agent: str | None, start: bool, as_json: bool) -> None:
    """
    Check the grants of AGENT, or of all agents, for problems.

    It finds rules that have expired or have no effect, tools that no server offers, and
    names that lead to no tool. Without --start no server is asked: the tools are those
    that were accepted when a run first saw them.

    \b
    Exit codes: 0 no problem; 1 problems; 2 usage or configuration.

    \b
    Examples:
      caxton grant check
      caxton grant check weather --start --json
    """
    from ..lib.machine import SystemClock

    config = frame.load()
    agents = [agent_of(config, agent)] if agent else [*config.agents.values()]
    offered = known(config, start=start)
    now = SystemClock().now()
    found = [
        finding
        for one in agents
        for finding in findings(
            one.name, one.grant, one.names, offered, now, table=one.table
        )
    ]
    if as_json:
        show([{"$type": "caxton.finding/v1", **asdict(one)} for one in found])
    else:
        for one in found:
            _tell(one, config.agents[one.agent].table)
        tell_unasked(offered)
        note(f"{counted(len(found), 'finding')} in {counted(len(agents), 'agent')}")
    if found:
        raise Exit(FAILED)


def _tell(one: Finding, table: str) -> None:
    where = f"{one.source}: " if one.source else ""
    say(f"{where}{table}.{one.place}: {plain(one.problem)}")
    first, *rest = one.fix.split("\n")
    for line in (f"to fix: {first}", *rest):
        say(f"  {plain(line)}")


@on_host(command.command("matrix"))
@click.argument("agent", required=False)
@click.option("--start", is_flag=True, help="Ask the servers what they offer now.")
def show_matrix(frame: HostApi, agent: str | None, start: bool, as_json: bool) -> None:
    """
    Show which agent may call which tool.

    \b
      yes   always
      if    if the conditions of a rule hold
      deny  never: a rule forbids it
      -     never: no rule allows it

    The tools are those that grants name and those that servers are known to offer.

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
        show(
            [
                {"$type": "caxton.grant-cell/v1", **asdict(cell)}
                for row in found.values()
                for cell in row
            ]
        )
        return
    if on_terminal():
        table(
            ("tool", *grants),
            ((tool, *(cell.may for cell in row)) for tool, row in found.items()),
        )
    else:
        table(
            (),
            (
                (cell.tool, cell.agent, cell.may, cell.rule or "")
                for row in found.values()
                for cell in row
            ),
        )
    tell_unasked(offered)
    if not found:
        note("no tools are known, and no grant names one")


@on_host(command.command("budgets"))
@click.argument("agent", required=False)
def budgets(frame: HostApi, agent: str | None, as_json: bool) -> None:
    """
    Show the budgets that the runs of AGENT, or of each agent, share.

    For budgets of a single run see caxton runs show. Times are of the store's clock, in
    UTC.

    \b
    Examples:
      caxton grant budgets
      caxton grant budgets payer --json
    """
    rows = wait(_read(frame, agent))
    if as_json:
        show({"$type": "caxton.budgets/v1", "budgets": [*rows]})
    elif not rows:
        note("no rule has a budget that runs share")
    else:
        columns = ("agent", "rule", "account", "budget", "spent", "limit")
        table(
            (*columns, "until"),
            [(*(row[name] for name in columns), _when(row)) for row in rows],
        )


async def _read(frame: HostApi, agent: str | None) -> list[dict[str, Any]]:
    """Return an entry of the ``caxton.budgets/v1`` document for each budget."""
    from ..app.bootstrap import open_store

    config = frame.look("agents")
    agents = config.agents if agent is None else {agent: agent_of(config, agent)}
    rows: list[dict[str, Any]] = []
    async with open_store(config, write=False) as store:
        for name, one in sorted(agents.items()):
            spent = await store.spent(name)
            rows += budget_documents(name, one.grant, spent)
    return rows


def _when(row: Mapping[str, Any]) -> str:
    if row["calls"]:
        return ", ".join(f"{one['run']} call {one['call']}" for one in row["calls"])
    return moment(row["until"]).removesuffix(".000") if row["until"] else "-"


for _command in (explain, suggest, what_if):
    command.add_command(_command)
