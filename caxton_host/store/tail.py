"""
Where a reader stands that follows the log.

A position is drawn before its transaction commits, so on PostgreSQL a higher one
can be there before a lower one, and whoever goes by positions misses the lower. All
transactions below the oldest one that runs are over: their events are all there,
in the order of (transaction, position), which never changes.
See https://www.postgresql.org/docs/current/functions-info.html (pg_snapshot_xmin).

One stream has one writer, so its numbers are enough.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, TypeAlias

import sqlalchemy as sa

from ..errors import CursorError
from .rows import Columns, Query
from .schema import XID8, events, xid

#: What orders the events of a tail: the values of one event.
Place: TypeAlias = tuple[int, ...]

_FORM = re.compile(r"([nps])((?:-\d{1,18})+)", re.ASCII)
_SIZES = {"n": 1, "p": 1, "s": 2}
_HORIZON = sa.func.pg_snapshot_xmin(sa.func.pg_current_snapshot(), type_=XID8())


@dataclass(frozen=True, slots=True)
class Cursors:
    """
    The order of one kind of tail, and how places in it are written.

    Attributes:
        kind: By number in a stream, by position, or by transaction and position.

        stream: The one of the first kind.
    """

    kind: Literal["n", "p", "s"]
    stream: str | None = None

    @classmethod
    def of(cls, dialect: str, stream: str | None) -> Cursors:
        """Return those for a tail of *stream*, or of all."""
        if stream is not None:
            return cls("n", stream)
        return cls("s" if dialect == "postgresql" else "p")

    def parse(self, text: str | None) -> Place:
        """
        Return the place that a cursor means; the beginning for none.

        Raises:
            CursorError: It is not one of these.
        """
        if text in {None, "end"}:
            return (0,) * _SIZES[self.kind]
        match = _FORM.fullmatch(text or "")
        place = tuple(int(part) for part in match[2].split("-")[1:]) if match else ()
        if not match or match[1] != self.kind or len(place) != _SIZES[self.kind]:
            raise CursorError(
                f"{text!r} is not a cursor of this tail",
                fix="give one that the same command printed, or none",
            )
        return place

    def text(self, place: Place) -> str:
        """
        Return the cursor of a place.

        >>> Cursors("s").text((742, 13))
        's-742-13'
        """
        return "-".join((self.kind, *map(str, place)))

    def place(self, columns: Columns) -> Place:
        """Return the place of the row whose columns of `order` these are."""
        return tuple(int(column) for column in columns)

    def behind(self, query: Query, place: Place) -> Query:
        """Return *query* with what is behind *place*, its order added as columns."""
        if self.kind == "n":
            seq = events.c.seq
            query = query.where(events.c.stream == self.stream, seq > place[0])
            return query.add_columns(seq).order_by(seq)
        if self.kind == "p":
            position = events.c.position
            return (
                query.add_columns(position)
                .where(position > place[0])
                .order_by(position)
            )
        here = sa.tuple_(sa.cast(str(place[0]), XID8()), sa.literal(place[1]))
        return (
            query.add_columns(sa.cast(xid, sa.Text), events.c.position)
            .where(sa.tuple_(xid, events.c.position) > here, xid < _HORIZON)
            .order_by(xid, events.c.position)
        )

    def end(self) -> Query:
        """Return the query for the place behind all events that a tail could see."""
        if self.kind == "n":
            newest = sa.select(sa.func.coalesce(sa.func.max(events.c.seq), 0))
            return newest.where(events.c.stream == self.stream)
        if self.kind == "p":
            return sa.select(sa.func.coalesce(sa.func.max(events.c.position), 0))
        return sa.select(sa.cast(_HORIZON, sa.Text), sa.literal(0))
