"""A list reads no more rows than it shows, however many there are."""

from __future__ import annotations

from pathlib import Path

import pytest
import sqlalchemy as sa

from caxton_host.core.log.runs import RunFilter
from caxton_host.store.database import Query
from caxton_host.store.lists import due, listed, next_due, waiting
from caxton_host.store.schema import STALE, runs

from .fakes import open_store

_KEY = "run_tools USING PRIMARY KEY (tool=? AND outcome=?"


async def plan_of(query: Query, folder: Path) -> list[str]:
    """Return how SQLite answers a query."""
    async with open_store(folder) as store:
        text = query.compile(store.engine, compile_kwargs={"literal_binds": True})
        with store.engine.connect() as connection:
            found = connection.execute(sa.text(f"EXPLAIN QUERY PLAN {text}"))
            return [str(row.detail) for row in found]


@pytest.mark.parametrize(
    ("only", "index"),
    [
        (RunFilter(), "ix_runs_started_at"),
        (RunFilter(since=3, until=9), "ix_runs_started_at"),
        (RunFilter(agent="a"), "ix_runs_agent"),
        (RunFilter(state="suspended"), "ix_runs_state"),
        (RunFilter(reason="approval"), "ix_runs_reason"),
        (RunFilter(kind="session"), "ix_runs_kind"),
        (RunFilter(actor="ann"), "ix_runs_actor_id"),
        (RunFilter(tenant="acme"), "ix_runs_tenant"),
        (RunFilter(tool="s/t"), _KEY),
        (
            RunFilter(outcome="denied"),
            "run_tools USING PRIMARY KEY (tool=? AND outcome=?",
        ),
        (
            RunFilter(tool="s/t", outcome="denied"),
            "run_tools USING PRIMARY KEY (tool=? AND outcome=?",
        ),
        (RunFilter(agents=("a", "b"), owner="ann"), "ix_runs_actor_id"),
    ],
)
async def test_each_filter_follows_an_index_and_sorts_nothing(
    tmp_path: Path, only: RunFilter, index: str
) -> None:
    for before in (None, (5, "r")):
        plan = await plan_of(listed(only, 20, before), tmp_path)

        assert any(index in step for step in plan)
        # Runs that began at the same time are sorted, and a few pages merged.
        assert "USE TEMP B-TREE FOR ORDER BY" not in plan or only.agents
        assert [step for step in plan if step == "SCAN runs"] == []


async def test_what_waits_and_what_is_due_are_found_without_looking_at_others(
    tmp_path: Path,
) -> None:
    stale = sa.select(runs.c.run_id).where(STALE).limit(1)

    assert await plan_of(stale, tmp_path) == ["SCAN runs USING INDEX ix_runs_stale"]
    assert [step for step in await plan_of(due(5), tmp_path) if "runs" in step] == [
        "SEARCH runs USING INDEX ix_runs_due (due<?)",
        "SEARCH runs USING INDEX ix_runs_callees (state=? AND parent>?)",
        "SEARCH runs_1 USING INDEX sqlite_autoindex_runs_1 (run_id=?)",
        "SEARCH runs USING INDEX ix_runs_reason (reason=?)",
        "SEARCH runs_1 USING INDEX ix_runs_callees (state=? AND parent=?)",
    ]
    assert await plan_of(next_due(5), tmp_path) == [
        "SEARCH runs USING COVERING INDEX ix_runs_due (due>?)"
    ]
    for after in (None, (5, "r", 1)):
        plan = await plan_of(waiting(RunFilter(), 20, after), tmp_path)
        assert "USE TEMP B-TREE FOR ORDER BY" not in plan
        assert "waits" in plan[0]
