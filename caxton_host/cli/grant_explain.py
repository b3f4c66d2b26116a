"""``caxton grant explain``: explain whether a call would be allowed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from ..core.analysis.checking import astray
from ..core.analysis.rejudge import ALLOWED, ASKS
from ..core.calls import JSON
from ..core.names import nearest
from .context import Frame, as_json, wait
from .exits import FAILED, SUSPENDED
from .judgement import agent_of, tell_remedy, tell_verdict, told_astray
from .output import show
from .params import Words
from .tools import split

if TYPE_CHECKING:
    from ..core.analysis.checking import Known
    from .host_option import There


@click.command("explain")
@click.argument("agent")
@click.argument("tool", metavar="SERVER/TOOL")
@click.argument("params", nargs=-1, metavar="[JSON | KEY=VALUE...]")
@click.option(
    "--after",
    metavar="SERVER/TOOL",
    multiple=True,
    help="Assume a successful earlier call of that tool; repeatable.",
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
    if frame.there is not None:
        told = wait(_there(frame.there, agent, tool, params, after))
    else:
        told = _here(frame, agent, tool, params, after)
    if as_json:
        show({**told})
    else:
        tell_verdict(told)
        tell_remedy(told["remedy"])
    if told["verdict"] == ASKS:
        ctx.exit(SUSPENDED)
    if told["verdict"] != ALLOWED:
        ctx.exit(FAILED)


def _here(
    frame: Frame, agent: str, tool: str, params: Sequence[str], after: Sequence[str]
) -> Mapping[str, Any]:
    from ..lib.json_schema import input_check
    from ..lib.machine import SystemClock
    from ..runs.explain import as_sent, judgement
    from .offered import known

    config = frame.load()
    one = agent_of(config, agent)
    server, name = split(tool)
    offered = known(config, start=False)
    schema = (offered.get(server) or {}).get(name)
    told = judgement(
        one,
        (server, name),
        Words.read(params).params(_loosened(schema)),
        after=map(split, after),
        schema=as_sent(config, server, name, input_check(schema))
        if isinstance(schema, dict)
        else None,
        now=SystemClock().now(),
    )
    return told_astray(told, _lost(server, name, offered))


def _lost(server: str, tool: str, offered: Known) -> str | None:
    """Return why no grant would allow a call, if that is known."""
    if server in offered:
        return astray(f"{server}/{tool}", (server, tool), offered)
    meant = nearest(server, [*offered])
    hint = f"did you mean {meant}/{tool}?" if meant else "caxton server list shows all"
    return f"there is no server {server}; {hint}"


def _loosened(schema: JSON) -> dict[str, JSON]:
    """Return the schema without its checks: it parses words, and the rules judge."""
    known = schema if isinstance(schema, dict) else {}
    strict = ("required", "additionalProperties")
    return {key: value for key, value in known.items() if key not in strict}


async def _there(
    there: There, agent: str, tool: str, params: Sequence[str], after: Sequence[str]
) -> Mapping[str, Any]:
    from ..remote.documents import mapping

    body: dict[str, JSON] = {"agent": agent, "tool": "/".join(split(tool))}
    # Only the host knows the schema, so a word that parses as JSON is JSON.
    body |= {"params": Words.read(params).params({}), "after": [*after]}
    async with there.reach() as remote:
        return mapping(await remote.post("/grants/explain", body))
