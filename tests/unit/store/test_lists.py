"""A list reads no more rows than it shows, however many there are."""

from __future__ import annotations

from pathlib import Path

import pytest
import sqlalchemy as sa

from caxton_host.core.log.runs import RunFilter
from caxton_host.store.lists import listed

from .fakes import open_store

_KEY = "run_tools USING PRIMARY KEY (tool=? AND outcome=?"


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
        async with open_store(tmp_path) as store:
            query = listed(only, 20, before).compile(
                store.engine, compile_kwargs={"literal_binds": True}
            )
            with store.engine.connect() as connection:
                found = connection.execute(sa.text(f"EXPLAIN QUERY PLAN {query}"))
                plan = [str(row.detail) for row in found]

        assert any(index in step for step in plan)
        # Runs that began at the same time are sorted, and a few pages merged.
        assert "USE TEMP B-TREE FOR ORDER BY" not in plan or only.agents
        assert [step for step in plan if step == "SCAN runs"] == []
