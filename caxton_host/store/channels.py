"""
What is announced on a PostgreSQL, and where.

NOTIFY takes a lock that all commits share, so only what is rare is announced: requests,
and streams that hold more than the events of a run.
"""

from __future__ import annotations

import sqlite3

import sqlalchemy as sa

from ..core.grants.freezes import FREEZES
from ..lib.bell import Topic
from ..ports.placement import Within
from .commit import Driver
from .schema import requests, runs

_FREEZES, _REQUESTS = "caxton_freezes", "caxton_requests"

#: The last one is of procrastinate: a job was put into its queue.
CHANNELS: dict[str, Topic] = {
    _FREEZES: "freezes",
    _REQUESTS: "requests",
    "procrastinate_any_queue_v1": "jobs",
}


def announcing(stream: str) -> Within | None:
    """Return the guard of appends to *stream*, if other hosts wait for them."""
    return _announce_freezes if stream == FREEZES else None


def _announce_freezes(driver: Driver) -> None:
    if not isinstance(driver, sqlite3.Cursor):
        driver.execute("SELECT pg_notify(%s, '')", [_FREEZES])


def announced(insert: sa.Insert) -> sa.Select[int, None]:
    """Return a statement that stores a request and announces it to its host."""
    row = insert.returning(requests.c.id, requests.c.host, requests.c.run_id).cte()
    driving = sa.select(runs.c.owner).where(runs.c.run_id == row.c.run_id)
    host = sa.func.coalesce(row.c.host, driving.scalar_subquery(), "")
    return sa.select(
        row.c.id, sa.func.pg_notify(_REQUESTS, host, type_=sa.types.NullType())
    )
