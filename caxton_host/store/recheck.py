"""
Checking the tables of projections against the events, and repairing them.

A check is one snapshot. A repair takes a few runs at a time, so hosts may write.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import sqlalchemy as sa

from ..core.log.projection import should_be
from ..core.log.runs import RunRow
from .database import Database
from .projections import (
    COLUMNS,
    LOST,
    Row,
    Tell,
    count,
    execute,
    fill,
    is_stale,
    keys,
    page_of,
    projections,
    rewritten,
    run_row,
    waits_of,
    writing,
)
from .schema import run_tools, runs, waits

_T = TypeVar("_T")


def rebuild(engine: sa.Engine, tell: Tell) -> int:
    """Make the rows of all runs, and return how many. See `fill`."""
    with engine.connect() as connection:
        total = count(connection, runs)
    done = sum(rewritten(engine, sa.true(), lambda done: tell(done, total)))
    with writing(engine) as connection:
        execute(connection, LOST, [*_strays(connection)])
    return done


@dataclass(frozen=True, slots=True)
class Difference:
    """
    What a row says, and what events say.

    Attributes:
        run_id: Of which run.

        column: Of `runs`; or another table.
    """

    run_id: str
    column: str
    stored: object
    events: object


def verify(engine: sa.Engine, tell: Tell) -> tuple[int, list[Difference]]:
    """Return the number of runs, and how what is stored differs from their events."""
    is_file = engine.dialect.name == "sqlite"
    begin = "BEGIN" if is_file else "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
    found: list[Difference] = []
    with engine.connect() as connection:
        connection.exec_driver_sql(begin)
        try:
            total, after, done = count(connection, runs), "", 0
            while page := [*map(run_row, connection.execute(page_of(after)))]:
                found += _differences(connection, page)
                after, done = page[-1].run_id, done + len(page)
                tell(done, total)
            found += _stray(connection)
        finally:
            connection.exec_driver_sql("ROLLBACK")
    return done, found


def _differences(
    connection: sa.Connection, page: Sequence[RunRow]
) -> Iterator[Difference]:
    made = projections(connection, [row.run_id for row in page])
    asked: dict[str, set[Row]] = {run_id: set() for run_id in made}
    query = sa.select(waits).where(waits.c.run_id.in_(made))
    for one in connection.execute(query):
        asked[one.run_id].add(tuple(one))
    for row in page:
        new = should_be(row, made[row.run_id])
        for name in COLUMNS:
            had, has = getattr(row, name), getattr(new, name)
            if had != has:
                yield Difference(row.run_id, name, had, has)
        had, has = asked[row.run_id], {*waits_of(new, made[row.run_id].waits)}
        if had != has:
            yield Difference(row.run_id, "waits", had, has)


def _stray(connection: sa.Connection) -> Iterator[Difference]:
    """Compare `run_tools` with the same in `runs`."""
    wanted = 0
    query = sa.select(runs.c.tools)
    for tools in connection.scalars(query, execution_options={"yield_per": 1000}):
        wanted += len(keys(tools))
    strays = [*_strays(connection)]
    stored = count(connection, run_tools)
    for key in strays:
        yield Difference(str(key[3]), "run_tools", key, None)
    if stored - len(strays) != wanted:
        yield Difference("", "run_tools", stored, wanted)


def _strays(connection: sa.Connection) -> Iterator[Row]:
    """Yield each row of `run_tools` that its run does not have."""
    query = sa.select(run_tools, runs.c.tools, runs.c.started_at).outerjoin(
        runs, runs.c.run_id == run_tools.c.run_id
    )
    found = connection.execute(query, execution_options={"yield_per": 1000})
    for tool, outcome, at, run_id, tools, started_at in found:
        if at != started_at or (tool, outcome) not in keys(tools):
            yield tool, outcome, at, run_id


class Projections:
    """The tables of projections, for those who fill, check and repair them."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def is_stale(self) -> bool:
        """Return whether lists may lack what an older release has written."""
        return await self._database.read(is_stale)

    async def fill(self) -> int:
        """See `fill`."""
        return await self._do(fill)

    async def verify(self, tell: Tell) -> tuple[int, list[Difference]]:
        """See `verify`."""
        return await self._do(partial(verify, tell=tell))

    async def rebuild(self, tell: Tell) -> int:
        """See `rebuild`."""
        return await self._do(partial(rebuild, tell=tell))

    async def _do(self, do: Callable[[sa.Engine], _T]) -> _T:
        return await self._database.change(
            "what lists show", lambda connection: do(connection.engine)
        )
