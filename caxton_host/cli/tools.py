"""The tools of servers, as tables, documents and pages: for several commands."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

import click

from ..core.calls import JSON
from ..core.grants.tool_catalog import tool_document
from ..core.names import nearest
from ..errors import NotFoundError, UsageError
from ..runs.tool_pinning import unaccepted
from . import completion, variables
from .context import Frame, as_json, wait
from .output import note, patience, say, show, table
from .params import types_of
from .variables import by_hand

if TYPE_CHECKING:
    from ..config import Config
    from .host_option import There


#: The ``caxton.tool/v1`` document of a tool.
Document: TypeAlias = Mapping[str, JSON]

_HEADLINE = 80


def headline(description: str) -> str:
    """Return the first line of a description, cut."""
    return description.strip().partition("\n")[0][:_HEADLINE]


def split(tool: str) -> tuple[str, str]:
    """Return the two parts of ``SERVER/TOOL``."""
    server, slash, name = tool.partition("/")
    if not slash:
        raise UsageError(f"{tool!r} is not SERVER/TOOL", fix="caxton tool list")
    return server, name


def check_known(name: str, known: Collection[str], otherwise: str, see: str) -> None:
    """Complain if *name* is not *known*."""
    if name not in known:
        meant = nearest(name, [*known])
        fix = f"write {meant}" if meant else f"{see} shows what there is"
        raise NotFoundError(otherwise, fix=fix)


def tell_changed(tools: Iterable[Document]) -> None:
    """Warn of each tool that runs do not see, for it was accepted otherwise."""
    for tool in tools:
        if tool["on_change"] == "refuse" and tool["accepted"] is False:
            note(f"warning: {unaccepted(str(tool['server']), str(tool['tool']))}")


def tell(tools: Sequence[Document], *, as_json: bool) -> None:
    """Print tools, one a line."""
    tell_changed(tools)
    if as_json:
        show([{**tool} for tool in tools])
        return
    table(
        ("tool", "exposed as", "effect", "description"),
        (
            (_name(t), t["exposed"], t["effect"], headline(str(t["description"])))
            for t in tools
        ),
    )


def _name(tool: Document) -> str:
    return f"{tool['server']}/{tool['tool']}"


def _page(tool: Document, *, as_json: bool) -> None:
    """Print all that there is to know of a tool before it is called."""
    tell_changed([tool])
    if as_json:
        show({**tool})
        return
    say(f"{_name(tool)}  {tool['effect']}, exposed as {tool['exposed']}")
    if description := str(tool["description"]).strip():
        say(description)
    schema = tool["input_schema"]
    rows = [*_parameters(schema if isinstance(schema, dict) else {})]
    if rows:
        table(("parameter", "type", "", "description"), rows)
    say(f"definition {tool['definition_sha256']}")


def _parameters(schema: Mapping[str, JSON]) -> list[tuple[str, str, str, str]]:
    properties, required = schema.get("properties"), schema.get("required")
    needed = required if isinstance(required, list) else []
    rows: list[tuple[str, str, str, str]] = []
    for name, part in (properties if isinstance(properties, dict) else {}).items():
        told = part.get("description") if isinstance(part, dict) else None
        rows.append(
            (
                name,
                " or ".join(types_of(part, schema)) or "any",
                "required" if name in needed else "",
                headline(told) if isinstance(told, str) else "",
            )
        )
    return rows


def here(
    config: Config,
    servers: Collection[str],
    variables: Sequence[str],
    *,
    required: bool = True,
) -> list[Document]:
    """Return the tools of servers, which are started for it."""
    from .server_probe import offers

    asked = f"asking {', '.join(servers)}" if required else "asking the servers"
    with patience(asked):
        scope = by_hand(config, variables)
        offered = wait(offers(config, servers, scope, required=required))
    return [tool_document(offer, offered.accepted) for offer in offered.offers]


def there(host: There, server: str | None, variables: Sequence[str]) -> list[Document]:
    """Return the tools of a server of a host, or of all that it has."""
    if variables:
        raise UsageError("--var cannot be said to a host", fix="leave it out")
    with patience("asking the host"):
        return wait(_there(host, server))


async def _there(host: There, server: str | None) -> list[Document]:
    from ..remote.documents import mappings

    async with host.reach() as remote:
        return mappings(await remote.get("/tools", server=server), "tools")


@click.command("show")
@click.argument("tool", metavar="SERVER/TOOL", shell_complete=completion.tools)
@variables.option
@as_json
@click.pass_obj
def tool_show(
    frame: Frame, tool: str, variables: tuple[str, ...], as_json: bool
) -> None:
    """
    Show one tool: what it does, its parameters and its effect.

    \b
    Exit codes: 0 it is there; 2 no such tool; 6 its server is unavailable.

    \b
    Examples:
      caxton tool show time/get_current_time
      caxton tool show crm/search --json
    """
    from ..app.tool_setup import server_names

    server, name = split(tool)
    if frame.there is not None:
        found = there(frame.there, server, variables)
    else:
        config = frame.load()
        names = server_names(config)
        otherwise = f"there is no server {server!r}"
        check_known(server, names, otherwise, "caxton server list")
        found = here(config, [server], variables)
    known = {str(one["tool"]): one for one in found}
    see = f"caxton tool list --server {server}"
    check_known(name, known, f"{server} has no tool {name!r}", see)
    _page(known[name], as_json=as_json)


@click.command("tools")
@click.argument("name", shell_complete=completion.servers)
@variables.option
@as_json
@click.pass_obj
def of_server(
    frame: Frame, name: str, variables: tuple[str, ...], as_json: bool
) -> None:
    """
    Show the tools of the server NAME, starting it.

    \b
    Exit codes: 0 it answers; 2 there is no such server; 6 it does not answer.

    \b
    Examples:
      caxton server tools time
      caxton server tools time --json
    """
    from .server import check

    if frame.there is not None:
        found = there(frame.there, name, variables)
    else:
        config = frame.load()
        check(config, name)
        found = here(config, [name], variables)
    tell(found, as_json=as_json)
