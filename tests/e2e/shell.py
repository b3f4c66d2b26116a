"""Commands as a stranger types them: in this process, or in one of their own."""

from __future__ import annotations

import io
import json
import logging
import os
import sqlite3
import subprocess
import sys
from collections.abc import Generator, Iterable, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from caxton_host.cli import execute
from caxton_host.cli.output import Notes

CAXTON = str(Path(sys.executable).with_name("caxton"))
#: Upper bound for what must end; nothing here is a measurement.
SOON = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """A command that has ended."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:  # noqa: ANN401 -- whatever was printed
        return json.loads(self.out)

    @property
    def fix(self) -> str:
        """Return the last line of stderr, which must say what can be done."""
        last = self.err.rstrip("\n").split("\n")[-1]
        assert last.startswith("To fix: "), self.err
        return last.removeprefix("To fix: ")


class Shell:
    """
    Types commands in a folder of its own, as somebody who never did before.

    Attributes:
        folder: The working folder.

        home: The home folder.
    """

    def __init__(
        self,
        root: Path,
        compiled: Path,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str] | None = None,
    ) -> None:
        self.folder, self.home = root / "work", root / "home"
        self._capsys = capsys
        self._monkeypatch = monkeypatch
        self.folder.mkdir()
        self.home.mkdir()
        # Compiled modules are shared by tests, and so is the key they are made with.
        self.environ = {
            "HOME": str(self.home),
            "XDG_CONFIG_HOME": str(root / "config"),
            "XDG_DATA_HOME": str(root / "data"),
            "XDG_STATE_HOME": str(compiled / "state"),
            "XDG_CACHE_HOME": str(compiled / "cache"),
            "PATH": os.environ["PATH"],
            "LANG": "C.UTF-8",
        }
        for name in [*os.environ]:
            if name not in self.environ and not name.startswith("PYTEST"):
                monkeypatch.delenv(name)
        for name, value in self.environ.items():
            monkeypatch.setenv(name, value)
        monkeypatch.chdir(self.folder)

    def __call__(self, *words: str, stdin: bytes = b"") -> Done:
        """Run a command in this process, and check what every command keeps."""
        assert self._capsys, "a shell that tests share has only `typed` commands"
        self._capsys.readouterr()
        notes = Notes()
        logging.getLogger().addHandler(notes)
        try:
            with self._monkeypatch.context() as patch:
                patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
                code = execute([*words])
        finally:
            logging.getLogger().removeHandler(notes)
        out, err = self._capsys.readouterr()
        return Done(code=code, out=out, err=err)

    def typed(self, *words: str) -> Done:
        """Run the installed command in a process of its own."""
        done = subprocess.run(
            [CAXTON, *words],
            cwd=self.folder,
            env=self.environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=SOON,
            check=False,
        )
        return Done(
            code=done.returncode, out=done.stdout.decode(), err=done.stderr.decode()
        )

    @contextmanager
    def started(
        self,
        *words: str,
        **options: Any,  # noqa: ANN401
    ) -> Generator[subprocess.Popen[bytes]]:
        """Start the installed command, and end it at the latest with the block."""
        with subprocess.Popen(
            [CAXTON, *words],
            cwd=self.folder,
            env=self.environ,
            **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options},
        ) as child:
            try:
                yield child
            finally:
                child.kill()

    def write(self, name: str, content: str | bytes) -> Path:
        """Write a file of the working folder."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    def set(self, **variables: str) -> None:
        """Set variables of the environment."""
        self.environ |= variables
        for name, value in variables.items():
            self._monkeypatch.setenv(name, value)

    @property
    def database(self) -> Path:
        """The database, beside the configuration or in the data folder."""
        beside = self.folder / "caxton.db"
        data = Path(self.environ["XDG_DATA_HOME"]) / "caxton" / "caxton.db"
        return beside if (self.folder / "caxton.toml").exists() else data

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """Return what the database holds; nothing if there is none."""
        if not self.database.exists():
            return []
        with (
            suppress(sqlite3.DatabaseError),  # It may be in the making, or none.
            closing(sqlite3.connect(self.database)) as connection,
        ):
            return connection.execute(query).fetchall()
        return []

    @contextmanager
    def tampering(self) -> Generator[sqlite3.Connection]:
        """Give the database without its triggers, as a forger would have it."""
        with closing(sqlite3.connect(self.database)) as connection:
            query = "SELECT name FROM sqlite_master WHERE type = 'trigger'"
            for (name,) in connection.execute(query).fetchall():
                connection.execute(f'DROP TRIGGER "{name}"')
            yield connection
            connection.commit()

    def runs(self) -> list[str]:
        """Return the run streams that the database holds."""
        found = self.rows("SELECT DISTINCT stream FROM events")
        return [stream for (stream,) in found if stream.startswith("run/")]

    def types(self) -> list[str]:
        """Return the types of the events of all runs, in their order."""
        query = "SELECT type FROM events WHERE stream LIKE 'run/%' ORDER BY position"
        return [type_ for (type_,) in self.rows(query)]


def toml(tables: Mapping[str, Mapping[str, object]], *more: str) -> str:
    """Return a configuration of these tables, and what follows them."""
    lines = ["version = 1"]
    for name, values in tables.items():
        lines.append(f"[{name}]")
        lines += [f"{key} = {_inline(value)}" for key, value in values.items()]
    return "\n".join([*lines, *more]) + "\n"


def _inline(value: object) -> str:
    if isinstance(value, Mapping):
        pairs = (f"{key} = {_inline(one)}" for key, one in value.items())
        return "{ " + ", ".join(pairs) + " }"
    return json.dumps(value)


def processes(mark: str) -> Iterable[int]:
    """Return the processes that have *mark* in their command line."""
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if entry.name.isdecimal() and mark.encode() in (
                (entry / "cmdline").read_bytes()
            ):
                yield int(entry.name)
