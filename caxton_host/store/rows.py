"""
Long answers, a few rows at a time.

The only difference between the databases that readers see. PostgreSQL sends rows as
they are taken, in binary: five times what Core makes of the same query. One query
is one snapshot, however long it takes.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import sqlalchemy as sa

from .engine import unreadable

if TYPE_CHECKING:
    import psycopg


#: What a row holds, in the order in which it was asked for.
Columns: TypeAlias = tuple[Any, ...]
Query: TypeAlias = sa.Select[*tuple[Any, ...]]

_AT_ONCE = 1000


def rows(connection: sa.Connection, query: Query) -> Generator[Columns]:
    """
    Yield what *query* finds, in constant memory.

    Raises:
        StoreError: PostgreSQL cannot be read. SQLite raises its own errors.
    """
    if connection.dialect.name == "sqlite":
        found = connection.execute(query, execution_options={"yield_per": _AT_ONCE})
        yield from (tuple(row) for row in found)
        return
    from psycopg import Error, capabilities  # noqa: PLC0415 -- an extra

    compiled = query.compile(dialect=connection.dialect)
    driver = cast("psycopg.Connection", connection.connection.driver_connection)
    # Before libpq 17, a row at a time.
    size = _AT_ONCE if capabilities.has_stream_chunked() else 1
    text = str(compiled).encode()
    with driver.cursor() as cursor:
        try:
            yield from cursor.stream(text, compiled.params, binary=True, size=size)
        except Error as exc:
            raise unreadable(exc) from None


async def pages(engine: sa.Engine, query: Query) -> AsyncGenerator[list[Columns]]:
    """Yield what *query* finds, page by page, off the event loop."""
    thread = ThreadPoolExecutor(1, "caxton-read")
    loop = asyncio.get_running_loop()
    found = _found(engine, query)
    try:
        while page := await loop.run_in_executor(thread, _page, found):
            yield page
    finally:
        # In its thread, behind what may still run there.
        thread.submit(found.close)
        thread.shutdown(wait=False)


def _found(engine: sa.Engine, query: Query) -> Generator[Columns]:
    with engine.connect() as connection, closing(rows(connection, query)) as found:
        yield from found


def _page(found: Generator[Columns]) -> list[Columns]:
    return list(islice(found, _AT_ONCE))
