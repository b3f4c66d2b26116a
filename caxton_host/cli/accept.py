"""``caxton tool accept``: a person has looked at what a tool is now."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from ..core.calls import JSON
from . import completion, variables
from .context import Frame, as_json, wait
from .output import note, patience, plain, say, show
from .server_probe import offers, reached
from .tools import check_known, split
from .variables import by_hand

if TYPE_CHECKING:
    from ..core.grants.tool_catalog import Offer, Offered
    from ..core.log.diff import Difference
    from ..store.sql import SqlStore


@click.command("accept")
@click.argument("tool", metavar="SERVER/TOOL", shell_complete=completion.tools)
@click.option("--dry-run", is_flag=True, help="Only show what has changed.")
@variables.option
@as_json
@click.pass_obj
def command(
    frame: Frame, tool: str, dry_run: bool, variables: tuple[str, ...], as_json: bool
) -> None:
    """
    Accept a tool that its server describes otherwise than before.

    Prints each field that differs: what was accepted, then what the server says now.
    Runs that begin from now on see the new definition; those that go on keep theirs.
    Who accepted it is recorded.

    \b
    Exit codes: 0 it is accepted, or has not changed; 2 no such tool; 6 its server is
    unavailable.

    \b
    Examples:
      caxton tool accept crm/lookup --dry-run
      caxton tool accept crm/lookup
    """
    server, name = split(tool)
    with patience(f"asking {server}"):
        work = _compare if dry_run else _accept
        before, offer, found = wait(work(frame, (server, name), variables))
    state = _state(before, offer, dry_run=dry_run)
    if as_json:
        show(_document(before, offer, state, found))
        return
    for one in found:
        say(plain(one.path))
        for sign, value in (("-", one.a), ("+", one.b)):
            if value is not None:
                say(f"  {sign} {plain(value)}")
    note(f"{tool} is {_STATES[state]}")


_STATES = {
    "same": "what was accepted before",
    "new": "accepted: no run had seen it",
    "changed": "not accepted yet: without --dry-run, it will be",
    "accepted": "accepted: runs that begin from now on see it",
}


def _state(before: str | None, offer: Offer, *, dry_run: bool) -> str:
    if before == offer.definition_sha256:
        return "same"
    if dry_run:
        return "changed"
    return "accepted" if before else "new"


def _document(
    before: str | None, offer: Offer, state: str, found: Sequence[Difference]
) -> dict[str, JSON]:
    return {
        "$type": "caxton.acceptance/v1",
        "server": offer.server,
        "tool": offer.tool,
        "state": state,
        "before": before,
        "definition_sha256": offer.definition_sha256,
        "differences": [one.to_document() for one in found],
    }


async def _compare(
    frame: Frame, target: tuple[str, str], variables: Sequence[str]
) -> tuple[str | None, Offer, list[Difference]]:
    """Return what was accepted, what the tool is now, and what differs."""
    config, server = frame.load(), target[0]
    see = "caxton server list"
    check_known(server, config.servers, f"there is no server {server!r}", see)
    async with reached(config, [server], by_hand(config, variables)) as asked:
        offer = _found(target, await asked.tools.offered([server]))
        before, found = await _compared(asked.store, offer)
    return before, offer, found


async def _accept(
    frame: Frame, target: tuple[str, str], variables: Sequence[str]
) -> tuple[str | None, Offer, list[Difference]]:
    """Accept a tool, and return the same as `_compare`."""
    from ..app.maintenance import keeping

    config, server = frame.load(), target[0]
    see = "caxton server list"
    check_known(server, config.servers, f"there is no server {server!r}", see)
    offered = await offers(config, [server], by_hand(config, variables))
    offer = _found(target, offered)
    async with keeping(config, frame.paths()) as keeper:
        before, found = await _compared(keeper.store, offer)
        if before != offer.definition_sha256:
            await keeper.accept(*target, offer.definition)
    return before, offer, found


async def _compared(
    store: SqlStore | None, offer: Offer
) -> tuple[str | None, list[Difference]]:
    from ..core.log.diff import changes
    from ..lib.codec import decode_trusted

    before: str | None = None
    old: JSON = {}
    if store is not None:
        known = await store.definitions.accepted([offer.server])
        before = known.get((offer.server, offer.tool))
        old = decode_trusted(await store.reader.blob(before)) if before else {}
    found = changes(old, decode_trusted(offer.definition))
    return before, [one for one in found if one.a != one.b]


def _found(target: tuple[str, str], offered: Offered) -> Offer:
    server, tool = target
    known = {offer.tool: offer for offer in offered.offers}
    see = f"caxton tool list --server {server}"
    check_known(tool, known, f"{server} has no tool {tool!r}", see)
    return known[tool]
