"""
The log in an SQL database.

A store is a set of parts over one `Database`. Callers take the part that they need.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar
from weakref import WeakValueDictionary

import sqlalchemy as sa

from ..core.analysis.rule_uses import Spent
from ..core.calls import JSON
from ..core.log.checkpoint import Note
from ..core.log.events import Event
from ..core.log.projection import Projection
from ..core.names import run_of
from ..errors import LeaseLost, NotFoundError, StoreError
from ..lib.bell import Bell
from ..lib.signing import Signer
from ..ports.log import Refused, Reservation, Trace
from ..ports.placement import Within
from ..ports.watch import Clock
from .budgets import Budgets
from .commit import CommittedMark, Group, Line
from .database import Database, Place
from .definitions import Definitions, ServerProtocols
from .drafts import Drafter, Entropy, salts
from .engine import alone, file_of, open_engine, whereabouts
from .erasure import Erasures
from .file_guard import Whereabouts, hosts_of
from .followers import Followers
from .health import Health
from .holds import Holds
from .incarnation import Incarnation, Marks
from .leases import FileLeases, HostLeases, Leases
from .migrate import check, prepare
from .projections import fill
from .reader import Reader
from .recheck import Projections
from .requests import Requests
from .seals import Sealer, Sealing
from .sqlite import SqliteCommitter, SqliteSealer, SqliteTree
from .tokens import Submissions, Tokens
from .vitals import Vitals
from .writer import OnCommit, SqlLog, Writer, untold

#: A host without a renewal for so long counts as dead.
LEASE_S = 15.0

_T = TypeVar("_T")


class SqlStore:
    """
    See `caxton_host.ports.serving.ServingStore`. Of one event loop; to be closed.

    Like this::

        async with SqlStore.open(url, clock=clock, entropy=os.urandom) as store:
            log = store.create("run/0193")
            await log.append(event)

    Attributes:
        engine: To the database.

        reader: Reads the log.

        leases: Which hosts are alive, and which runs they drive.

        requests: Requests to hosts.

        followers: How far each follower of the log has come.

        bell: Tells what other processes write; silent until this host has joined.

        definitions: Accepted definitions of tools.

        server_protocols: The protocol version of each tool server.

        budgets: What is spent.

        erasure: Erases runs.

        projections: Tables that are made from events.

        holding: Keeps runs from being erased.

        tokens: Who may call a host that serves.

        submissions: The run of each idempotency key.

        health: Whether the log can be used.

        vitals: What an operator watches of it.

        incarnation: Whether the log is a copy.
    """

    def __init__(  # noqa: PLR0913 -- made by `open`
        self,
        database: Database,
        *,
        writer: Writer | None,
        hosts: HostLeases,
        bell: Bell,
        lines: MutableMapping[str, Line],
        incarnation: Incarnation,
        sealing: Sealing | None = None,
    ) -> None:
        self.engine = database.engine
        self.reader = Reader(database)
        self.leases = Leases(database, self.reader, hosts, lines)
        self.requests = Requests(database)
        self.followers = Followers(database, hosts)
        self.bell = bell
        self.definitions = Definitions(database)
        self.server_protocols = ServerProtocols(database)
        self.budgets = Budgets(database)
        self.erasure = Erasures(database)
        self.projections = Projections(database)
        self.holding = Holds(database)
        self.tokens = Tokens(database)
        self.submissions = Submissions(database)
        self.health = Health(database, self.leases, writer)
        self.vitals = Vitals(database, writer)
        self.incarnation = incarnation
        self._database = database
        self._holds = hosts.holds
        self._writer = writer
        self._sealing = sealing
        # Streams that this host writes. The log of a stream keeps its line alive.
        self._lines = lines

    @classmethod
    def open(  # noqa: PLR0913 -- what a store takes from the outside
        cls,
        url: str,
        *,
        clock: Clock,
        entropy: Entropy,
        write: bool = True,
        lease: float = LEASE_S,
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

            entropy: Returns so many random bytes, for salts: `os.urandom`.

            write: Open it to write. A SQLite database is created or migrated if
                needed; a shared one is left to its administrator. Otherwise nothing is
                changed, but SQLite may leave two empty companion files.

            lease: Seconds after which a host without a renewal counts as dead; only for
                PostgreSQL.

            signer: Signs checkpoints, if opened to write.

            on_seal: Called with each new checkpoint, within a second.

            on_commit: Called after each transaction.

            marks: The checkpoints of this machine, to tell a copy from the original;
                used if opened to write.

            accept: Open also a copy that lacks a checkpoint of this machine.

        Raises:
            StoreError: The database does not exist, or has another schema.

            LogBrokenError: It lacks a checkpoint that this machine has signed.
        """
        where = whereabouts(url)
        place: Place = where or CommittedMark()
        engine = open_engine(url, write=write, whereabouts=where if write else None)
        try:
            if write and where:
                prepare(engine)
                fill(engine)
            else:
                check(engine)
            database = Database(engine, clock, salts(entropy), place, write=write)
            lines = WeakValueDictionary[str, Line]()
            bell = Bell()
            hosts = _host_leases(url, engine, bell, lines, lease)
            incarnation = Incarnation(database, marks if write else None)
            incarnation.recognise(hosts.hosts, accept=accept)
            writer, sealer = (
                _writer(database, signer, on_commit) if write else (None, None)
            )
        except BaseException:
            engine.dispose()
            raise

        def keep(note: Note) -> None:
            if isinstance(place, CommittedMark):
                place.note = note
            incarnation.remember(note)

        return cls(
            database,
            writer=writer,
            hosts=hosts,
            bell=bell,
            lines=lines,
            sealing=Sealing(sealer, on_seal, keep) if sealer and signer else None,
            incarnation=incarnation,
        )

    def create(self, stream: str, trace: Trace | None = None) -> SqlLog:
        """
        Return the log of a stream that has no events yet.

        Raises:
            StoreError: The store is opened to read only.
        """
        drafter = self._database.drafter(stream, trace)
        run_id = run_of(stream)
        projection = Projection(run_id) if run_id else None
        return self._log(drafter, Line(stream, places=False, projection=projection))

    async def resume_log(self, stream: str, trace: Trace | None = None) -> SqlLog:
        """
        Return the log of a stream, to append to its end.

        Raises:
            NotFoundError: It has no events.

            StoreError: The store is opened to read only.
        """
        self._database.require_write()
        return self._log(*await self._end(stream, trace))

    async def enter(
        self,
        stream: str,
        *events: Event,
        blobs: Mapping[str, bytes] | None = None,
        within: Within | None = None,
    ) -> None:
        """
        Begin a stream that nobody drives yet; *within* is called in the transaction.

        Raises:
            StoreError: They could not be stored.
        """
        await self.create(stream).append(*events, blobs=blobs, within=within)

    async def spent(self, agent: str) -> Spent:
        """See `ServingStore.spent`."""
        return await self.budgets.spent(agent)

    async def reserve(self, items: Sequence[Reservation]) -> Refused | None:
        """See `ServingStore.reserve`."""
        self._database.require_write()
        assert self._writer is not None  # noqa: S101 -- as above
        group = Group(Line("", places=False), (), {}, reserve=items)
        return await self._writer.append(group)

    async def claim(
        self,
        stream: str,
        *events: Event,
        after: int,
        trace: Trace | None = None,
        blobs: Mapping[str, bytes] | None = None,
    ) -> SqlLog:
        """
        Add *events* to a stream that no living host drives, and return its log.

        Raises:
            BusyError: A living host drives it, or it has grown since it was read.

            NotFoundError: It has no events.

            StoreError: They could not be stored.
        """
        self._database.require_write()
        drafter, line = await self._end(stream, trace)
        if drafter.seq != after:
            raise await self.leases.refusal(stream)
        guard = self.leases.takeover(stream)
        kept = self._writer.missing(blobs or {}) if self._writer else {}
        group = Group(line, drafter.draft(events), kept, guard=guard)
        try:
            await self._database.commit(group)
        except LeaseLost:
            raise await self.leases.refusal(stream) from None
        return self._log(drafter, line)

    async def _end(self, stream: str, trace: Trace | None) -> tuple[Drafter, Line]:
        end = await self._database.end(stream, trace)
        if end is None:
            raise NotFoundError(f"there is no stream {stream!r}")
        return end

    def _log(self, drafter: Drafter, line: Line) -> SqlLog:
        if self._writer is None:
            raise StoreError("the log is opened to read only")
        self._lines[line.stream] = line
        return SqlLog(self._writer, drafter, line, self._holds)

    async def restore(
        self, stream: str, *before: Event, actor: dict[str, JSON]
    ) -> None:
        """Make a copy a log of its own, and sign it; see `Incarnation.restore`."""
        await self.incarnation.restore(stream, *before, actor=actor)
        if self._sealing is not None:
            await self.seal()

    async def over(self, do: Callable[[Any], _T]) -> _T:
        """Return what *do* returns for a driver's connection, from a thread."""
        return await self._database.read(
            lambda connection: do(connection.connection.driver_connection)
        )

    @property
    def commits(self) -> int:
        """How many transactions this store has made."""
        return self._writer.commits if self._writer else 0

    async def seal(self) -> Note:
        """
        Return a checkpoint of everything that is committed, signed with our key.

        Raises:
            StoreError: The store cannot sign, or there is nothing to sign.
        """
        if self._sealing is None:
            raise StoreError("the log is opened without a key to sign it")
        return await self._sealing.force()

    async def aclose(self) -> None:
        """Store queued events, sign the log, and close the database."""
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
            await self.leases.aclose()
            self.tokens.close()
            place = self._database.place
            try:
                if self._writer is not None and isinstance(place, Whereabouts):
                    place.save(self.engine)
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


def _writer(
    database: Database, signer: Signer | None, on_commit: OnCommit
) -> tuple[Writer, Sealer]:
    """Return what appends, and what signs."""
    engine, clock, place = database.engine, database.clock, database.place
    if isinstance(place, Whereabouts):
        tree = SqliteTree(clock, signer)
        writer = Writer(SqliteCommitter(engine, tree, clock, place), on_commit)
        return writer, SqliteSealer(writer, tree)
    from .postgres import PostgresCommitter, PostgresTree  # noqa: PLC0415 -- an extra

    writer = Writer(PostgresCommitter(alone(engine, "append"), place), on_commit)
    return writer, PostgresTree(engine, clock, signer, place)


def _host_leases(
    url: str,
    engine: sa.Engine,
    bell: Bell,
    lines: MutableMapping[str, Line],
    lease_s: float,
) -> HostLeases:
    """Return the leases of the hosts that share the database at *url*."""
    file = file_of(url)
    if file is not None:
        return FileLeases(hosts_of(file))
    from .leases_postgres import PostgresLeases  # noqa: PLC0415 -- an extra

    return PostgresLeases(engine, bell, lines, lease_s)
