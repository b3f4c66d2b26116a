"""One tree over what several hosts append to one server, and no append waits for it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import anyio
import psycopg
import pytest

from caxton_host.core.log.bundle import parse_bundle
from caxton_host.core.log.chain import Verdict
from caxton_host.core.log.checkpoint import Note
from caxton_host.core.log.events import RunCompleted
from caxton_host.errors import StoreError
from caxton_host.lib.machine import SystemClock
from caxton_host.lib.signing import Keyring
from caxton_host.store import postgres
from caxton_host.store.bundle_store import check_bundle
from caxton_host.store.export import export
from caxton_host.store.sql import SqlStore
from caxton_host.store.verify import verify
from tests.unit.store.fakes import line, run_started

from .test_postgres import transaction


def opened(url: str, state: Path, told: list[Note] | None = None) -> SqlStore:
    return SqlStore.open(
        url,
        clock=SystemClock(),
        entropy=os.urandom,
        signer=Keyring(state),
        on_seal=(told if told is not None else []).append,
    )


async def checked(url: str, *states: Path, outside: tuple[Note, ...] = ()) -> Verdict:
    keys = [Keyring(state).public_key() for state in states]
    async with SqlStore.open(
        url, clock=SystemClock(), entropy=os.urandom, write=False
    ) as store:
        return await verify(store.reader, trusted=keys, outside=outside)


async def test_several_hosts_grow_one_tree(postgres_url: str, tmp_path: Path) -> None:
    states = [tmp_path / str(number) for number in range(3)]

    async def host(number: int) -> None:
        async with opened(postgres_url, states[number]) as store:
            logs = [store.create(f"run/{number}{name}") for name in "abcd"]

            async def run(position: int) -> None:
                await logs[position].append(run_started())
                for n in range(1, 20):
                    await logs[position].append(line(n))

            async with anyio.create_task_group() as group:
                for position in range(len(logs)):
                    group.start_soon(run, position)
            await store.seal()

    async with anyio.create_task_group() as group:
        for number in range(3):
            group.start_soon(host, number)
    found = await checked(postgres_url, *states)
    assert (found.verdict, found.events, found.behind) == ("intact", 240, 0)
    assert (await checked(postgres_url)).verdict == "signer_unknown"


async def test_what_an_open_transaction_hides_is_not_sequenced(
    postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "_OPEN_PATIENCE_S", 0.2)
    async with opened(postgres_url, tmp_path) as store:
        log = store.create("run/a")
        await log.append(run_started(), line(1))
        assert (await store.seal()).checkpoint.size == 2
        with transaction(postgres_url) as other:
            other.execute("SELECT pg_current_xact_id()")
            await log.append(line(2))  # law 3: it does not wait for the tree
            with pytest.raises(StoreError, match="does not end"):
                await store.seal()
        assert (await store.seal()).checkpoint.size == 3
    assert (await checked(postgres_url, tmp_path)).verdict == "intact"


async def test_an_event_that_was_drawn_early_and_came_late_has_its_place(
    postgres_url: str, tmp_path: Path
) -> None:
    async with opened(postgres_url, tmp_path) as store:
        await store.create("run/a").append(run_started())
        with transaction(postgres_url) as other:
            other.execute(
                "INSERT INTO events (stream, seq, type, schema_version, recorded_at,"
                " digest, hash) VALUES ('x', 1, 'X', 1, 1, %s, %s)",
                [bytes(32), bytes(32)],
            )
            await store.create("run/b").append(run_started())
            other.execute("COMMIT")
            other.execute("BEGIN")
        assert (await store.seal()).checkpoint.size == 3
        await store.create("run/c").append(run_started())
        leaf = store.reader.leaf
        assert await leaf("run/c", 1) is None
        signed = await store.seal()
        leaves = [await leaf(one, 1) for one in ("run/a", "x", "run/b", "run/c")]
        assert leaves == [0, 1, 2, 3]
    found = await checked(postgres_url, tmp_path)
    assert {fault.kind for fault in found.faults} == {"payload"}  # of the intruder
    assert found.checkpoint == signed.checkpoint


async def test_one_host_at_a_time_sequences(postgres_url: str, tmp_path: Path) -> None:
    told: list[Note] = []
    async with opened(postgres_url, tmp_path, told) as store:
        await store.create("run/a").append(run_started())
        sealer = store._sealing
        assert sealer is not None
        with transaction(postgres_url) as other:
            other.execute(postgres._LOCK)
            await sealer._seal()
            assert told == []
        await sealer._seal()
        assert [note.checkpoint.size for note in told] == [1]
        await store.create("run/b").append(run_started())
        await sealer._seal()  # within the second: sequenced, not signed
        assert len(told) == 1


async def test_a_host_signs_what_it_appends_and_then_asks_nothing(
    postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[Note] = []

    def sizes() -> list[int]:
        return [note.checkpoint.size for note in told]

    async def rounds(seals: Callable[[], object]) -> None:
        while not seals():
            await store._sealing._seal()  # type: ignore[union-attr]
            await anyio.sleep(0.05)

    async with opened(postgres_url, tmp_path, told) as store:
        assert store._sealing is not None
        log = store.create("run/a")
        with transaction(postgres_url) as other:
            other.execute("SELECT pg_current_xact_id()")
            await log.append(run_started())
            for _ in range(3):
                await store._sealing._seal()
        assert not told
        with anyio.fail_after(20):
            await rounds(lambda: sizes() == [1])  # the other transaction has ended
            await log.append(line(1))
            await rounds(lambda: sizes() == [1, 2])
            tree = store._sealing._sealer
            await rounds(lambda: tree._look_at > time.monotonic())  # type: ignore[attr-defined]
        async with SqlStore.open(
            postgres_url, clock=SystemClock(), entropy=os.urandom
        ) as dead:
            await dead.create("run/b").append(run_started())
        await anyio.sleep(1.1)
        await store._sealing._seal()
        assert sizes() == [1, 2]

        monkeypatch.setattr(tree, "_look_at", 0.0)  # a minute later
        await store._sealing._seal()

        assert sizes() == [1, 2, 3]


async def test_an_edit_with_its_chain_and_a_cut_tail_are_found(
    postgres_url: str, tmp_path: Path
) -> None:
    async with opened(postgres_url, tmp_path) as store:
        for name in "ab":
            await store.create(f"run/{name}").append(run_started(), line(1))
        signed = await store.seal()

    def forge(*statements: str) -> None:
        with psycopg.connect(postgres_url, autocommit=True) as connection:
            for table in ("events", "payloads", "checkpoints"):
                connection.execute(f"ALTER TABLE {table} DISABLE TRIGGER ALL".encode())
            for statement in statements:
                connection.execute(statement.encode())

    forge(
        "DELETE FROM payloads WHERE position IN"
        " (SELECT position FROM events WHERE stream = 'run/b')",
        "DELETE FROM events WHERE stream = 'run/b'",
    )
    (fault,) = (await checked(postgres_url, tmp_path)).faults
    assert fault.kind == "cut"
    forge("DELETE FROM checkpoints", "UPDATE events SET hash = sha256(hash)")
    kinds = [f.kind for f in (await checked(postgres_url, tmp_path)).faults]
    assert "envelope" in kinds
    found = await checked(postgres_url, tmp_path, outside=(signed,))
    assert found.verdict == "broken"


async def test_a_run_on_a_server_is_exported(postgres_url: str, tmp_path: Path) -> None:
    async with opened(postgres_url, tmp_path) as store:
        for name in "abc":
            await store.create(f"run/{name}").append(run_started(), line(1))
        old = await store.seal()
        await store.create("run/d").append(run_started())
        note = await store.seal()
        key = Keyring(tmp_path).public_key()
        data = await export(store.reader, "b", note, key, since=[old])
    bundle = parse_bundle(iter(data.splitlines(keepends=True)))
    assert check_bundle(bundle, [key], [old]).verdict == "intact"


async def test_an_erased_run_on_a_server_is_exported_with_its_erasure(
    postgres_url: str, tmp_path: Path
) -> None:
    async with opened(postgres_url, tmp_path) as store:
        done = RunCompleted(output=None, output_sha256="", fuel=0)
        await store.create("run/a").append(run_started(), done)
        await store.create("run/b").append(run_started())
        await store.erasure.erase("a", "host/1", line(1), actor={}, reason="asked for")
        note, key = await store.seal(), Keyring(tmp_path).public_key()
        data = await export(store.reader, "a", note, key)
    found = check_bundle(parse_bundle(iter(data.splitlines(keepends=True))), [key])
    assert (found.verdict, found.erased) == ("intact", 2)
