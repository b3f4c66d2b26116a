# ruff: noqa: S608 -- statements of an attacker, in full
"""A verification goes on where the last one ended, and skips nothing that is new."""

from __future__ import annotations

from pathlib import Path

import pytest

from caxton_host.core.calls import JSON
from caxton_host.core.log.chain import Verdict
from caxton_host.core.log.checkpoint import parse_note
from caxton_host.core.log.events import RunCompleted
from caxton_host.lib.signing import Keyring
from caxton_host.store.engine import open_engine
from caxton_host.store.verified import Verifications, Verified
from caxton_host.store.verify import Place, verify, verify_since
from tests.unit.store.fakes import line, run_started

from .support import opened

ANN: dict[str, JSON] = {"kind": "local", "id": "ann", "authenticated": False}
END = RunCompleted(output=None, output_sha256="", fuel=0)


async def first(database: str, keys: Keyring) -> Place:
    """Write two runs, of which one goes on; return where they were verified."""
    async with opened(database, signer=keys) as store:
        for name, *end in ("a",), ("b", END):
            log = store.create(f"run/{name}")
            await log.append(run_started(), line(1), line(2), *end)
        await store.seal()
    found, place = await go_on(database, keys, None)
    assert (found.verdict, found.before, found.events) == ("intact", 0, 7)
    assert place is not None
    return place


async def second(database: str, keys: Keyring) -> None:
    """Let the run go on, and begin another one."""
    async with opened(database, signer=keys) as store:
        log = await store.resume_log("run/a")
        await log.append(line(3), END)
        await store.seal()
        await store.create("run/c").append(run_started(), line(1), line(2), END)
        await store.seal()


async def go_on(
    database: str, keys: Keyring, since: Place | None
) -> tuple[Verdict, Place | None]:
    async with opened(database, write=False) as store:
        return await verify_since(store.reader, since, trusted=keys.known())


async def full(database: str, keys: Keyring) -> Verdict:
    async with opened(database, write=False) as store:
        return await verify(store.reader, trusted=keys.known())


def forge(database: str, *statements: str) -> None:
    """Change the database as its administrator could."""
    engine = open_engine(database, write=True)
    with engine.connect() as connection:
        if engine.dialect.name == "postgresql":
            connection.exec_driver_sql("SET session_replication_role = replica")
            for table in ("events", "payloads", "checkpoints"):
                connection.exec_driver_sql(f"ALTER TABLE {table} DISABLE TRIGGER ALL")
        else:
            names = "SELECT name FROM sqlite_master WHERE type = 'trigger'"
            for (name,) in connection.exec_driver_sql(names).all():
                connection.exec_driver_sql(f"DROP TRIGGER {name}")
            connection.exec_driver_sql("PRAGMA foreign_keys = OFF")
        for statement in statements:
            connection.exec_driver_sql(statement)
        connection.invalidate()
    engine.dispose()


async def test_only_what_is_new_is_checked(database: str, tmp_path: Path) -> None:
    keys = Keyring(tmp_path)
    place = await first(database, keys)
    await second(database, keys)

    found, end = await go_on(database, keys, place)

    assert (found.verdict, found.faults) == ("intact", ())
    assert (found.before, found.events, found.streams) == (7, 6, 2)
    assert end is not None
    assert end.tree.size == 13
    again, same = await go_on(database, keys, end)
    assert (again.verdict, again.before, again.events) == ("intact", 13, 0)
    assert same is not None
    assert same.tree.root() == end.tree.root()
    whole, at_once = await go_on(database, keys, None)
    assert (whole.verdict, whole.events) == ("intact", 13)
    assert at_once is not None
    assert (at_once.tree.peaks, at_once.position, at_once.xid) == (
        end.tree.peaks,
        end.position,
        end.xid,
    )


NEW = "stream = 'run/a' AND seq = 4"
OF_NEW = f"position = (SELECT position FROM events WHERE {NEW})"
ZERO = {"sqlite": "zeroblob(32)", "postgresql": "decode(repeat('00', 32), 'hex')"}
OTHER = "(SELECT salt FROM payloads ORDER BY position LIMIT 1)"
NOTE = "(SELECT note FROM checkpoints ORDER BY id LIMIT 1)"
CHANGES = [
    f"UPDATE payloads SET payload = salt WHERE {OF_NEW}",
    f"UPDATE payloads SET salt = {OTHER} WHERE {OF_NEW}",
    f"DELETE FROM payloads WHERE {OF_NEW}",
    f"UPDATE events SET type = 'RunFailed' WHERE {NEW}",
    f"UPDATE events SET recorded_at = 1 WHERE {NEW}",
    f"UPDATE events SET hash = ZERO WHERE {NEW}",
    f"DELETE FROM events WHERE {NEW}",
    "DELETE FROM events WHERE stream = 'run/c'",
    "UPDATE events SET stream = 'run/d' WHERE stream = 'run/c'",
    "DELETE FROM events WHERE position > POSITION",
    "UPDATE tree SET size = 5",
    f"UPDATE checkpoints SET note = {NOTE} WHERE size > 7",
    # What the new part follows, which was verified before.
    "UPDATE events SET hash = ZERO WHERE stream = 'run/a' AND seq = 3",
    "DELETE FROM events WHERE stream = 'run/a' AND seq = 3",
]


@pytest.mark.parametrize("change", CHANGES)
async def test_change_behind_the_last_verification_is_found(
    database: str, tmp_path: Path, change: str
) -> None:
    keys = Keyring(tmp_path)
    place = await first(database, keys)
    await second(database, keys)
    kind = "postgresql" if database.startswith("postgresql") else "sqlite"
    change = change.replace("ZERO", ZERO[kind]).replace("POSITION", str(place.position))

    forge(database, change)

    found, _ = await go_on(database, keys, place)
    assert found.verdict == "broken"
    assert (await full(database, keys)).verdict == "broken"


async def test_place_of_an_event_hides_nothing(database: str, tmp_path: Path) -> None:
    """On PostgreSQL neither position nor transaction is in a hash."""
    keys = Keyring(tmp_path)
    place = await first(database, keys)
    await second(database, keys)
    changes = [f"UPDATE events SET position = 1000 + position WHERE {NEW}"]
    if place.xid:
        changes = [f"UPDATE events SET xid = '3' WHERE {NEW}"]

    forge(database, *changes)

    found, _ = await go_on(database, keys, place)
    assert found.verdict == "broken"


async def test_cut_back_to_the_place_is_found_by_what_was_kept_elsewhere(
    database: str, tmp_path: Path
) -> None:
    keys = Keyring(tmp_path)
    place = await first(database, keys)
    await second(database, keys)
    async with opened(database, write=False) as store:
        note = parse_note((await store.reader.checkpoint() or "").encode())
    peaks = place.tree.to_bytes().hex()
    binary = f"decode('{peaks}', 'hex')" if place.xid else f"x'{peaks}'"
    forge(
        database,
        f"DELETE FROM payloads WHERE position > {place.position}",
        f"DELETE FROM events WHERE position > {place.position}",
        "DELETE FROM checkpoints WHERE size > 7",
        f"UPDATE tree SET size = 7, frontier = {binary}",
    )

    async with opened(database, write=False) as store:
        found, _ = await verify_since(
            store.reader, place, trusted=keys.known(), outside=[note]
        )

    assert [fault.kind for fault in found.faults] == ["cut"]


async def test_change_in_place_before_it_is_left_to_a_full_one(
    database: str, tmp_path: Path
) -> None:
    keys = Keyring(tmp_path)
    place = await first(database, keys)
    await second(database, keys)
    forge(database, "UPDATE events SET recorded_at = 1 WHERE stream = 'run/b'")

    found, _ = await go_on(database, keys, place)

    assert (found.verdict, found.before) == ("intact", 7)
    assert (await full(database, keys)).verdict == "broken"


async def test_erased_run_is_excused_over_the_place(
    database: str, tmp_path: Path
) -> None:
    keys = Keyring(tmp_path)
    place = await first(database, keys)
    await second(database, keys)
    async with opened(database, signer=keys) as store:
        for name in "ab":
            await store.erasure.erase(name, "host/1", actor=ANN, reason="asked for")
        await store.seal()

    found, _ = await go_on(database, keys, place)

    assert (found.verdict, found.faults) == ("intact", ())
    assert (found.erased, found.erased_runs) == (2, ("a",))
    forge(
        database,
        f"INSERT INTO payloads SELECT (SELECT position FROM events WHERE {NEW}), salt,"
        " payload FROM payloads ORDER BY position LIMIT 1",
    )
    found, _ = await go_on(database, keys, place)
    assert found.verdict == "broken"


async def test_lost_key_is_told_as_by_a_full_one(database: str, tmp_path: Path) -> None:
    keys = Keyring(tmp_path)
    place = await first(database, keys)
    await second(database, keys)

    found, end = await go_on(database, Keyring(tmp_path / "other"), place)

    assert (found.verdict, end) == ("signer_unknown", None)


# -- what is kept --------------------------------------------------------------


async def test_verification_is_read_as_it_was_kept(
    database: str, tmp_path: Path
) -> None:
    keys = Keyring(tmp_path)
    place = await first(database, keys)
    verifications = Verifications(tmp_path / "kept", "0" * 32, keys)
    assert verifications.newest() is None

    verifications.keep(Verified(place=place, at=2, full_at=1))

    found = verifications.newest()
    assert found is not None
    assert (found.at, found.full_at) == (2, 1)
    assert found.place.tree.peaks == place.tree.peaks
    assert (found.place.origin, found.place.position, found.place.xid) == (
        place.origin,
        place.position,
        place.xid,
    )
    await second(database, keys)
    assert (await go_on(database, keys, found.place))[0].verdict == "intact"


async def test_what_this_machine_did_not_sign_is_as_if_it_were_not_there(
    database: str, tmp_path: Path
) -> None:
    keys, path = Keyring(tmp_path), tmp_path / "kept"
    place = await first(database, keys)
    verifications = Verifications(tmp_path / "kept", "0" * 32, keys)
    verifications.keep(Verified(place=place, at=2, full_at=1))
    good = path.read_bytes()

    assert Verifications(path, "1" * 32, keys).newest() is None  # another database
    other = Keyring(tmp_path / "other")
    assert Verifications(path, "0" * 32, other).newest() is None
    other.public_key()
    assert Verifications(path, "0" * 32, other).newest() is None
    for forged in (
        good.replace(b"\n7\n", b"\n6\n", 1),
        good[:-1] + (b"0" if good[-1:] != b"0" else b"1"),
        good[:-64],
        good.replace(b"/verified/", b"/log/", 1),
        b"",
        b"\xff" * 100,
    ):
        path.write_bytes(forged)
        assert verifications.newest() is None
    # A checkpoint is none, though the same key has signed it.
    async with opened(database, write=False) as store:
        note = await store.reader.checkpoint()
    assert note is not None
    path.write_bytes(note.encode() + place.tree.to_bytes().hex().encode())
    assert verifications.newest() is None
    path.write_bytes(good)
    assert verifications.newest() is not None


async def test_no_key_is_made(database: str, tmp_path: Path) -> None:
    place = await first(database, Keyring(tmp_path))
    other = tmp_path / "other"

    Verifications(tmp_path / "kept", "", Keyring(other)).keep(
        Verified(place=place, at=2, full_at=1)
    )

    assert not other.exists()
    assert not (tmp_path / "kept").exists()
