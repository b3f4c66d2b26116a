"""
Which log a database holds: the one that is known here, or a copy of it.

The name of a log, its incarnation, is random and lies in the database, so a copy has
it too. What tells the two apart lies elsewhere: what this machine has signed and in
which file it was (`marks`), and the server that a PostgreSQL database is on. A copy
gets a name of its own before it is written to.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError

from ..core.log.checkpoint import Checkpoint, Note, parse_note
from ..core.log.tree import Frontier
from ..errors import BadBytes, LogBrokenError, StoreError
from .commit import Driver, ask
from .engine import forbidden, path_of, said, unreadable
from .schema import checkpoints, tree
from .signed_marks import Marks

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
    What is known of a log that is a copy.

    Attributes:
        size: How many events its tree has.

        root: Of that tree.

        had: What this machine has signed and the copy lacks, if it lacks anything.
    """

    size: int
    root: bytes
    had: Checkpoint | None = None


class Incarnation:
    """
    The name of the log in a database, and what this machine knows of it.

    Args:
        engine: Of the database, to write.

        marks: What this machine has signed.
    """

    def __init__(self, engine: sa.Engine, marks: Marks) -> None:
        self._engine = engine
        self._marks = marks
        self._file = path_of(engine)
        self._shared = engine.dialect.name != "sqlite"
        self._name = self._place = ""
        self._is_copy = False

    def recognise(
        self, living: Callable[[], Collection[str]], *, accept: bool
    ) -> Copy | None:
        """
        Return what the log is a copy of, or ``None`` if it is the one that is known.

        A log without a name is an older release's, or new: it gets one.

        Args:
            living: Returns the hosts that have the log open.

            accept: A copy that lacks what this machine has signed is accepted.

        Raises:
            LogBrokenError: It lacks that, and is not accepted.
        """
        try:
            with self._engine.connect() as connection:
                copy = self._recognised(connection, living, accept=accept)
        except DBAPIError as exc:
            raise StoreError(
                f"the log cannot be opened to write: {said(exc)}",
                fix="see `caxton db status`",
            ) from None
        self._is_copy = copy is not None
        return copy

    def _recognised(
        self,
        connection: sa.Connection,
        living: Callable[[], Collection[str]],
        *,
        accept: bool,
    ) -> Copy | None:
        self._place = self._placed(connection)
        name, place, size, frontier = self._named(connection)
        self._name = name
        if self._file and self._marks.original(name, self._file):
            # As after `caxton db backup`: nothing is lost, both are written to.
            return Copy(size=size, root=_root(size, frontier))
        note, known = self._marks.newest(name), self._marks.knows(name)
        if note is not None and not _holds(connection, note):
            if not accept:
                raise _lacking(size, note.checkpoint)
            return Copy(size=size, root=_root(size, frontier), had=note.checkpoint)
        is_strange = not (known or self._shared or living())
        if is_strange or self._is_elsewhere(place, known=known):
            return Copy(size=size, root=_root(size, frontier))
        if self._place not in {place, ""}:
            # A replica took over, and nothing is lost.
            connection.execute(sa.update(tree).values(place=self._place))
        self._keep()
        return None

    def remember(self, note: Note) -> None:
        """Keep a checkpoint on this machine, unless the log is a copy."""
        if not self._is_copy:
            self._marks.keep(self._name, note)

    def rename(self, driver: Driver) -> None:
        """Make a copy a log of its own: the guard of the transaction that does it."""
        self._name = secrets.token_hex(16)
        self._keep()
        ask(driver, _RENAME, self._name, self._place)
        if self._shared:
            # They were those of the original.
            ask(driver, "DELETE FROM hosts")

    def renamed(self) -> None:
        """Note that this is durable."""
        self._is_copy = False

    def _keep(self) -> None:
        self._marks.keep(self._name)
        if self._file:
            self._marks.settle(self._name, self._file)

    def _named(self, connection: sa.Connection) -> sa.Row[str, str, int, bytes]:
        row = sa.select(tree.c.incarnation, tree.c.place, tree.c.size, tree.c.frontier)
        if connection.execute(row).one().incarnation is None:
            name = secrets.token_hex(16)
            # Before the database: or else a crash in between would make it a copy.
            self._marks.keep(name)
            connection.execute(
                sa.update(tree)
                .where(tree.c.incarnation.is_(None))
                .values(incarnation=name, place=self._place)
            )
            if not self._shared:
                # Into the file itself: it is not lost with the write-ahead log.
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
        Return whether the database was restored on another server, or in another one.

        Only the timeline of the server is another after each takeover by a replica,
        and each recovery of a point in time. Who knows the log has compared it.
        """
        if not (place and self._place):
            return False  # This user may not ask.
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
    """Return whether the log has the checkpoint that was signed with its events."""
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
        return b""  # It is damaged: `caxton audit verify` says so.


def _lacking(size: int, had: Checkpoint) -> LogBrokenError:
    if size < had.size:
        text = f"the log has {size} events of {had.size} that this machine has signed"
    else:
        text = f"the log lacks the {had.size} events that this machine has signed"
    return LogBrokenError(
        f"{text}: it is a copy, or was cut off; nothing is written to it", fix=ACCEPT
    )
