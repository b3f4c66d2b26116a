"""``caxton grant explain``: explain whether a call would be allowed."""

from __future__ import annotations

import click
from click.exceptions import Exit

from ..core.analysis.rejudge import ALLOWED, ASKS
from .context import HostApi, on_host
from .judgement import tell_remedy, tell_verdict
from .output import FAILED, SUSPENDED, show


@on_host(click.command("explain"))
@click.argument("agent")
@click.argument("tool", metavar="SERVER/TOOL")
@click.argument("params", nargs=-1, metavar="[JSON | KEY=VALUE...]")
@click.option(
    "--after",
    metavar="SERVER/TOOL",
    multiple=True,
    help="Assume a successful earlier call of that tool; repeatable.",
)
def command(
    frame: HostApi,
    agent: str,
    tool: str,
    params: tuple[str, ...],
    after: tuple[str, ...],
    as_json: bool,
) -> None:
    """
    Explain whether AGENT may call SERVER/TOOL with these parameters.

    Each rule is shown with its result and, if the call is denied, with a change that
    would allow it. Nothing is called, started or recorded. The call is judged as the
    first of a run, after those of --after.

    \b
    Exit codes: 0 allowed; 1 denied; 2 usage or configuration; 3 needs approval.

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
        raise Exit(SUSPENDED)
    if told["verdict"] != ALLOWED:
        raise Exit(FAILED)
