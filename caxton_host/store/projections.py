"""
The tables of projections: what lists find runs by, and what people have to decide.

They are written in the transaction of the event that changes them, only what differs.
All of them can be made again from the events of a run: where an older release wrote a
row, to check them, and to repair them. A run is locked meanwhile, so its writer, which
knows what is stored, goes on from what is stored then.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from operator import attrgetter
from typing import Any, TypeAlias

import sqlalchemy as sa

from ..core.log.events import Event, from_payload
from ..core.log.projection import Projection, Wait, should_be
from ..core.log.runs import RunRow
from ..core.names import run_of, stream_of
from ..errors import LogBrokenError
from ..lib.codec import decode_trusted
from .schema import STALE, events, payloads, run_tools, runs, waits

Row: TypeAlias = tuple[object, ...]
#: Called with the runs that are done, and with all.
Tell: TypeAlias = Callable[[int, int], None]

#: The columns of a run, and those that its events change.
COLUMNS = [one.name for one in fields(RunRow)]
CHANGED = (
    *("state", "ended_at", "host", "owner", "epoch", "trace_id", "reason"),
    *("calls", "tools", "events", "changed_at", "due", "phase"),
)
_fields_of: Callable[[RunRow], Row] = attrgetter(*COLUMNS)
_changed_of: Callable[[RunRow], Row] = attrgetter(*CHANGED, "run_id")
_rest_of: Callable[[RunRow], Row] = attrgetter(*COLUMNS[1:], "run_id")

_AT_ONCE = 200
#: Seconds after which the progress is told, each time.
_PATIENCE_S = 2.0
_logger = logging.getLogger("caxton_host")


def insert(table: sa.Table, columns: Iterable[str]) -> str:
    """Return the statement that inserts into these columns, for SQLite."""
    names = [*columns]
    values = ", ".join("?" * len(names))
    return f"INSERT INTO {table.name} ({', '.join(names)}) VALUES ({values})"  # noqa: S608 -- ours


def _update(columns: Iterable[str]) -> str:
    changes = ", ".join(f"{name} = ?" for name in columns)
    return f"UPDATE runs SET {changes} WHERE run_id = ?"  # noqa: S608 -- ours


_STARTED = insert(runs, COLUMNS)
_CHANGED = _update(CHANGED)
_REWRITTEN = _update(COLUMNS[1:])
#: Parameters: the columns of `run_tools`.
LOST = """\
DELETE FROM run_tools
WHERE tool = ? AND outcome = ? AND started_at = ? AND run_id = ?"""
_GAINED = f"{insert(run_tools, run_tools.c.keys())} ON CONFLICT DO NOTHING"
_OVER = "DELETE FROM waits WHERE asked_at = ? AND run_id = ? AND seq = ?"
_ASKED = f"{insert(waits, waits.c.keys())} ON CONFLICT DO NOTHING"


@dataclass(slots=True)
class Turned:
    """
    The rows that a transaction changes, in the order of the columns of their tables.

    Attributes:
        started: Of runs that begin.

        changed: Of others: `CHANGED`, and the id.

        lost: Of `run_tools`, to be deleted.

        gained: Of the same, to be added.

        over: Keys of `waits`, to be deleted.

        asked: Of the same, to be added.
    """

    started: list[Row] = field(default_factory=list[Row])
    changed: list[Row] = field(default_factory=list[Row])
    lost: list[Row] = field(default_factory=list[Row])
    gained: list[Row] = field(default_factory=list[Row])
    over: list[Row] = field(default_factory=list[Row])
    asked: list[Row] = field(default_factory=list[Row])

    def add(self, before: Projection, after: Projection) -> None:
        """Add what a run changes. It starts once: another start, the log refuses."""
        row = after.row
        if row is None or row is before.row:
            return
        again = after.starts > max(before.starts, 1)
        self.started += [_fields_of(row)] * ((before.row is None) + again)
        if before.row is not None:
            self.changed.append(_changed_of(row))
        had = {*_tools_of(before.row)} if before.row else set[Row]()
        has = {*_tools_of(row)}
        self.lost += had - has
        self.gained += has - had
        had = {*waits_of(row, before.waits)}
        has = {*waits_of(row, after.waits)}
        self.over += [(at, run_id, seq) for at, run_id, seq, *_ in had - has]
        self.asked += has - had

    def statements(self) -> Iterator[tuple[str, list[Row]]]:
        """Yield what SQLite executes, with the rows of each."""
        texts = (_STARTED, _CHANGED, LOST, _GAINED, _OVER, _ASKED)
        lists: list[list[Row]] = [getattr(self, one.name) for one in fields(self)]
        yield from (both for both in zip(texts, lists, strict=True) if both[1])


#: Of a transaction in which no run turns, as most are.
NONE = Turned()


def _tools_of(row: RunRow) -> Iterator[Row]:
    """Yield the rows of `run_tools`."""
    for tool, outcome in keys(row.tools):
        yield tool, outcome, row.started_at, row.run_id


def keys(tools: str) -> set[tuple[str, str]]:
    """
    Return what finds a run with these tools.

    >>> sorted(keys('[["s/t", "ok"], ["", "denied"]]'))
    [('', 'denied'), ('', 'ok'), ('s/t', ''), ('s/t', 'ok')]
    """
    pairs = {(str(tool), str(outcome)) for tool, outcome in json.loads(tools)}
    parts = {(tool, "") for tool, _ in pairs} | {("", outcome) for _, outcome in pairs}
    return (pairs | parts) - {("", "")}


def waits_of(row: RunRow, found: Iterable[Wait]) -> Iterator[Row]:
    """Yield the rows of `waits`."""
    about = row.agent, row.tenant
    for one in found:
        what = one.kind, one.call, one.tool, one.until
        yield one.asked_at, row.run_id, one.seq, *what, *about


_EVENTS = (
    sa.select(
        events.c.stream,
        events.c.type,
        events.c.schema_version,
        events.c.recorded_at,
        events.c.trace_id,
        payloads.c.payload,
    )
    .join_from(events, payloads, isouter=True)
    .order_by(events.c.stream, events.c.seq)
)


def projections(
    connection: sa.Connection, run_ids: Iterable[str]
) -> dict[str, Projection]:
    """Return the projection of each of these runs, from their events."""
    found = {run_id: Projection(run_id) for run_id in run_ids}
    query = _EVENTS.where(events.c.stream.in_([*map(stream_of, found)]))
    for stream, type_, version, at, trace_id, payload in connection.execute(query):
        event = _readable(type_, version, payload)
        found[run_of(stream)].apply(type_, event, at, trace_id)
    return found


def _readable(type_: str, version: int, payload: bytes | None) -> Event | None:
    # Lists find runs; `audit verify` tells of what was damaged.
    try:
        if payload is not None:
            return from_payload(type_, version, decode_trusted(payload))
    except (ValueError, TypeError, AttributeError, LogBrokenError):
        pass
    return None


def is_stale(connection: sa.Connection, run_id: str | None = None) -> bool:
    """Return whether an older release wrote the row of a run, or of any."""
    query = sa.select(runs.c.run_id).where(STALE).limit(1)
    if run_id is not None:
        query = query.where(runs.c.run_id == run_id)
    return connection.execute(query).first() is not None


def fill(engine: sa.Engine, run_id: str | None = None) -> int:
    """
    Make the rows that an older release wrote, and return how many.

    It may be repeated at any time, goes on where it was interrupted, and lets others
    write: a few runs are a transaction.

    Args:
        engine: To the database.

        run_id: Only this run.
    """
    with engine.connect() as connection:
        if not is_stale(connection, run_id):
            return 0
        total = count(connection, runs, STALE)
    tell = _told(time.monotonic())
    only = STALE if run_id is None else sa.and_(STALE, runs.c.run_id == run_id)
    return sum(rewritten(engine, only, lambda done: tell(done, total)))


def _told(began: float) -> Tell:
    def tell(done: int, total: int) -> None:
        nonlocal began
        if time.monotonic() - began > _PATIENCE_S:
            began = time.monotonic()
            _logger.warning("filling the lists of runs: %d of %d", done, total)

    return tell


def rewritten(
    engine: sa.Engine, only: sa.ColumnElement[bool], tell: Callable[[int], None]
) -> Iterator[int]:
    """Make the rows of runs, and yield how many with each transaction."""
    after, done = "", 0
    while True:
        with writing(engine) as connection:
            # Of those that change now, the writer knows better.
            query = page_of(after).where(only).with_for_update(skip_locked=True)
            stored = [*map(run_row, connection.execute(query))]
            _rewrite(connection, stored)
        if not stored:
            return
        after, done = stored[-1].run_id, done + len(stored)
        tell(done)
        yield len(stored)


def _rewrite(connection: sa.Connection, stored: Sequence[RunRow]) -> None:
    made = projections(connection, [row.run_id for row in stored])
    new = [should_be(row, made[row.run_id]) for row in stored]
    execute(connection, LOST, [key for row in stored for key in _tools_of(row)])
    execute(connection, _GAINED, [key for row in new for key in _tools_of(row)])
    ids = [row.run_id for row in stored]
    connection.execute(sa.delete(waits).where(waits.c.run_id.in_(ids)))
    asked = [one for row in new for one in waits_of(row, made[row.run_id].waits)]
    execute(connection, _ASKED, asked)
    execute(connection, _REWRITTEN, [*map(_rest_of, new)])


def count(
    connection: sa.Connection, table: sa.Table, *only: sa.ColumnElement[bool]
) -> int:
    """Return the number of rows of a table."""
    query = sa.select(sa.func.count()).select_from(table).where(*only)
    return connection.execute(query).scalar() or 0


def run_row(columns: Sequence[Any]) -> RunRow:
    """Return the row of a run with these `COLUMNS`."""
    return RunRow(**dict(zip(COLUMNS, columns, strict=True)))


def page_of(after: str) -> sa.Select[*tuple[Any, ...]]:
    """Return the query for the next runs, by id."""
    query = sa.select(*(runs.c[name] for name in COLUMNS)).order_by(runs.c.run_id)
    return query.where(runs.c.run_id > after).limit(_AT_ONCE)


@contextmanager
def writing(engine: sa.Engine) -> Generator[sa.Connection]:
    """Return a connection in a transaction, which ends with the block."""
    begin = "BEGIN IMMEDIATE" if engine.dialect.name == "sqlite" else "BEGIN"
    with engine.connect() as connection:
        connection.exec_driver_sql(begin)
        try:
            yield connection
            connection.exec_driver_sql("COMMIT")
        except BaseException:
            connection.invalidate()
            raise


def execute(connection: sa.Connection, text: str, rows: Sequence[Row]) -> None:
    """Execute a statement with ``?`` for parameters once for each row."""
    if connection.dialect.name != "sqlite":
        text = text.replace("?", "%s")
    if rows:
        connection.exec_driver_sql(text, [*rows])
