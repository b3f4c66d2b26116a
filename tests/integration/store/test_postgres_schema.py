"""On PostgreSQL too, what is written once stays, and a database is of this code."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path

import psycopg
import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from psycopg import errors

from caxton_host.core.calls import Completed
from caxton_host.core.log.events import TokenRevoked, settled
from caxton_host.errors import StoreError
from caxton_host.lib.codec import sha256
from caxton_host.lib.signing import Keyring
from caxton_host.ports.log import Reservation
from caxton_host.ports.serving import TokenRow
from caxton_host.store import engine, health, migrate, schema
from caxton_host.store.engine import open_engine
from caxton_host.store.verify import verify
from tests.postgres import Server, name_of
from tests.unit.store.fakes import line, run_started

from .support import opened

KEPT = b"kept"


def test_migrated_database_has_the_declared_tables(postgres_url: str) -> None:
    engine = open_engine(postgres_url, write=False)
    with engine.connect() as connection:
        options = {"compare_type": True, "compare_server_default": True}
        context = MigrationContext.configure(connection, opts=options)
        assert compare_metadata(context, schema.declared("postgresql")) == []
    engine.dispose()


EVENT = "(stream, seq, type, schema_version, recorded_at, digest, hash)"
ROW = "'T', 1, 1, sha256(''), sha256('')"


@pytest.mark.parametrize(
    "attack",
    [
        "UPDATE events SET type = 'RunFailed'",
        "DELETE FROM events",
        "DELETE FROM events WHERE position = 2",
        "TRUNCATE events CASCADE",
        f"INSERT INTO events {EVENT} VALUES ('run/1', 1, {ROW}) "  # noqa: S608, ISC004
        "ON CONFLICT (stream, seq) DO UPDATE SET type = excluded.type",
        "MERGE INTO events USING (SELECT 1) AS x ON true WHEN MATCHED THEN DELETE",
        "UPDATE payloads SET payload = ''",
        "TRUNCATE payloads",
        "UPDATE blobs SET bytes = ''",
        "DELETE FROM blobs",
        "TRUNCATE blobs",
        "SET session_replication_role = replica; DELETE FROM blobs",
    ],
)
async def test_change_of_what_was_written_is_refused(
    postgres_url: str, attack: str
) -> None:
    async with opened(postgres_url) as store:
        blobs = {sha256(KEPT): KEPT}
        await store.create("run/1").append(line(1), line(2), blobs=blobs)

        with (
            psycopg.connect(postgres_url) as connection,
            pytest.raises(errors.RestrictViolation, match="append-only"),
        ):
            connection.execute(attack.encode())

        found = await store.reader.read("run/1")
        assert [event.event for event in found] == [line(1), line(2)]
        assert await store.reader.blob(sha256(KEPT)) == KEPT


async def test_payload_can_be_erased_and_its_event_stays(postgres_url: str) -> None:
    async with opened(postgres_url) as store:
        await store.create("run/1").append(line(1), line(2))
        with psycopg.connect(postgres_url) as connection:
            connection.execute("DELETE FROM payloads WHERE position = 1")

        assert [e.event for e in await store.reader.read("run/1")] == [None, line(2)]
        assert [e.event async for e, _ in store.reader.tail(follow=False)] == [
            None,
            line(2),
        ]


@pytest.mark.parametrize("write", [True, False])
def test_empty_database_is_left_to_its_administrator(
    postgres: Server, *, write: bool
) -> None:
    url = postgres.make(template="template0")

    with pytest.raises(StoreError, match="no log of this host yet") as refusal:
        opened(url, write=write)

    assert "caxton db migrate" in refusal.value.fix
    assert migrate.current(url) is None


def test_many_hosts_can_migrate_a_database_at_once(postgres: Server) -> None:
    url = postgres.make(template="template0")

    with ThreadPoolExecutor(4) as threads:
        for done in [threads.submit(migrate.upgrade, url) for _ in range(4)]:
            done.result()

    assert migrate.current(url) == migrate.head()


def test_database_of_something_else_is_left_alone(postgres: Server) -> None:
    url = postgres.make(template="template0")
    postgres.execute("CREATE TABLE photos (name text)", name_of(url))

    with pytest.raises(StoreError, match="no log of this host"):
        migrate.upgrade(url)

    assert migrate.current(url) is None


def test_newer_database_is_refused(postgres: Server, postgres_url: str) -> None:
    postgres.execute(
        "UPDATE alembic_version SET version_num = '9999'", name_of(postgres_url)
    )

    with pytest.raises(StoreError, match="schema 9999"):
        opened(postgres_url)


def test_server_that_is_too_old_is_refused(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "_OLDEST", 990_000)

    with pytest.raises(StoreError, match="the server is PostgreSQL 1") as refusal:
        opened(postgres_url)
    assert "PostgreSQL 99 or newer" in refusal.value.fix


def test_database_of_another_encoding_is_refused(postgres: Server) -> None:
    postgres.execute(
        "CREATE DATABASE latin TEMPLATE template0 ENCODING 'LATIN1' LOCALE 'C'"
    )

    with pytest.raises(StoreError, match="encoded as LATIN1") as refusal:
        opened(postgres.url("latin"))
    assert "UTF8" in refusal.value.fix


async def test_commits_wait_for_the_disk_whatever_the_default(
    postgres: Server, postgres_url: str
) -> None:
    name = name_of(postgres_url)
    postgres.execute(f"ALTER DATABASE {name} SET synchronous_commit = off")

    found = health.server(postgres_url)

    assert found is not None
    assert found["synchronous_commit"] == "on"  # law 10
    assert health.problems(found) == []


#: Those of docs/how-to/postgresql.md.
TOKEN = TokenRow(id="a", name="", digest="", scopes=("run",), created_at=1)
GRANTS = (
    "GRANT SELECT ON alembic_version, events, payloads, blobs, runs, budgets",
    "GRANT INSERT ON events, payloads, blobs, runs, budgets",
    "GRANT UPDATE ON runs, budgets",
    "GRANT SELECT, INSERT, UPDATE ON requests, servers, tools, tokens",
    "GRANT SELECT, INSERT ON submissions",
    "GRANT SELECT, UPDATE ON tree",
    "GRANT SELECT, INSERT ON checkpoints",
    "GRANT SELECT, INSERT, UPDATE, DELETE ON hosts",
    "GRANT SELECT, INSERT, DELETE ON slots, run_tools, waits",
    "GRANT USAGE ON SEQUENCE events_position_seq, requests_id_seq",
)


async def test_user_needs_the_documented_grants_to_append(
    postgres: Server, postgres_url: str, tmp_path: Path
) -> None:
    name = name_of(postgres_url)
    if not postgres.execute("SELECT 1 FROM pg_roles WHERE rolname = 'host'"):
        postgres.execute("CREATE ROLE host LOGIN")
    url = postgres.url(name, user="host")
    with pytest.raises(StoreError, match="permission denied"):
        opened(url)
    told = health.server(url)
    assert told is not None
    assert (told["may_append"], told["may_migrate"]) == (False, False)
    ((wrong, fix),) = health.problems(told)
    assert wrong == "host may not append events"
    assert "docs/how-to/postgresql.md" in fix
    page = (Path(__file__).parents[3] / "docs/how-to/postgresql.md").read_text()

    for grant in GRANTS:
        assert f"{grant} TO caxton;" in page
        postgres.execute(f"{grant} TO host", name)

    async with opened(url, signer=Keyring(tmp_path)) as store:
        await store.leases.join("host/1")
        log = store.create("run/1")
        await log.append(run_started(), blobs={sha256(KEPT): KEPT})
        place = Reservation(key="b", amount=1, limit=1, rule="r", call=1)
        assert await log.append(reserve=[place]) is None
        await log.append(settled(1, Completed()))
        assert await log.append(reserve=[place]) is None
        number = await store.requests.ask_run("1", "cancel", {}, "")
        await store.requests.answer(number, "refused")
        await store.tokens.add(TOKEN, "host/2", TokenRevoked(id="a", actor={}))
        await store.tokens.revoke("a", 2, "host/2", TokenRevoked(id="a", actor={}))
        assert await store.submissions.register("token/a", "k", "d", "1") == ("d", "1")
        assert log.holds()
        assert len(await store.reader.read("run/1")) == 2
        assert (await store.seal()).checkpoint.size == 4
    told = health.server(url)
    assert told is not None
    assert told["may_append"] is True


@pytest.mark.parametrize("grant", GRANTS)
async def test_user_who_lacks_a_documented_grant_is_told(
    postgres: Server, postgres_url: str, grant: str
) -> None:
    name = name_of(postgres_url)
    postgres.execute(
        "DO 'BEGIN CREATE ROLE scanty LOGIN; EXCEPTION WHEN duplicate_object THEN END'"
    )
    for each in GRANTS:
        postgres.execute(f"{each} TO scanty", name)
    what, where = grant.removeprefix("GRANT ").split(" ON ")
    kind = "SEQUENCE" if where.startswith("SEQUENCE") else "TABLE"
    places = where.removeprefix("SEQUENCE ").split(", ")

    for place, privilege in product(places, what.split(", ")):
        on = f"{privilege} ON {kind} {place}"
        postgres.execute(f"REVOKE {on} FROM scanty", name)
        told = health.server(postgres.url(name, user="scanty"))
        assert told is not None
        assert told["may_append"] is False, on
        postgres.execute(f"GRANT {on} TO scanty", name)


async def test_transactions_that_hold_tails_back_are_listed(postgres_url: str) -> None:
    async with opened(postgres_url) as store:
        with psycopg.connect(postgres_url, application_name="slow") as slow:
            slow.execute("SELECT pg_current_xact_id()")
            await store.create("run/1").append(line(1))
            held = health.server(postgres_url)
        free = health.server(postgres_url)

    assert held is not None
    assert free is not None
    assert (held["events_held_back"], free["events_held_back"]) == (1, 0)
    assert free["moved"] is False


async def test_events_of_another_server_are_noticed(
    postgres: Server, postgres_url: str, tmp_path: Path
) -> None:
    async with opened(postgres_url) as store:
        await store.create("run/1").append(line(1), line(2))
    name = name_of(postgres_url)
    postgres.execute("ALTER TABLE events DISABLE TRIGGER events_no_update", name)
    postgres.execute("UPDATE events SET xid = '99999999999'", name)
    postgres.execute("UPDATE tree SET xid = '99999999999'", name)
    postgres.execute("ALTER TABLE events ENABLE ALWAYS TRIGGER events_no_update", name)

    found = health.server(postgres_url)

    assert found is not None
    assert [wrong for wrong, _ in health.problems(found)] == [
        "the events were restored from another server: tails miss new ones"
    ]

    page = (Path(__file__).parents[3] / "docs/how-to/postgresql.md").read_text()
    (mending,) = [part for part in page.split("```") if "ENABLE ALWAYS" in part]
    postgres.execute(mending.removeprefix("sql\n"), name)

    found = health.server(postgres_url)
    assert found is not None
    assert health.problems(found) == []
    async with opened(postgres_url, signer=Keyring(tmp_path)) as store:
        await (await store.resume_log("run/1")).append(line(3))
        assert (await store.seal()).checkpoint.size == 3
        seen = [
            event.seq async for event, _ in store.reader.tail("s-3-1", follow=False)
        ]
        assert seen == [2, 3]
        assert (await verify(store.reader)).first_bad is None
