"""systemd is told that a host lives only while its log can be written."""

from __future__ import annotations

import asyncio
import select
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from caxton_host.app.service_manager import signs_of_life
from caxton_host.store.commit import Group, Outcome
from tests.unit.store.fakes import open_store


@pytest.fixture
def manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    monkeypatch.setenv("WATCHDOG_USEC", "2000")
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)) as it:
        it.bind(str(tmp_path / "notify"))
        it.settimeout(60)
        yield it


async def heard(manager: socket.socket) -> bytes:
    return await asyncio.to_thread(manager.recv, 100)


async def test_a_writer_that_hangs_does_not_live(
    manager: socket.socket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stuck, let = threading.Event(), threading.Event()
    async with open_store(tmp_path) as store:
        assert store._writer is not None
        committer = store._writer._committer
        commit = committer.commit

        def hang(groups: Sequence[Group], *, wait: bool = True) -> list[Outcome]:
            stuck.set()
            let.wait()
            return commit(groups, wait=wait)

        monkeypatch.setattr(committer, "commit", hang)
        monkeypatch.setattr(committer, "inline", False)
        async with signs_of_life(store.health.beat):
            assert await asyncio.to_thread(stuck.wait, 60)
            await asyncio.sleep(0.05)  # 50 times as long as between two signs of life.
            assert select.select([manager], [], [], 0)[0] == []
            let.set()
            assert await heard(manager) == b"WATCHDOG=1"


async def test_a_log_that_cannot_be_written_is_not_the_end_of_its_host(
    manager: socket.socket, tmp_path: Path
) -> None:
    async with open_store(tmp_path) as store:
        with store.engine.connect() as connection:
            connection.exec_driver_sql("DROP TABLE tree")
        async with signs_of_life(store.health.beat):
            assert await heard(manager) == b"WATCHDOG=1"
