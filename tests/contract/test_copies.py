"""A log is told from its copies: restored, cut off, moved, on another machine."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psycopg
import pytest
import sqlalchemy as sa

from caxton_host.core.calls import JSON
from caxton_host.core.log.events import Event, LogRestored, RunCompleted, RunSuspended
from caxton_host.core.log.runs import RESTORED, RunFilter
from caxton_host.core.names import stream_of
from caxton_host.errors import ConfigError, LogBrokenError, LogMovedError, StoreError
from caxton_host.lib.signing import Keyring
from caxton_host.store.engine import open_engine
from caxton_host.store.incarnation import Marks, signed_here
from caxton_host.store.sql import SqlStore
from caxton_host.store.verify import verify
from tests.postgres import Server, name_of
from tests.unit.store.fakes import FakeClock, FakeEntropy, line, run_started, url

ACTOR: dict[str, JSON] = {"kind": "local", "id": "ann", "authenticated": False}
DONE = RunCompleted(output=None, output_sha256="00", fuel=None)
HELD = RunSuspended(reason=RESTORED)
WAITS = RunSuspended(reason="approval", call=1)


@dataclass(kw_only=True)
class Database:
    """A log, and copies of it."""

    folder: Path
    url: str
    server: Server | None = None
    clock: FakeClock = field(default_factory=FakeClock)

    def marks(self, machine: str = "here") -> Marks:
        return Marks.of(self.folder / machine)

    def mark(self) -> Path:
        """Return where the newest checkpoint of the one log is remembered here."""
        (mark,) = (self.folder / "here" / "signed").glob("?" * 32)
        return mark

    @asynccontextmanager
    async def open(
        self, *, machine: str = "here", accept: bool = False, at: str = ""
    ) -> AsyncIterator[SqlStore]:
        opened = SqlStore.open(
            at or self.url,
            clock=self.clock,
            entropy=FakeEntropy(),
            signer=Keyring(self.folder / "keys"),
            marks=self.marks(machine),
            accept=accept,
        )
        async with opened as store:
            yield store

    def copied(self) -> str:
        """Return the url of a copy of the log, which nobody has open."""
        if self.server is not None:
            return self.server.make(template=name_of(self.url))
        copy = self.folder / "copy"
        copy.mkdir()
        shutil.copy(self.folder / "caxton.db", copy)
        return url(copy)

    def restore(self, copy: str) -> None:
        """Put a copy in the place of the log."""
        if self.server is None:
            shutil.copy(self.folder / "copy" / "caxton.db", self.folder)
            return
        name = name_of(self.url)
        self.server.execute(f"DROP DATABASE {name} WITH (FORCE)")
        self.server.execute(f"ALTER DATABASE {name_of(copy)} RENAME TO {name}")

    def execute(self, statement: str) -> None:
        engine = open_engine(self.url, write=True)
        with engine.connect() as connection:
            connection.execute(sa.text(statement))
        engine.dispose()


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Database:
    if request.param == "sqlite":
        return Database(folder=tmp_path, url=url(tmp_path))
    server: Server = request.getfixturevalue("postgres")
    return Database(folder=tmp_path, url=server.make(), server=server)


@pytest.fixture
def shared(postgres: Server, tmp_path: Path) -> Database:
    return Database(folder=tmp_path, url=postgres.make(), server=postgres)


@pytest.fixture
def alone(tmp_path: Path) -> Database:
    return Database(folder=tmp_path, url=url(tmp_path))


async def begun(store: SqlStore, *runs: str) -> None:
    for run in runs:
        await store.create(f"run/{run}").append(run_started(), line(1))


async def last(store: SqlStore, run: str) -> Event | None:
    return (await store.reader.read(f"run/{run}"))[-1].event


async def test_a_log_that_lacks_what_was_signed_here_is_refused_until_that_is_accepted(
    database: Database,
) -> None:  # laws 7 and 10
    async with database.open() as store:
        await begun(store, "a")
    copy = database.copied()
    async with database.open() as store:
        await begun(store, "b")
        had = (await store.seal()).checkpoint
    database.restore(copy)

    for _ in range(2):
        with pytest.raises(LogBrokenError, match="2 events of 4 ") as refused:
            async with database.open():
                pass
        assert refused.value.fix == "caxton db accept-copy"
    async with database.open(accept=True) as store:
        assert store.incarnation.copy
        await store.restore("host/9", line(1), actor=ACTOR)

        restored = await last_of_host(store)
        assert (restored.size, restored.had_size, restored.runs) == (2, 4, 1)
        assert restored.had_root == had.root.hex()
        assert restored.actor == ACTOR
        assert await last(store, "a") == HELD
    async with database.open() as store:
        assert store.incarnation.copy is None
        known = Keyring(database.folder / "keys").known()
        assert (await verify(store.reader, trusted=known)).verdict == "intact"


async def last_of_host(store: SqlStore) -> LogRestored:
    event = (await store.reader.read("host/9"))[-1].event
    assert isinstance(event, LogRestored)
    return event


async def test_every_run_of_a_copy_that_went_on_is_suspended_and_no_other(
    database: Database,
) -> None:  # law 7
    async with database.open() as store:
        await store.leases.join("host/1")
        await begun(store, "runs", "waits", "done")
        for run, event in (("waits", WAITS), ("done", DONE)):
            await (await store.resume_log(f"run/{run}")).append(event)
    copy = database.copied()

    async with database.open(machine="there", at=copy) as store:
        assert store.incarnation.copy
        assert store.incarnation.copy.had is None
        await store.restore("host/9", actor=ACTOR)

        assert await last(store, "runs") == await last(store, "waits") == HELD
        assert await last(store, "done") == DONE
        rows = await store.reader.runs(9, RunFilter(state="suspended"))
        assert {(row.run_id, row.owner) for row in rows} == {
            ("runs", None),
            ("waits", None),
        }
        assert await store.leases.hosts() == []
        assert await store.leases.idle() == []
        assert (await last_of_host(store)).runs == 2


async def test_a_copy_that_is_half_restored_is_a_copy_still(alone: Database) -> None:
    async with alone.open() as store:
        await begun(store, "a")
    copy = alone.copied()
    async with alone.open(machine="there", at=copy) as store:
        await store.create("host/9").append(line(1))
        await (await store.resume_log("run/a")).append(HELD)  # and a crash

    async with alone.open(machine="there", at=copy) as store:
        assert store.incarnation.copy
        await store.restore("host/8", actor=ACTOR)
    async with alone.open(machine="there", at=copy) as store:
        assert store.incarnation.copy is None


async def test_a_log_of_an_older_release_is_taken_as_it_is(database: Database) -> None:
    async with database.open() as store:
        await begun(store, "a")
    database.execute("UPDATE tree SET incarnation = NULL, place = NULL")

    async with database.open(machine="there") as store:
        assert store.incarnation.copy is None
        assert await last(store, "a") == line(1)
    async with database.open(machine="there") as store:
        assert store.incarnation.copy is None


async def test_a_file_that_was_moved_is_the_same_log(alone: Database) -> None:
    async with alone.open() as store:
        await begun(store, "a")
    (alone.folder / "other").mkdir()
    (alone.folder / "caxton.db").rename(alone.folder / "other" / "caxton.db")

    async with (
        alone.open(at=url(alone.folder / "other")) as store,
        alone.open() as another,
    ):
        assert store.incarnation.copy is another.incarnation.copy is None


async def test_of_two_copies_that_went_on_one_is_refused(alone: Database) -> None:
    async with alone.open() as store:
        await begun(store, "a")
    copy = alone.copied()
    async with alone.open() as store:
        await begun(store, "b")

    async with alone.open(machine="there", at=copy) as store:
        await begun(store, "c", "d")  # as large as the other one
    alone.restore(copy)
    with pytest.raises(LogBrokenError, match="lacks the 4 events"):
        async with alone.open():
            pass


async def test_who_opens_a_log_that_a_living_host_has_open_knows_it_too(
    alone: Database,
) -> None:
    async with alone.open() as store:
        await store.leases.join("host/1")
        await begun(store, "a")

        async with alone.open(machine="of another user") as other:
            assert other.incarnation.copy is None
    async with alone.open(machine="of another user") as other:
        assert other.incarnation.copy is None


async def test_what_is_signed_first_is_found_without_the_write_ahead_log(
    alone: Database,
) -> None:  # law 10
    async with alone.open() as store:
        await begun(store, "a")
        await store.seal()
        # As after a kill -9 of a host whose write-ahead log was deleted.
        shutil.copy(alone.folder / "caxton.db", alone.folder / "left.db")
    (alone.folder / "left.db").rename(alone.folder / "caxton.db")

    with pytest.raises(LogBrokenError, match="0 events of 2 "):
        async with alone.open():
            pass


def later(place: str) -> str:
    server, timeline = place.rsplit("/", 1)
    return f"{server}/{int(timeline, 16) - 1:08X}"


async def test_a_replica_that_took_over_with_all_events_is_no_copy(
    shared: Database,
) -> None:
    assert shared.server is not None
    async with shared.open() as store:
        await begun(store, "a")
    query = "SELECT place FROM tree"
    ((place,),) = shared.server.execute(query, name_of(shared.url))
    shared.execute(f"UPDATE tree SET place = '{later(place)}'")  # noqa: S608 -- ours

    async with shared.open() as store:
        assert store.incarnation.copy is None
    assert shared.server.execute(query, name_of(shared.url)) == [(place,)]
    # Who has never seen the log cannot know whether it is all there.
    shared.execute(f"UPDATE tree SET place = '{later(place)}'")  # noqa: S608 -- ours
    async with shared.open(machine="there") as store:
        assert store.incarnation.copy


async def test_a_host_that_joins_a_shared_log_is_no_sign_of_a_copy(
    shared: Database,
) -> None:
    async with shared.open() as store:
        await begun(store, "a")

    async with shared.open(machine="there") as store:
        assert store.incarnation.copy is None


async def test_a_user_who_may_not_ask_which_server_it_is_opens_the_log(
    shared: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with shared.open() as store:
        await begun(store, "a")
    monkeypatch.setattr(
        "caxton_host.store.incarnation._PLACE", "SELECT pg_read_file('PG_VERSION')"
    )
    assert shared.server is not None
    name = name_of(shared.url)
    role = f"{name}_host"
    shared.server.execute(f"CREATE ROLE {role} LOGIN")
    everything = f"SELECT, INSERT, UPDATE ON ALL TABLES IN SCHEMA public TO {role}"
    shared.server.execute(f"GRANT {everything}", name)

    async with shared.open(at=shared.server.url(name, role)) as store:
        assert store.incarnation.copy is None


@contextmanager
def set_back(shared: Database, *statements: str) -> Iterator[None]:
    """Have the server come back without what *statements* take."""
    assert shared.server is not None
    with closing(
        psycopg.connect(shared.server.url(name_of(shared.url)), autocommit=True)
    ) as connection:
        for statement in statements:
            connection.execute(statement.encode())
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        yield


WITHOUT_EVENT = (
    "ALTER TABLE events DISABLE TRIGGER ALL",
    "ALTER TABLE payloads DISABLE TRIGGER ALL",
    "DELETE FROM events WHERE stream = 'run/a' AND seq = 2",
)
WITHOUT_CHECKPOINT = (
    "ALTER TABLE checkpoints DISABLE TRIGGER ALL",
    "DELETE FROM checkpoints WHERE size = (SELECT max(size) FROM checkpoints)",
)


@pytest.mark.parametrize("lost", [WITHOUT_EVENT, WITHOUT_CHECKPOINT])
async def test_a_host_that_is_up_writes_nothing_to_a_server_that_was_set_back(
    shared: Database, lost: tuple[str, ...]
) -> None:  # laws 7 and 10
    async with shared.open() as store:
        await begun(store, "a")
        await store.seal()
        log = await store.resume_log("run/a")
        with set_back(shared, *lost):
            with pytest.raises(LogMovedError, match="lacks events"):
                await store.health.check()
            with pytest.raises(StoreError, match="lacks events"):
                await log.append(line(2))
            with pytest.raises(StoreError, match="lacks events"):
                await store.create("run/b").append(line(1))
            with pytest.raises(StoreError, match="lacks events"):
                await store.claim(
                    "run/a", WAITS, after=len(await store.reader.read("run/a"))
                )


async def test_a_host_goes_on_with_a_server_that_lost_nothing(
    shared: Database,
) -> None:
    async with shared.open() as store:
        await begun(store, "a")
        await store.seal()
        log = await store.resume_log("run/a")
        with set_back(shared):
            await log.append(line(2))

            await store.health.check()
        assert len(await store.reader.read(stream_of("a"))) == 3


async def test_marks_of_a_log_never_go_back_and_only_their_owner_reads_them(
    alone: Database,
) -> None:
    async with alone.open() as store:
        await begun(store, "a")
        older = await store.seal()
        await begun(store, "b")
        newer = await store.seal()
    mark = alone.mark()
    marks = alone.marks()

    marks.keep(mark.name, older)

    assert marks.newest(mark.name) == newer
    assert mark.stat().st_mode & 0o777 == 0o600
    async with alone.open() as store:
        assert signed_here(store.engine, marks) == newer


async def test_a_damaged_mark_and_a_name_that_is_none_are_refused(
    alone: Database,
) -> None:
    async with alone.open() as store:
        await begun(store, "a")
    mark = alone.mark()
    mark.write_bytes(b"x" * 100_000)
    with pytest.raises(ConfigError, match="damaged") as damaged:
        async with alone.open():
            pass
    assert str(mark) in damaged.value.fix
    # law 9: a name of the database becomes that of a file
    alone.execute("UPDATE tree SET incarnation = '../../keys/signing.key'")
    with pytest.raises(LogBrokenError, match="not one that a host gives"):
        async with alone.open():
            pass


async def test_a_copy_beside_its_original_becomes_a_log_of_its_own(
    alone: Database,
) -> None:  # law 7
    async with alone.open() as store:
        await begun(store, "a")
    copy = alone.copied()

    async with alone.open(at=copy) as other:
        assert other.incarnation.copy is not None
        await other.restore("host/2", actor=ACTOR)
        await begun(other, "b")
    async with alone.open() as store:  # and the original lacks nothing
        assert store.incarnation.copy is None
        await begun(store, "c")
    async with alone.open(at=copy) as other:
        assert other.incarnation.copy is None


async def test_a_log_that_was_moved_is_itself_and_no_copy(alone: Database) -> None:
    async with alone.open() as store:
        await begun(store, "a")
    there = alone.folder / "there"
    there.mkdir()
    (alone.folder / "caxton.db").rename(there / "caxton.db")

    async with alone.open(at=url(there)) as store:
        assert store.incarnation.copy is None
    shutil.copy(there / "caxton.db", alone.folder)
    async with alone.open() as store:
        assert store.incarnation.copy is not None


async def test_a_copy_that_lacks_nothing_signed_is_accepted_as_one(
    alone: Database,
) -> None:  # law 7
    async with alone.open() as store:
        await begun(store, "a")
        await store.seal()
    copy = alone.copied()
    (alone.folder / "caxton.db").rename(alone.folder / "lost")
    alone.restore(copy)
    async with alone.open(accept=True) as store:
        assert store.incarnation.copy
        await store.restore("host/9", line(1), actor=ACTOR)
        assert await last(store, "a") == HELD
    async with alone.open(accept=True) as store:
        assert store.incarnation.copy is None
