"""
Rows that are looked up right here, on the event loop.

A file that is read by key answers in microseconds, and readers of SQLite never wait for
a writer; a hop to a thread and back costs ten times that, and far more when many ask.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import sqlalchemy as sa
from sqlalchemy.dialects import sqlite
from sqlalchemy.exc import DBAPIError


class Near:
    """
    Looks up rows of one statement, which has one parameter.

    Args:
        engine: Where; nothing is near that is no file.

        query: What.
    """

    def __init__(self, engine: sa.Engine, query: sa.Select[Any]) -> None:
        self._engine = engine
        self._text = str(query.compile(dialect=sqlite.dialect()))
        self._names = query.selected_columns.keys()
        self._connection: sa.Connection | None = None

    def rows(self, value: str) -> Sequence[SimpleNamespace] | None:
        """Return the rows, or ``None``: look for them elsewhere, for it would wait."""
        if self._engine.dialect.name != "sqlite":
            return None
        try:
            found = self._driver().execute(self._text, (value,))
            return [
                SimpleNamespace(**dict(zip(self._names, row, strict=True)))
                for row in found
            ]
        except (DBAPIError, sqlite3.Error):
            self.close()
            return None

    def _driver(self) -> sqlite3.Connection:
        if self._connection is None:
            self._connection = self._engine.connect()
            self._connection.exec_driver_sql("PRAGMA busy_timeout = 0")
        return cast("sqlite3.Connection", self._connection.connection.driver_connection)

    def close(self) -> None:
        """Give the connection back; the next look opens another."""
        if self._connection is not None:
            with contextlib.suppress(DBAPIError, sqlite3.Error):
                self._connection.invalidate()
                self._connection.close()
            self._connection = None
