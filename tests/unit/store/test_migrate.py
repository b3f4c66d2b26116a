"""From nothing to the schema of this code, and no further."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from caxton_host.errors import StoreError
from caxton_host.store import migrate, schema
from caxton_host.store.engine import open_engine

from .fakes import open_store, url


def test_migrated_database_has_the_declared_tables(tmp_path: Path) -> None:
    migrate.upgrade(url(tmp_path))

    engine = open_engine(url(tmp_path), write=False)
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, schema.metadata) == []
    engine.dispose()


def test_code_is_written_for_the_newest_migration() -> None:
    scripts = ScriptDirectory(str(migrate.folder()))

    assert scripts.get_current_head() == migrate.head()


def test_database_tells_its_revision(tmp_path: Path) -> None:
    (tmp_path / "caxton.db").touch()
    assert migrate.current(url(tmp_path)) is None

    migrate.upgrade(url(tmp_path))
    migrate.upgrade(url(tmp_path))

    assert migrate.current(url(tmp_path)) == migrate.head()


def test_current_database_is_opened_without_alembic(tmp_path: Path) -> None:
    migrate.upgrade(url(tmp_path))
    code = (
        "import sys; from pathlib import Path\n"
        "from tests.unit.store.fakes import open_store\n"
        "store = open_store(Path(sys.argv[1]))\n"
        "assert 'alembic' not in sys.modules\n"
    )

    subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)],
        cwd=Path(__file__).parents[3],
        check=True,
        timeout=60,
    )


def test_many_hosts_can_create_a_database_at_once(tmp_path: Path) -> None:
    with ThreadPoolExecutor(4) as threads:
        for done in [threads.submit(migrate.upgrade, url(tmp_path)) for _ in range(4)]:
            done.result()

    assert migrate.current(url(tmp_path)) == migrate.head()


def test_migration_that_fails_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "migrations"
    (broken / "versions").mkdir(parents=True)
    for name in ("env.py", "versions/0001_events.py"):
        text = (migrate.folder() / name).read_text()
        (broken / name).write_text(text.replace('"budgets",', '"events",'))
    monkeypatch.setattr(migrate, "folder", lambda: broken)

    with pytest.raises(StoreError, match="already exists"):
        migrate.upgrade(url(tmp_path))

    with sqlite3.connect(tmp_path / "caxton.db") as connection:
        assert connection.execute("SELECT name FROM sqlite_master").fetchall() == []
    connection.close()


def change(folder: Path, statement: str) -> None:
    connection = sqlite3.connect(folder / "caxton.db", isolation_level=None)
    connection.execute(statement)
    connection.close()


@pytest.mark.parametrize("write", [True, False])
def test_newer_database_is_refused(tmp_path: Path, *, write: bool) -> None:
    migrate.upgrade(url(tmp_path))
    change(tmp_path, "UPDATE alembic_version SET version_num = '9999'")

    with pytest.raises(StoreError, match="schema 9999") as refusal:
        open_store(tmp_path, write=write)
    assert "install" in refusal.value.fix


def test_older_database_is_not_migrated_to_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    migrate.upgrade(url(tmp_path))
    monkeypatch.setattr(migrate, "_HEAD", "9999")

    with pytest.raises(StoreError, match="older schema 0012") as refusal:
        open_store(tmp_path, write=False)
    assert "caxton db migrate" in refusal.value.fix


@pytest.mark.parametrize("write", [True, False])
def test_database_of_something_else_is_left_alone(
    tmp_path: Path, *, write: bool
) -> None:
    change(tmp_path, "CREATE TABLE photos (name TEXT)")

    with pytest.raises(StoreError, match="no log of this host"):
        open_store(tmp_path, write=write)

    with sqlite3.connect(tmp_path / "caxton.db") as connection:
        names = connection.execute("SELECT name FROM sqlite_master").fetchall()
    connection.close()
    assert names == [("photos",)]


def test_password_is_not_shown() -> None:
    assert "hunter2" not in migrate.shown("postgresql://me:hunter2@db/c")  # law 8


def test_migrations_are_found_in_a_checkout_and_in_a_wheel(tmp_path: Path) -> None:
    assert (migrate.folder() / "versions" / "0001_events.py").is_file()
    package = tmp_path / "caxton_host"
    package.mkdir()
    assert migrate.folder(package) == tmp_path / "migrations"
    (package / "_migrations").mkdir()
    assert migrate.folder(package) == package / "_migrations"
