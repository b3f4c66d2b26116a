"""
One database, as the parts of a store share it.

Queries run in threads, off the event loop. Long answers come a few rows at a time:
PostgreSQL sends rows as they are taken, in binary, which is five times as fast as the
same query through SQLAlchemy Core. One query is one snapshot, however long it takes.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import SQLAlchemyError

from ..core.log.events import Event
from ..core.log.projection import Projection
from ..core.names import run_of
from ..errors import StoreError
from ..ports.log import Trace
from ..ports.watch import Clock
from .commit import CommittedMark, Driver, Group, Line, Transactions
from .diagnosis import explain, path_of, unreadable
from .drafts import Drafter
from .file_guard import Whereabouts
from .projections import fill, is_stale, projections
from .schema import events
from .sqlite import SqliteCommitter, SqliteTree

if TYPE_CHECKING:
    import psycopg

#: What a row holds, in the order in which it was asked for.
Columns: TypeAlias = tuple[Any, ...]
Query: TypeAlias = sa.Select[*tuple[Any, ...]]

#: What tells a database from one that took its place: its file, or what it committed.
Place: TypeAlias = Whereabouts | CommittedMark

#: Rows that are fetched at once.
_AT_ONCE = 1000

_T = TypeVar("_T")


class Database:
    """
    A database, and what each part of a store does with it.

    Args:
        engine: To the database.

        clock: Stamps events and rows.

        salts: One for each event.

        place: Checked before each write.

        write: Whether the database is opened to write.

    Attributes:
        is_file: Whether it is SQLite.
    """

    def __init__(
        self,
        engine: sa.Engine,
        clock: Clock,
        salts: Iterator[bytes],
        place: Place,
        *,
        write: bool,
    ) -> None:
        self.engine = engine
        self.clock = clock
        self.place = place
        self.is_file = engine.dialect.name == "sqlite"
        self._salts = salts
        self._write = write

    def require_write(self) -> None:
        """
        Return if the database is opened to write.

        Raises:
            StoreError: It is opened to read only.
        """
        if not self._write:
            raise StoreError("the log is opened to read only")

    def look(self, do: Callable[[sa.Connection], _T]) -> _T:
        """
        Return what *do* returns for a connection, in this thread.

        Raises:
            StoreError: The database cannot be read.
        """
        try:
            return self._look(do)
        except SQLAlchemyError as exc:
            # The server may have closed the connection while nobody used it.
            if not getattr(exc, "connection_invalidated", False):
                raise unreadable(exc) from None
        try:
            return self._look(do)
        except SQLAlchemyError as exc:
            raise unreadable(exc) from None

    def _look(self, do: Callable[[sa.Connection], _T]) -> _T:
        with self.engine.connect() as connection:
            return do(connection)

    async def read(self, do: Callable[[sa.Connection], _T]) -> _T:
        """Return what `look` returns, from a thread."""
        return await asyncio.to_thread(self.look, do)

    async def rows(self, query: Query) -> Sequence[sa.Row[*Columns]]:
        """Return what *query* finds; see `look`."""
        return await self.read(lambda connection: connection.execute(query).all())

    async def change(self, what: str, do: Callable[[sa.Connection], _T]) -> _T:
        """
        Return what *do* returns, from a thread. Each of its statements is a commit.

        Args:
            what: What is stored, for the error.

            do: Executes statements on a connection.

        Raises:
            StoreError: It could not be stored.
        """
        return await asyncio.to_thread(self._change, what, do)

    def _change(self, what: str, do: Callable[[sa.Connection], _T]) -> _T:
        try:
            with self.engine.connect() as connection:
                return do(connection)
        except SQLAlchemyError as exc:
            raise self._unstored(what, exc) from None

    def _unstored(self, what: str, exc: SQLAlchemyError) -> StoreError:
        text, fix = explain(exc, path_of(self.engine), "see `caxton db status`")
        return StoreError(f"{what} cannot be stored: {text}", fix=fix)

    def insert(self, table: sa.Table) -> sqlite.Insert | postgresql.Insert:
        """Return an ``INSERT`` that can have an ``ON CONFLICT``."""
        return sqlite.insert(table) if self.is_file else postgresql.insert(table)

    def drafter(self, stream: str, trace: Trace | None = None) -> Drafter:
        """Return what stamps the events of a stream that has none yet."""
        return Drafter(stream, self.clock, self._salts, trace)

    async def last(self, stream: str) -> sa.Row[int, bytes, int] | None:
        """Return number, hash and time of the newest event of a stream."""
        query = (
            sa.select(events.c.seq, events.c.hash, events.c.recorded_at)
            .where(events.c.stream == stream)
            .order_by(events.c.seq.desc())
            .limit(1)
        )
        found = await self.rows(query)
        return found[0] if found else None

    async def end(
        self, stream: str, trace: Trace | None = None
    ) -> tuple[Drafter, Line] | None:
        """Return what appends to the end of a stream; ``None``: it has no events."""
        last = await self.last(stream)
        if last is None:
            return None
        drafter, line = self.drafter(stream, trace), Line(stream, (last.seq, last.hash))
        drafter.recorded_at, drafter.seq = last.recorded_at, last.seq
        if run_id := run_of(stream):
            line.projection = await asyncio.to_thread(self._projection, run_id)
        return drafter, line

    def _projection(self, run_id: str) -> Projection:
        if self.look(partial(is_stale, run_id=run_id)):
            fill(self.engine, run_id)
        return self.look(partial(projections, run_ids=[run_id]))[run_id]

    async def record(
        self,
        stream: str,
        events: Sequence[Event],
        guard: Callable[[Driver], None] | None = None,
    ) -> None:
        """
        Add *events* to a stream in a transaction of their own.

        Args:
            stream: Nothing else writes to it meanwhile.

            events: What is added.

            guard: Called in the transaction, before the events are stored.

        Raises:
            CaxtonError: They could not be stored, or the guard refused.
        """
        drafter, line = await self.end(stream) or (self.drafter(stream), Line(stream))
        await self.commit(Group(line, drafter.draft(events), {}, guard=guard))

    async def commit(self, group: Group) -> None:
        """
        Store *group* in a transaction of its own.

        Raises:
            CaxtonError: It could not be stored, or its guard refused.
        """
        await asyncio.to_thread(self.commit_here, group)

    def commit_here(self, group: Group) -> None:
        """Do what `commit` does, in this thread."""
        # Not over the connection of the writer: it would wait for other hosts.
        try:
            committer = self._committer()
        except SQLAlchemyError as exc:
            raise self._unstored("an event", exc) from None
        try:
            committer.alone(group)
        finally:
            committer.close()

    def _committer(self) -> Transactions:
        if isinstance(self.place, Whereabouts):
            tree = SqliteTree(self.clock, None)
            return SqliteCommitter(self.engine, tree, self.clock, self.place)
        from .postgres import PostgresCommitter  # noqa: PLC0415 -- an extra

        return PostgresCommitter(self.engine, self.place)


def rows(connection: sa.Connection, query: Query) -> Generator[Columns]:
    """
    Yield what *query* finds, in constant memory.

    Raises:
        StoreError: PostgreSQL cannot be read. SQLite raises its own errors.
    """
    if connection.dialect.name == "sqlite":
        found = connection.execute(query, execution_options={"yield_per": _AT_ONCE})
        yield from (tuple(row) for row in found)
        return
    from psycopg import Error, capabilities  # noqa: PLC0415 -- an extra

    compiled = query.compile(dialect=connection.dialect)
    driver = cast("psycopg.Connection", connection.connection.driver_connection)
    # Before libpq 17, a row at a time.
    size = _AT_ONCE if capabilities.has_stream_chunked() else 1
    text = str(compiled).encode()
    with driver.cursor() as cursor:
        try:
            yield from cursor.stream(text, compiled.params, binary=True, size=size)
        except Error as exc:
            raise unreadable(exc) from None


async def pages(engine: sa.Engine, query: Query) -> AsyncGenerator[list[Columns]]:
    """Yield what *query* finds, page by page, off the event loop."""
    thread = ThreadPoolExecutor(1, "caxton-read")
    loop = asyncio.get_running_loop()
    found = _found(engine, query)
    try:
        while page := await loop.run_in_executor(thread, _page, found):
            if len(page) < _AT_ONCE:
                # Its connection is not held while the page is used.
                await loop.run_in_executor(thread, found.close)
            yield page
    finally:
        # In its thread, behind what may still run there.
        thread.submit(found.close)
        thread.shutdown(wait=False)


def _found(engine: sa.Engine, query: Query) -> Generator[Columns]:
    with engine.connect() as connection, closing(rows(connection, query)) as found:
        yield from found


def _page(found: Generator[Columns]) -> list[Columns]:
    return list(islice(found, _AT_ONCE))
