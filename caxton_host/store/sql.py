"""The log in an SQL database."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, MutableMapping, Sequence
from types import TracebackType
from typing import Self
from weakref import WeakValueDictionary

import sqlalchemy as sa

from ..core.calls import JSON
from ..core.log.checkpoint import Note
from ..core.log.events import Event, LogRestored, RunErased, RunSuspended
from ..core.log.runs import GOING_ON, RESTORED, RunRow
from ..core.names import run_of, stream_of
from ..errors import BusyError, LeaseLost, NotFoundError, NotKeptError, StoreError
from ..lib.signing import Signer
from ..ports import Clock, Trace
from .backends import committer_of, leases_of, writer_of
from .commit import Driver, Group, Line
from .committed_mark import Kept
from .drafts import Drafter, Entropy, salts
from .engine import open_engine, whereabouts
from .erasure import Erasure, no_run, payload_missing, scrub
from .file_guard import Whereabouts
from .incarnation import Copy, Incarnation
from .leases import Leases
from .log import SqlLog
from .migrate import check, prepare
from .recount import Recount
from .schema import events, runs
from .seals import Sealing
from .serving import Serving, touch
from .signed_marks import Marks
from .takeover import Claim, driven, grown
from .writer import OnCommit, Writer, untold

#: Seconds after which a host that is not heard of counts as dead.
LEASE = 15.0


class SqlStore(Serving):
    """
    See `caxton_host.ports.Store`. Belongs to one event loop; close it at the end.

    Like this::

        async with SqlStore.open(url, clock=clock, entropy=os.urandom) as store:
            log = store.create("run/0193")
            await log.append(event)

    Attributes:
        copy: What is known of a log that is a copy; `restore` it before all else.

        restored: That this was done here.
    """

    def __init__(  # noqa: PLR0913 -- made by `open`
        self,
        engine: sa.Engine,
        *,
        clock: Clock,
        entropy: Entropy,
        place: Whereabouts | Kept,
        writer: Writer | None,
        leases: Leases,
        lines: MutableMapping[str, Line],
        sealing: Sealing | None = None,
        incarnation: Incarnation | None = None,
        copy: Copy | None = None,
    ) -> None:
        super().__init__(engine, clock, place)
        self.copy = copy
        self.restored: LogRestored | None = None
        self._incarnation = incarnation
        self._sealing = sealing
        self._salts = salts(entropy)
        self._writer = writer
        self._leases = leases
        self._lines = lines
        self._host: str | None = None

    @classmethod
    def open(  # noqa: PLR0913 -- what a store takes from the outside
        cls,
        url: str,
        *,
        clock: Clock,
        entropy: Entropy,
        write: bool = True,
        lease: float = LEASE,
        signer: Signer | None = None,
        on_seal: Callable[[Note], None] = lambda _: None,
        on_commit: OnCommit = untold,
        marks: Marks | None = None,
        accept: bool = False,
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

            lease: Seconds after which a host that is not heard of counts as dead;
                only PostgreSQL has to ask.

            signer: Signs checkpoints, unless it is opened to read.

            on_seal: Is told of each of them, within a second.

            on_commit: Is told of each transaction.

            marks: What this machine has signed: to tell a copy from the original,
                when it is opened to write.

            accept: Open a copy too that lacks what this machine has signed.

        Raises:
            StoreError: There is no such database, or it is not one of this version.

            LogBrokenError: It lacks what this machine has signed.
        """
        where = whereabouts(url)
        place = where or Kept()
        engine = open_engine(url, write=write, whereabouts=where if write else None)
        try:
            if write and where:
                prepare(engine)
            else:
                check(engine)
            lines = WeakValueDictionary[str, Line]()
            leases = leases_of(url, engine, lines, lease)
            incarnation, copy = None, None
            if write and marks:
                incarnation = Incarnation(engine, marks)
                copy = incarnation.recognise(leases.hosts, accept=accept)
            opened = (
                writer_of(engine, clock, place, signer, on_commit) if write else None
            )
            writer, sealer = opened or (None, None)
        except BaseException:
            engine.dispose()
            raise

        def keep(note: Note) -> None:
            if isinstance(place, Kept):
                place.note = note
            if incarnation is not None:
                incarnation.remember(note)

        return cls(
            engine,
            clock=clock,
            entropy=entropy,
            place=place,
            writer=writer,
            leases=leases,
            lines=lines,
            sealing=Sealing(sealer, on_seal, keep) if sealer and signer else None,
            incarnation=incarnation,
            copy=copy,
        )

    def create(self, stream: str, trace: Trace | None = None) -> SqlLog:
        """
        Return the log of a stream that has no events yet.

        Raises:
            StoreError: The store is opened to read only.
        """
        drafter = Drafter(stream, self._clock, self._salts, trace)
        return self._log(drafter, Line(stream, places=False))

    async def resume_log(self, stream: str, trace: Trace | None = None) -> SqlLog:
        """
        Return the log of a stream that goes on where it ends now.

        Raises:
            NotFoundError: It has no events.

            StoreError: The store is opened to read only.
        """
        self._writing()
        drafter, last = await self._end(stream, trace)
        return self._log(drafter, Line(stream, (last.seq, last.hash)))

    async def _end(
        self, stream: str, trace: Trace | None
    ) -> tuple[Drafter, sa.Row[int, bytes, int]]:
        last = await self._last(stream)
        if last is None:
            raise NotFoundError(f"there is no stream {stream!r}")
        drafter = Drafter(stream, self._clock, self._salts, trace)
        drafter.recorded_at, drafter.seq = last.recorded_at, last.seq
        return drafter, last

    async def _last(self, stream: str) -> sa.Row[int, bytes, int] | None:
        query = (
            sa.select(events.c.seq, events.c.hash, events.c.recorded_at)
            .where(events.c.stream == stream)
            .order_by(events.c.seq.desc())
            .limit(1)
        )
        rows = await asyncio.to_thread(self._rows, query)
        return rows[0] if rows else None

    async def join(self, host: str) -> None:
        """
        Become known as the host with that stream, until the store is closed.

        Raises:
            StoreError: The store is opened to read only, or it cannot be.
        """
        self._writing()
        if self._host:
            raise StoreError(f"this store is that of {self._host} already")
        await self._leases.join(host)
        self._host = host

    async def claim(
        self, stream: str, *events: Event, after: int, trace: Trace | None = None
    ) -> SqlLog:
        """
        Add *events* to a stream that no living host drives, and return its log.

        Raises:
            BusyError: A living host drives it, or it has grown meanwhile.

            NotFoundError: It has no events.

            StoreError: They could not be stored.
        """
        self._writing()
        drafter, last = await self._end(stream, trace)
        if last.seq != after:
            raise await self._gone_on(stream)
        line = Line(stream, (last.seq, last.hash))
        guard = Claim(
            stream=stream,
            leases=self._leases,
            host=self._host,
            driven=lambda: self._drives(stream),
        )
        group = Group(
            line=line, drafts=drafter.draft(events), blobs={}, reserve=(), guard=guard
        )
        try:
            await asyncio.to_thread(self._alone, group)
        except LeaseLost:
            raise await self._gone_on(stream) from None
        return self._log(drafter, line)

    async def _gone_on(self, stream: str) -> BusyError:
        run_id = run_of(stream)
        owner = await self.owner(run_id)
        return driven(run_id, owner) if owner else grown(stream)

    def _alone(self, group: Group) -> None:
        # Not over the connection of the writer: it would wait for other hosts.
        committer = committer_of(self.engine, self._clock, self._place)
        try:
            committer.alone(group)
        finally:
            committer.close()

    def _drives(self, stream: str) -> bool:
        line = self._lines.get(stream)
        return line is not None and line.error is None

    async def owner(self, run_id: str) -> str | None:
        """Return the stream of the living host that drives a run, or ``None``."""
        query = sa.select(runs.c.owner).where(runs.c.run_id == run_id)
        rows = await asyncio.to_thread(self._rows, query)
        host = rows[0].owner if rows else None
        if host is None:
            return None
        living = await asyncio.to_thread(self._leases.living, {host})
        return host if host in living else None

    async def hosts(self) -> list[str]:
        """Return the streams of the hosts that live, oldest first."""
        return sorted(await asyncio.to_thread(self._leases.hosts))

    async def idle(self) -> list[RunRow]:
        """
        Return the runs under way that no living host drives, oldest first.

        Those that this host has let go of, because their logs failed, are among them.
        """
        rows = await self.running()
        owners = {row.owner for row in rows if row.owner is not None}
        living = await asyncio.to_thread(self._leases.living, owners)
        return [
            row
            for row in rows
            if row.owner not in living
            or (row.owner == self._host and not self._drives(stream_of(row.run_id)))
        ]

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

            LogBrokenError: Somebody else removed its payloads.

            UsageError: It goes on, or a fork of it does.

            StoreError: It could not be done, and nothing was.
        """
        count = sa.select(sa.func.count()).where(events.c.stream == stream_of(run_id))
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
        try:
            await self._record(stream, [*before, erased], Erasure(run_id=run_id))
        except NotKeptError:
            if stream_of(run_id) not in await self.erased():
                raise payload_missing(stream_of(run_id)) from None
            raise
        return erased

    async def restore(
        self, stream: str, *before: Event, actor: dict[str, JSON]
    ) -> None:
        """
        Make a copy a log of its own, in which no run goes on by itself.

        Args:
            stream: Of the host that does it, which writes nothing else meanwhile.

            before: What comes before in that stream.

            actor: Who wants it.

        Raises:
            StoreError: It could not be done to its end, and it is a copy still.
        """
        copy, incarnation = self.copy, self._incarnation
        if copy is None or incarnation is None:
            raise StoreError("the log is no copy")
        query = sa.select(runs.c.run_id).where(runs.c.state.in_(sorted(GOING_ON)))
        going_on = await asyncio.to_thread(self._rows, query)
        for row in going_on:
            held = RunSuspended(reason=RESTORED)
            await self._record(stream_of(row.run_id), [held])
        restored = LogRestored(
            size=copy.size,
            root=copy.root.hex(),
            actor=actor,
            had_size=copy.had.size if copy.had else None,
            had_root=copy.had.root.hex() if copy.had else None,
            runs=len(going_on),
        )
        await self._record(stream, [*before, restored], incarnation.rename)
        incarnation.renamed()
        self.copy, self.restored = None, restored
        if self._sealing is not None:
            await self.seal()

    async def _record(
        self,
        stream: str,
        events: Sequence[Event],
        guard: Callable[[Driver], None] | None = None,
    ) -> None:
        drafter, line = Drafter(stream, self._clock, self._salts, None), Line(stream)
        if last := await self._last(stream):
            drafter.recorded_at, line.head = last.recorded_at, (last.seq, last.hash)
        drafts = drafter.draft(events)
        group = Group(line=line, drafts=drafts, blobs={}, guard=guard)
        await asyncio.to_thread(self._alone, group)

    async def recount(self) -> tuple[int, int]:
        """
        Count all budgets again from the log; hosts wait meanwhile.

        Returns how many budgets there are, and how many calls hold a place of one.

        Raises:
            StoreError: It could not be done, and nothing was.
        """
        shared = self.engine.dialect.name != "sqlite"
        recount = Recount(now=self._clock.now(), shared=shared)
        group = Group(line=Line(""), drafts=(), blobs={}, guard=recount)
        await asyncio.to_thread(self._alone, group)
        return recount.budgets, recount.places

    async def scrub(self) -> bool:
        """Take what was erased out of the file too; return whether that was done."""
        return await asyncio.to_thread(scrub, self.engine)

    def _log(self, drafter: Drafter, line: Line) -> SqlLog:
        self._lines[line.stream] = line
        return SqlLog(self._writing(), drafter, line, self._leases)

    def _writing(self) -> Writer:
        if self._writer is None:
            raise StoreError("the log is opened to read only")
        return self._writer

    async def check(self) -> None:
        """
        Return if the log is well, as `Serving.check`, and this host may send.

        Raises:
            LeaseLost: Its lease has lapsed: other hosts may take its runs over.

            StoreError: See `Serving.check`.
        """
        await super().check()
        if self._host and not self._leases.holds():
            raise LeaseLost(
                "the lease of this host has lapsed", fix="see `caxton db status`"
            )

    def _write_again(self) -> None:
        if self._writer is not None and self._writer.failed:
            self._alone(Group(line=Line(""), drafts=(), blobs={}, guard=touch))
            self._writer.failed = False

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
            await self._leases.aclose()
            self._near.close()
            try:
                if self._writer is not None and isinstance(self._place, Whereabouts):
                    self._place.save(self.engine)
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
