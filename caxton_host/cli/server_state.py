"""How the servers of a configuration did, as far as the log knows."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from ..core.log.events import Recorded
from ..core.log.server_history import (
    HOST,
    LOOKED_AT,
    OF_HOSTS,
    OF_RUNS,
    ServerRecord,
    server_records,
)
from ..core.names import RUN
from ..errors import UsageError
from .context import wait

if TYPE_CHECKING:
    from ..config import Config


def seen(config: Config) -> dict[str, ServerRecord]:
    """Return how each server of *config* did; no log, no knowledge."""
    hosts: list[Recorded] = []
    runs: list[Recorded] = []
    up: list[str] = []
    with suppress(UsageError):
        hosts, runs, up = wait(_read(config))
    return server_records(config.servers, hosts, runs, up)


async def _read(config: Config) -> tuple[list[Recorded], list[Recorded], list[str]]:
    from ..app.bootstrap import open_store

    async with open_store(config, write=False) as store:
        of_hosts = await store.reader.newest(HOST, OF_HOSTS, LOOKED_AT)
        of_runs = await store.reader.newest(RUN, OF_RUNS, LOOKED_AT)
        return of_hosts, of_runs, await store.leases.hosts()
