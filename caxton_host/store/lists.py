"""
The queries of lists: each takes rows in the order of an index, and ends with the page.

Every filter has an index with the start of the run behind it; with several, one of them
is used. Two alternatives are two queries, each in its own order, and merged.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from ..core.log.runs import CHILD, UNDER_WAY, Mark, RunFilter
from ..core.names import CALLED, VERSION_AT
from .database import Query
from .projections import COLUMNS
from .schema import run_tools, runs, waits

_LAST_CHARACTER = "\U0010ffff"
_RUN = [runs.c[name] for name in COLUMNS]


def begins(name: str) -> sa.ColumnElement[bool]:
    """Return the condition that the id of a run begins with *name*."""
    return sa.and_(runs.c.run_id >= name, runs.c.run_id <= name + _LAST_CHARACTER)


def listed(only: RunFilter, limit: int, before: tuple[int, str] | None) -> Query:
    """
    Return the query for rows of runs, newest first.

    Args:
        only: Which ones.

        limit: The most.

        before: Only those after the run with this start time and id.
    """
    if only.agents is None:
        return _page(only, limit, before)
    parts = [runs.c.agent == agent for agent in sorted(only.agents)]
    if only.owner is not None:
        parts.append(runs.c.actor_id == only.owner)
    pages = [_page(only, limit, before, part).subquery() for part in parts]
    if not pages:
        return _page(only, limit, before, sa.false())
    found = sa.union(*(sa.select(page) for page in pages)).subquery()
    return (
        sa.select(found)
        .order_by(found.c.started_at.desc(), found.c.run_id.desc())
        .limit(limit)
    )


def waiting(only: RunFilter, limit: int, after: Mark | None) -> Query:
    """Return the query for places of what people are asked, and the runs."""
    mark = waits.c.asked_at, waits.c.run_id, waits.c.seq
    query = sa.select(*mark, *_RUN).join(runs, runs.c.run_id == waits.c.run_id)
    query = query.where(waits.c.kind != "in_doubt").order_by(*mark).limit(limit)
    if only.agent is not None:
        query = query.where(waits.c.agent == only.agent)
    if only.tenant is not None:
        query = query.where(waits.c.tenant == only.tenant)
    if only.agents is not None:
        own = sa.false() if only.owner is None else runs.c.actor_id == only.owner
        query = query.where(waits.c.agent.in_([*only.agents]) | own)
    if after is not None:
        query = query.where(sa.tuple_(*mark) > sa.tuple_(*map(sa.literal, after)))
    return query


_version = sa.func.substr(runs.c.run_id, VERSION_AT + 1, 1)
_OTHER = runs.alias()


def _suspended(table: sa.FromClause) -> sa.ColumnElement[bool]:
    # A partial index answers it: its condition is no parameter.
    return table.c.state == sa.literal_column("'suspended'")


def due(now: int) -> Query:
    """Return the query for ids and epochs of runs that may go on; see `Readings`."""
    of = _OTHER.c.parent == runs.c.run_id, _suspended(_OTHER)
    ended = _OTHER.c.run_id == runs.c.parent, _OTHER.c.ended_at.is_not(None)
    known = sa.select(runs.c.run_id, runs.c.epoch)
    called = _suspended(runs), runs.c.parent > ""
    waits_for = _suspended(runs), runs.c.reason == CHILD
    found = sa.union(
        known.where(runs.c.due <= now),
        known.where(*called, sa.exists().where(*ended)),
        known.where(*waits_for, ~sa.exists().where(*of)),
    )
    return sa.select(found.subquery())


def next_due(now: int) -> Query:
    """Return the query for the time at which the next run is due."""
    return sa.select(sa.func.min(runs.c.due)).where(runs.c.due > now)


def under_way() -> sa.ColumnElement[bool]:
    """Return the condition that a run goes on by itself."""
    # A partial index answers each of these: its condition is no parameter.
    return sa.or_(*(sa.text(f"state = '{state}'") for state in sorted(UNDER_WAY)))


def going_on(only: RunFilter) -> Query:
    """Return the query for the number of runs; see `LogReader.going_on`."""
    same = (runs.c[name] == told for name, told in only.columns.items())
    query = sa.select(sa.func.count()).select_from(runs).where(under_way(), *same)
    return query.where(_version != str(CALLED), runs.c.kind != "session")


def selected(query: Query, only: RunFilter) -> tuple[Query, Sequence[sa.Column[Any]]]:
    """Return *query* for the selected runs, and the columns of its order."""
    order: Sequence[sa.Column[Any]] = runs.c.started_at, runs.c.run_id
    if only.tool is not None or only.outcome is not None:
        order = run_tools.c.started_at, run_tools.c.run_id
        query = query.join(run_tools, run_tools.c.run_id == runs.c.run_id).where(
            run_tools.c.tool == (only.tool or ""),
            run_tools.c.outcome == (only.outcome or ""),
        )
    query = query.where(*(runs.c[name] == told for name, told in only.columns.items()))
    if only.since is not None:
        query = query.where(order[0] >= only.since)
    if only.until is not None:
        query = query.where(order[0] < only.until)
    if only.prefix:
        query = query.where(begins(only.prefix))
    if only.top:
        query = query.where(_version != str(CALLED))
    return query, order


def _page(
    only: RunFilter,
    limit: int,
    before: tuple[int, str] | None,
    *conditions: sa.ColumnElement[bool],
) -> Query:
    query, order = selected(sa.select(*_RUN).where(*conditions), only)
    if before is not None:
        query = query.where(sa.tuple_(*order) < sa.tuple_(*map(sa.literal, before)))
    return query.order_by(*(one.desc() for one in order)).limit(limit)
