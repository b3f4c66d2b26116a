"""
Recomputes every hash from the stored columns, in constant memory.

The chain alone shows an edit, and an event that is missing, doubled or moved
inside its stream. It cannot show a tail that was cut off or a stream that is gone:
that takes a checkpoint kept elsewhere.
"""

from __future__ import annotations

import asyncio
import sqlite3
import struct
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError

from ..core.chain import GENESIS, SALT_SIZE, envelope, event_hash, payload_digest
from .engine import unreadable
from .erasure import erased_runs
from .reader import Reader
from .rows import rows
from .schema import events, payloads

__all__ = ["Stored", "Verdict", "examine", "verify"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """
    What a check of the log found.

    Attributes:
        streams: How many streams were looked at.

        events: How many events.

        first_bad: Stream, number and reason of the first event, in the order of
            stream names, that is not as it was written.

        erased: How many events have no payload any more, and an event says why.
    """

    streams: int
    events: int
    first_bad: tuple[str, int, str] | None
    erased: int = 0


_NOTHING: Mapping[str, int] = {}


class Stored(NamedTuple):
    """An event as its columns hold it, whatever they hold."""

    stream: Any
    seq: Any
    type: Any
    schema_version: Any
    recorded_at: Any
    trace_id: Any
    span_id: Any
    digest: Any
    hash: Any
    salt: Any
    payload: Any


async def verify(reader: Reader, stream: str | None = None) -> Verdict:
    """
    Check one stream, or all.

    Raises:
        LogBrokenError: The database itself is damaged.

        StoreError: Its server cannot be reached.
    """
    return await asyncio.to_thread(_verify, reader.engine, stream)


def _verify(engine: sa.Engine, stream: str | None) -> Verdict:
    source = events.outerjoin(payloads)
    query = (
        sa.select(*(source.c[_name(field)] for field in Stored._fields))
        .select_from(source)
        .order_by(events.c.stream, events.c.seq, events.c.position)
    )
    if stream is not None:
        query = query.where(events.c.stream == stream)
    try:
        with _lenient(engine) as connection:
            erased = {s: known.events for s, known in erased_runs(connection).items()}
            found = (Stored(*row) for row in rows(connection, query))
            return examine(found, erased)
    except DBAPIError as exc:
        raise unreadable(exc) from None


@contextmanager
def _lenient(engine: sa.Engine) -> Generator[sa.Connection]:
    """Give a connection that reads texts which are none: a forger's, say."""
    with engine.connect() as connection:
        driver = connection.connection.driver_connection
        if isinstance(driver, sqlite3.Connection):
            driver.text_factory = _decoded
        try:
            yield connection
        finally:
            connection.invalidate()


def _name(field: str) -> str:
    return f"payloads_{field}" if field in payloads.c else f"events_{field}"


def _decoded(raw: bytes) -> str:
    return raw.decode(errors="surrogateescape")


def examine(found: Iterable[Stored], erased: Mapping[str, int] = _NOTHING) -> Verdict:
    """
    Check *found*: whole streams one after the other, each in the order of numbers.

    A stream with a bad event is counted to its end, but checked no further.

    Args:
        found: The events.

        erased: How many events of a stream may lack their payloads.
    """
    streams = count = gone = 0
    first_bad: tuple[str, int, str] | None = None
    stream: Any = None
    seq, previous, sound = 0, GENESIS, True
    for row in found:
        if count == 0 or row.stream != stream:
            stream, seq, previous, sound = row.stream, 0, GENESIS, True
            streams += 1
        count += 1
        seq += 1
        if not sound:
            continue
        is_gone = row.payload is None and seq <= erased.get(stream, 0)
        gone += is_gone
        reason = _fault(row, seq, previous, is_gone=is_gone)
        if reason:
            sound = False
            first_bad = first_bad or (str(stream), seq, reason)
        else:
            previous = row.hash
    return Verdict(streams=streams, events=count, first_bad=first_bad, erased=gone)


def _fault(row: Stored, seq: int, previous: bytes, *, is_gone: bool) -> str:
    """Return what is wrong with *row* as event *seq* after *previous*, or ``""``."""
    if row.seq != seq:
        return f"event {seq} is missing: the next is {row.seq}"
    if row.payload is None and not is_gone:
        return "its payload is missing"
    try:
        # A longer salt could take its last bytes from the payload.
        if row.payload is not None and (
            payload_digest(row.salt, row.payload) != row.digest
            or len(row.salt) != SALT_SIZE
        ):
            return "its payload is not what was written"
        if event_hash(previous, envelope(*row[:7]), row.digest) != row.hash:
            return "it is not what was written, or not where"
    except (TypeError, ValueError, AttributeError, struct.error):
        return "a column holds what is never written there"
    return ""
