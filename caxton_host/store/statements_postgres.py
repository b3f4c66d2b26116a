"""
Every statement that a writer sends to PostgreSQL.

Rows travel as one array a column, so a batch of any size is one statement of one
text, prepared by the server. The columns are those of `schema`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from functools import cache

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from ..core.log.runs import RunRow
from .commit import Batch, Row
from .drafts import Change
from .schema import blobs, budgets, events, payloads, runs, slots

#: Parameters: an array of keys. Makes budgets that are new and locks all, in one
#: order for every host, until the transaction ends. Returns key, what is used, since
#: when, and the time.
HELD = """\
INSERT INTO budgets (key, used)
SELECT k, 0 FROM unnest(%b::text[]) AS k ORDER BY k COLLATE "C"
ON CONFLICT (key) DO UPDATE SET used = budgets.used
RETURNING key, used, since, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint"""

#: Parameters: an array of keys. Returns key, stream and call of each place. Asked once
#: the budgets are locked, so none is taken meanwhile.
TAKEN = "SELECT key, stream, call FROM slots WHERE key = ANY(%b::text[])"

#: Stream, number, hash. Returns a row if that very event is in the log.
STORED = "SELECT 1 FROM events WHERE stream = %s AND seq = %s AND hash = %s"

_EVENT = [c.name for c in events.columns if c.name != "position"]
_PAYLOAD = [c.name for c in payloads.columns if c.name != "position"]
_STARTED = [field.name for field in fields(RunRow)]
_CHANGED = (*Change._fields, "run_id")

# Positions are drawn first: an event and its payload share one.
_APPEND = """\
WITH given AS MATERIALIZED (
  SELECT nextval('events_position_seq') AS position, * FROM {given}
), appended AS (
  INSERT INTO events (position, {event}) OVERRIDING SYSTEM VALUE
  SELECT position, {event} FROM given
){others}
INSERT INTO payloads (position, {payload}) SELECT position, {payload} FROM given"""

# Each beside the append, in the order of `_rows`, where there is something to do.
_OTHERS = (
    """kept AS (
  INSERT INTO blobs (sha256, bytes, size) SELECT * FROM {blob} ON CONFLICT DO NOTHING
)""",
    """started AS (
  INSERT INTO runs ({run}) SELECT {run} FROM {started}
)""",
    """changed AS (
  UPDATE runs SET state = t.state, ended_at = t.ended_at, owner = t.owner,
    epoch = coalesce(t.epoch, runs.epoch) FROM {state}
  WHERE runs.run_id = t.run_id
)""",
    """spent AS (
  UPDATE budgets SET used = t.used, since = t.since FROM {budget}
  WHERE budgets.key = t.key
)""",
    """freed AS (
  DELETE FROM slots USING {freed} WHERE slots.stream = t.stream AND slots.call = t.call
)""",
    """ended AS (
  DELETE FROM slots USING {ended} WHERE slots.stream = t.stream
)""",
    """opened AS (
  INSERT INTO slots SELECT * FROM {opened} ON CONFLICT DO NOTHING
)""",
)

_DIALECT: sa.Dialect = postgresql.dialect()  # type: ignore[no-untyped-call]  # theirs


def statement(batch: Batch) -> tuple[bytes, list[Sequence[object]]]:
    """Return what stores *batch*, and its parameters."""
    rows = _rows(batch)
    columns = _columns(
        [e + p for e, p in zip(batch.events, batch.payloads, strict=True)],
        len(_EVENT) + len(_PAYLOAD),
    )
    for each in rows:
        if each:
            columns += _columns(each, len(each[0]))
    return _text(tuple(bool(each) for each in rows)), columns


def _rows(batch: Batch) -> tuple[list[Row], ...]:
    return (
        batch.blob_rows(),
        batch.started_rows(),
        batch.state_rows(),
        batch.budget_rows(),
        batch.freed_rows(),
        batch.ended_rows(),
        batch.opened_rows(),
    )


def _columns(rows: Sequence[Row], width: int) -> list[Sequence[object]]:
    return [list(column) for column in zip(*rows, strict=True)] or [[]] * width


@cache
def _text(present: tuple[bool, ...]) -> bytes:
    others = [other for other, there in zip(_OTHERS, present, strict=True) if there]
    given = _unnest(
        [events.c[name] for name in _EVENT] + [payloads.c[name] for name in _PAYLOAD]
    )
    text = _APPEND.replace("{others}", "".join(f", {other}" for other in others))
    return text.format(
        given=given,
        event=", ".join(_EVENT),
        payload=", ".join(_PAYLOAD),
        run=", ".join(_STARTED),
        blob=_unnest([*blobs.columns]),
        started=_unnest([runs.c[name] for name in _STARTED]),
        state=_unnest([runs.c[name] for name in _CHANGED]),
        budget=_unnest([*budgets.columns]),
        freed=_unnest([slots.c.stream, slots.c.call]),
        ended=_unnest([slots.c.stream]),
        opened=_unnest([*slots.columns]),
    ).encode()


def _unnest(columns: Sequence[sa.Column[object]]) -> str:
    arrays = ", ".join(f"%b::{_type(column)}[]" for column in columns)
    names = ", ".join(column.name for column in columns)
    return f"unnest({arrays}) AS t ({names})"


def _type(column: sa.Column[object]) -> str:
    # Without what follows the name: a collation is no part of an array's type.
    name = column.type.compile(dialect=_DIALECT)
    return name.split(" ", 1)[0].lower()
