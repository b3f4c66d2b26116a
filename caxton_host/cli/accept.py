"""``caxton tool accept``: a person has looked at what a tool is now."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from ..core.calls import JSON
from ..core.names import nearest
from ..errors import NotFoundError, UsageError
from .frame import Frame, as_json, wait
from .reach import offers
from .screen import note, patience, plain, say, show

if TYPE_CHECKING:
    from ..config import Config
    from ..core.catalogue import Offer
    from ..core.diff import Difference

__all__ = ["command"]


@click.command("accept")
@click.argument("tool", metavar="SERVER/TOOL")
@click.option("--dry-run", is_flag=True, help="Only show what has changed.")
@as_json
@click.pass_obj
def command(frame: Frame, tool: str, dry_run: bool, as_json: bool) -> None:
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
    server, slash, name = tool.partition("/")
    if not slash:
        raise UsageError(f"{tool!r} is not SERVER/TOOL", fix="caxton tool list")
    with patience(f"asking {server}"):
        before, offer, found = wait(_accept(frame, server, name, dry_run=dry_run))
    state = _state(before, offer, dry_run=dry_run)
    if as_json:
        show(_document(before, offer, state, found))
        return
    for one in found:
        say(f"{plain(one.path)}\n  - {plain(one.a)}\n  + {plain(one.b)}")
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


async def _accept(
    frame: Frame, server: str, tool: str, *, dry_run: bool
) -> tuple[str | None, Offer, list[Difference]]:
    from ..codec import decode_trusted
    from ..core.changes import changes
    from ..keeper import keeping

    config = frame.load()
    offer = await _offer(config, server, tool)
    async with keeping(config, frame.paths()) as keeper:
        known = await keeper.store.accepted([server])
        before = known.get((server, tool))
        if before == offer.definition_sha256:
            return before, offer, []
        old: JSON = decode_trusted(await keeper.store.blob(before)) if before else {}
        found = list(changes(old, decode_trusted(offer.definition)))
        if not dry_run:
            await keeper.accept(server, tool, offer.definition)
        return before, offer, found


async def _offer(config: Config, server: str, tool: str) -> Offer:
    if server not in config.servers:
        meant = nearest(server, [*config.servers])
        raise NotFoundError(
            f"there is no server {server!r}",
            fix=f"write {meant}" if meant else "caxton server list shows them",
        )
    known = {offer.tool: offer for offer in (await offers(config, [server])).offers}
    if tool not in known:
        meant = nearest(tool, [*known])
        raise NotFoundError(
            f"{server} has no tool {tool!r}",
            fix=f"write {meant}" if meant else f"caxton tool list --server {server}",
        )
    return known[tool]
