"""The tools of servers, as tables, documents and pages: for several commands."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

import click

from ..acceptance import unaccepted
from ..core.calls import JSON
from ..core.documents import tool_document
from ..core.names import nearest
from ..errors import NotFoundError, UsageError
from . import completion, variables
from .frame import Frame, as_json, wait
from .params import types_of
from .screen import note, patience, say, show, table
from .variables import by_hand

if TYPE_CHECKING:
    from ..core.catalogue import Offer, Offered

__all__ = [
    "check_known",
    "headline",
    "of_server",
    "split",
    "tell",
    "tell_changed",
    "tool_show",
]

#: Digests of definitions that were accepted, by server and tool.
Accepted: TypeAlias = Mapping[tuple[str, str], str]

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


def tell_changed(offers: Sequence[Offer], accepted: Accepted) -> None:
    """Warn of each tool that runs do not see, for it was accepted otherwise."""
    for offer in offers:
        before = accepted.get((offer.server, offer.tool), offer.definition_sha256)
        if offer.on_change == "refuse" and before != offer.definition_sha256:
            note(f"warning: {unaccepted(offer.server, offer.tool)}")


def tell(offered: Offered, *, as_json: bool) -> None:
    """Print tools, one a line."""
    offers = offered.offers
    tell_changed(offers, offered.accepted)
    if as_json:
        show([tool_document(offer, offered.accepted) for offer in offers])
        return
    table(
        ("tool", "exposed as", "effect", "description"),
        (
            (f"{o.server}/{o.tool}", o.exposed, o.effect, headline(o.description))
            for o in offers
        ),
    )


def _page(offer: Offer, accepted: Accepted, *, as_json: bool) -> None:
    """Print all that there is to know of a tool before it is called."""
    tell_changed([offer], accepted)
    if as_json:
        show(tool_document(offer, accepted))
        return
    say(f"{offer.server}/{offer.tool}  {offer.effect}, exposed as {offer.exposed}")
    if offer.description:
        say(offer.description.strip())
    rows = [*_parameters(offer.parameters)]
    if rows:
        table(("parameter", "type", "", "description"), rows)
    say(f"definition {offer.definition_sha256}")


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
    from ..tooling import server_names
    from .reach import offers

    server, name = split(tool)
    config = frame.load()
    names = server_names(config)
    check_known(server, names, f"there is no server {server!r}", "caxton server list")
    with patience(f"asking {server}"):
        offered = wait(offers(config, [server], by_hand(config, variables)))
    known = {offer.tool: offer for offer in offered.offers}
    see = f"caxton tool list --server {server}"
    check_known(name, known, f"{server} has no tool {name!r}", see)
    _page(known[name], offered.accepted, as_json=as_json)


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
    from .reach import offers
    from .server import check

    config = frame.load()
    check(config, name)
    with patience(f"asking {name}"):
        offered = wait(offers(config, [name], by_hand(config, variables)))
    tell(offered, as_json=as_json)
