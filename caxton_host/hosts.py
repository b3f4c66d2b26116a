"""What is asked of all hosts that share a log, and what comes of it at each."""

from __future__ import annotations

import asyncio

from .core.calls import JSON
from .errors import NotFoundError
from .ports import Hosts

__all__ = ["RELOADED", "RESTARTED", "ask_hosts", "reload_document", "restart_document"]

_PAUSE = 0.1
_MOST = 30.0
_SILENT = "does not answer"
_ENDED = "has ended"

#: How outcomes begin after which a host is as it is to be.
RELOADED = ("generation", "nothing has changed", _ENDED)
RESTARTED = ("restarted", "not here", _ENDED)


async def ask_hosts(  # noqa: PLR0913 -- what a request is
    store: Hosts,
    kind: str,
    actor: dict[str, JSON],
    reason: str,
    *,
    subject: str | None = None,
    only: str | None = None,
) -> dict[str, str]:
    """
    Ask something of hosts that are up, and return what came of it at each.

    Args:
        store: What they share.

        kind: See `Request`.

        actor: Who asks.

        reason: Why; it is recorded.

        subject: What it is about.

        only: The one host, or ``None`` for all.

    Raises:
        NotFoundError: That host is not up.

        StoreError: They cannot be asked.
    """
    hosts = await store.hosts()
    if only is not None and only not in hosts:
        raise NotFoundError(
            f"no host {only!r} is up", fix=f"name one of: {', '.join(hosts)}"
        )
    asked = {
        host: await store.ask(host, kind, actor, reason, subject)
        for host in ([only] if only else hosts)
    }
    async with asyncio.TaskGroup() as tasks:
        found = {
            host: tasks.create_task(_outcome(store, host, number))
            for host, number in asked.items()
        }
    return {host: task.result() for host, task in found.items()}


async def _outcome(store: Hosts, host: str, number: int) -> str:
    try:
        async with asyncio.timeout(_MOST):
            while (outcome := await store.outcome(number)) is None:
                if host not in await store.hosts():
                    return _ENDED
                await asyncio.sleep(_PAUSE)
            return outcome
    except TimeoutError:
        return _SILENT


def reload_document(host: str, outcome: str) -> dict[str, JSON]:
    """Return the ``caxton.reload/v1`` document of a host that was asked to reload."""
    return {
        "$type": "caxton.reload/v1",
        "host": host,
        "reloaded": outcome.startswith(RELOADED),
        "outcome": outcome,
    }


def restart_document(server: str, host: str, outcome: str) -> dict[str, JSON]:
    """Return the ``caxton.restart/v1`` document of a host that was asked for one."""
    return {
        "$type": "caxton.restart/v1",
        "server": server,
        "host": host,
        "restarted": outcome.startswith("restarted"),
        "outcome": outcome,
    }
