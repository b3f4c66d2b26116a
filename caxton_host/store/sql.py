"""The log in an SQL database."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Self

import sqlalchemy as sa

from ..core.checkpoint import Note
from ..core.events import Event
from ..errors import NotFoundError, StoreError
from ..ports import Clock, Trace
from ..signing import Signer
from .commit import Line
from .commit_sqlite import SqliteCommitter
from .engine import open_engine
from .entries import Drafter, Entropy, salts
from .log import SqlLog
from .migrate import check, prepare
from .reader import Reader
from .schema import events
from .seals import Sealer, Sealing
from .tail import Cursors
from .tree_sqlite import SqliteSealer, SqliteTree
from .writer import Writer

__all__ = ["SqlStore"]


def _opened(
    engine: sa.Engine, clock: Clock, signer: Signer | None
) -> tuple[Writer, Sealer]:
    if engine.dialect.name == "sqlite":
        tree = SqliteTree(engine.dialect, clock, signer)
        writer = Writer(SqliteCommitter(engine, tree))
        return writer, SqliteSealer(writer, tree)
    from .commit_postgres import PostgresCommitter  # noqa: PLC0415 -- an extra
    from .tree_postgres import PostgresTree  # noqa: PLC0415

    return Writer(PostgresCommitter(engine)), PostgresTree(engine, clock, signer)


class SqlStore(Reader):
    """
    See `caxton_host.ports.Store`. Belongs to one event loop; close it at the end.

    Like this::

        async with SqlStore.open(url, clock=clock, entropy=os.urandom) as store:
            log = store.create("run/0193")
            await log.append(event)
    """

    def __init__(
        self,
        engine: sa.Engine,
        clock: Clock,
        entropy: Entropy,
        writer: Writer | None,
        sealing: Sealing | None = None,
    ) -> None:
        super().__init__(engine)
        self._sealing = sealing
        self._clock = clock
        self._salts = salts(entropy)
        self._writer = writer

    @classmethod
    def open(  # noqa: PLR0913 -- what a store takes from the outside
        cls,
        url: str,
        *,
        clock: Clock,
        entropy: Entropy,
        write: bool = True,
        signer: Signer | None = None,
        on_seal: Callable[[Note], None] = lambda _: None,
    ) -> Self:
        """
        Return the store at *url*.

        Args:
            url: ``sqlite:///`` and a path, or ``postgresql://user@host/name``.

            clock: Stamps events.

            entropy: Gives that many random bytes, for salts: `os.urandom`.

            write: Create or migrate it if need be: only SQLite, a shared database
                has its administrator. Without, nothing in it is changed; SQLite may
                leave two empty companion files.

            signer: Signs checkpoints, unless it is opened to read.

            on_seal: Is told of each of them, within a second.

        Raises:
            StoreError: There is no such database, or it is not one of this version.
        """
        engine = open_engine(url, write=write)
        try:
            if write and engine.dialect.name == "sqlite":
                prepare(engine)
            else:
                check(engine)
            writer, sealer = _opened(engine, clock, signer) if write else (None, None)
        except BaseException:
            engine.dispose()
            raise
        sealing = Sealing(sealer, on_seal) if sealer and signer else None
        return cls(engine, clock, entropy, writer, sealing)

    def create(self, stream: str, trace: Trace | None = None) -> SqlLog:
        """
        Return the log of a stream that has no events yet.

        Raises:
            StoreError: The store is opened to read only.
        """
        return self._log(Drafter(stream, self._clock, self._salts, trace), None)

    async def resume_log(self, stream: str, trace: Trace | None = None) -> SqlLog:
        """
        Return the log of a stream that goes on where it ends now.

        Raises:
            NotFoundError: It has no events.

            StoreError: The store is opened to read only.
        """
        query = (
            sa.select(events.c.seq, events.c.hash, events.c.recorded_at)
            .where(events.c.stream == stream)
            .order_by(events.c.seq.desc())
            .limit(1)
        )
        rows = await asyncio.to_thread(self._rows, query)
        if not rows:
            raise NotFoundError(f"there is no stream {stream!r}")
        drafter = Drafter(stream, self._clock, self._salts, trace)
        drafter.recorded_at = rows[0].recorded_at
        return self._log(drafter, (rows[0].seq, rows[0].hash))

    async def claim(
        self, stream: str, *events: Event, after: int, trace: Trace | None = None
    ) -> SqlLog:
        """Add *events* to a stream that no living host drives."""
        log = await self.resume_log(stream, trace)
        del after
        await log.append(*events)
        return log

    def _log(self, drafter: Drafter, head: tuple[int, bytes] | None) -> SqlLog:
        if self._writer is None:
            raise StoreError("the log is opened to read only")
        line = Line(drafter.stream, head) if head else Line(drafter.stream)
        return SqlLog(self._writer, drafter, line)

    async def end(self, stream: str | None = None) -> str:
        """Return the cursor behind every event that a tail could show now."""
        cursors = Cursors.of(self.engine.dialect.name, stream)
        (row,) = await asyncio.to_thread(self._rows, cursors.end())
        return cursors.text(cursors.place(tuple(row)))

    @property
    def commits(self) -> int:
        """How many transactions this store has made."""
        return self._writer.commits if self._writer else 0

    async def seal(self) -> Note:
        """
        Return a checkpoint of all that is committed, signed by our key.

        Raises:
            StoreError: The store cannot sign, or there is nothing to sign.
        """
        if self._sealing is None:
            raise StoreError("the log is opened without a key to sign it")
        return await self._sealing.force()

    async def aclose(self) -> None:
        """Store what is queued, sign it, and close the database."""
        try:
            if self._sealing is not None:
                await self._sealing.stop()
        finally:
            await self._close()

    async def _close(self) -> None:
        try:
            if self._writer is not None:
                await self._writer.aclose()
        finally:
            self.engine.dispose()

    async def __aenter__(self) -> Self:
        if self._sealing is not None:
            self._sealing.start()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        await self.aclose()
