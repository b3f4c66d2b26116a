"""
Reading the log: plain selects, off the event loop, a page at a time.

Why a tail misses no event: a position is assigned before its transaction commits, so on
PostgreSQL a higher one can become visible before a lower one, and a reader that goes by
positions would miss the lower. All transactions below the oldest open one have ended:
their events are all visible, in the order of (transaction, position), which never
changes. See https://www.postgresql.org/docs/current/functions-info.html
(pg_snapshot_xmin). One stream has one writer, so its numbers are enough.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Callable, Collection, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Literal, TypeAlias, TypeVar

import sqlalchemy as sa

from ..core.log.events import Recorded, RunErased
from ..core.log.runs import EVERY, Mark, RunFilter, RunRow
from ..core.log.tree import Frontier
from ..core.names import RUN, run_of, stream_of
from ..errors import CursorError, LogBrokenError, NotFoundError, StoreError
from ..lib.codec import sha256
from .database import Columns, Database, Query, pages
from .drafts import LOOK, chosen, event_in
from .erasure import erased_runs
from .lists import (
    begins,
    due,
    going_on,
    listed,
    next_due,
    selected,
    under_way,
    waiting,
)
from .places import leaf
from .projections import COLUMNS, run_row
from .schema import (
    ENVELOPE,
    XID8,
    blobs,
    checkpoints,
    events,
    payloads,
    runs,
    tree,
    xid,
)

_T = TypeVar("_T")

#: Seconds between two queries for more events.
_POLL = 0.05

_PAGE = 1000
_MATCHES = 6
_EVENTS = sa.select(
    events.c.position,
    *ENVELOPE,
    events.c.hash,
    payloads.c.payload,
).join_from(events, payloads, isouter=True)
_BEHIND_RUN = sa.literal_column(str(len(RUN) + 1), sa.Integer)
_OF_RUN = runs.c.run_id == sa.func.substr(events.c.stream, _BEHIND_RUN)
_WIDTH = len(_EVENTS.selected_columns)

#: The sort key of an event in a tail.
Place: TypeAlias = tuple[int, ...]

_FORM = re.compile(r"([nps])((?:-\d{1,18})+)", re.ASCII)
_SIZES = {"n": 1, "p": 1, "s": 2}
_HORIZON = sa.func.pg_snapshot_xmin(sa.func.pg_current_snapshot(), type_=XID8())


class Reader:
    """
    Reads a database, or a copy of one. See `caxton_host.ports.history.LogReader`.

    Attributes:
        engine: To the database.
    """

    def __init__(self, database: Database) -> None:
        self.engine = database.engine
        self._database = database

    async def read(self, stream: str) -> list[Recorded]:
        """
        Return all events of *stream*, in order; an empty list if it has none.

        Raises:
            LogBrokenError: One of them was changed.
        """
        query = _EVENTS.where(events.c.stream == stream).order_by(events.c.seq)
        return await self._events(query)

    async def stream_events(
        self, stream: str | None = None, *, after: int = 0
    ) -> AsyncGenerator[Recorded]:
        """
        Yield the events that there are, in the order of their positions.

        Args:
            stream: Only those of this stream.

            after: Only those behind this position.

        Raises:
            LogBrokenError: One of them was changed.
        """
        query = _EVENTS.where(events.c.position > after)
        if stream is None:
            query = query.order_by(events.c.position)
        else:
            # By number, so that the index finds them: the order is the same.
            query = query.where(events.c.stream == stream).order_by(events.c.seq)
        async with aclosing(pages(self.engine, query)) as found:
            async for page in found:
                for columns in page:
                    yield _recorded(columns)

    async def heads(self, run_ids: Collection[str]) -> dict[str, bytes]:
        """Return the hash of the newest event of each run."""
        streams = sa.select(
            events.c.stream, sa.func.max(events.c.seq).label("seq")
        ).where(events.c.stream.in_([*map(stream_of, run_ids)]))
        last = streams.group_by(events.c.stream).subquery()
        query = sa.select(events.c.stream, events.c.hash).join(
            last, sa.and_(events.c.stream == last.c.stream, events.c.seq == last.c.seq)
        )
        return {run_of(row[0]): row[1] for row in await self._database.rows(query)}

    async def newest(
        self, prefix: str, types: Collection[str], limit: int
    ) -> list[Recorded]:
        """
        Return at most *limit* events of *types*: newest stream first, from its end.

        Only of streams whose names begin with *prefix*, which ends in a slash.

        Raises:
            LogBrokenError: One of them was changed.
        """
        beyond = prefix[:-1] + chr(ord(prefix[-1]) + 1)
        query = _EVENTS.where(
            events.c.stream >= prefix,
            events.c.stream < beyond,
            events.c.type.in_(types),
        ).order_by(events.c.stream.desc(), events.c.seq.desc())
        return await self._events(query.limit(limit))

    async def attributed(
        self,
        stream: str | None = None,
        *,
        since: int | None = None,
        until: int | None = None,
        agent: str | None = None,
    ) -> AsyncGenerator[tuple[Recorded, str | None, str | None]]:
        """
        Yield events with agent and actor of their run, in the order of positions.

        The actor is JSON. Events of hosts have neither.

        Args:
            stream: Only those of this stream.

            since: Only those recorded then or later.

            until: Only those recorded before.

            agent: Only those of runs of this agent.

        Raises:
            LogBrokenError: One of them was changed.
        """
        query = _EVENTS.add_columns(runs.c.agent, runs.c.actor).outerjoin(runs, _OF_RUN)
        if stream is not None:
            query = query.where(events.c.stream == stream)
        if since is not None:
            query = query.where(events.c.recorded_at >= since)
        if until is not None:
            query = query.where(events.c.recorded_at < until)
        if agent is not None:
            query = query.where(runs.c.agent == agent)
        order = events.c.position if stream is None else events.c.seq
        async with aclosing(pages(self.engine, query.order_by(order))) as found:
            async for page in found:
                for columns in page:
                    yield _recorded(columns[:_WIDTH]), columns[-2], columns[-1]

    async def of_runs(
        self,
        types: Collection[str],
        only: RunFilter = EVERY,
        broken: Callable[[str, Exception], None] | None = None,
    ) -> AsyncGenerator[Recorded]:
        """
        Yield events of runs, in the order of positions.

        Args:
            types: Only those of these types.

            only: Of which runs; *agents* and *owner* select none.

            broken: Called with the stream of an event that was changed, and the error.

        Raises:
            LogBrokenError: One of them was changed, and *broken* is ``None``.
        """
        query = _EVENTS.where(sa.or_(*(events.c.type == type_ for type_ in types)))
        query, _ = selected(query.join(runs, _OF_RUN), only)
        query = query.order_by(events.c.position)
        async with aclosing(pages(self.engine, query)) as found:
            async for page in found:
                for columns in page:
                    try:
                        recorded = _recorded(columns)
                    except LogBrokenError as exc:
                        if broken is None:
                            raise
                        broken(columns[1], exc)
                    else:
                        yield recorded

    async def tail(
        self,
        after: str | None = None,
        *,
        stream: str | None = None,
        tenant: str | None = None,
        follow: bool,
        patience: float = 0.0,
    ) -> AsyncGenerator[tuple[Recorded, str]]:
        """
        Yield each event exactly once, with the cursor behind it.

        Events of one stream come in order. Those of several come in an order that never
        changes; on PostgreSQL it is not that of their positions, and events are held
        back as long as an older transaction is open.

        Args:
            after: A cursor of an earlier tail of the same stream or of all, ``"end"``,
                or ``None`` for all events.

            stream: Only those of this stream.

            tenant: Only those of runs of this tenant.

            follow: Wait for more; otherwise return after the last one.

            patience: Seconds for which the database may be unavailable.

        Raises:
            UsageError: *after* is not a cursor of such a tail.

            LogBrokenError: An event was changed.

            StoreError: The database is unavailable for longer.
        """
        cursors = _Cursors.of(self.engine.dialect.name, stream)
        of = _EVENTS if tenant is None else _of_tenant(tenant)
        # Events of others are not read again with each poll.
        far = tenant is not None and follow
        turns = self._turns(cursors, of, after, patience, _POLL, far=far)
        async with aclosing(turns) as found:
            async for page, _, last in found:
                for row in page:
                    cursor = cursors.text(cursors.place(row[_WIDTH:]))
                    yield _recorded(row[:_WIDTH]), cursor
                if last and not follow:
                    return

    async def turns(
        self,
        after: str | None,
        types: Collection[str],
        pause: float,
        broken: Callable[[str, Exception], None],
    ) -> AsyncGenerator[tuple[list[Recorded], str]]:
        """
        Yield what each look at the log finds, and the cursor behind all that is there.

        See `tail`. It waits for a database that is unavailable.

        Args:
            after: A cursor of an earlier tail of all events, or ``"end"``.

            types: Only events of these types.

            pause: Seconds between two looks.

            broken: Called with the stream of an event that was changed, and the error.
        """
        cursors = _Cursors.of(self.engine.dialect.name, None)
        of = _EVENTS.where(events.c.type.in_(types))
        looks = self._turns(cursors, of, after, float("inf"), pause, far=True)
        async with aclosing(looks) as found:
            async for page, place, _ in found:
                sound: list[Recorded] = []
                for row in page:
                    try:
                        sound.append(_recorded(row[:_WIDTH]))
                    except LogBrokenError as exc:
                        broken(row[1], exc)
                yield sound, cursors.text(place)

    async def _turns(  # noqa: PLR0913 -- what a tail is made of
        self,
        cursors: _Cursors,
        of: Query,
        after: str | None,
        patience: float,
        pause: float,
        *,
        far: bool,
    ) -> AsyncGenerator[tuple[Sequence[sa.Row[*Columns]], Place, bool]]:
        """Yield rows, the place behind them, and whether they are the last for now."""
        if after == "end":
            after = await self.end(cursors.stream, patience=patience)
        place = cursors.parse(after)
        while True:
            end = place
            if far:
                end = cursors.parse(await self.end(cursors.stream, patience=patience))
            query = cursors.behind(of, place).limit(_PAGE)
            found = await self._patiently(query, patience)
            if found:
                place = cursors.place(found[-1][_WIDTH:])
            if last := len(found) < _PAGE:
                place = max(place, end)
            yield found, place, last
            if last:
                await asyncio.sleep(pause)

    async def end(self, stream: str | None = None, *, patience: float = 0.0) -> str:
        """
        Return the cursor behind all events that a tail can see now.

        Args:
            stream: For a tail of this stream only.

            patience: Seconds for which the database may be unavailable.
        """
        cursors = _Cursors.of(self.engine.dialect.name, stream)
        (row,) = await self._patiently(cursors.end(), patience)
        return cursors.text(cursors.place(tuple(row)))

    async def _patiently(
        self, query: Query, patience: float
    ) -> Sequence[sa.Row[*Columns]]:
        clock = asyncio.get_running_loop().time
        until = 0.0
        while True:
            try:
                return await self._database.rows(query)
            except StoreError as exc:
                until = until or clock() + patience
                if isinstance(exc, LogBrokenError) or clock() >= until:
                    raise
            await asyncio.sleep(_POLL)

    async def blob(self, sha256: str) -> bytes:
        """
        Return the bytes with that digest.

        Raises:
            NotFoundError: They were never kept.

            LogBrokenError: They were changed.
        """
        query = sa.select(blobs.c.bytes).where(blobs.c.sha256 == sha256)
        rows = await self._database.rows(query)
        if not rows:
            raise NotFoundError(f"the log keeps no bytes with digest {sha256}")
        return _unchanged(sha256, rows[0][0])

    async def runs(
        self,
        limit: int,
        only: RunFilter = EVERY,
        *,
        before: tuple[int, str] | None = None,
    ) -> list[RunRow]:
        """
        Return at most *limit* runs, newest first.

        Args:
            limit: The most to return.

            only: Which ones.

            before: Only those after the run with this start time and id.
        """
        return await self._runs(listed(only, limit, before))

    async def checkpoint(self, size: int | None = None) -> str | None:
        """
        Return the note of a checkpoint, or ``None`` if there is none.

        Args:
            size: The smallest that covers so many events; ``None``: the newest.
        """
        query = sa.select(checkpoints.c.note).limit(1)
        if size is None:
            query = query.order_by(checkpoints.c.size.desc())
        else:
            query = query.where(checkpoints.c.size >= size).order_by(checkpoints.c.size)
        rows = await self._database.rows(query)
        return bytes(rows[0][0]).decode() if rows else None

    async def tree(self) -> tuple[int, bytes]:
        """Return how many events the log has, and the root of the tree over them."""
        grown = await self._database.rows(sa.select(tree.c.size, tree.c.frontier))
        size, frontier = grown[0] if grown else (0, b"")
        try:
            return size, Frontier.parse(size, frontier).root()
        except (TypeError, ValueError):
            raise LogBrokenError(
                "the stored tree of the log is not valid", fix="caxton audit verify"
            ) from None

    async def leaf(self, stream: str, seq: int) -> int | None:
        """Return the index of an event in the tree; see `places.leaf`."""
        return await self._database.read(lambda found: leaf(found, stream, seq))

    async def row(self, run_id: str) -> RunRow | None:
        """Return the run with that id, or ``None``."""
        query = sa.select(*(runs.c[name] for name in COLUMNS))
        found = await self._runs(query.where(runs.c.run_id == run_id))
        return found[0] if found else None

    async def waiting(
        self, limit: int, only: RunFilter = EVERY, *, after: Mark | None = None
    ) -> list[tuple[Mark, RunRow]]:
        """Return places of what people are asked, and the runs; see `Readings`."""
        rows = await self._database.rows(waiting(only, limit, after))
        return [((at, run, seq), run_row(row)) for at, run, seq, *row in rows]

    async def due(self, now: int) -> dict[str, int]:
        """Return the suspended runs that may go on, and their epochs."""
        return dict(map(tuple, await self._database.rows(due(now))))

    async def next_due(self, now: int) -> int | None:
        """Return when the next suspended run is due after *now*, if one is."""
        (row,) = await self._database.rows(next_due(now))
        return None if row[0] is None else int(row[0])

    async def going_on(self, only: RunFilter) -> int:
        """Return how many runs are queued or running; see `LogReader`."""
        (row,) = await self._database.rows(going_on(only))
        return int(row[0])

    async def under_way(self) -> list[RunRow]:
        """Return the runs that go on by themselves, oldest first."""
        query = sa.select(*(runs.c[name] for name in COLUMNS)).where(under_way())
        return await self._runs(query.order_by(runs.c.started_at, runs.c.run_id))

    async def _runs(self, query: Query) -> list[RunRow]:
        rows = await self._database.rows(query)
        return [*map(run_row, rows)]

    async def ended(
        self, state: str, before: int, after: tuple[int, str], limit: int
    ) -> list[RunRow]:
        """
        Return at most *limit* runs that have their payloads, oldest end first.

        Args:
            state: That in which they ended.

            before: Only those that ended then or before.

            after: Only those behind the run with this time of its end, and id.

            limit: The most to return.
        """
        place = sa.tuple_(runs.c.ended_at, runs.c.run_id)
        query = (
            sa.select(*(runs.c[name] for name in COLUMNS))
            # The actor is spelled out, for the index.
            .where(runs.c.actor != sa.literal_column("'{}'"), runs.c.state == state)
            .where(
                runs.c.ended_at <= before, place > sa.tuple_(*map(sa.literal, after))
            )
            .order_by(runs.c.ended_at, runs.c.run_id)
        )
        return await self._runs(query.limit(limit))

    async def size(self, run_id: str) -> tuple[int, int]:
        """Return how many payloads a run has, and their bytes."""
        size = sa.func.coalesce(sa.func.sum(sa.func.length(payloads.c.payload)), 0)
        query = sa.select(sa.func.count(), sa.cast(size, sa.BigInteger))
        query = query.join_from(events, payloads)
        found = await self._database.rows(
            query.where(events.c.stream == stream_of(run_id))
        )
        return found[0][0], found[0][1]

    def now(self) -> int:
        """Return the time, in microseconds since 1970."""
        return self._database.clock.now()

    async def look(self, do: Callable[[sa.Connection], _T]) -> _T:
        """Return what *do* returns for a connection, from a thread."""
        return await self._database.read(do)

    async def find_run(self, name: str) -> str:
        """
        Return the id of the run that *name* identifies.

        Args:
            name: A unique prefix of an id; or ``@last``, the newest run that no other
                run called.

        Raises:
            NotFoundError: It matches no run, or more than one.
        """
        if name == "@last":
            newest = await self.runs(1, RunFilter(top=True))
            return chosen(name, [row.run_id for row in newest])
        name = name.removeprefix(RUN)
        query = (
            sa.select(runs.c.run_id)
            .where(begins(name))
            .order_by(runs.c.run_id)
            .limit(_MATCHES)
        )
        rows = await self._database.rows(query)
        return chosen(name, [row.run_id for row in rows])

    async def erased(self) -> dict[str, RunErased]:
        """Return what was erased, by the stream of the run."""
        return await self._database.read(erased_runs)

    async def streams(self) -> list[str]:
        """Return the names of all streams."""
        query = sa.select(events.c.stream).distinct().order_by(events.c.stream)
        rows = await self._database.rows(query)
        return [row.stream for row in rows]

    async def _events(self, query: Query) -> list[Recorded]:
        def events(connection: sa.Connection) -> list[Recorded]:
            return [_recorded(tuple(row)) for row in connection.execute(query).all()]

        return await self._database.read(events)


def _of_tenant(tenant: str) -> Query:
    return _EVENTS.join(runs, _OF_RUN).where(runs.c.tenant == tenant)


def _recorded(columns: Columns) -> Recorded:
    position, stream, seq, type_, version, at, trace_id, span_id, hash_, payload = (
        columns
    )
    return Recorded(
        position=position,
        stream=stream,
        seq=seq,
        type=type_,
        schema_version=version,
        recorded_at=at,
        trace_id=trace_id,
        span_id=span_id,
        hash=hash_,
        event=None
        if payload is None
        else event_in(stream, seq, type_, version, payload),
    )


def _unchanged(digest: str, data: bytes) -> bytes:
    if sha256(data) != digest:
        raise LogBrokenError(
            f"the bytes kept as {digest} were changed",
            fix=LOOK,
        )
    return data


@dataclass(frozen=True, slots=True)
class _Cursors:
    """
    The order of one kind of tail, and the text form of places in it.

    Attributes:
        kind: By number in a stream, by position, or by transaction and position.

        stream: Of the first kind.
    """

    kind: Literal["n", "p", "s"]
    stream: str | None = None

    @classmethod
    def of(cls, dialect: str, stream: str | None) -> _Cursors:
        """Return those for a tail of *stream*, or of all."""
        if stream is not None:
            return cls("n", stream)
        return cls("s" if dialect == "postgresql" else "p")

    def parse(self, text: str | None) -> Place:
        """
        Return the place of a cursor; the beginning for ``None``.

        Raises:
            CursorError: It is not a cursor of this kind.
        """
        if text in {None, "end"}:
            return (0,) * _SIZES[self.kind]
        match = _FORM.fullmatch(text or "")
        place = tuple(int(part) for part in match[2].split("-")[1:]) if match else ()
        if not match or match[1] != self.kind or len(place) != _SIZES[self.kind]:
            raise CursorError(
                f"{text!r} is not a cursor of this tail",
                fix="give one that the same command printed, or none",
            )
        return place

    def text(self, place: Place) -> str:
        """Return the cursor of a place, such as ``s-742-13``."""
        return "-".join((self.kind, *map(str, place)))

    def place(self, columns: Columns) -> Place:
        """Return the place of the row whose columns of `order` these are."""
        return tuple(int(column) for column in columns)

    def behind(self, query: Query, place: Place) -> Query:
        """Restrict *query* to rows behind *place*, and add its sort key as columns."""
        if self.kind == "n":
            seq = events.c.seq
            query = query.where(events.c.stream == self.stream, seq > place[0])
            return query.add_columns(seq).order_by(seq)
        if self.kind == "p":
            position = events.c.position
            return (
                query.add_columns(position)
                .where(position > place[0])
                .order_by(position)
            )
        here = sa.tuple_(sa.cast(str(place[0]), XID8()), sa.literal(place[1]))
        return (
            query.add_columns(sa.cast(xid, sa.Text), events.c.position)
            .where(sa.tuple_(xid, events.c.position) > here, xid < _HORIZON)
            .order_by(xid, events.c.position)
        )

    def end(self) -> Query:
        """Return the query for the place behind all events that a tail can see."""
        if self.kind == "n":
            newest = sa.select(sa.func.coalesce(sa.func.max(events.c.seq), 0))
            return newest.where(events.c.stream == self.stream)
        if self.kind == "p":
            return sa.select(sa.func.coalesce(sa.func.max(events.c.position), 0))
        return sa.select(sa.cast(_HORIZON, sa.Text), sa.literal(0))
