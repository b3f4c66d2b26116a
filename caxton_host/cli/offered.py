"""What the servers of a configuration offer, as far as it is known without asking."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from ..core.calls import JSON
from ..core.tools.webhooks import SERVER as WEBHOOK
from ..errors import UsageError
from .context import wait
from .output import note, patience
from .server_probe import offers
from .variables import by_hand

if TYPE_CHECKING:
    from ..config import Config
    from ..core.analysis.checking import Known


def known(config: Config, *, start: bool) -> Known:
    """
    Return what each server offers: tool to input schema; ``None`` if nobody knows.

    Args:
        config: Has the servers.

        start: Ask them. Otherwise it is what was accepted when a run saw them first.
    """
    found: dict[str, dict[str, JSON] | None] = dict.fromkeys(config.servers)
    with suppress(UsageError):  # No log yet: no server was ever asked.
        wait(_accepted(config, found))
    if start:
        with patience("asking the servers"):
            _ask(config, found)
    if config.webhooks:
        found[WEBHOOK] = {
            name: {**hook.params} for name, hook in config.webhooks.items()
        }
    return found


def tell_unasked(found: Mapping[str, object]) -> None:
    """Say which servers nobody has asked yet what they offer."""
    if unasked := [name for name, tools in found.items() if tools is None]:
        note(
            f"not known yet, what these offer: {', '.join(sorted(unasked))}; "
            "--start asks them"
        )


async def _accepted(config: Config, found: dict[str, dict[str, JSON] | None]) -> None:
    from ..app.bootstrap import open_store
    from ..lib.codec import decode_trusted

    async with open_store(config, write=False) as store:
        for (server, tool), digest in (
            await store.definitions.accepted(config.servers)
        ).items():
            said = decode_trusted(await store.reader.blob(digest))
            own = config.servers[server].options(tool).input_schema
            tools = found[server] or {}
            tools[tool] = said.get("inputSchema") if own is None else own
            found[server] = tools


def _ask(config: Config, found: dict[str, dict[str, JSON] | None]) -> None:
    offered = wait(
        offers(config, [*config.servers], by_hand(config, ()), required=False)
    )
    for name, said in offered.servers.items():
        if said.get("version") is None:
            note(f"warning: {name} does not answer")
            continue
        found[name] = {
            offer.tool: offer.parameters
            for offer in offered.offers
            if offer.server == name
        }
