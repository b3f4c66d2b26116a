"""``caxton tool``: what servers offer, and a call by hand."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

import click

from ..core.calls import JSON, Completed
from ..core.names import nearest
from ..errors import NotFoundError, ToolError, UsageError
from . import accept
from .exits import FAILED
from .frame import Frame, as_json, wait
from .screen import complain, patience, pour, show, table, to_json
from .server import headline, offers, tools_of

if TYPE_CHECKING:
    from ..config import Config

__all__ = ["command"]


@click.group("tool")
def command() -> None:
    """
    List, call and accept tools.

    \b
    Examples:
      caxton tool list
      caxton tool call time/get_current_time timezone=UTC
      caxton tool call crm/search '{"query": "Ada", "limit": 3}'
    """


command.add_command(accept.command)


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
        _check(server, names, f"there is no server {server!r}", "caxton server list")
        names = (server,)
    with patience("asking the servers"):
        offered = wait(offers(config, names, required=server is not None))
    if as_json:
        show(
            [
                {
                    "$type": "caxton.tool/v1",
                    "server": offer.server,
                    "tool": offer.tool,
                    "exposed": offer.exposed,
                    "description": offer.description,
                    "input_schema": offer.schema or offer.input_schema,
                    "effect": offer.effect,
                    "definition_sha256": offer.definition_sha256,
                }
                for offer in offered.offers
            ]
        )
        return
    table(
        ("tool", "exposed as", "effect", "description"),
        (
            (f"{o.server}/{o.tool}", o.exposed, o.effect, headline(o.description))
            for o in offered.offers
        ),
    )


def _check(name: str, known: Collection[str], otherwise: str, see: str) -> None:
    """Complain if *name* is not *known*."""
    if name not in known:
        meant = nearest(name, [*known])
        fix = f"write {meant}" if meant else f"{see} shows what there is"
        raise NotFoundError(otherwise, fix=fix)


@command.command("call")
@click.argument("tool", metavar="SERVER/TOOL")
@click.argument("params", nargs=-1, metavar="[JSON | KEY=VALUE...]")
@as_json
@click.pass_obj
@click.pass_context
def call(
    ctx: click.Context,
    frame: Frame,
    tool: str,
    params: tuple[str, ...],
    as_json: bool,
) -> None:
    """
    Call a tool by hand, as the operator: without a grant and without a record.

    A value of KEY=VALUE is JSON if it reads as JSON, and text otherwise.

    \b
    Exit codes: 0 the tool answered; 1 it failed; 2 no such tool; 6 its server is
    unavailable.

    \b
    Examples:
      caxton tool call time/get_current_time timezone=UTC
      caxton tool call crm/search '{"query": "Ada", "limit": 3}'
    """
    from ..tooling import server_names

    server, slash, name = tool.partition("/")
    if not slash:
        raise UsageError(f"{tool!r} is not SERVER/TOOL", fix="caxton tool list")
    config = frame.load()
    names = server_names(config)
    _check(server, names, f"there is no server {server!r}", "caxton server list")
    given = _params(params)
    try:
        with patience(f"calling {tool}"):
            done = wait(_call(config, server, name, given))
    except ToolError as exc:
        complain(
            f"{exc.kind}, sent {exc.sent}: {exc}",
            f"caxton server test {server} shows whether it answers",
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
        pour(done.message or to_json(done.data))
    if done.is_error:
        complain(
            f"{tool} answered with an error", f"caxton tool list --server {server}"
        )
        ctx.exit(FAILED)


def _params(words: Sequence[str]) -> dict[str, JSON]:
    from ..codec import load_json
    from ..errors import BadBytes

    if len(words) == 1 and words[0].startswith("{"):
        try:
            value = load_json(words[0], limit=1024 * 1024)
        except BadBytes as exc:
            raise UsageError(f"the parameters: {exc}", fix="pass a JSON map") from None
        assert isinstance(value, dict)  # noqa: S101 -- it starts with a brace
        return value
    params: dict[str, JSON] = {}
    for word in words:
        key, equals, text = word.partition("=")
        if not equals or not key:
            raise UsageError(
                f"{word!r} is not KEY=VALUE", fix="write KEY=VALUE, or one JSON map"
            )
        try:
            params[key] = load_json(text, limit=1024 * 1024)
        except BadBytes:
            params[key] = text
    return params


async def _call(
    config: Config, server: str, name: str, params: dict[str, JSON]
) -> Completed:
    from ..ports import ToolRequest

    async with tools_of(config, [server]) as tools:
        offered = await tools.offered([server])
        known = [offer.tool for offer in offered.offers]
        see = f"caxton tool list --server {server}"
        _check(name, known, f"{server} has no tool {name!r}", see)
        return await tools.call_tool(
            ToolRequest(
                run_id="by-hand",
                call=1,
                server=server,
                tool=name,
                params=params,
                definition_sha256=None,
                idempotency_key="",
            )
        )
