# ruff: noqa: S608 -- statements of an attacker, in full
"""A forger with all rights over a database meets a checkpoint kept elsewhere."""

from __future__ import annotations

import asyncio
import random  # noqa: TID251 -- seeded: where to corrupt
import shutil
import sqlite3
import tracemalloc
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from caxton_host.core.calls import JSON
from caxton_host.core.log.bundle import parse_bundle
from caxton_host.core.log.chain import (
    GENESIS,
    Verdict,
    envelope,
    event_hash,
    payload_digest,
)
from caxton_host.core.log.checkpoint import Checkpoint, Note, parse_note
from caxton_host.core.log.events import RunCompleted, ToolCompleted
from caxton_host.core.log.tree import Frontier
from caxton_host.errors import LogBrokenError, NotFoundError, StoreError
from caxton_host.lib.codec import sha256
from caxton_host.lib.signing import Keyring
from caxton_host.store import seals
from caxton_host.store.bundle_store import BundleStore, check_bundle
from caxton_host.store.export import export
from caxton_host.store.seals import unsigned
from caxton_host.store.sql import SqlStore
from caxton_host.store.verify import verify, verify_since

from .fakes import FakeClock, FakeEntropy, eventually, line, run_started, url

Forge = Callable[[sqlite3.Connection], object]


def opened(
    folder: Path, *, write: bool = True, told: list[Note] | None = None
) -> SqlStore:
    return SqlStore.open(
        url(folder),
        clock=FakeClock(),
        entropy=FakeEntropy(),
        write=write,
        signer=Keyring(folder / "state"),
        on_seal=(told if told is not None else []).append,
    )


async def written(folder: Path) -> list[Note]:
    """Write three runs that overlap; told of the checkpoints of 9 and 15 events."""
    told: list[Note] = []
    async with opened(folder, told=told) as store:
        logs = [store.create(f"run/{name}") for name in "abc"]
        for log in logs:
            await log.append(run_started())
        for n in range(1, 5):
            for log in logs:
                await log.append(line(n))
            if n == 2:
                await store.seal()
    return told


async def checked(
    folder: Path, *outside: Note, trusted: list[bytes] | None = None, run: str = ""
) -> Verdict:
    keys = Keyring(folder / "state").known() if trusted is None else trusted
    async with opened(folder, write=False) as store:
        return await verify(store.reader, run or None, trusted=keys, outside=outside)


def forge(folder: Path, change: Forge) -> None:
    with closing(sqlite3.connect(folder / "caxton.db")) as connection:
        connection.execute("PRAGMA synchronous = OFF")
        triggers = "SELECT name FROM sqlite_master WHERE type = 'trigger'"
        for (name,) in connection.execute(triggers).fetchall():
            connection.execute(f"DROP TRIGGER {name}")
        change(connection)
        connection.commit()


def recompute(connection: sqlite3.Connection) -> None:
    """Compute digests, chains and the tree again, as a forger who knows how."""
    heads: dict[str, tuple[int, bytes]] = {}
    rows = connection.execute(
        "SELECT position, stream, type, schema_version, recorded_at, trace_id, span_id,"
        " salt, payload FROM events JOIN payloads USING (position) ORDER BY position"
    ).fetchall()
    tree = Frontier()
    for position, stream, type_, version, at, trace, span, salt, payload in rows:
        seq, previous = heads.get(stream, (0, GENESIS))
        seq += 1
        digest = payload_digest(salt, payload)
        head = envelope(stream, seq, type_, version, at, trace, span)
        hash_ = event_hash(previous, head, digest)
        heads[stream] = seq, hash_
        tree.extend([hash_])
        connection.execute(
            "UPDATE events SET seq = ?, digest = ?, hash = ? WHERE position = ?",
            (seq, digest, hash_, position),
        )
    connection.execute(
        "UPDATE tree SET size = ?, frontier = ?, position = ?",
        (tree.size, tree.to_bytes(), tree.size),
    )


def renumber(connection: sqlite3.Connection) -> None:
    """Close the gaps that removed events left."""
    found = connection.execute("SELECT position FROM events ORDER BY position")
    for new, (old,) in enumerate(found.fetchall(), 1):
        for table in ("events", "payloads"):
            connection.execute(
                f"UPDATE {table} SET position = ? WHERE position = ?", (new, old)
            )


def remove(where: str) -> Forge:
    def change(connection: sqlite3.Connection) -> None:
        chosen = f"SELECT position FROM events WHERE {where}"
        connection.execute(f"DELETE FROM payloads WHERE position IN ({chosen})")
        connection.execute(f"DELETE FROM events WHERE {where}")
        renumber(connection)
        recompute(connection)

    return change


def edit_and_recompute(connection: sqlite3.Connection) -> None:
    connection.execute("UPDATE payloads SET payload = x'80' WHERE position = 9")
    recompute(connection)


def swap_across_runs(connection: sqlite3.Connection) -> None:
    for old, new in ((5, 99), (6, 5), (99, 6)):
        for table in ("events", "payloads"):
            connection.execute(
                f"UPDATE {table} SET position = ? WHERE position = ?", (new, old)
            )
    recompute(connection)


def swap_times_too(connection: sqlite3.Connection) -> None:
    connection.execute(
        "UPDATE events SET recorded_at = 1000000 + position WHERE position > 1"
    )
    recompute(connection)
    swap_across_runs(connection)


async def test_an_untouched_log_is_intact(tmp_path: Path) -> None:
    told = await written(tmp_path)
    assert [note.checkpoint.size for note in told] == [9, 15]
    found = await checked(tmp_path, *told)
    assert (found.verdict, found.faults, found.behind) == ("intact", (), 0)
    assert found.checkpoint == told[-1].checkpoint
    assert await checked(tmp_path, *told[::-1]) == found
    one = await checked(tmp_path, *told, run="run/b")
    assert (one.verdict, one.streams, one.events) == ("intact", 1, 5)


ATTACKS: dict[str, tuple[Forge, str, str]] = {
    "an edited event, its chain recomputed": (
        edit_and_recompute,
        "rewritten",
        "events 2 to 9 of the log are not those that were signed",
    ),
    "a whole run, removed and renumbered": (
        remove("stream = 'run/b'"),
        "removed",
        "the log has 10 events of 15",
    ),
    "one event, removed and renumbered": (
        remove("position = 6"),
        "removed",
        "the log has 14 events of 15",
    ),
    "a cut tail": (remove("position > 12"), "cut", "the log has 12 events of 15"),
    "one behind the second last checkpoint": (
        remove("position = 11"),
        "cut",
        "its tail was cut off, or events after the first 9 were removed",
    ),
    "events moved across runs": (swap_across_runs, "rewritten", "events 2 to 9"),
}


@pytest.mark.parametrize("name", ATTACKS)
async def test_a_forger_who_recomputes_everything_is_named(
    tmp_path: Path, name: str
) -> None:
    change, kind, words = ATTACKS[name]
    await written(tmp_path)
    forge(tmp_path, change)
    for run in ("", "run/a"):
        found = await checked(tmp_path, run=run)
        assert found.verdict == "broken"
        assert [fault.kind for fault in found.faults] == [kind]
        assert words in str(found.faults[0])


@pytest.mark.parametrize("name", ATTACKS)
async def test_a_forger_who_also_removes_checkpoints_meets_those_kept_elsewhere(
    tmp_path: Path, name: str
) -> None:
    change, kind, _ = ATTACKS[name]
    told = await written(tmp_path)
    forge(tmp_path, change)
    forge(tmp_path, lambda db: db.execute("DELETE FROM checkpoints"))
    assert (await checked(tmp_path)).verdict == "signer_unknown"
    found = await checked(tmp_path, *told)
    assert [fault.kind for fault in found.faults] == [kind]


async def test_a_large_log_is_judged_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("caxton_host.store.verify.LARGE", 0)
    monkeypatch.setattr("caxton_host.store.merkle_process._FIRST", 3)
    first, last = await written(tmp_path)
    assert (await checked(tmp_path, first, last)).verdict == "intact"
    forge(tmp_path, edit_and_recompute)
    found = await checked(tmp_path, first, last)
    assert [fault.kind for fault in found.faults] == ["rewritten"]
    # Only the last that is compared shows it.
    forge(tmp_path, lambda connection: connection.execute("DELETE FROM checkpoints"))
    found = await checked(tmp_path, last)
    assert [fault.kind for fault in found.faults] == ["rewritten"]


async def test_a_verification_tells_how_far_it_is_and_is_ended_by_who_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("caxton_host.store.verify._AT_ONCE", 4)
    await written(tmp_path)
    told = list[int]()

    def stop(events: int) -> None:
        told.append(events)
        if events > 4:
            raise TimeoutError

    async with opened(tmp_path, write=False) as store:
        keys = Keyring(tmp_path / "state").known()
        _, place = await verify_since(
            store.reader, None, trusted=keys, told=told.append
        )
        every = [*told]
        told.clear()
        with pytest.raises(TimeoutError):
            await verify_since(store.reader, None, trusted=keys, told=stop)
        stopped = [*told]
        told.clear()
        await verify_since(store.reader, place, trusted=keys, told=told.append)

    assert every == [4, 8, 12, 15]
    assert stopped == [4, 8]
    assert all(events == 15 for events in told)


async def test_a_stored_tree_that_is_none_is_said_to_be_broken(tmp_path: Path) -> None:
    await written(tmp_path)
    forge(tmp_path, lambda db: db.execute("UPDATE tree SET frontier = x'00'"))
    async with opened(tmp_path, write=False) as store:
        with pytest.raises(LogBrokenError, match="stored tree"):
            await store.reader.tree()


async def test_times_that_go_back_say_that_events_were_moved(tmp_path: Path) -> None:
    await written(tmp_path)
    forge(tmp_path, swap_times_too)
    (fault,) = (await checked(tmp_path)).faults
    assert fault.kind == "moved"


async def test_a_tail_cut_behind_the_last_checkpoint_is_said_to_be_invisible(
    tmp_path: Path,
) -> None:
    # attack 45
    told = await written(tmp_path)
    forge(tmp_path, remove("position > 12"))
    forge(tmp_path, lambda db: db.execute("DELETE FROM checkpoints WHERE size > 9"))
    found = await checked(tmp_path, told[0])
    assert (found.verdict, found.behind) == ("intact", 3)


async def test_a_cut_tail_without_the_tree_is_found_by_the_tree(tmp_path: Path) -> None:
    await written(tmp_path)

    def cut(connection: sqlite3.Connection) -> None:
        connection.execute("DELETE FROM checkpoints WHERE size > 9")
        connection.execute("DELETE FROM payloads WHERE position > 12")
        connection.execute("DELETE FROM events WHERE position > 12")

    forge(tmp_path, cut)
    (fault,) = (await checked(tmp_path)).faults
    assert fault.kind == "cut"
    # law 10: nor does a host go on as if nothing had been there.
    async with opened(tmp_path) as store:
        with pytest.raises(StoreError, match="lost events") as lost:
            await store.create("run/d").append(run_started())
        assert isinstance(lost.value, LogBrokenError)
        with pytest.raises(LogBrokenError, match="lost events"):
            await store.seal()


@pytest.mark.parametrize("page", [2, 1000])
async def test_an_event_removed_without_more_is_found_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, page: int
) -> None:
    monkeypatch.setattr("caxton_host.store.verify._AT_ONCE", page)
    await written(tmp_path)

    def change(connection: sqlite3.Connection) -> None:
        for position in (5, 12):
            for table in ("payloads", "events"):
                connection.execute(f"DELETE FROM {table} WHERE position = {position}")

    forge(tmp_path, change)
    faults = (await checked(tmp_path)).faults
    assert faults[0].kind == "missing"
    # In the log the first is told: what follows is shifted.
    of_log = [one.message for one in faults if one.kind == "missing" and not one.stream]
    assert of_log == ["the event at position 5 of the log is missing"]


FORGED: dict[str, tuple[str, str]] = {
    "root": ("note", "forged"),
    "signature": ("signature", "forged"),
    "size": ("size", "forged"),
    "key": ("key", "forged"),
    "form": ("form", "not a signed checkpoint"),
}


@pytest.mark.parametrize("name", FORGED)
async def test_a_forged_checkpoint_is_named(tmp_path: Path, name: str) -> None:
    told = await written(tmp_path)
    note = told[0]
    other = Checkpoint(origin=note.checkpoint.origin, size=9, root=bytes(32)).text()
    changes = {
        "root": ("note", f"{other}\n{note.text().split(chr(10) * 2)[1]}".encode()),
        "signature": (
            "note",
            Note.of(note.checkpoint, told[1].signatures).text().encode(),
        ),
        "size": ("size", 8),
        "key": ("public_key", bytes(32)),
        "form": ("note", b"none"),
    }
    column, value = changes[name]
    forge(
        tmp_path,
        lambda db: db.execute(
            f"UPDATE checkpoints SET {column} = ? WHERE size = 9", (value,)
        ),
    )
    found = await checked(tmp_path)
    assert {fault.kind for fault in found.faults} == {"checkpoint"}
    assert FORGED[name][1] in str(found.faults[0])


async def test_a_log_signed_by_another_is_of_an_unknown_signer(tmp_path: Path) -> None:
    told = await written(tmp_path)
    key = Keyring(tmp_path / "state").public_key()
    for trusted in ([], [bytes(32)]):
        found = await checked(tmp_path, trusted=trusted)
        assert (found.verdict, found.faults) == ("signer_unknown", ())
        assert found.signer is not None
        assert found.signer.public_key == key
    assert (await checked(tmp_path, told[0], trusted=[key])).verdict == "intact"


async def test_a_copy_may_lag_behind_a_checkpoint_that_was_kept_elsewhere(
    tmp_path: Path,
) -> None:
    copy = tmp_path / "copy"
    copy.mkdir()
    async with opened(tmp_path) as store:
        log = store.create("run/a")
        await log.append(run_started(), line(0))
        await store.seal()
        with (
            closing(sqlite3.connect(tmp_path / "caxton.db")) as one,
            closing(sqlite3.connect(copy / "caxton.db")) as other,
        ):
            one.backup(other)
        await log.append(line(1), line(2))
        note = await store.seal()
    keys = Keyring(tmp_path / "state").known()

    async with opened(copy, write=False) as store:
        late = await verify(store.reader, trusted=keys, outside=[note], copy=True)
        cut = await verify(store.reader, trusted=keys, outside=[note])

    assert (late.verdict, late.lag) == ("intact", 2)
    assert [fault.kind for fault in cut.faults] == ["cut"]

    # It may not lag behind its own.
    forge(copy, remove("position = 2"))
    async with opened(copy, write=False) as store:
        less = await verify(store.reader, trusted=keys, copy=True)
    assert (less.faults[0].kind, less.lag) == ("cut", 0)


async def test_a_checkpoint_of_another_log_is_named(tmp_path: Path) -> None:
    await written(tmp_path / "one")
    shutil.copytree(tmp_path / "one" / "state", tmp_path / "two" / "state")
    async with opened(tmp_path / "two") as store:
        await store.create("run/z").append(line(1), line(2))
        stranger = await store.seal()
    (fault,) = (await checked(tmp_path / "one", stranger)).faults
    assert "of another log" in str(fault)


async def test_a_log_is_signed_with_its_first_commit_and_once_it_is_quiet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(seals, "PERIOD", 0.01)
    told: list[Note] = []
    async with opened(tmp_path, told=told) as store:
        log = store.create("run/a")
        await log.append(run_started())
        async with opened(tmp_path, write=False) as reader:
            assert (await verify(reader.reader)).signer is not None
        await log.append(line(1))
        await eventually(lambda: bool(told) and told[-1].checkpoint.size == 2)
        commits = store.commits
        await log.append()
    assert told[-1].checkpoint.size == 2
    assert store.commits == commits, "nothing new is signed twice"


async def test_the_same_log_has_the_same_checkpoint(tmp_path: Path) -> None:
    await written(tmp_path)
    async with opened(tmp_path) as store:
        first = await store.seal()
    async with opened(tmp_path) as store:
        again = await store.seal()
    assert first == again
    with closing(sqlite3.connect(tmp_path / "caxton.db")) as connection:
        count = "SELECT count(*) FROM checkpoints WHERE size = 15"
        assert connection.execute(count).fetchone() == (1,)


@pytest.mark.parametrize("gap", [0, 100])
async def test_a_leaf_is_the_place_that_a_bundle_proves(
    tmp_path: Path, gap: int
) -> None:
    """Also where positions are free, as after a copy."""
    _, note = await written(tmp_path)
    moved = "; ".join(
        f"UPDATE {table} SET position = position + {gap}"
        for table in ("events", "payloads", "tree")
    )
    forge(tmp_path, lambda db: db.executescript(moved))
    async with opened(tmp_path, write=False) as store:
        key = Keyring(tmp_path / "state").public_key()
        data = await export(store.reader, "b", note, key)
        leaves = [await store.reader.leaf("run/b", seq) for seq in (1, 5, 6)]
    (part,) = parse_bundle(iter(data.splitlines(keepends=True))).header.parts
    assert leaves == [1, part.index, None]


async def test_two_hosts_grow_one_tree(tmp_path: Path) -> None:
    async with opened(tmp_path) as one, opened(tmp_path) as two:
        a, b = one.create("run/a"), two.create("run/b")
        await a.append(run_started())
        await b.append(run_started())
        for n in range(1, 6):
            await a.append(line(n))
            await b.append(line(n), line(n))
    found = await checked(tmp_path)
    assert (found.verdict, found.events, found.behind) == ("intact", 17, 0)


async def test_a_log_from_before_the_tree_is_caught_up(tmp_path: Path) -> None:
    await written(tmp_path)

    def as_before(connection: sqlite3.Connection) -> None:
        connection.execute("DELETE FROM checkpoints")
        connection.execute("UPDATE tree SET size = 0, frontier = x'', position = 0")

    forge(tmp_path, as_before)
    found = await checked(tmp_path)
    assert (found.verdict, found.signer) == ("signer_unknown", None)
    async with opened(tmp_path) as store:
        await store.create("run/d").append(run_started())
    found = await checked(tmp_path)
    assert (found.verdict, found.events, found.behind) == ("intact", 16, 0)


async def test_without_a_key_the_log_goes_on_unsigned(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    state = tmp_path / "state"
    state.mkdir()
    (state / "signing.key").write_bytes(b"no key")
    async with opened(tmp_path) as store:
        log = store.create("run/a")
        await log.append(run_started())
        await log.append(line(1))
        with pytest.raises(StoreError, match=r"signing\.key"):
            await store.seal()
    assert "the log is not signed" in caplog.text
    (state / "signing.key").unlink()
    assert (await checked(tmp_path)).events == 2


async def test_what_is_read_only_cannot_be_signed(tmp_path: Path) -> None:
    await written(tmp_path)
    async with opened(tmp_path, write=False) as store:
        with pytest.raises(StoreError, match="without a key"):
            await store.seal()
    async with opened(tmp_path / "empty") as store:
        with pytest.raises(StoreError, match="no events"):
            await store.seal()


async def test_checkpoints_stay_as_they_were_written(tmp_path: Path) -> None:
    await written(tmp_path)
    with closing(sqlite3.connect(tmp_path / "caxton.db")) as connection:
        for statement in (
            "UPDATE checkpoints SET size = 1",
            "DELETE FROM checkpoints",
            "INSERT OR REPLACE INTO checkpoints SELECT * FROM checkpoints",
        ):
            with pytest.raises(sqlite3.IntegrityError, match="append-only"):
                connection.execute(statement)


async def test_a_changed_blob_is_found(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await store.create("run/a").append(run_started(), blobs={"00" * 32: b"x"})
    (fault,) = (await checked(tmp_path)).faults
    assert fault.kind == "blob"


COLUMNS = {
    "events": (
        "stream",
        "seq",
        "type",
        "schema_version",
        "recorded_at",
        "trace_id",
        "span_id",
        "digest",
        "hash",
        "position",
    ),
    "payloads": ("salt", "payload", "position"),
    "checkpoints": ("size", "note", "public_key"),
    "tree": ("size", "frontier"),
}


def corruption(where: random.Random) -> Forge:
    """Return a change of one value, or of one row, somewhere."""
    table = where.choice(["events", "events", "payloads", "checkpoints", "tree"])
    column = where.choice(COLUMNS[table])
    number, kind = where.randrange(10**6), where.randrange(4)
    flip, at = 1 << where.randrange(8), where.randrange(10**6)

    def change(connection: sqlite3.Connection) -> None:
        connection.execute("PRAGMA ignore_check_constraints = ON")
        rows = connection.execute(f"SELECT rowid, {column} FROM {table}").fetchall()
        row, value = rows[number % len(rows)]
        if kind == 0 and table in {"events", "payloads"}:
            connection.execute(f"DELETE FROM {table} WHERE rowid = ?", (row,))
            return
        new: object
        if isinstance(value, bytes) and value:
            raw = bytearray(value)
            raw[at % len(raw)] ^= flip
            new = bytes(raw)
        elif isinstance(value, int):
            new = value + 1000 + number
        else:
            new = f"{value}x"
        connection.execute(
            f"UPDATE {table} SET {column} = ? WHERE rowid = ?", (new, row)
        )

    return change


@pytest.mark.no_cover
async def test_500_random_corruptions_are_found(tmp_path: Path) -> None:
    # attack 45
    told = await written(tmp_path / "sound")
    keys = Keyring(tmp_path / "sound" / "state").known()
    copy = tmp_path / "copy"
    copy.mkdir()
    where = random.Random(20261121)  # noqa: S311
    for _ in range(500):
        shutil.copy(tmp_path / "sound" / "caxton.db", copy / "caxton.db")
        forge(copy, corruption(where))
        try:
            found = await checked(copy, *told, trusted=list(keys))
        except LogBrokenError:
            continue
        assert found.verdict == "broken"


async def test_a_checkpoint_is_a_note_that_others_read(tmp_path: Path) -> None:
    (*_, newest) = await written(tmp_path)
    with closing(sqlite3.connect(tmp_path / "caxton.db")) as connection:
        query = "SELECT note FROM checkpoints ORDER BY id DESC LIMIT 1"
        ((stored,),) = connection.execute(query).fetchall()
    assert parse_note(stored) == newest


@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_a_million_events_are_checked_in_constant_memory(tmp_path: Path) -> None:
    async def grown(total: int) -> int:
        """Return the peak of a check of *total* events, in bytes."""
        folder = tmp_path / str(total)
        async with opened(folder) as store:
            logs = [store.create(f"run/{number}") for number in range(100)]
            for _ in range(total // 10_000):
                for log in logs:
                    log.queue(*[line(1)] * 100)
                await asyncio.gather(*(log.append() for log in logs))
        tracemalloc.start()
        try:
            found = await checked(folder)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert (found.verdict, found.events) == ("intact", total)
        return peak

    assert await grown(1_000_000) < await grown(10_000) + 1_000_000


async def test_a_fork_is_exported_with_what_it_inherits(tmp_path: Path) -> None:
    module, definition, result = b"\0asm", b"\x80", b"picture"
    kept = {sha256(data): data for data in (module, definition, result)}
    first = replace(
        run_started(),
        module_sha256=sha256(module),
        catalogue={"tool": {"definition_sha256": sha256(definition)}},
    )
    done = ToolCompleted(
        call=1,
        is_error=False,
        message="",
        data=None,
        blobs=({"sha256": sha256(result)},),
    )
    async with opened(tmp_path) as store:
        await store.create("run/a").append(first, line(1), done, line(2), blobs=kept)
        (*_, third, _) = await store.reader.read("run/a")
        origin: dict[str, JSON] = {"run": "a", "seq": 3, "hash": third.hash.hex()}
        await store.create("run/b").append(replace(first, forked_from=origin), line(3))
        old = await store.seal()
        await store.create("run/c").append(run_started())
        note = await store.seal()
        key = Keyring(tmp_path / "state").public_key()
        data = await export(store.reader, "b", note, key, since=[old])
        with pytest.raises(NotFoundError, match="no run nobody"):
            await export(store.reader, "nobody", note, key)
        with pytest.raises(LogBrokenError, match="not the one that was signed"):
            await export(store.reader, "c", old, key)
        with pytest.raises(LogBrokenError, match="older checkpoint"):
            await export(store.reader, "b", old, key, since=[note])
    bundle = parse_bundle(iter(data.splitlines(keepends=True)))
    assert check_bundle(bundle, [key], [old]).verdict == "intact"
    assert [(p.stream, p.events) for p in bundle.header.parts] == [
        ("run/a", 3),
        ("run/b", 2),
    ]
    assert bundle.blobs == dict(sorted(kept.items()))
    assert [e.seq for e in await BundleStore(bundle).read("run/a")] == [1, 2, 3]


async def test_an_erased_run_is_exported_with_its_erasure(tmp_path: Path) -> None:
    """Decision 0027: a bundle says by itself that its payloads were erased."""
    done = RunCompleted(output=None, output_sha256="", fuel=0)
    async with opened(tmp_path) as store:
        await store.create("run/a").append(run_started(), line(1), done)
        (_, second, _) = await store.reader.read("run/a")
        origin: dict[str, JSON] = {"run": "a", "seq": 2, "hash": second.hash.hex()}
        forked = replace(run_started(), forked_from=origin)
        await store.create("run/b").append(forked, done)
        old = await store.seal()
        await store.erasure.erase("a", "host/1", line(1), actor={}, reason="asked for")
        note, key = await store.seal(), Keyring(tmp_path / "state").public_key()
        bundles = [
            parse_bundle(
                iter(
                    (await export(store.reader, run, note, key)).splitlines(
                        keepends=True
                    )
                )
            )
            for run in "ab"
        ]
        with pytest.raises(LogBrokenError, match="not the one that was signed"):
            await export(store.reader, "a", old, key)
    verdicts = [check_bundle(bundle, [key]) for bundle in bundles]
    assert [(v.verdict, v.erased, v.erased_runs) for v in verdicts] == [
        ("intact", 3, ("a",)),
        ("intact", 2, ("a",)),
    ]
    assert all(bundle.header.parts[0].erased for bundle in bundles)


async def test_a_run_that_lost_a_payload_is_not_exported(tmp_path: Path) -> None:
    (*_, newest) = await written(tmp_path)
    forge(tmp_path, lambda db: db.execute("DELETE FROM payloads WHERE position = 6"))
    async with opened(tmp_path, write=False) as store:
        with pytest.raises(LogBrokenError, match="no event says that it was erased"):
            await export(store.reader, "c", newest, bytes(32))


@pytest.mark.parametrize("value", ["'text'", "x'00'"])
async def test_a_tree_that_is_none_is_named(tmp_path: Path, value: str) -> None:
    await written(tmp_path)
    forge(tmp_path, lambda db: db.execute(f"UPDATE tree SET frontier = {value}"))
    (fault,) = (await checked(tmp_path)).faults
    assert "the stored tree of the log is not valid" in str(fault)


@pytest.mark.parametrize(
    ("error", "why", "fix"),
    [
        (OSError(28, "No space left on device"), "state folder", "free space"),
        (OSError(30, "Read-only file system", "/s/key"), "/s/key", "free space"),
        (StoreError("it rains", fix="wait"), "it rains", "wait"),
        (StoreError("it rains"), "it rains", "caxton db status"),
    ],
)
def test_why_a_log_is_not_signed_has_a_fix(
    error: StoreError | OSError, why: str, fix: str
) -> None:
    said = unsigned(error)
    assert why in said[0]
    assert fix in said[1]


async def test_a_run_that_was_erased_is_not_exported_with_a_payload(
    tmp_path: Path,
) -> None:
    """Decision 0013: an erasure removes every payload of its run."""
    async with opened(tmp_path) as store:
        done = RunCompleted(output=None, output_sha256="", fuel=0)
        await store.create("run/a").append(run_started(), done)
        with closing(sqlite3.connect(tmp_path / "caxton.db")) as reader:
            kept = reader.execute("SELECT * FROM payloads").fetchall()
        await store.erasure.erase("a", "host/1", line(1), actor={}, reason="asked for")
        note = await store.seal()
    add = "INSERT INTO payloads VALUES (?, ?, ?)"
    for row in kept:  # a part of them, then all
        with closing(sqlite3.connect(tmp_path / "caxton.db")) as db:
            db.execute(add, row)
            db.commit()
        async with opened(tmp_path, write=False) as store:
            with pytest.raises(LogBrokenError, match="was erased, but has a payload"):
                await export(store.reader, "a", note, bytes(32))


async def test_a_run_whose_payloads_somebody_deleted_was_not_erased(
    tmp_path: Path,
) -> None:
    async with opened(tmp_path) as store:
        done = RunCompleted(output=None, output_sha256="", fuel=0)
        await store.create("run/a").append(run_started(), done)
    forge(tmp_path, lambda db: db.execute("DELETE FROM payloads"))
    async with opened(tmp_path) as store:
        with pytest.raises(LogBrokenError, match="no event says") as refusal:
            await store.erasure.erase(
                "a", "host/1", line(1), actor={}, reason="asked for"
            )
    assert refusal.value.fix == "caxton audit verify"
