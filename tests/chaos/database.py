"""The PostgreSQL of a fleet: restarted, replaced by its standby, full, read-only."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import LiteralString

import psycopg

from tests.postgres import name_of, running


@dataclass
class Database:
    """
    A database of a server that exists.

    Attributes:
        url: Of the database, over the socket of the server.
    """

    url: str

    @property
    def socket(self) -> Path:
        """The socket of the server."""
        folder = psycopg.conninfo.conninfo_to_dict(self.url)["host"]
        return Path(str(folder)) / ".s.PGSQL.5432"

    def through(self, port: int) -> str:
        """Return the url of the database behind a proxy."""
        return f"postgresql://postgres@127.0.0.1:{port}/{name_of(self.url)}"

    def execute(
        self, statement: LiteralString, *values: object
    ) -> list[psycopg.rows.TupleRow]:
        """Do something as the administrator, even if the server is read-only."""
        with psycopg.connect(
            self.url, autocommit=True, options="-c default_transaction_read_only=off"
        ) as connection:
            cursor = connection.execute(statement, values or None)
            return cursor.fetchall() if cursor.description else []


@dataclass
class Cluster(Database):
    """
    A server of our own, and its standby.

    Attributes:
        folder: Everything of both.

        bin: The programs of PostgreSQL.

        user: Runs them; ``None``: the user of this process.
    """

    folder: Path
    bin: Path
    user: str | None
    _data: Path
    _number: int = 0
    _standby: Path | None = None

    @classmethod
    @contextlib.contextmanager
    def running(cls, where: Path | None) -> Iterator[Cluster]:
        """Run a server in a folder of *where*, until the block is left."""
        with running(where) as server:
            program = server._program
            cluster = cls(
                url=server.make(),
                folder=program.pgdata.parent,
                bin=program.bin_path,
                user=program.system_user,
                _data=program.pgdata,
            )
            if cluster.user:
                shutil.chown(cluster.folder, cluster.user)
            cluster._set("max_wal_size = '256MB'")
            try:
                yield cluster
            finally:
                for data in (cluster._data, cluster._standby):
                    if data not in {None, program.pgdata}:
                        cluster._stop(data)

    def restart(self) -> None:
        """Kill the server, and start it again."""
        self._stop(self._data)
        self.start()

    def start(self) -> None:
        """Start the server, if it does not run."""
        if self._ran("pg_ctl", "status", "-D", self._data):
            self._launch(self._data, self.socket.parent)

    def _launch(self, data: Path, sockets: Path) -> None:
        options = f'-h "" -k {sockets}'
        log = data.parent / f"{data.name}.log"
        started = self._ran(
            "pg_ctl", "start", "-w", "-t", "120", "-D", data, "-o", options, "-l", log
        )
        assert not started, log.read_text()

    def _stop(self, data: Path | None) -> None:
        self._ran("pg_ctl", "stop", "-m", "immediate", "-D", str(data))

    def _ran(self, program: str, *words: str | Path) -> int:
        # Not a pipe: the server would keep it open.
        done = subprocess.run(
            [self.bin / program, *words],
            user=self.user,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=False,
        )
        return done.returncode

    def _set(self, what: LiteralString) -> None:
        self.execute(f"ALTER SYSTEM SET {what}")
        self.execute("SELECT pg_reload_conf()")

    def be_read_only(self, *, on: bool) -> None:
        """Refuse every write, or accept them again."""
        self._set(f"default_transaction_read_only = {'on' if on else 'off'}")

    def follow(self) -> None:
        """Start a standby, for which every commit waits from now on."""
        self._number += 1
        data = self.folder / f"data{self._number}"
        sockets = self.folder / f"s{self._number}"
        sockets.mkdir(mode=0o777)
        sockets.chmod(0o777)
        made = self._ran(
            "pg_basebackup",
            *("-h", self.socket.parent, "-U", "postgres", "-D", data),
            *("-R", "-X", "stream", "-c", "fast"),
        )
        assert not made, "the standby cannot be made"
        self._launch(data, sockets)
        self._standby = data
        self._set("synchronous_standby_names = '*'")

    def is_followed(self) -> bool:
        """Whether a standby has everything that was committed."""
        query = "SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync'"
        return bool(self._standby and self.execute(query))

    def promote(self) -> None:
        """Kill the server, and go on with its standby."""
        assert self._standby is not None
        old, self._data, self._standby = self._data, self._standby, None
        self._stop(old)
        assert not self._ran("pg_ctl", "promote", "-w", "-D", self._data)
        sockets = self.folder / f"s{self._number}"
        self.url = psycopg.conninfo.make_conninfo(
            user="postgres", host=str(sockets), dbname=name_of(self.url)
        )
        # Nobody follows it yet.
        self._set("synchronous_standby_names = ''")
        shutil.rmtree(old / "base")
        shutil.rmtree(old / "pg_wal")

    def fill(self) -> Path:
        """Leave no room on the disk; return the file that takes it."""
        ballast = self.folder / "ballast"
        with ballast.open("wb") as file, contextlib.suppress(OSError):
            while True:
                file.write(bytes(1 << 20))
                file.flush()
        return ballast
