"""
Recomputes every hash from the stored columns, and the tree over them, in one pass.

What is kept meanwhile is the end of each stream and the frontier of the tree. Nothing
is written, no key is made; a read-only copy will do.
"""

from __future__ import annotations

import asyncio
import hashlib
import sqlite3
from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from contextlib import (
    AbstractContextManager,
    closing,
    contextmanager,
    nullcontext,
)
from functools import partial
from itertools import islice
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError, OperationalError

from ..core.log.chain import Chains, Fault, Stored, Verdict
from ..core.log.checkpoint import Note
from ..core.log.tree import Frontier
from ..core.names import RUN
from .engine import unreadable
from .erasure import erased_runs
from .merkle_process import Apart
from .reader import Reader
from .roots import Claim, Roots, claims
from .rows import Columns, Query, rows
from .schema import blobs, checkpoints, events, payloads, tree, xid

_AT_ONCE = 1000
#: Events: what takes longer than to start a process.
_LARGE = 50_000
_WIDTH = len(Stored._fields)
_HASH, _TIME = 8, 4


async def verify(
    reader: Reader,
    stream: str | None = None,
    *,
    trusted: Collection[bytes] = (),
    outside: Sequence[Note] = (),
    copy: bool = False,
) -> Verdict:
    """
    Check the whole log, or one stream and its place in the log.

    Args:
        reader: Of the database.

        stream: Only its events are looked into; of all others, the hashes.

        trusted: Public keys that are known from elsewhere.

        outside: Checkpoints that were kept elsewhere.

        copy: The log is a copy, which may lag behind these.

    Raises:
        LogBrokenError: The database itself is damaged.

        StoreError: Its server cannot be reached.
    """
    look = partial(_look, reader.engine, stream, trusted, outside, copy=copy)
    return await asyncio.to_thread(_verify, look)


def _verify(look: Callable[..., Verdict]) -> Verdict:
    try:
        try:
            return look(lenient=False)
        except (sqlite3.OperationalError, OperationalError) as exc:
            cause = exc.orig if isinstance(exc, OperationalError) else exc
            if not isinstance(cause, sqlite3.Error) or hasattr(
                cause, "sqlite_errorcode"
            ):
                raise
            # The driver's own: a text that is none. Reading such takes twice as long.
            return look(lenient=True)
    except (DBAPIError, sqlite3.Error) as exc:
        raise unreadable(exc) from None


def _look(  # noqa: PLR0913 -- what `verify` was given
    engine: sa.Engine,
    stream: str | None,
    trusted: Collection[bytes],
    outside: Sequence[Note],
    *,
    copy: bool,
    lenient: bool,
) -> Verdict:
    shared = engine.dialect.name == "postgresql"
    order = [xid, events.c.position] if shared else [events.c.position]
    chains = Chains(erasable=_is_run)
    with (
        _connected(engine, lenient=lenient) as before,
        # Looked at first: what is signed meanwhile is not a log that was cut.
        closing(_claims(before)) as said,
        _connected(engine, lenient=lenient) as connection,
        _tree(connection) as grown,
    ):
        told = claims(said, outside, trusted)
        roots = Roots(told, grown, numbered=not shared, copy=copy)
        # A run may be erased during the scan: only of one that was erased before it,
        # no payload may be there, and only behind it, all erasures are known.
        restorable = erased_runs(connection)
        if stream is None:
            _whole(connection, order, chains, roots)
        else:
            _one(connection, stream, order, chains, roots)
        if chains.erased:
            known = erased_runs(connection)
            chains.excuse({name: one.events for name, one in known.items()})
        chains.refuse_restored(restorable)
        faults = [*chains.faults, *_blobs(connection)]
        return roots.verdict(chains, faults)


def _tree(connection: sa.Connection) -> AbstractContextManager[Frontier | Apart]:
    """Give a tree: for a small log one in this process, which has it at once."""
    (last,) = next(rows(connection, sa.select(sa.func.max(events.c.position))))
    large = isinstance(last, int) and last > _LARGE
    return Apart() if large else nullcontext(Frontier())


def _is_run(stream: str) -> bool:
    return stream.startswith(RUN)


def _whole(
    connection: sa.Connection,
    order: Sequence[sa.ColumnElement[Any]],
    chains: Chains,
    roots: Roots,
) -> None:
    query = _stored().add_columns(events.c.position).order_by(*order)
    for page in _pages(connection, query):
        chains.check(page)
        roots.add(
            [row[_HASH] for row in page],
            [row[_TIME] for row in page],
            [row[_WIDTH] for row in page],
        )


def _one(
    connection: sa.Connection,
    stream: str,
    order: Sequence[sa.ColumnElement[Any]],
    chains: Chains,
    roots: Roots,
) -> None:
    query = _stored().where(events.c.stream == stream)
    for page in _pages(connection, query.order_by(events.c.seq, events.c.position)):
        chains.check(page)
    every = sa.select(events.c.hash, events.c.recorded_at, events.c.position)
    for page in _pages(connection, every.order_by(*order)):
        hashes, times, positions = zip(*page, strict=True)
        roots.add(hashes, times, positions)


def _stored() -> Query:
    source = events.outerjoin(payloads)
    columns = (source.c[_name(field)] for field in Stored._fields)
    return sa.select(*columns).select_from(source)


def _pages(connection: sa.Connection, query: Query) -> Iterator[list[Columns]]:
    driver = connection.connection.driver_connection
    if not isinstance(driver, sqlite3.Connection):
        with closing(rows(connection, query)) as found:
            while page := list(islice(found, _AT_ONCE)):
                yield page
        return
    # Through SQLAlchemy each row costs a third of what its check does.
    compiled = query.compile(dialect=connection.dialect)
    with closing(driver.execute(str(compiled), [*compiled.params.values()])) as cursor:
        while page := cursor.fetchmany(_AT_ONCE):
            yield page


def _claims(connection: sa.Connection) -> Generator[Claim]:
    """Return what the database says of its own roots, in the order of sizes."""
    grown = sa.select(tree.c.size, tree.c.frontier)
    (size, frontier) = next(rows(connection, grown), (0, b""))
    signed = sa.select(
        checkpoints.c.size, checkpoints.c.note, checkpoints.c.public_key
    ).order_by(checkpoints.c.size, checkpoints.c.id)
    found = rows(connection, signed)
    first = next(found, None)
    return _merged(Claim.of_tree(size, frontier), first, found)


def _merged(
    own: Claim, first: Columns | None, found: Iterator[Columns]
) -> Generator[Claim]:
    waiting: Claim | None = own
    for columns in ([] if first is None else [first]), found:
        for size, note, key in columns:
            claim = Claim.of_row(size, note, key)
            if waiting is not None and waiting.size <= claim.size:
                yield waiting
                waiting = None
            yield claim
    if waiting is not None:
        yield waiting


def _blobs(connection: sa.Connection) -> list[Fault]:
    bad: list[str] = []
    for digest, data in rows(connection, sa.select(blobs.c.sha256, blobs.c.bytes)):
        if not isinstance(data, bytes) or hashlib.sha256(data).hexdigest() != digest:
            bad = bad or [str(digest)]
    text = "the bytes kept as {} are others now"
    return [Fault(kind="blob", message=text.format(digest)) for digest in bad]


@contextmanager
def _connected(engine: sa.Engine, *, lenient: bool) -> Generator[sa.Connection]:
    """Give a connection; *lenient*, it reads texts which are none: a forger's, say."""
    with engine.connect() as connection:
        driver = connection.connection.driver_connection
        if lenient and isinstance(driver, sqlite3.Connection):
            driver.text_factory = _decoded
        try:
            yield connection
        finally:
            connection.invalidate()


def _name(field: str) -> str:
    return f"payloads_{field}" if field in payloads.c else f"events_{field}"


def _decoded(raw: bytes) -> str:
    return raw.decode(errors="surrogateescape")
