"""``caxton grant explain``: whether a call that nobody made would be allowed."""

from __future__ import annotations

import click

from ..core.analysis.rejudge import ALLOWED, ASKS
from .context import HostApi, as_json
from .judgement import tell_remedy, tell_verdict
from .output import FAILED, SUSPENDED, show


@click.command("explain")
@click.argument("agent")
@click.argument("tool", metavar="SERVER/TOOL")
@click.argument("params", nargs=-1, metavar="[JSON | KEY=VALUE...]")
@click.option(
    "--after",
    metavar="SERVER/TOOL",
    multiple=True,
    help="As if the run had called that before, with success. May be repeated.",
)
@as_json
@click.pass_obj
@click.pass_context
def command(
    ctx: click.Context,
    frame: HostApi,
    agent: str,
    tool: str,
    params: tuple[str, ...],
    after: tuple[str, ...],
    as_json: bool,
) -> None:
    """
    Show whether AGENT may call SERVER/TOOL with these parameters, and why.

    Each rule is shown with what it says of the call, and what would allow it if it is
    denied. Nothing is called, started or recorded. It is judged as the first call of a
    run, but for what --after says.

    \b
    Exit codes: 0 it is allowed; 1 it is denied; 2 usage or configuration; 3 it waits
    for a person's word.

    \b
    Examples:
      caxton grant explain weather demo/get_weather '{"location": "Oslo"}'
      caxton grant explain weather demo/echo text=hi --after demo/get_weather
    """
    told = frame.explain_grant(agent, tool, params, after)
    if as_json:
        show({**told})
    else:
        tell_verdict(told)
        tell_remedy(told["remedy"])
    if told["verdict"] == ASKS:
        ctx.exit(SUSPENDED)
    if told["verdict"] != ALLOWED:
        ctx.exit(FAILED)
