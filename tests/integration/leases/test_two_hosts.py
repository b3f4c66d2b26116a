"""Hosts are processes: stopped, killed and racing, over real databases."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import anyio
import pytest

from caxton_host.core.calls import JSON
from caxton_host.core.log.events import RunResumed, ToolInvoked
from caxton_host.errors import BusyError
from caxton_host.runs.cancellation import cancel_idle
from caxton_host.store import migrate
from caxton_host.store.sql import SqlStore
from tests.unit.store.fakes import run_started, url

from .driver import LEASE, opened

ROOT = Path(__file__).parents[3]
SOON = 60.0
OLD, NEW = "host/old", "host/new"


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgresql":
        found: str = request.getfixturevalue("postgres_url")
        return found
    migrate.upgrade(url(tmp_path))
    return url(tmp_path)


@contextmanager
def host(*words: str) -> Generator[subprocess.Popen[str]]:
    """Start a host, and end it and what it started at the latest with the block."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.integration.leases.driver", *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=ROOT,
        text=True,
    ) as child:
        try:
            yield child
        finally:
            child.kill()


def read(child: subprocess.Popen[str]) -> str:
    assert child.stdout
    line = child.stdout.readline()
    assert line, "the host has ended"
    return line.strip()


def effects(folder: Path) -> list[int]:
    found = folder / "effects"
    return [int(one) for one in found.read_text().split()] if found.exists() else []


def until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + SOON
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


async def free(store: SqlStore, run_id: str) -> None:
    with anyio.fail_after(SOON):
        while await store.leases.owner(run_id) is not None:  # noqa: ASYNC110 -- nobody tells
            await anyio.sleep(0.02)


def resumed() -> RunResumed:
    return RunResumed(
        actor={}, host=NEW, epoch=2, reason="requested", grants_sha256="00"
    )


async def test_host_that_was_stopped_past_its_lease_sends_nothing_more(
    postgres_url: str, tmp_path: Path
) -> None:
    with host("drive", postgres_url, OLD, str(tmp_path)) as old:
        read(old)
        run_id = read(old)
        until(lambda: len(effects(tmp_path)) > 5)
        async with opened(postgres_url) as store:
            await store.leases.join(NEW)
            history = await store.reader.read(f"run/{run_id}")
            with pytest.raises(BusyError, match=OLD):
                await store.claim(f"run/{run_id}", resumed(), after=history[-1].seq)

            old.send_signal(signal.SIGSTOP)
            await free(store, run_id)
            assert [row.run_id for row in await store.leases.idle()] == [run_id]
            history = await store.reader.read(f"run/{run_id}")
            log = await store.claim(f"run/{run_id}", resumed(), after=history[-1].seq)
            sent = effects(tmp_path)
            old.send_signal(signal.SIGCONT)

            # It ends by itself, its worker stopped: the agent had calls to make.
            # Waited for in a thread: this host renews its own lease meanwhile.
            out, _ = await asyncio.to_thread(old.communicate, timeout=SOON)
            assert out.startswith("lost: ")
            assert old.returncode == 0
            assert effects(tmp_path) == sent  # law 7
            assert log.holds()
            await log.append()
            history = await store.reader.read(f"run/{run_id}")
            assert history[-1].event == resumed()  # it wrote nothing more
            known = [e.event.call for e in history if isinstance(e.event, ToolInvoked)]
            assert set(sent) <= set(known)  # law 2


async def test_host_that_was_stopped_and_not_missed_goes_on(
    postgres_url: str, tmp_path: Path
) -> None:
    with host("drive", postgres_url, OLD, str(tmp_path)) as old:
        read(old)
        run_id = read(old)
        until(lambda: len(effects(tmp_path)) > 5)
        old.send_signal(signal.SIGSTOP)
        async with opened(postgres_url) as store:
            await free(store, run_id)
            old.send_signal(signal.SIGCONT)
            end = read(old)
            # Either it saw its lease renewed in time, or it let go by itself.
            assert end.startswith(("ended: RunCompleted", "lost: the lease"))
            history = await store.reader.read(f"run/{run_id}")
            known = [e.event.call for e in history if isinstance(e.event, ToolInvoked)]
            assert sorted(set(effects(tmp_path))) == effects(tmp_path)
            assert set(effects(tmp_path)) <= set(known)


async def test_stopped_host_on_sqlite_is_still_the_owner(tmp_path: Path) -> None:
    migrate.upgrade(url(tmp_path))
    with host("drive", url(tmp_path), OLD, str(tmp_path)) as old:
        read(old)
        run_id = read(old)
        until(lambda: len(effects(tmp_path)) > 5)
        old.send_signal(signal.SIGSTOP)
        async with opened(url(tmp_path)) as store:
            await anyio.sleep(2 * LEASE)

            assert await store.leases.owner(run_id) == OLD
            assert await store.leases.idle() == []
        count = len(effects(tmp_path))
        old.send_signal(signal.SIGCONT)
        until(lambda: len(effects(tmp_path)) > count)


async def test_run_of_a_killed_host_is_free(database: str, tmp_path: Path) -> None:
    with host("drive", database, OLD, str(tmp_path)) as old:
        server = int(read(old).removeprefix("server "))
        run_id = read(old)
        until(lambda: len(effects(tmp_path)) > 5)
        old.kill()
        old.wait()
        os.kill(server, 0)  # it lives
        async with opened(database) as store:
            await store.leases.join(NEW)
            if database.startswith("sqlite"):
                # At once, though a child of the host lives on: it has no such lock.
                assert await store.leases.owner(run_id) is None
            await free(store, run_id)
            history = await store.reader.read(f"run/{run_id}")

            await store.claim(f"run/{run_id}", resumed(), after=history[-1].seq)

            assert await store.leases.owner(run_id) == NEW
        os.kill(server, signal.SIGKILL)


async def test_two_hosts_race_for_each_run_and_one_wins(database: str) -> None:
    streams = [f"run/{i:02}" for i in range(40)]
    async with opened(database) as store:
        for stream in streams:
            await store.create(stream).append(run_started())

        with (
            host("claim", database, "host/a", *streams) as one,
            host("claim", database, "host/b", *streams) as two,
        ):
            both = (one, two)
            assert [read(child) for child in both] == ["ready", "ready"]
            for child in both:
                assert child.stdin
                child.stdin.write("\n")
                child.stdin.flush()
            won = [list(iter(partial(read, child), "done")) for child in both]

            assert sorted(won[0] + won[1]) == streams
            for stream in streams:
                owner = "host/a" if stream in won[0] else "host/b"
                held = await store.leases.owner(stream.removeprefix("run/"))
                assert held in {owner, None}  # a host may be too busy to renew it
                assert len(await store.reader.read(stream)) == 2


async def test_request_ends_the_run_of_another_process(
    database: str, tmp_path: Path
) -> None:
    actor: dict[str, JSON] = {"kind": "local", "id": "bob", "authenticated": False}
    with host("drive", database, OLD, str(tmp_path)) as old:
        read(old)
        run_id = read(old)
        until(lambda: len(effects(tmp_path)) > 5)
        async with opened(database) as store:
            with pytest.raises(BusyError):
                await cancel_idle(store, run_id, actor, "")

            number = await store.requests.ask_run(run_id, "cancel", actor, "no more")

            assert read(old) == "ended: RunCancelled"
            assert old.wait(SOON) == 0
            assert await store.requests.outcome(number) == "cancelled"
            history = await store.reader.read(f"run/{run_id}")
            assert history[-1].event is not None
            assert (history[-1].event.actor, history[-1].event.reason) == (  # type: ignore[attr-defined]
                actor,
                "no more",
            )
