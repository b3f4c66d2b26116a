"""What an operator watches of a log: it holds, and each look is bounded."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, get_args

import pytest
import sqlalchemy as sa

from caxton_host.core.log.events import RunSuspended
from caxton_host.core.log.projection import Kind
from caxton_host.core.log.runs import SUSPENSIONS
from caxton_host.lib.signing import Keyring
from caxton_host.ports.serving import TokenRow
from caxton_host.store.sql import SqlStore
from tests.unit.store.fakes import (
    FakeClock,
    FakeEntropy,
    line,
    run_queued,
    run_started,
    url,
)

KINDS = get_args(Kind)
SECOND = 1_000_000
_MANY = 5_000
_COLUMNS = "run_id, agent, actor, module_sha256, state, started_at, reason, phase"


@pytest.fixture(params=["sqlite", "postgresql"])
async def store(
    request: pytest.FixtureRequest, tmp_path: Path, clock: FakeClock
) -> AsyncIterator[SqlStore]:
    shared = request.param == "postgresql"
    place = request.getfixturevalue("postgres_url") if shared else url(tmp_path)
    signer = Keyring(tmp_path / "state")
    async with SqlStore.open(
        place, clock=clock, entropy=FakeEntropy(), signer=signer
    ) as store:
        yield store


async def test_vitals_are_those_of_the_log(store: SqlStore, clock: FakeClock) -> None:
    vitals = store.vitals
    assert vitals.unsigned_for() is None
    assert (vitals.queued_for(), vitals.expires_in()) == (0.0, None)
    assert vitals.waits(KINDS) == dict.fromkeys(KINDS, (0, 0.0))

    await store.create("run/1").append(run_queued())
    log = store.create("run/2")
    await log.append(run_started(), RunSuspended(reason="frozen"))
    await store.seal()
    assert vitals.unsigned_for() == 0.0
    clock.time += 60 * SECOND
    for name, lasts in (("a", 500), ("b", 100), ("old", 1)):
        row = TokenRow(
            id=name,
            name=name,
            digest="",
            scopes=("run",),
            created_at=0,
            expires_at=lasts * SECOND,
        )
        await store.tokens.add(row, "host/1", line(1))
    assert store._sealing is not None
    await store._sealing.stop()
    await store.create("run/3").append(run_started())

    assert vitals.queued_for() >= 60
    assert vitals.suspended(SUSPENSIONS) == {
        **dict.fromkeys(SUSPENSIONS, 0),
        "frozen": 1,
    }
    assert vitals.expires_in() == pytest.approx(100 - clock.time / SECOND)
    assert vitals.queued == 0
    sizes = vitals.sizes()
    assert sizes["database"] > 0
    assert set(sizes) == (
        {"database"}
        if store.engine.name == "postgresql"
        else {"database", "wal", "free"}
    )


async def test_log_that_grows_unsigned_has_an_old_checkpoint(
    store: SqlStore, clock: FakeClock
) -> None:
    await store.create("run/1").append(run_started())
    await store.seal()
    assert store._sealing is not None
    assert store._sealing._task is not None
    store._sealing._task.cancel()
    clock.time += 60 * SECOND
    assert store.vitals.unsigned_for() == 0.0
    await store.create("run/2").append(run_started())
    assert store.vitals.unsigned_for() == pytest.approx(60, abs=5)


async def test_no_look_reads_all_runs(store: SqlStore) -> None:
    vitals = store.vitals
    numbers = (
        f"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n "  # noqa: S608
        f"WHERE i < {_MANY}) INSERT INTO runs ({_COLUMNS}) SELECT 'r' || i, 'weather', "
        "'{}', '', 'failed', i, 'trap', 'failed/0' FROM n"
    )
    with store.engine.connect() as connection:
        connection.exec_driver_sql(numbers)
        connection.exec_driver_sql("ANALYZE runs")
    looks: list[Callable[[], Any]] = [
        vitals.queued_for,
        vitals.unsigned_for,
        lambda: vitals.suspended(SUSPENSIONS),
        lambda: vitals.waits(KINDS),
    ]
    plans = [plan for look in looks for plan in _plans(store.engine, look)]

    assert len(plans) == len(looks)
    for plan in plans:
        assert not re.search(r"SCAN (runs|events)\b(?! USING)", plan)
        assert "Seq Scan on runs" not in plan
    assert re.search("ix_runs_(queued|state)", plans[0])
    assert plans[2].count("ix_runs_reason") == len(SUSPENSIONS)


def _plans(engine: sa.Engine, look: Callable[[], object]) -> list[str]:
    """Return how the database answers what *look* asks it."""
    asked: list[tuple[str, Any]] = []

    def note(*of: Any) -> None:  # noqa: ANN401
        asked.append((of[2], of[3]))

    sa.event.listen(engine, "before_cursor_execute", note)
    look()
    sa.event.remove(engine, "before_cursor_execute", note)
    explain = "EXPLAIN QUERY PLAN" if engine.name == "sqlite" else "EXPLAIN"
    with engine.connect() as connection:
        found = [
            connection.exec_driver_sql(f"{explain} {q}", p).all() for q, p in asked
        ]
    return ["\n".join(str(row[-1]) for row in rows) for rows in found]
