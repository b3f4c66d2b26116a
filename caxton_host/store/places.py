"""
Places of events in the log: by position; on PostgreSQL, by transaction first.

This is the order of the tree. See `reader` for the reason.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias, cast

import sqlalchemy as sa

from .schema import events, tree, xid

#: The sort key of an event in the log.
Place: TypeAlias = tuple[int, ...]

#: Events behind one that are counted to find its leaf.
_COUNTED = 1_000_000


def order_of(engine: sa.Engine) -> list[sa.ColumnElement[int]]:
    """Return the columns that events are ordered by."""
    shared = engine.dialect.name == "postgresql"
    first = [cast("sa.ColumnElement[int]", xid)] if shared else []
    return [*first, events.c.position]


def place_columns(engine: sa.Engine) -> list[sa.ColumnElement[object]]:
    """Return the columns that say the place of an event, as text."""
    return [sa.cast(column, sa.Text) for column in order_of(engine)]


def key_of(place: Place) -> sa.Tuple:
    """Return a place, to compare with the columns of `order_of`."""
    *first, position = place
    return sa.tuple_(
        *(sa.cast(str(one), xid.type) for one in first), sa.literal(position)
    )


def leaf(connection: sa.Connection, stream: str, seq: int) -> int | None:
    """
    Return the index of an event in the tree, from 0.

    Returns:
        ``None``: The tree does not have it yet, or it has a million newer ones.
    """
    columns = order_of(connection.engine)
    query = sa.select(
        tree.c.size,
        *[tree.c.xid, tree.c.position][-len(columns) :],
        *place_columns(connection.engine),
    ).join_from(tree, events, sa.true())
    query = query.where(events.c.stream == stream, events.c.seq == seq)
    found = connection.execute(query).one_or_none()
    if found is None:
        return None
    size, *both = map(int, cast("Sequence[int | str]", found))
    end, place = tuple(both[: len(columns)]), tuple(both[len(columns) :])
    if place > end:
        return None
    if end == (size,):
        return place[0] - 1  # No position up to the last one is free.
    key = sa.tuple_(*columns)
    behind = sa.select(sa.literal(1)).select_from(events)
    behind = behind.where(key > key_of(place), key <= key_of(end)).limit(_COUNTED)
    counted = sa.select(sa.func.count()).select_from(behind.subquery())
    newer = connection.execute(counted).scalar_one()
    return size - 1 - newer if newer < _COUNTED else None
