"""Statements of the drivers that fail: the Nth that writes, once."""

from __future__ import annotations

import functools
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import psycopg
import pytest

__all__ = ["KINDS", "Faults", "Kind"]

#: ``refused``: the database says no. ``cut``: the connection breaks before it has the
#: statement. ``lost``: after it, so that the answer is lost. ``dropped``: it says yes,
#: and does nothing, as no database does: to show that this would be found.
Kind: TypeAlias = Literal["refused", "cut", "lost", "dropped"]
KINDS: dict[str, tuple[Kind, ...]] = {
    "sqlite": ("refused",),
    "postgresql": ("refused", "cut", "lost"),
}
_WRITES = ("BEGIN", "COMMIT", "INSERT INTO", "UPDATE ", "DELETE FROM")


@dataclass(slots=True)
class Faults:
    """
    Counts the statements that write.

    Attributes:
        at: The number of the one that fails, from 1; 0: none.

        of: Only statements with this text count.

        seen: How many there were.

        failed: The one that failed.
    """

    at: int = 0
    kind: Kind = "refused"
    of: str = ""
    seen: int = 0
    failed: str = ""
    _off: bool = field(default=True, init=False)

    def strikes(self, query: object) -> bool:
        """Count a statement, and return whether it fails."""
        text = query.decode() if isinstance(query, bytes) else str(query)
        writes = any(word in text for word in _WRITES) and self.of in text
        if self._off or not writes:
            return False
        self.seen += 1
        if self.seen != self.at:
            return False
        self.failed = " ".join(text.split())[:60]
        return True

    @contextmanager
    def armed(self) -> Iterator[None]:
        """Count, and fail."""
        self._off = False
        try:
            yield
        finally:
            self._off = True

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Put it between all stores that are opened meanwhile and their drivers."""
        with pytest.MonkeyPatch.context() as patch:
            opening = functools.partial(sqlite3.connect, factory=_watched(self))
            patch.setattr(sqlite3, "connect", opening)
            for name in ("execute", "executemany"):
                made = _psycopg(self, getattr(psycopg.Cursor, name))
                patch.setattr(psycopg.Cursor, name, made)
            yield


def _watched(faults: Faults) -> type[sqlite3.Connection]:
    class Cursor(sqlite3.Cursor):
        def execute(self, query: str, *more: Any) -> Any:  # noqa: ANN401
            _refuse(faults, query)
            return super().execute(query, *more)

        def executemany(self, query: str, rows: Any, /) -> Any:  # noqa: ANN401
            if _refuse(faults, query):
                return self
            return super().executemany(query, rows)

    class Connection(sqlite3.Connection):
        def cursor(self, *_: Any) -> Any:  # noqa: ANN401
            return super().cursor(Cursor)

        def execute(self, query: str, *more: Any) -> sqlite3.Cursor:  # noqa: ANN401
            return self.cursor().execute(query, *more)  # type: ignore[no-any-return]

    return Connection


def _refuse(faults: Faults, query: str) -> bool:
    """Fail, or return whether to drop a statement."""
    strikes = faults.strikes(query)
    if strikes and faults.kind == "refused":
        error = sqlite3.OperationalError("disk I/O error")
        error.sqlite_errorcode = sqlite3.SQLITE_IOERR
        error.sqlite_errorname = "SQLITE_IOERR"
        raise error
    return strikes


def _psycopg(faults: Faults, real: Callable[..., Any]) -> Callable[..., Any]:
    def execute(self: psycopg.Cursor, query: Any, *args: Any, **options: Any) -> Any:  # noqa: ANN401
        if not faults.strikes(query):
            return real(self, query, *args, **options)
        if faults.kind == "refused":
            raise psycopg.errors.DiskFull("no space left on device")
        if faults.kind == "lost":
            real(self, query, *args, **options)
        self.connection.close()
        raise psycopg.OperationalError("the connection is lost")

    return execute
