"""``caxton grant explain``: whether a call that nobody made would be allowed."""

from __future__ import annotations

import click

from ..core.calls import JSON
from ..core.judging import ALLOWED, ASKS
from .exits import FAILED, SUSPENDED
from .frame import Frame, as_json
from .judgement import agent_of, tell_asked, tell_remedy, tell_rules
from .params import Words
from .screen import say, show
from .tools import split

__all__ = ["command"]


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
    frame: Frame,
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
    from ..clock import SystemClock
    from ..explaining import as_sent, judge
    from ..schemas import input_check
    from .offered import known

    config = frame.load()
    server, name = split(tool)
    schema = (known(config, start=False).get(server) or {}).get(name)
    judgement = judge(
        agent_of(config, agent),
        (server, name),
        Words.read(params).params(_loosened(schema)),
        after=map(split, after),
        schema=as_sent(config, server, name, input_check(schema))
        if isinstance(schema, dict)
        else None,
        now=SystemClock().now(),
    )
    explained = judgement.explained
    if as_json:
        show(judgement.to_document())
    else:
        say(f"verdict   {explained.code}, rule {explained.rule or 'none'}")
        tell_asked(explained)
        tell_rules(explained)
        tell_remedy(judgement.remedy)
    if explained.code == ASKS:
        ctx.exit(SUSPENDED)
    if explained.code != ALLOWED:
        ctx.exit(FAILED)


def _loosened(schema: JSON) -> dict[str, JSON]:
    """Return what says how words are read. What is wrong with them is for the rules."""
    known = schema if isinstance(schema, dict) else {}
    strict = ("required", "additionalProperties")
    return {key: value for key, value in known.items() if key not in strict}
