"""``caxton tool``: what servers offer, and a call by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from ..core.calls import Completed
from ..core.messages import summary
from ..errors import ToolError
from . import accept
from .exits import FAILED
from .frame import Frame, as_json, wait
from .overrides import tapped, wire_log
from .params import params_of
from .screen import complain, patience, pour, show, to_json
from .server import offers, tools_of
from .tools import check_known, split, tell, tool_show

if TYPE_CHECKING:
    from ..config import Config

__all__ = ["command"]


@click.group("tool")
def command() -> None:
    """
    List, show, call and accept tools.

    \b
    Examples:
      caxton tool list
      caxton tool show time/get_current_time
      caxton tool call time/get_current_time timezone=UTC
      caxton tool call crm/search '{"query": "Ada", "limit": 3}'
    """


command.add_command(accept.command)
command.add_command(tool_show)


@command.command("list")
@click.option("--server", help="Only the tools of this server.")
@as_json
@click.pass_obj
def list_(frame: Frame, server: str | None, as_json: bool) -> None:
    """
    Show every tool of every configured server, starting them.

    \b
    Examples:
      caxton tool list
      caxton tool list --server time --json
    """
    from ..tooling import server_names

    config = frame.load()
    names = server_names(config)
    if server is not None:
        check_known(
            server, names, f"there is no server {server!r}", "caxton server list"
        )
        names = (server,)
    with patience("asking the servers"):
        offered = wait(offers(config, names, required=server is not None))
    tell(offered.offers, as_json=as_json)


@command.command("call")
@click.argument("tool", metavar="SERVER/TOOL")
@click.argument("params", nargs=-1, metavar="[JSON | KEY=VALUE...]")
@wire_log
@as_json
@click.pass_obj
@click.pass_context
def call(
    ctx: click.Context,
    frame: Frame,
    tool: str,
    params: tuple[str, ...],
    wire_log: str | None,
    as_json: bool,
) -> None:
    """
    Call a tool by hand, as the operator: without a grant and without a record.

    A value of KEY=VALUE is read as the schema of the tool wants it: text stays text.
    Where the schema does not say, it is JSON if it reads as JSON, and text otherwise.

    \b
    Exit codes: 0 the tool answered; 1 it failed; 2 no such tool; 6 its server is
    unavailable.

    \b
    Examples:
      caxton tool call time/get_current_time timezone=UTC
      caxton tool call crm/search '{"query": "Ada", "limit": 3}'
    """
    from ..tooling import server_names

    server, name = split(tool)
    config = tapped(frame.load(), wire_log)
    names = server_names(config)
    check_known(server, names, f"there is no server {server!r}", "caxton server list")
    try:
        with patience(f"calling {tool}"):
            done = wait(_call(config, server, name, params))
    except ToolError as exc:
        complain(
            f"{exc.kind}, sent {exc.sent}: {exc}",
            exc.fix or f"caxton server test {server} shows whether it answers",
        )
        ctx.exit(FAILED)
    if as_json:
        show(
            {
                "$type": "caxton.result/v1",
                "is_error": done.is_error,
                "message": done.message,
                "data": done.data,
                "duration_us": done.duration_us,
            }
        )
    else:
        data = done.data if isinstance(done.data, dict) else {}
        # Who looks at the data themselves needs no word about how much there is.
        untold = not done.message or (data and done.message == summary(name, data))
        pour(to_json(done.data) if untold else done.message)
    if done.is_error:
        complain(
            f"{tool} answered with an error", f"caxton tool list --server {server}"
        )
        ctx.exit(FAILED)


async def _call(
    config: Config, server: str, name: str, words: Sequence[str]
) -> Completed:
    from ..ports import ToolRequest

    async with tools_of(config, [server]) as tools:
        offered = await tools.offered([server])
        known = {offer.tool: offer for offer in offered.offers}
        see = f"caxton tool list --server {server}"
        check_known(name, known, f"{server} has no tool {name!r}", see)
        return await tools.call_tool(
            ToolRequest(
                run_id="by-hand",
                call=1,
                server=server,
                tool=name,
                params=params_of(words, known[name].input_schema),
                definition_sha256=None,
                idempotency_key="",
            )
        )
