"""The log in an SQL database."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self

import sqlalchemy as sa

from ..core.calls import JSON
from ..core.events import Event, RunErased
from ..errors import NotFoundError, StoreError
from ..ports import Clock, Trace
from .commit import Group, Line, Transactions
from .commit_sqlite import SqliteCommitter
from .engine import open_engine
from .entries import RUN, Drafter, Entropy, salts
from .erasure import Erasure, no_run, scrub
from .log import SqlLog
from .migrate import check, prepare
from .reader import Reader
from .schema import events, runs
from .tail import Cursors
from .writer import Writer

__all__ = ["SqlStore"]


def _committer(engine: sa.Engine) -> Transactions:
    if engine.dialect.name == "sqlite":
        return SqliteCommitter(engine)
    from .commit_postgres import PostgresCommitter  # noqa: PLC0415 -- an extra

    return PostgresCommitter(engine)


class SqlStore(Reader):
    """
    See `caxton_host.ports.Store`. Belongs to one event loop; close it at the end.

    Like this::

        async with SqlStore.open(url, clock=clock, entropy=os.urandom) as store:
            log = store.create("run/0193")
            await log.append(event)
    """

    def __init__(
        self, engine: sa.Engine, clock: Clock, entropy: Entropy, writer: Writer | None
    ) -> None:
        super().__init__(engine)
        self._clock = clock
        self._salts = salts(entropy)
        self._writer = writer

    @classmethod
    def open(
        cls, url: str, *, clock: Clock, entropy: Entropy, write: bool = True
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

        Raises:
            StoreError: There is no such database, or it is not one of this version.
        """
        engine = open_engine(url, write=write)
        try:
            if write and engine.dialect.name == "sqlite":
                prepare(engine)
            else:
                check(engine)
            writer = Writer(_committer(engine)) if write else None
        except BaseException:
            engine.dispose()
            raise
        return cls(engine, clock, entropy, writer)

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
        last = await self._last(stream)
        if last is None:
            raise NotFoundError(f"there is no stream {stream!r}")
        drafter = Drafter(stream, self._clock, self._salts, trace)
        drafter.recorded_at = last.recorded_at
        return self._log(drafter, (last.seq, last.hash))

    async def _last(self, stream: str) -> sa.Row[int, bytes, int] | None:
        query = (
            sa.select(events.c.seq, events.c.hash, events.c.recorded_at)
            .where(events.c.stream == stream)
            .order_by(events.c.seq.desc())
            .limit(1)
        )
        rows = await asyncio.to_thread(self._rows, query)
        return rows[0] if rows else None

    async def claim(
        self, stream: str, *events: Event, after: int, trace: Trace | None = None
    ) -> SqlLog:
        """Add *events* to a stream that no living host drives."""
        log = await self.resume_log(stream, trace)
        del after
        await log.append(*events)
        return log

    async def erase(
        self,
        run_id: str,
        stream: str,
        *before: Event,
        actor: dict[str, JSON],
        reason: str,
        bundle: dict[str, JSON] | None = None,
    ) -> RunErased:
        """
        Delete the payloads of a run that has ended, and record it.

        Args:
            run_id: The run.

            stream: Of the host that does it, which writes nothing else meanwhile.

            before: What comes before in that stream.

            actor: Who wants it.

            reason: Why.

            bundle: The file that has them now, ``{name, sha256}``.

        Raises:
            NotFoundError: There is no such run.

            NotKeptError: It was erased before.

            UsageError: It goes on.

            StoreError: It could not be done, and nothing was.
        """
        count = sa.select(sa.func.count()).where(events.c.stream == RUN + run_id)
        query = sa.select(runs.c.agent, count.scalar_subquery())
        rows = await asyncio.to_thread(self._rows, query.where(runs.c.run_id == run_id))
        if not rows:
            raise no_run(run_id)
        erased = RunErased(
            run=run_id,
            actor=actor,
            reason=reason,
            agent=rows[0][0],
            events=rows[0][1],
            bundle=bundle,
        )
        drafter, line = Drafter(stream, self._clock, self._salts, None), Line(stream)
        if last := await self._last(stream):
            drafter.recorded_at, line.head = last.recorded_at, (last.seq, last.hash)
        group = Group(
            line=line,
            drafts=drafter.draft([*before, erased]),
            blobs={},
            guard=Erasure(run_id=run_id, dialect=self.engine.dialect.name),
        )
        await asyncio.to_thread(self._alone, group)
        return erased

    async def scrub(self) -> bool:
        """Take what was erased out of the file too; return whether that was done."""
        return await asyncio.to_thread(scrub, self.engine)

    def _alone(self, group: Group) -> None:
        # Not over the connection of the writer: it would wait for other hosts.
        committer = _committer(self.engine)
        try:
            committer.alone(group)
        finally:
            committer.close()

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

    async def aclose(self) -> None:
        """Store what is queued, and close the database."""
        try:
            if self._writer is not None:
                await self._writer.aclose()
        finally:
            self.engine.dispose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        await self.aclose()
