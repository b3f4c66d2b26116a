"""
Which log a database holds: the one that is known here, or a copy of it.

The name of a log, its incarnation, is random and stored in the database, so a copy has
it too. The two are told apart by data outside: the newest checkpoint that this machine
signed and the file that held the log (`Marks`), and the server of a PostgreSQL
database. A copy gets a new name before it is written to.

    signed/INCARNATION         0600: its newest checkpoint, or nothing yet
    signed/INCARNATION.file    0600: the SQLite file that holds it, by inode and path

The log is identified by its incarnation, not by its path: its file may be moved.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Self

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError

from ..core.calls import JSON
from ..core.log.checkpoint import Checkpoint, Note, parse_note
from ..core.log.events import Event, LogRestored, RunCancelled, RunSuspended
from ..core.log.runs import GOING_ON, RESTORED
from ..core.log.tree import Frontier
from ..core.names import stream_of
from ..errors import BadBytes, ConfigError, LogBrokenError, StoreError
from ..lib.files import replace_file
from .commit import Driver, ask
from .database import Database
from .diagnosis import forbidden, path_of, said, unreadable
from .file_guard import on_disk
from .schema import checkpoints, runs, tree

#: What makes hosts write to a log that lacks what this machine has signed.
ACCEPT = "caxton db accept-copy"

_PLACE = """\
SELECT (SELECT system_identifier FROM pg_control_system())::text,
  (SELECT oid FROM pg_database WHERE datname = current_database())::text,
  substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8)"""
_RENAME = "UPDATE tree SET incarnation = ?, place = ?"


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """
    A copy of a log that is known here.

    Attributes:
        size: Events in its tree.

        root: Of that tree.

        had: The checkpoint of this machine that the copy lacks, if it lacks one.
    """

    size: int
    root: bytes
    had: Checkpoint | None = None


class Incarnation:
    """
    The name of the log in a database, and whether the log is a copy.

    Args:
        database: Opened to write.

        marks: The checkpoints of this machine; without them nothing is compared.

    Attributes:
        copy: Set if the log is a copy; call `restore` before any other write.

        restored: The event that `restore` has recorded.
    """

    def __init__(self, database: Database, marks: Marks | None) -> None:
        self.copy: Copy | None = None
        self.restored: LogRestored | None = None
        self._database = database
        self._marks = marks
        self._file = path_of(database.engine)
        self._shared = not database.is_file
        self._name = self._place = ""

    def recognise(self, living: Callable[[], Collection[str]], *, accept: bool) -> None:
        """
        Find out whether the log is a copy of one that is known here.

        A log without a name is new, or of an older release: it gets one.

        Args:
            living: Returns the hosts that have the log open.

            accept: It is a copy, unless this machine knows it in this file and it lacks
                no checkpoint of this machine.

        Raises:
            LogBrokenError: It lacks one, and is not accepted.
        """
        if self._marks is None:
            return
        try:
            with self._database.engine.connect() as connection:
                self.copy = self._recognised(
                    connection, self._marks, living, accept=accept
                )
        except DBAPIError as exc:
            raise StoreError(
                f"the log cannot be opened to write: {said(exc)}",
                fix="see `caxton db status`",
            ) from None

    async def restore(
        self, stream: str, *before: Event, actor: dict[str, JSON]
    ) -> None:
        """
        Make a copy a log of its own, in which no run continues by itself.

        Args:
            stream: Of the host that does it, which writes nothing else meanwhile.

            before: What comes before in that stream.

            actor: Who asks for it.

        Raises:
            StoreError: It was not completed, and the log is still a copy.
        """
        copy, marks, database = self.copy, self._marks, self._database
        if copy is None or marks is None:
            raise StoreError("the log is not a copy")
        query = sa.select(runs.c.run_id, runs.c.state)
        going_on = await database.rows(query.where(runs.c.state.in_(sorted(GOING_ON))))
        for row in going_on:
            end: Event = RunSuspended(reason=RESTORED)
            if row.state == "queued":
                # It may have started after the copy.
                end = RunCancelled(actor=actor, reason="its log was restored")
            await database.record(stream_of(row.run_id), [end])
        restored = LogRestored(
            size=copy.size,
            root=copy.root.hex(),
            actor=actor,
            had_size=copy.had.size if copy.had else None,
            had_root=copy.had.root.hex() if copy.had else None,
            runs=len(going_on),
        )
        await database.record(stream, [*before, restored], partial(self._rename, marks))
        self.copy, self.restored = None, restored

    def _recognised(
        self,
        connection: sa.Connection,
        marks: Marks,
        living: Callable[[], Collection[str]],
        *,
        accept: bool,
    ) -> Copy | None:
        self._place = self._placed(connection)
        name, place, size, frontier = self._named(connection, marks)
        self._name = name
        note, known = marks.newest(name), marks.knows(name)
        lacks = note is not None and not _holds(connection, note)
        had = note.checkpoint if note and lacks and accept else None
        if self._file and (
            # As after `caxton db backup`: nothing is lost, and both logs are written
            # to.
            marks.original(name, self._file)
            # It may lack the events after the newest checkpoint that it holds.
            or (accept and known and not marks.is_settled(name, self._file))
        ):
            return Copy(size=size, root=_root(size, frontier), had=had)
        if note and lacks:
            if not accept:
                raise _lacking(size, note.checkpoint)
            return Copy(size=size, root=_root(size, frontier), had=had)
        is_strange = not (known or self._shared or living())
        if is_strange or self._is_elsewhere(place, known=known):
            return Copy(size=size, root=_root(size, frontier))
        if self._place not in {place, ""}:
            # A replica took over, and nothing is lost.
            connection.execute(sa.update(tree).values(place=self._place))
        self._keep(marks)
        return None

    def remember(self, note: Note) -> None:
        """Keep a checkpoint on this machine, unless the log is a copy."""
        if self._marks is not None and self.copy is None:
            self._marks.keep(self._name, note)

    def _rename(self, marks: Marks, driver: Driver) -> None:
        """Give a copy its own name: the guard of the transaction that restores it."""
        self._name = secrets.token_hex(16)
        self._keep(marks)
        ask(driver, _RENAME, self._name, self._place)
        if self._shared:
            # They are hosts of the original.
            ask(driver, "DELETE FROM hosts")

    def _keep(self, marks: Marks) -> None:
        marks.keep(self._name)
        if self._file:
            marks.settle(self._name, self._file)

    def _named(
        self, connection: sa.Connection, marks: Marks
    ) -> sa.Row[str, str, int, bytes]:
        row = sa.select(tree.c.incarnation, tree.c.place, tree.c.size, tree.c.frontier)
        if connection.execute(row).one().incarnation is None:
            name = secrets.token_hex(16)
            # Before the database: otherwise a crash in between would make it a copy.
            marks.keep(name)
            connection.execute(
                sa.update(tree)
                .where(tree.c.incarnation.is_(None))
                .values(incarnation=name, place=self._place)
            )
            if not self._shared:
                # Into the file itself, so that it is not lost with the write-ahead log.
                connection.exec_driver_sql("PRAGMA wal_checkpoint")
        return connection.execute(row).one()

    def _placed(self, connection: sa.Connection) -> str:
        if not self._shared:
            return ""
        try:
            return "/".join(connection.exec_driver_sql(_PLACE).one())
        except DBAPIError as exc:
            if forbidden(exc):
                return ""
            raise

    def _is_elsewhere(self, place: str, *, known: bool) -> bool:
        """
        Return whether the log was restored in another database, or on another server.

        A takeover by a replica and a point-in-time recovery change only the timeline of
        the server. If the log is known here, its checkpoint was compared already.
        """
        if not (place and self._place):
            return False  # This user lacks the privilege.
        if known:
            return place.rpartition("/")[0] != self._place.rpartition("/")[0]
        return place != self._place


def signed_here(engine: sa.Engine, marks: Marks) -> Note | None:
    """
    Return the newest checkpoint of a log that this machine has signed.

    Raises:
        StoreError: The log cannot be read.
    """
    try:
        with engine.connect() as connection:
            name = connection.execute(sa.select(tree.c.incarnation)).scalar()
    except DBAPIError as exc:
        raise unreadable(exc) from None
    return marks.newest(name) if name else None


def _holds(connection: sa.Connection, note: Note) -> bool:
    """Return whether the log has a checkpoint that this machine signed."""
    query = sa.select(checkpoints.c.note).where(
        checkpoints.c.size == note.checkpoint.size
    )
    for (data,) in connection.execute(query):
        try:
            if parse_note(data).checkpoint == note.checkpoint:
                return True
        except BadBytes:
            continue
    return False


def _root(size: int, frontier: bytes) -> bytes:
    try:
        return Frontier.parse(size, frontier).root()
    except ValueError:
        return b""  # Damaged: `caxton audit verify` reports it.


def _lacking(size: int, had: Checkpoint) -> LogBrokenError:
    if size < had.size:
        text = f"the log has {size} events of {had.size} that this machine has signed"
    else:
        text = f"the log lacks the {had.size} events that this machine has signed"
    return LogBrokenError(
        f"{text}: it is a copy, or was cut off; nothing is written to it", fix=ACCEPT
    )


_NAME = re.compile("[0-9a-f]{32}")
_FILE = re.compile(r"(\d+) (\d+) (.+)", re.DOTALL)


class Marks:
    """
    The newest checkpoint that this machine signed of each log, in a folder.

    Args:
        folder: In the state folder; created with the first checkpoint.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @classmethod
    def of(cls, state: Path) -> Self:
        """Return those of a state folder."""
        return cls(state / "signed")

    def knows(self, incarnation: str) -> bool:
        """Return whether this machine has written to that log."""
        return self.path(incarnation).exists()

    def newest(self, incarnation: str) -> Note | None:
        """
        Return the newest checkpoint of a log that is kept here, or ``None``.

        Raises:
            ConfigError: The file does not hold a checkpoint.
        """
        path = self.path(incarnation)
        try:
            data = path.read_bytes()
            return parse_note(data) if data else None
        except FileNotFoundError:
            return None
        except BadBytes as exc:
            raise ConfigError(
                f"{path} is damaged: {exc}",
                fix=f"restore it; or rm {path}, and the log counts as a copy: its "
                "unfinished runs are suspended",
            ) from None

    def keep(self, incarnation: str, note: Note | None = None) -> None:
        """
        Keep a checkpoint durably, unless a newer one is kept.

        Args:
            incarnation: Of the log.

            note: The checkpoint; ``None``: only note that the log is known here.
        """
        path = self.path(incarnation)
        known = self.newest(incarnation)
        size = known.checkpoint.size if known else -1
        if path.exists() and (note is None or note.checkpoint.size <= size):
            return
        self._write(path, note.text() if note else "")

    def original(self, incarnation: str, file: Path) -> Path | None:
        """
        Return the path of the original file of a log, if *file* is another one.

        ``None``: the original is gone, or *file* is the original, which may have moved.
        """
        try:
            text = self._file(incarnation).read_text("utf-8", "surrogateescape")
            found = _FILE.fullmatch(text)
            known = Path(found[3]) if found else None
            there = known.stat() if known else None
        except OSError:
            return None
        if found is None or there is None or known == file.resolve():
            return None
        is_it = (str(there.st_dev), str(there.st_ino)) == (found[1], found[2])
        return known if is_it and not os.path.samestat(there, file.stat()) else None

    def is_settled(self, incarnation: str, file: Path) -> bool:
        """Return whether *file* is remembered to hold a log."""
        with contextlib.suppress(OSError):
            known = self._file(incarnation).read_text("utf-8", "surrogateescape")
            return known == _identity(file)
        return False

    def settle(self, incarnation: str, file: Path) -> None:
        """Remember that *file* holds a log."""
        if not self.is_settled(incarnation, file):
            self._write(self._file(incarnation), _identity(file))

    def _file(self, incarnation: str) -> Path:
        return self.path(incarnation).with_suffix(".file")

    def _write(self, path: Path, text: str) -> None:
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        replace_file(path, text.encode("utf-8", "surrogateescape"), mode=0o600)
        on_disk(path)

    def path(self, incarnation: str) -> Path:
        """
        Return the file of a log.

        Raises:
            LogBrokenError: No host gives such a name.
        """
        if not _NAME.fullmatch(incarnation):
            # From the database, and used as the name of a file.
            raise LogBrokenError("the name of the log is not one that a host gives")
        return self._folder / incarnation


def _identity(file: Path) -> str:
    here = file.stat()
    return f"{here.st_dev} {here.st_ino} {file.resolve()}"
