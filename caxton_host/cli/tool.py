"""``caxton tool``: what servers offer, and a call by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ..core.calls import JSON, Completed
from ..core.text.templates import summary
from ..core.tools.webhooks import SERVER as WEBHOOK
from ..errors import ToolError
from . import accept, completion, variables
from .context import Frame, as_json, wait
from .exits import FAILED
from .output import complain, patience, pour, show, to_json
from .overrides import tapped, wire_log
from .params import Words
from .server_probe import reached
from .tools import check_known, here, split, tell, there, tool_show
from .variables import by_hand

if TYPE_CHECKING:
    from ..config import Config
    from ..ports import RunScope


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
@click.option(
    "--server",
    shell_complete=completion.servers,
    help="Only the tools of this server.",
)
@variables.option
@as_json
@click.pass_obj
def list_(
    frame: Frame, server: str | None, variables: tuple[str, ...], as_json: bool
) -> None:
    """
    Show every tool of every configured server, starting them.

    \b
    Examples:
      caxton tool list
      caxton tool list --server time --json
    """
    from ..app.tool_setup import server_names

    if frame.there is not None:
        tell(there(frame.there, server, variables), as_json=as_json)
        return
    config = frame.load()
    names = server_names(config)
    if server is not None:
        check_known(
            server, names, f"there is no server {server!r}", "caxton server list"
        )
        names = (server,)
    found = here(config, names, variables, required=server is not None)
    tell(found, as_json=as_json)


@command.command("call")
@click.argument("tool", metavar="SERVER/TOOL", shell_complete=completion.tools)
@click.argument("params", nargs=-1, metavar="[JSON | KEY=VALUE...]")
@variables.option
@wire_log
@as_json
@click.pass_obj
@click.pass_context
def call(
    ctx: click.Context,
    frame: Frame,
    tool: str,
    params: tuple[str, ...],
    variables: tuple[str, ...],
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
    from ..app.tool_setup import server_names

    server, name = split(tool)
    words = Words.read(params)
    config = tapped(frame.load(), wire_log)
    names = server_names(config)
    check_known(server, names, f"there is no server {server!r}", "caxton server list")
    scope = by_hand(config, variables)
    try:
        with patience(f"calling {tool}"):
            done = wait(_call(config, scope, (server, name), words))
    except ToolError as exc:
        if as_json:
            show(_document(Completed(is_error=True, message=str(exc)), exc))
        complain(f"{exc.kind}, sent {exc.sent}: {exc}", _remedy(exc, server, name))
        ctx.exit(FAILED)
    if as_json:
        show(_document(done))
    else:
        data = done.data if isinstance(done.data, dict) else {}
        # Who looks at the data themselves needs no word about how much there is.
        untold = not done.message or (data and done.message == summary(name, data))
        pour(to_json(done.data) if untold else done.message)
    if done.is_error:
        see = f"caxton tool show {tool} shows what it takes"
        complain(f"{tool} answered with an error", see)
        ctx.exit(FAILED)


def _document(done: Completed, failed: ToolError | None = None) -> dict[str, JSON]:
    """Return the ``caxton.result/v1`` document of a call."""
    return {
        "$type": "caxton.result/v1",
        "is_error": done.is_error,
        "message": done.message,
        "data": done.data,
        "duration_us": None if failed else done.duration_us,
        "failed": {"kind": failed.kind, "sent": failed.sent} if failed else None,
    }


def _remedy(exc: ToolError, server: str, tool: str) -> str:
    """Return what can be done about a call that failed."""
    plain = server == WEBHOOK
    table = f"[webhooks.{tool}]" if plain else f"[servers.{server}]"
    if exc.fix:
        return exc.fix
    if exc.kind == "too_large":
        return f"raise max_result in {table}"
    if exc.kind == "timeout":
        return f"raise timeout in {table}, or call it again later"
    if plain:
        return f"check {table} of the configuration"
    return f"caxton server test {server} shows whether it answers"


async def _call(
    config: Config, scope: RunScope, target: tuple[str, str], words: Words
) -> Completed:
    from ..ports import ToolRequest

    server, name = target
    async with reached(config, [server], scope) as servers:
        offered = await servers.tools.offered([server])
        known = {offer.tool: offer for offer in offered.offers}
        see = f"caxton tool list --server {server}"
        check_known(name, known, f"{server} has no tool {name!r}", see)
        return await servers.tools.call_tool(
            ToolRequest(
                run_id="by-hand",
                call=1,
                server=server,
                tool=name,
                params=words.params(known[name].parameters),
                definition_sha256=None,
                idempotency_key="",
            )
        )
