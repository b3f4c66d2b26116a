"""
A run as a crash would have left it, in a database of its own.

The rows are copied as they are, hashes and all, so the chain of the copy verifies; they
are numbered anew, for nothing is missing in a log of its own. What is read is never
changed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

import sqlalchemy as sa
from sqlalchemy.dialects import sqlite
from sqlalchemy.exc import DBAPIError

from ..core.calls import JSON
from ..core.log.events import Recorded, RunStarted, ToolCompleted
from ..core.log.runs import ENDS, GOING_ON
from ..core.names import run_of, stream_of
from ..runs.recording import Recording
from .engine import open_engine, unreadable
from .migrate import prepare
from .reader import Reader
from .rows import Query
from .schema import blobs, events, payloads, runs

_BATCH = 500
_Part: TypeAlias = tuple[RunStarted, Sequence[Recorded]]
_NOWHERE: Mapping[int, int] = {}


async def copy_cut(source: Reader, left: Recording, target: Path) -> None:
    """
    Copy what is *left* of a run into the new database *target*.

    It is then in the state that its last event left it in, and no host drives it.
    Runs that it was forked from are copied whole.

    Args:
        source: Where the run is.

        left: Its first events.

        target: A file that does not exist yet.

    Raises:
        StoreError: It cannot be read, or not be written.
    """
    # A parent first: it was there first.
    parts: list[_Part] = [
        (one.started, await source.read(stream_of(one.run_id))) for one in left.lineage
    ]
    parts.append((left.started, left.own))
    await asyncio.to_thread(_copy, source.engine, parts, f"sqlite:///{target}")


def _copy(source: sa.Engine, parts: Sequence[_Part], url: str) -> None:
    engine = open_engine(url, write=True)
    try:
        prepare(engine)
        with source.connect() as old, engine.connect() as new:
            new.exec_driver_sql("BEGIN IMMEDIATE")
            copied = 0
            for part in parts:
                copied += _copy_run(old, new, part, copied)
            new.exec_driver_sql("COMMIT")
    except DBAPIError as exc:
        raise unreadable(exc) from None
    finally:
        engine.dispose()


def _copy_run(old: sa.Connection, new: sa.Connection, part: _Part, behind: int) -> int:
    """Copy a run behind that many events, and return how many it has."""
    started, history = part
    stream, last = history[0].stream, history[-1].seq
    here = sa.and_(events.c.stream == stream, events.c.seq <= last)
    found = old.scalars(sa.select(events.c.position).where(here).order_by(events.c.seq))
    places = {place: number for number, place in enumerate(found, behind + 1)}
    _add(old, new, events, sa.select(events).where(here), places)
    _add(old, new, payloads, sa.select(payloads).join(events).where(here), places)
    for digest in sorted(_digests(started, history)):
        _add(old, new, blobs, sa.select(blobs).where(blobs.c.sha256 == digest))
    run_id = run_of(stream)
    row = old.execute(sa.select(runs).where(runs.c.run_id == run_id)).mappings().one()
    latest = next(one for one in reversed(history) if one.type in ENDS)
    state = ENDS[latest.type]
    ended = None if state in GOING_ON else latest.recorded_at
    now = {"state": state, "ended_at": ended, "owner": None}
    new.execute(sa.insert(runs), [{**row, **now}])
    return len(places)


def _add(
    old: sa.Connection,
    new: sa.Connection,
    table: sa.Table,
    query: Query,
    places: Mapping[int, int] = _NOWHERE,
) -> None:
    # Two runs may have a module in common.
    insert = sqlite.insert(table).on_conflict_do_nothing()
    for some in old.execute(query).mappings().partitions(_BATCH):
        new.execute(insert, [_placed(row, places) for row in some])


def _placed(row: sa.RowMapping, places: Mapping[int, int]) -> dict[str, object]:
    at = {"position": places[row["position"]]} if places else {}
    return {**row, **at}


def _digests(started: RunStarted, history: Sequence[Recorded]) -> set[str]:
    """Return the digests of all that an execution of the run may ask for."""
    named: list[tuple[JSON, str]] = [
        (entry, "definition_sha256") for entry in started.catalogue.values()
    ]
    for one in history:
        if isinstance(one.event, ToolCompleted):
            named += [(part, "sha256") for part in one.event.blobs]
    found = {str(entry.get(key)) for entry, key in named if isinstance(entry, dict)}
    return {started.module_sha256, *found}
