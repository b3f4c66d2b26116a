"""Rows of runs, in each store: written with their events, and made again from them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from caxton_host.core.log.events import Event, RunCompleted
from caxton_host.core.log.runs import RunFilter, RunRow
from caxton_host.store import projections
from caxton_host.store.recheck import Difference
from caxton_host.store.schema import STALE
from caxton_host.store.sql import SqlStore
from tests.contract.conftest import Place, Store
from tests.postgres import Server
from tests.turns import (
    ANN,
    asked,
    completed,
    decided,
    invoked,
    question,
    resumed,
    suspended,
    trapped,
)
from tests.unit.store.fakes import FakeClock, FakeEntropy, line, run_started, url

RUN = "run/0193"
DONE = RunCompleted(output=None, output_sha256="00", fuel=None)
#: What a release before the projections knew of a run.
OLDER = (
    """UPDATE runs SET kind = '', reason = NULL, actor_id = NULL, parent = NULL,
    calls = '{}', tools = '[]', events = 0, changed_at = 0, due = NULL, phase = NULL""",
    "DELETE FROM run_tools",
    "DELETE FROM waits",
)


async def row(store: Store) -> RunRow:
    found = await store.reader.row("0193")
    assert found
    return found


async def test_row_changes_when_the_run_turns_and_never_with_a_call(
    store: Store,
) -> None:
    log = store.create(RUN)
    await log.append(run_started())
    started = await row(store)

    await log.append(invoked())
    log.queue(completed())
    await log.append(line(1))
    called = await row(store)
    await log.append(asked(2, until=9), suspended(), line(2))
    stopped = await row(store)
    claimed = await store.claim(RUN, decided(2), after=7)
    approved = await row(store)
    await claimed.append(resumed(), invoked(2), completed(2))
    going = await row(store)
    await claimed.append(DONE)
    ended = await row(store)

    assert called == started
    assert json.loads(stopped.calls) == {"total": 2, "ok": 1, "waits": 1}
    assert (stopped.state, stopped.reason, stopped.due) == ("suspended", "approval", 9)
    assert (stopped.events, approved.events, approved.due) == (6, 8, 0)
    assert (going.state, going.owner, going.epoch) == ("running", "host/2", 2)
    assert json.loads(ended.calls) == {"total": 2, "ok": 2}
    assert json.loads(ended.tools) == [["s/t", "ok"]]
    assert (ended.state, ended.phase) == ("completed", "completed/2")


async def test_row_of_an_erased_run_repeats_nothing_of_its_payloads(
    store: Store,
) -> None:  # law 8
    await store.create(RUN).append(run_started(), invoked(), completed(), trapped())

    await store.erasure.erase("0193", "host/1", actor=ANN, reason="")

    gone = await row(store)
    assert (gone.agent, gone.kind, gone.state) == ("weather", "agent", "failed")
    assert (gone.actor, gone.actor_id, gone.reason) == ("{}", None, None)
    assert (gone.calls, gone.tools, gone.events) == ("{}", "[]", 4)


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return url(tmp_path)
    server: Server = request.getfixturevalue("postgres")
    return server.make()


def opened(database: str) -> SqlStore:
    return SqlStore.open(database, clock=FakeClock(), entropy=FakeEntropy())


@pytest.fixture
async def sql(database: str) -> AsyncIterator[SqlStore]:
    """Return a store with a run of each kind."""
    async with opened(database) as store:
        for number in range(5):
            log = store.create(f"run/{number}")
            await log.append(run_started(f"agent{number}"), invoked(), completed())
            await log.append(invoked(2))
        await store.create("run/5").append(run_started(), trapped())
        await (await store.resume_log("run/0")).append(DONE)
        await (await store.resume_log("run/1")).append(asked(3), suspended())
        await (await store.resume_log("run/2")).append(question(2))
        await (await store.resume_log("run/3")).append(suspended("in_doubt", 2))
        await store.erasure.erase("5", "host/1", actor=ANN, reason="")
        yield store


def execute(store: SqlStore, *statements: str) -> None:
    with store.engine.connect() as connection:
        for statement in statements:
            connection.exec_driver_sql(statement)


def table(store: SqlStore, name: str) -> list[tuple[object, ...]]:
    with store.engine.connect() as connection:
        found = connection.exec_driver_sql(f"SELECT * FROM {name}")  # noqa: S608
        return sorted(map(tuple, found), key=str)


def quiet(done: int, total: int) -> None:
    assert done <= total


async def test_all_that_is_stored_is_what_the_events_say(sql: SqlStore) -> None:
    assert await sql.projections.verify(quiet) == (6, [])
    kinds = sorted(str(one[3]) for one in table(sql, "waits"))
    assert kinds == ["approval", "in_doubt", "question"]
    assert not await sql.projections.is_stale()


async def test_rows_of_an_older_release_are_filled_a_few_at_a_time(
    sql: SqlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = "runs", "run_tools", "waits"
    before = [table(sql, name) for name in names]
    execute(sql, *OLDER)
    monkeypatch.setattr(projections, "_AT_ONCE", 2)
    assert await sql.projections.is_stale()

    assert await sql.projections.fill() == 6

    after = [table(sql, name) for name in names]
    # Nothing tells the kind of the run that was erased before.
    execute(sql, "UPDATE runs SET kind = 'agent' WHERE run_id = '5'")
    assert after[1:] == before[1:]
    assert [table(sql, name) for name in names] == before
    assert await sql.projections.fill() == 0


async def test_filling_goes_on_where_it_was_interrupted(
    sql: SqlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    execute(sql, *OLDER)
    monkeypatch.setattr(projections, "_AT_ONCE", 2)
    made = projections.rewritten(sql.engine, STALE, lambda _: None)
    assert next(made) == 2
    made.close()  # type: ignore[attr-defined]  # a generator

    assert await sql.projections.fill() == 4
    assert await sql.projections.verify(quiet) == (6, [])


async def test_row_that_an_older_release_changed_is_filled_again(
    sql: SqlStore,
) -> None:
    """Its host wrote the state, and nothing else: a rolling upgrade."""
    log = await sql.resume_log("run/4")
    await log.append(trapped())
    execute(sql, "UPDATE runs SET phase = 'running/1' WHERE run_id = '4'")
    assert await sql.projections.is_stale()

    assert await sql.projections.fill() == 1
    assert await sql.projections.verify(quiet) == (6, [])


async def test_host_that_takes_a_run_of_an_older_release_fills_its_row_first(
    sql: SqlStore,
) -> None:
    execute(sql, *OLDER)

    log = await sql.resume_log("run/4")
    await log.append(completed(2), DONE)

    found = await sql.reader.row("4")
    assert found
    assert json.loads(found.tools) == [["s/t", "ok"]]
    assert await sql.projections.fill() == 5
    assert await sql.projections.verify(quiet) == (6, [])


@pytest.mark.parametrize(
    ("damage", "where"),
    [
        ("UPDATE runs SET reason = 'limit' WHERE run_id = '1'", ("1", "reason")),
        ("UPDATE runs SET due = 3 WHERE run_id = '1'", ("1", "due")),
        ("DELETE FROM waits WHERE run_id = '1'", ("1", "waits")),
        ("UPDATE run_tools SET tool = 's/u' WHERE tool = 's/t' AND run_id = '0'", None),
        ("DELETE FROM run_tools WHERE run_id = '0'", ("", "run_tools")),
    ],
)
async def test_row_that_differs_from_its_events_is_found_and_repaired(
    sql: SqlStore, damage: str, where: tuple[str, str] | None
) -> None:
    execute(sql, damage)

    _, found = await sql.projections.verify(quiet)
    assert found
    assert all(isinstance(one, Difference) for one in found)
    assert where is None or [(one.run_id, one.column) for one in found] == [where]

    assert await sql.projections.rebuild(quiet) == 6
    assert await sql.projections.verify(quiet) == (6, [])


async def test_damaged_event_hides_no_run(sql: SqlStore) -> None:
    execute(sql, *OLDER)
    if sql.engine.dialect.name == "sqlite":
        execute(sql, "DROP TRIGGER payloads_no_update")
    else:
        execute(sql, "ALTER TABLE payloads DISABLE TRIGGER ALL")
    execute(sql, "UPDATE payloads SET payload = salt")

    assert await sql.projections.fill() == 6
    assert (await sql.projections.verify(quiet))[1] == []
    assert len(await sql.reader.runs(9, RunFilter(state="running"))) == 2


async def start(store: Store, run_id: str, *events: Event, agent: str = "a") -> None:
    await store.create(f"run/{run_id}").append(run_started(agent), *events)


async def test_what_people_are_asked_is_found_oldest_first_page_by_page(
    place: Place,
) -> None:
    async with place.open() as store:
        for number in range(3):
            place.clock.time += 1
            await start(store, f"{number}", asked(1), asked(2), suspended())
        await start(store, "3", invoked(), question(), agent="b")
        await start(store, "4", invoked(), suspended("in_doubt"))
        await start(store, "5", asked(), suspended(), trapped())

        found, after = list[tuple[str, int]](), None
        while rows := await store.reader.waiting(2, after=after):
            assert all(row.run_id == mark[1] for mark, row in rows)
            found += [(run_id, seq) for (_, run_id, seq), _ in rows]
            after = rows[-1][0]
        of_b = await store.reader.waiting(9, RunFilter(agent="b"))
        seen = await store.reader.waiting(9, RunFilter(agents=("b",), owner="me"))
        others = await store.reader.waiting(9, RunFilter(agents=("c",)))
        strange = await store.reader.waiting(9, RunFilter(tenant="acme"))

    assert found == [(f"{number}", seq) for number in range(3) for seq in (2, 3)] + [
        ("3", 3)
    ]
    assert [row.run_id for _, row in of_b] == ["3"]
    assert len(seen) == 7
    assert others == strange == []


async def test_runs_that_may_go_on_are_found_and_those_that_wait_are_not(
    store: Store,
) -> None:
    child = replace(run_started(), parent="gone")
    await start(store, "gone", trapped())
    await start(store, "waits", asked(), suspended())
    await start(store, "in-time", asked(until=50), suspended())
    await start(store, "late", asked(until=9), suspended())
    await start(store, "stopped", suspended("host_stopped", None))
    await start(store, "decided", asked(), suspended(), decided())
    await start(store, "doubtful", invoked(), suspended("in_doubt"))
    await start(store, "restored", suspended("restored", None))
    await start(store, "caller", invoked(), suspended("child"))
    await start(store, "left", invoked(), suspended("child"))
    await store.create("run/callee").append(
        replace(child, parent="caller"), asked(), suspended()
    )
    await store.create("run/orphan").append(child, asked(), suspended())
    await start(store, "running")

    found = await store.reader.due(20)
    times = [await store.reader.next_due(now) for now in (5, 20, 60)]

    assert found == dict.fromkeys(["late", "stopped", "decided", "left", "orphan"], 1)
    assert times == [9, 50, None]
