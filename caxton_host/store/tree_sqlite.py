"""The tree on SQLite: it grows in the transaction of every append."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Sequence

import sqlalchemy as sa

from ..core.log.checkpoint import parse_note
from ..core.log.tree import Frontier
from ..errors import CaxtonError
from ..lib.signing import Signer
from ..ports import Clock
from .commit import Group, Line
from .schema import checkpoints, events, tree
from .seals import UNSIGNED, Seal, shortened, sign, unsigned
from .writer import Writer

_log = logging.getLogger(__name__)


class SqliteTree:
    """
    The tree of one database. Called within the transactions of its only caller.

    Attributes:
        newest: The last checkpoint that was committed here.
    """

    def __init__(
        self, dialect: sa.Dialect, clock: Clock, signer: Signer | None
    ) -> None:
        self.newest: Seal | None = None
        self._clock = clock
        self._signer = signer
        self._warned = False
        self._tree, self._position = Frontier(), 0
        self._grown: tuple[Frontier, int] | None = None
        self._sealed: Seal | None = None
        self._sql = {
            name: str(statement.compile(dialect=dialect, column_keys=keys))
            for name, statement, keys in _STATEMENTS
        }

    @property
    def is_new(self) -> bool:
        """Whether there is something that no checkpoint from here covers."""
        size = self.newest.note.checkpoint.size if self.newest else 0
        return self._signer is not None and self._tree.size > size

    def grow(self, driver: sqlite3.Cursor, first: int, hashes: Sequence[bytes]) -> None:
        """
        Add events.

        Args:
            driver: Within their transaction.

            first: The position of the first of them.

            hashes: Theirs.

        Raises:
            LogBrokenError: The log is shorter than its tree.
        """
        grown = self._current(driver, first - 1)
        grown.extend(hashes)
        last = first + len(hashes) - 1
        driver.execute(
            self._sql["grow"], (grown.size, bytearray(grown.to_bytes()), last)
        )
        self._grown = grown, last
        if self.newest is None and self._signer is not None:
            self._try_to_sign(driver, grown, self._signer)

    def seal(self, driver: sqlite3.Cursor) -> None:
        """Sign what is there. See `grow` for the argument and what is raised."""
        if self._sealed is not None or self._signer is None:
            return
        tree_ = self._grown[0] if self._grown else self._current(driver, None)
        if not tree_.size:
            return
        known = tree_.size, self._signer.public_key()
        if row := driver.execute(self._sql["signed"], known).fetchone():
            self._sealed = Seal(parse_note(row[0]), known[1])
        else:
            self._sign(driver, tree_, self._signer)

    def committed(self) -> None:
        """Note that the transaction is durable."""
        if self._grown:
            self._tree, self._position = self._grown
        if self._sealed:
            self.newest = self._sealed
        self.rolled_back()

    def rolled_back(self) -> None:
        """Forget the transaction."""
        self._grown = self._sealed = None

    def _current(self, driver: sqlite3.Cursor, last: int | None) -> Frontier:
        """Return the tree up to position *last*, or up to the end."""
        if last is None:
            last = driver.execute(self._sql["last"]).fetchone()[0] or 0
        if self._position == last:
            return self._tree.copy()
        # Another process wrote, or an older version that knew of no tree.
        size, frontier, position = driver.execute(self._sql["tree"]).fetchone()
        found = Frontier.parse(size, frontier)
        if position > last:
            raise shortened(size)
        rest = driver.connection.execute(self._sql["hashes"], (position, last))
        found.extend(hash_ for (hash_,) in rest)
        self._tree, self._position = found.copy(), last
        return found

    def _try_to_sign(
        self, driver: sqlite3.Cursor, grown: Frontier, signer: Signer
    ) -> None:
        try:
            self._sign(driver, grown, signer)
        except (CaxtonError, OSError) as exc:
            if not self._warned:
                self._warned = True
                _log.warning(UNSIGNED, *unsigned(exc))

    def _sign(self, driver: sqlite3.Cursor, grown: Frontier, signer: Signer) -> None:
        first: bytes = driver.execute(self._sql["first"]).fetchone()[0]
        seal = sign(signer, grown, first)
        note, now = seal.note.text().encode(), self._clock.now()
        driver.execute(
            self._sql["checkpoint"], (grown.size, note, seal.public_key, now)
        )
        self._sealed = seal


class SqliteSealer:
    """
    See `Sealer`: signs in a transaction of the writer.

    Args:
        writer: Of the same log.

        tree: The same.
    """

    def __init__(self, writer: Writer, tree: SqliteTree) -> None:
        self._writer = writer
        self._tree = tree

    @property
    def newest(self) -> Seal | None:
        """See `Sealer`."""
        return self._tree.newest

    async def seal(self, *, force: bool = False) -> None:
        """See `Sealer`."""
        if force or self._tree.is_new:
            group = Group(line=Line(""), drafts=(), blobs={}, seal=True)
            await self._writer.append(group)


_STATEMENTS: Sequence[tuple[str, sa.ClauseElement, list[str] | None]] = (
    ("last", sa.select(sa.func.max(events.c.position)), None),
    (
        "first",
        sa.select(events.c.hash).where(
            events.c.position
            == sa.select(sa.func.min(events.c.position)).scalar_subquery()
        ),
        None,
    ),
    (
        "hashes",
        sa.select(events.c.hash)
        .where(
            events.c.position > sa.bindparam("a"),
            events.c.position <= sa.bindparam("b"),
        )
        .order_by(events.c.position),
        None,
    ),
    ("tree", sa.select(tree.c.size, tree.c.frontier, tree.c.position), None),
    (
        "grow",
        sa.update(tree).values(
            size=sa.bindparam("n"),
            frontier=sa.bindparam("f"),
            position=sa.bindparam("p"),
        ),
        None,
    ),
    (
        "signed",
        sa.select(checkpoints.c.note).where(
            checkpoints.c.size == sa.bindparam("n"),
            checkpoints.c.public_key == sa.bindparam("k"),
        ),
        None,
    ),
    (
        "checkpoint",
        sa.insert(checkpoints),
        ["size", "note", "public_key", "signed_at"],
    ),
)
