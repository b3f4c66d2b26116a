"""
Moving runs that ended long ago out of the database: which, and in what order.

Each run is written to a bundle, and only when that is on the disk its payloads are
erased, which records the bundle's name and digest. What stays are its envelopes and
hashes: the log verifies as before, and the bundle against it.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeAlias

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError

from ..core.calls import JSON
from ..core.names import RUN
from .engine import unreadable
from .files import on_disk
from .lineage import forks_first, parents
from .schema import events, payloads, runs

#: Writes the bundle of a run into a file that does not exist yet.
BundleWriter: TypeAlias = Callable[[str, Path], Awaitable[None]]


class Eraser(Protocol):
    """Erases a run."""

    async def __call__(self, run_id: str, *, bundle: dict[str, JSON]) -> object:
        """Erase it, and note the bundle that has it now: ``{name, sha256}``."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Old:
    """
    A run that ended before some time, and still has its payloads.

    Attributes:
        ended_at: Microseconds since 1970, UTC.

        bytes: Of its payloads.
    """

    run_id: str
    agent: str
    state: str
    ended_at: int
    events: int
    bytes: int


async def old_runs(engine: sa.Engine, before: int) -> list[Old]:
    """
    Return the runs that ended before that time, oldest first.

    A fork comes before what it was forked from, and what a run that stays was forked
    from stays too: a bundle has all that its run begins with.

    Raises:
        StoreError: The database cannot be read.
    """
    return await asyncio.to_thread(_old_runs, engine, before)


def _old_runs(engine: sa.Engine, before: int) -> list[Old]:
    size = sa.func.coalesce(sa.func.sum(sa.func.length(payloads.c.payload)), 0)
    named = (runs.c.run_id, runs.c.agent, runs.c.state, runs.c.ended_at)
    query = (
        sa.select(*named, sa.func.count(), sa.cast(size, sa.BigInteger))
        .join_from(runs, events, events.c.stream == sa.literal(RUN) + runs.c.run_id)
        .join(payloads, payloads.c.position == events.c.position)
        .where(runs.c.ended_at < before)
        .group_by(*named)
        .order_by(runs.c.ended_at, runs.c.run_id)
    )
    try:
        with engine.connect() as connection:
            found = {
                run_id: Old(
                    run_id=run_id,
                    agent=agent,
                    state=state,
                    ended_at=ended_at,
                    events=count,
                    bytes=size_of,
                )
                for run_id, agent, state, ended_at, count, size_of in (
                    connection.execute(query)
                )
            }
            order = forks_first([*found], parents(connection)) if found else ()
            return [found[run_id] for run_id in order]
    except DBAPIError as exc:
        raise unreadable(exc) from None


async def archive(
    chosen: Sequence[Old], folder: Path, *, write: BundleWriter, erase: Eraser
) -> AsyncGenerator[tuple[Old, Path]]:
    """
    Move runs into bundles, one after the other, and yield each that is moved.

    A crash leaves at most one bundle of a run that is not erased; it is written once
    more by the next archive.

    Args:
        chosen: From `old_runs`.

        folder: Where the bundles go, each named by its run; it is made if need be.

        write: Writes a bundle.

        erase: Erases a run.
    """
    await asyncio.to_thread(folder.mkdir, mode=0o700, parents=True, exist_ok=True)
    for run in chosen:
        bundle = folder / f"{run.run_id}.caxton"
        draft = folder / f".{bundle.name}.{os.getpid()}.partial"
        try:
            await write(run.run_id, draft)
            digest = await asyncio.to_thread(_settled, draft, bundle)
        finally:
            await asyncio.to_thread(draft.unlink, missing_ok=True)
        await erase(run.run_id, bundle={"name": bundle.name, "sha256": digest})
        yield run, bundle


def _settled(draft: Path, bundle: Path) -> str:
    """Give *draft* its name, on the disk, and return its digest."""
    with draft.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    draft.replace(bundle)
    on_disk(bundle)
    return digest
