"""
Writing to SQLite: one file, one writer at a time, no network.

Statements go to the driver: for 64 rows, ``insert()`` through SQLAlchemy Core costs
54 % of an append. The tree grows in the transaction of every append.
"""

from __future__ import annotations

import contextlib
import logging
import sqlite3
from collections.abc import Sequence
from typing import cast

import sqlalchemy as sa

from ..core.grants.budgets import Use
from ..core.log.checkpoint import parse_note
from ..core.log.tree import Frontier
from ..errors import CaxtonError, LeaseLost, StoreError
from ..gateway.ledger import Holder
from ..lib.signing import Signer
from ..ports.watch import Clock
from .commit import Batch, Group, Line, LockedError, Outcome, Transactions
from .diagnosis import explain, path_of
from .drafts import CONFLICT, CONFLICT_FIX
from .file_guard import Whereabouts
from .projections import NONE, insert
from .schema import blobs, budgets, checkpoints, events, payloads, slots
from .seals import UNSIGNED, Seal, shortened, sign, unsigned
from .writer import Writer

#: Milliseconds for which a commit in the writer's thread waits for another process.
_PATIENCE_MS = 10_000

_COLUMNS = [column.name for column in events.columns if column.name != "position"]
_TRACE, _SPAN, _DIGEST, _HASH = map(
    _COLUMNS.index, ("trace_id", "span_id", "digest", "hash")
)


#: Parameters: the columns of `events` but position, in order. SQLite gives the one
#: behind the highest: rows are never deleted.
EVENT = insert(events, _COLUMNS)
#: The same without trace and span, which then are null.
_UNTRACED = insert(events, [*_COLUMNS[:_TRACE], *_COLUMNS[_DIGEST:]])
#: Position, salt, payload.
PAYLOAD = insert(payloads, payloads.c.keys())
# Digest, bytes, size. An existing digest is left unchanged.
_BLOB = f"{insert(blobs, blobs.c.keys())} ON CONFLICT DO NOTHING"
_USED = "SELECT used, since FROM budgets WHERE key = ?"
# Key, what is used now, since when.
_BUDGET = f"""\
{insert(budgets, budgets.c.keys())}
ON CONFLICT (key) DO UPDATE SET used = excluded.used, since = excluded.since"""
_HOLDERS = "SELECT stream, call FROM slots WHERE key = ?"
# Key, stream, call.
_OPENED = f"{insert(slots, slots.c.keys())} ON CONFLICT DO NOTHING"
_FREED = "DELETE FROM slots WHERE stream = ? AND call = ?"
_ENDED = "DELETE FROM slots WHERE stream = ?"
# By code point, "0" comes right behind "/". The run follows "run/".
_UNSHARED = """\
DELETE FROM budgets WHERE key >= '#' || substr(?1, 5) || '/'
AND key < '#' || substr(?1, 5) || '0'"""

_LAST = "SELECT max(position) FROM events"
_FIRST = """\
SELECT hash FROM events WHERE position = (SELECT min(position) FROM events)"""
_HASHES = """\
SELECT hash FROM events WHERE position > ? AND position <= ? ORDER BY position"""
_TREE = "SELECT size, frontier, position FROM tree"
_GROW = "UPDATE tree SET size = ?, frontier = ?, position = ?"
_SIGNED = "SELECT note FROM checkpoints WHERE size = ? AND public_key = ?"
_CHECKPOINT = insert(checkpoints, ["size", "note", "public_key", "signed_at"])

_log = logging.getLogger(__name__)


class SqliteCommitter(Transactions):
    """
    See `Committer`.

    Args:
        tree: That of the same database.

        clock: That of the budgets.

        whereabouts: Of its file; nothing is written to a file that lost its name.
    """

    def __init__(
        self,
        engine: sa.Engine,
        tree: SqliteTree,
        clock: Clock,
        whereabouts: Whereabouts,
    ) -> None:
        self._engine = engine
        self._whereabouts = whereabouts
        self._clock = clock
        self._tree = tree
        self._connect()

    def _connect(self) -> None:
        self._connection = self._engine.connect()
        # Through SQLAlchemy a commit costs 30 microseconds more, a fifth of the whole.
        # A new cursor for each statement costs more still.
        self._driver = cast(
            "sqlite3.Connection", self._connection.connection.driver_connection
        ).cursor()
        self._patience = -1

    def close(self) -> None:
        """Give the connection back."""
        # A statement that failed would keep the file open, and SQLite would not copy
        # the write-ahead log into it.
        with contextlib.suppress(sqlite3.ProgrammingError):
            self._driver.close()
        self._connection.close()

    def _transaction(self, groups: Sequence[Group], *, wait: bool) -> list[Outcome]:
        try:
            return self._commit(groups, _PATIENCE_MS if wait else 0)
        except Exception as exc:
            # SQLite has rolled back by itself after some errors, and refuses then.
            self._tree.rolled_back()
            with contextlib.suppress(sqlite3.Error):
                self._driver.execute("ROLLBACK")
            if isinstance(exc, sqlite3.ProgrammingError):
                # The connection is closed.
                self._connection.invalidate()
            if not wait and _is_locked(exc):
                raise LockedError from None
            raise

    def _commit(self, groups: Sequence[Group], patience: int) -> list[Outcome]:
        self._whereabouts.check_sometimes()
        if self._connection.invalidated:
            self._connection.close()
            self._connect()
        driver = self._driver
        if patience != self._patience:
            driver.execute(f"PRAGMA busy_timeout = {patience}")
            self._patience = patience
        driver.execute("BEGIN IMMEDIATE")
        for group in groups:
            if group.guard:
                group.guard(driver)
        batch = Batch(self)
        outcomes: list[Outcome] = [batch.admit(group) for group in groups]
        if batch.events:
            self._append(batch)
        self._change(batch)
        if any(group.seal for group in groups):
            self._tree.seal(driver)
        driver.execute("COMMIT")
        self._tree.committed()
        self.commits += 1
        batch.done()
        return outcomes

    def _append(self, batch: Batch) -> None:
        # The driver binds a bytearray directly. For bytes and None it first searches
        # for an adapter, in vain: a quarter of a microsecond each.
        if any(e[_TRACE] is not None or e[_SPAN] is not None for e in batch.events):
            statement, kept = EVENT, _DIGEST
        else:
            statement, kept = _UNTRACED, _TRACE
        *events, last = [
            (*e[:kept], bytearray(e[_DIGEST]), bytearray(e[_HASH]))
            for e in batch.events
        ]
        if events:
            self._driver.executemany(statement, events)
        # Only `execute` returns the position. The others are those before it, since no
        # other process writes until the end of the transaction.
        position = self._driver.execute(statement, last).lastrowid or 0
        first = position - len(events)
        payloads = [
            (position, bytearray(salt), bytearray(payload))
            for position, (salt, payload) in enumerate(batch.payloads, first)
        ]
        self._driver.executemany(PAYLOAD, payloads)
        self._tree.grow(self._driver, first, [e[_HASH] for e in batch.events])

    def _change(self, batch: Batch) -> None:
        driver = self._driver
        if batch.blobs:
            driver.executemany(_BLOB, batch.blob_rows())
        if (turned := batch.turned()) is not NONE:
            for statement, rows in turned.statements():
                driver.executemany(statement, rows)
        ledger = batch.ledger
        if ledger.uses:
            driver.executemany(_BUDGET, batch.budget_rows())
        if ledger.freed:
            driver.executemany(_FREED, batch.freed_rows())
        if ledger.ended:
            driver.executemany(_ENDED, batch.ended_rows())
            driver.executemany(_UNSHARED, batch.ended_rows())
        if ledger.opened:
            driver.executemany(_OPENED, batch.opened_rows())

    def now(self) -> int:
        """See `Books`. For a file it is the clock of this machine."""
        return self._clock.now()

    def use(self, key: str) -> Use:
        """See `Books`."""
        row = self._driver.execute(_USED, (key,)).fetchone()
        return Use(*row) if row else Use()

    def holders(self, key: str) -> list[Holder]:
        """See `Books`."""
        return self._driver.execute(_HOLDERS, (key,)).fetchall()

    def _is_shared(self, exc: Exception) -> bool:
        return _is_locked(exc)

    def _failure(self, exc: Exception) -> StoreError:
        if isinstance(exc, StoreError):
            return exc
        if isinstance(exc, CaxtonError):
            return StoreError(str(exc), fix=exc.fix)
        if isinstance(exc, sqlite3.IntegrityError):
            return LeaseLost(CONFLICT, fix=CONFLICT_FIX)
        if isinstance(exc, sqlite3.Error):
            text, fix = explain(exc, path_of(self._engine), "see `caxton db status`")
            return StoreError(f"the log cannot be written: {text}", fix=fix)
        return StoreError(f"an event cannot be stored: {type(exc).__name__}")


def _is_locked(exc: Exception) -> bool:
    code = getattr(exc, "sqlite_errorcode", None)
    return code == sqlite3.SQLITE_BUSY


class SqliteTree:
    """
    The tree of one database. Called within the transactions of its committer.

    Attributes:
        newest: The last checkpoint that was committed here.
    """

    def __init__(self, clock: Clock, signer: Signer | None) -> None:
        self.newest: Seal | None = None
        self._clock = clock
        self._signer = signer
        self._warned = False
        self._tree, self._position = Frontier(), 0
        self._grown: tuple[Frontier, int] | None = None
        self._sealed: Seal | None = None

    @property
    def is_new(self) -> bool:
        """Whether there are events that no checkpoint of this process covers."""
        size = self.newest.note.checkpoint.size if self.newest else 0
        return self._signer is not None and self._tree.size > size

    def grow(self, driver: sqlite3.Cursor, first: int, hashes: Sequence[bytes]) -> None:
        """
        Add events.

        Args:
            driver: Within their transaction.

            first: The position of the first of them.

            hashes: Of the events.

        Raises:
            LogBrokenError: The log is shorter than its tree.
        """
        grown = self._current(driver, first - 1)
        grown.extend(hashes)
        last = first + len(hashes) - 1
        driver.execute(_GROW, (grown.size, bytearray(grown.to_bytes()), last))
        self._grown = grown, last
        if self.newest is None and self._signer is not None:
            self._try_to_sign(driver, grown, self._signer)

    def seal(self, driver: sqlite3.Cursor) -> None:
        """Sign the tree as it is. See `grow` for the argument and the exceptions."""
        if self._sealed is not None or self._signer is None:
            return
        tree_ = self._grown[0] if self._grown else self._current(driver, None)
        if not tree_.size:
            return
        known = tree_.size, self._signer.public_key()
        if row := driver.execute(_SIGNED, known).fetchone():
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
        """Discard the changes of the transaction."""
        self._grown = self._sealed = None

    def _current(self, driver: sqlite3.Cursor, last: int | None) -> Frontier:
        """Return the tree up to position *last*, or up to the end."""
        if last is None:
            last = driver.execute(_LAST).fetchone()[0] or 0
        if self._position == last:
            return self._tree.copy()
        # Another process wrote, or an older version without a tree.
        size, frontier, position = driver.execute(_TREE).fetchone()
        found = Frontier.parse(size, frontier)
        if position > last:
            raise shortened(size)
        rest = driver.connection.execute(_HASHES, (position, last))
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
        first: bytes = driver.execute(_FIRST).fetchone()[0]
        seal = sign(signer, grown, first)
        note, now = seal.note.text().encode(), self._clock.now()
        driver.execute(_CHECKPOINT, (grown.size, note, seal.public_key, now))
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
