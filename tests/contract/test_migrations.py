"""What a database holds stays in it when its schema grows, on both kinds."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import sqlalchemy as sa

from caxton_host.core.calls import JSON
from caxton_host.store import migrate
from caxton_host.store.engine import open_engine
from caxton_host.store.sql import SqlStore
from tests.postgres import Server
from tests.unit.store.fakes import FakeClock, FakeEntropy, url

ACTOR: dict[str, JSON] = {"kind": "local", "id": "ann", "authenticated": False}
RUN = (
    "INSERT INTO runs (run_id, agent, actor, module_sha256, state, started_at) "
    "VALUES ('r', 'a', '{}', 'ab', 'running', 1)"
)
REQUEST = (
    "INSERT INTO requests (run_id, kind, actor, reason, requested_at, outcome) "
    "VALUES ('r', 'cancel', '{}', 'no more', 7, 'cancelled')"
)


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return url(tmp_path)
    server: Server = request.getfixturevalue("postgres")
    return server.make(template="template0")


def execute(database: str, *statements: str) -> list[tuple[object, ...]]:
    engine = open_engine(database, write=True)
    try:
        with engine.connect() as connection:
            done = [connection.execute(sa.text(said)) for said in statements]
            return [tuple(row) for row in done[-1]] if done[-1].returns_rows else []
    finally:
        engine.dispose()


def upgraded_to(
    revision: str, database: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bring a database to an older schema, with the migrations up to that."""
    old = folder / "migrations"
    shutil.copytree(migrate.folder(), old)
    for script in (old / "versions").glob("0*.py"):
        if script.name[:4] > revision:
            script.unlink()
    with monkeypatch.context() as patch:
        patch.setattr(migrate, "folder", lambda: old)
        patch.setattr(migrate, "_HEAD", revision)
        patch.setattr(migrate, "fill", lambda _: 0)
        migrate.upgrade(database)
    assert migrate.current(database) == revision


async def test_requests_of_an_older_schema_are_kept_and_hosts_can_be_asked(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    upgraded_to("0003", database, tmp_path, monkeypatch)
    execute(database, RUN, REQUEST)

    migrate.upgrade(database)

    kept = "SELECT id, run_id, host, kind, reason, outcome, subject FROM requests"
    row = (1, "r", None, "cancel", "no more", "cancelled", None)
    assert execute(database, kept) == [row]
    clock = FakeClock()
    async with SqlStore.open(database, clock=clock, entropy=FakeEntropy()) as store:
        assert await store.requests.outcome(1) == "cancelled"
        assert await store.requests.ask_host("host/1", "reload", ACTOR, "") == 2
        assert await store.requests.ask_run("r", "cancel", ACTOR, "") == 3
        assert [one.id for one in await store.requests.waiting("host/1")] == [2]


def test_request_is_for_a_run_or_for_a_host_and_never_for_both(
    database: str,
) -> None:
    migrate.upgrade(database)
    to_both = REQUEST.replace("(run_id,", "(host, run_id,").replace("('r'", "('h', 'r'")
    to_none = REQUEST.replace("'r'", "NULL")

    execute(database, RUN)
    for statement in (to_both, to_none):
        with pytest.raises(sa.exc.IntegrityError, match="ck_requests_to"):
            execute(database, statement)


async def test_budgets_of_an_older_schema_are_kept(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    upgraded_to("0004", database, tmp_path, monkeypatch)
    execute(database, "INSERT INTO budgets VALUES ('a/b', 2)")

    migrate.upgrade(database)

    assert execute(database, "SELECT * FROM budgets") == [("a/b", 2, 0)]
    assert execute(database, "SELECT count(*) FROM slots") == [(0,)]


async def test_database_of_an_older_schema_can_serve_once_it_is_opened(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    upgraded_to("0005", database, tmp_path, monkeypatch)
    execute(database, RUN, REQUEST)

    if database.startswith("postgresql"):
        migrate.upgrade(database)

    async with SqlStore.open(
        database, clock=FakeClock(), entropy=FakeEntropy()
    ) as store:
        assert await store.tokens.all() == []
        assert await store.submissions.register("token/ann", "k", "d", "r") == (
            "d",
            "r",
        )
        assert [run.run_id for run in await store.reader.runs(9)] == ["r"]


async def test_tokens_and_runs_of_an_older_schema_have_no_tenant(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    upgraded_to("0007", database, tmp_path, monkeypatch)
    added = (
        "INSERT INTO tokens (id, name, digest, scopes, agents, roles, created_at) "
        "VALUES ('t', '', '', '[]', '[]', '[]', 1)"
    )
    execute(database, RUN, added)
    migrate.upgrade(database)

    async with SqlStore.open(
        database, clock=FakeClock(), entropy=FakeEntropy()
    ) as store:
        row, found = await store.reader.row("r"), await store.tokens.find("t")

    assert row is not None
    assert found is not None
    assert (row.tenant, found.tenant) == (None, None)
