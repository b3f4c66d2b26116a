"""Reading the log: plain selects, off the event loop, a page at a time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import fields
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError

from ..codec import decode_trusted, sha256
from ..core.events import Event, Recorded, from_payload
from ..errors import LogBrokenError, NotFoundError
from .engine import said
from .entries import RUN, RunRow, chosen
from .schema import blobs, events, payloads, runs

__all__ = ["Reader"]

_PAGE = 200
_LOOK = "run `caxton audit verify`"
_MATCHES = 6
_LAST_CHARACTER = "\U0010ffff"
_RUN_FIELDS = [field.name for field in fields(RunRow)]
_EVENTS = sa.select(
    events.c.position,
    events.c.stream,
    events.c.seq,
    events.c.type,
    events.c.schema_version,
    events.c.recorded_at,
    events.c.trace_id,
    events.c.span_id,
    events.c.hash,
    payloads.c.payload,
).join_from(events, payloads, isouter=True)


class Reader:
    """
    Reads a database; a copy of one will do.

    Attributes:
        engine: Where it is.
    """

    def __init__(self, engine: sa.Engine) -> None:
        self.engine = engine

    async def read(self, stream: str) -> list[Recorded]:
        """
        Return all events of *stream*, in order; none if there is no such.

        Raises:
            LogBrokenError: One of them is not what was written.
        """
        query = _EVENTS.where(events.c.stream == stream).order_by(events.c.seq)
        return await asyncio.to_thread(self._events, query)

    async def stream_events(
        self, stream: str | None = None, *, after: int = 0
    ) -> AsyncIterator[Recorded]:
        """
        Yield events in the order of their positions, as many as there are by then.

        Args:
            stream: Only those of this stream.

            after: Only those behind this position.

        Raises:
            LogBrokenError: One of them is not what was written.
        """
        query = _EVENTS.order_by(events.c.position).limit(_PAGE)
        seq = 0
        if stream is not None:
            # By number, so that the index finds the page: the order is the same.
            query = _EVENTS.where(events.c.stream == stream)
            query = query.order_by(events.c.seq).limit(_PAGE)
        while True:
            page = query.where(events.c.position > after)
            if stream is not None:
                page = page.where(events.c.seq > seq)
            found = await asyncio.to_thread(self._events, page)
            for event in found:
                yield event
            if len(found) < _PAGE:
                return
            after, seq = found[-1].position, found[-1].seq

    async def blob(self, sha256: str) -> bytes:
        """
        Return the bytes with that digest.

        Raises:
            NotFoundError: They were never kept.

            LogBrokenError: They are others now.
        """
        query = sa.select(blobs.c.bytes).where(blobs.c.sha256 == sha256)
        rows = await asyncio.to_thread(self._rows, query)
        if not rows:
            raise NotFoundError(f"the log keeps no bytes with digest {sha256}")
        return _unchanged(sha256, rows[0][0])

    async def runs(
        self, limit: int, agent: str | None = None, state: str | None = None
    ) -> list[RunRow]:
        """Return at most *limit* runs, newest first."""
        query = sa.select(*(runs.c[name] for name in _RUN_FIELDS)).limit(limit)
        query = query.order_by(runs.c.started_at.desc(), runs.c.run_id.desc())
        if agent is not None:
            query = query.where(runs.c.agent == agent)
        if state is not None:
            query = query.where(runs.c.state == state)
        rows = await asyncio.to_thread(self._rows, query)
        return [RunRow(**dict(zip(_RUN_FIELDS, row, strict=True))) for row in rows]

    async def find_run(self, name: str) -> str:
        """
        Return the id of the run that *name* means.

        Args:
            name: The beginning of an id that no other run has, or ``@last``.

        Raises:
            NotFoundError: It means none, or more than one.
        """
        if name == "@last":
            newest = await self.runs(1)
            return chosen(name, [row.run_id for row in newest])
        name = name.removeprefix(RUN)
        query = (
            sa.select(runs.c.run_id)
            .where(runs.c.run_id >= name, runs.c.run_id <= name + _LAST_CHARACTER)
            .order_by(runs.c.run_id)
            .limit(_MATCHES)
        )
        rows = await asyncio.to_thread(self._rows, query)
        return chosen(name, [row.run_id for row in rows])

    async def streams(self) -> list[str]:
        """Return the names of all streams."""
        query = sa.select(events.c.stream).distinct().order_by(events.c.stream)
        rows = await asyncio.to_thread(self._rows, query)
        return [row.stream for row in rows]

    def _rows(
        self, query: sa.Select[*tuple[Any, ...]]
    ) -> Sequence[sa.Row[*tuple[Any, ...]]]:
        try:
            with self.engine.connect() as connection:
                return connection.execute(query).all()
        except DBAPIError as exc:
            raise LogBrokenError(
                f"the database cannot be read: {said(exc)}", fix=_LOOK
            ) from None

    def _events(self, query: sa.Select[*tuple[Any, ...]]) -> list[Recorded]:
        return [_recorded(row) for row in self._rows(query)]


def _recorded(row: sa.Row[*tuple[Any, ...]]) -> Recorded:
    return Recorded(
        position=row.position,
        stream=row.stream,
        seq=row.seq,
        type=row.type,
        schema_version=row.schema_version,
        recorded_at=row.recorded_at,
        trace_id=row.trace_id,
        span_id=row.span_id,
        hash=row.hash,
        event=None if row.payload is None else _event(row),
    )


def _event(row: sa.Row[*tuple[Any, ...]]) -> Event:
    try:
        return from_payload(row.type, row.schema_version, decode_trusted(row.payload))
    except (ValueError, TypeError, AttributeError, LogBrokenError) as exc:
        raise LogBrokenError(
            f"event {row.seq} of {row.stream} cannot be read: {exc}",
            fix=_LOOK,
        ) from None


def _unchanged(digest: str, data: bytes) -> bytes:
    if sha256(data) != digest:
        raise LogBrokenError(
            f"the bytes kept as {digest} are others now",
            fix=_LOOK,
        )
    return data
