"""Runs that others called go on with these, and end with them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from caxton_host.core.grants.approvals import Approve
from caxton_host.core.grants.grants import Grant
from caxton_host.core.grants.principals import Principal
from caxton_host.core.log.events import RunCancelled, RunSuspended
from caxton_host.core.log.requests import Fail
from caxton_host.errors import UsageError
from caxton_host.ports.sandbox import Door, Ending, Guest
from caxton_host.runs.admission import RunQueue
from caxton_host.runs.cancellation import cancel_idle
from caxton_host.runs.host import Host
from caxton_host.service.resumer import Resumer
from caxton_host.service.run_service import Service, Submission
from caxton_host.service.run_tasks import RunTasks
from caxton_host.testing import Script
from tests.family import ANN, Family, allowing, asking, child_of, grant
from tests.office import who

BOSS = who("boss", "admin")
ASKED = grant(allowing("demo/look", approve=Approve()))
LOOK = asking("demo/look")


def family_of(folder: Path, *, reader: Script = LOOK, may: Grant = ASKED) -> Family:
    family = Family(
        folder,
        scripts={"planner": asking("agents/reader"), "reader": reader},
        grants={"planner": grant("agents/reader", "demo/*"), "reader": may},
        answers={("demo", "look"): "clear"},
    )
    family.tools.effects = {("demo", "look"): "read"}
    return family


def served(family: Family, host: Host) -> Service:
    line = RunQueue(places=8, queue=2, each=10, rate=600, now=family.clock.monotonic)
    return Service(
        host=host,
        store=family.store,
        config=lambda: family.config,
        background=RunTasks(line=line, under_way=host.under_way),
    )


@asynccontextmanager
async def serving(family: Family, host: Host) -> AsyncGenerator[Service]:
    service = served(family, host)
    resumer = Resumer(service=service, every=3600.0)
    service.decided = service.background.suspended = resumer.look
    watch = asyncio.create_task(resumer.watch())
    await asyncio.sleep(0)
    try:
        yield service
    finally:
        watch.cancel()
        await asyncio.wait([watch])


async def until(family: Family, run_id: str, state: str) -> None:
    async with asyncio.timeout(20):
        while True:
            row = await family.store.reader.row(run_id)
            if row and row.state == state:
                return
            await asyncio.sleep(0.001)


async def started(service: Service, principal: Principal = BOSS) -> str:
    return await service.submit(principal, Submission(agent="planner"))


async def test_a_decision_about_a_call_of_a_child_lets_both_go_on(
    tmp_path: Path,
) -> None:
    family = family_of(tmp_path)
    async with serving(family, family.host()) as service:
        run_id = await started(service)
        await until(family, run_id, "suspended")
        child = child_of(run_id)

        await service.decide(BOSS, child, None, "approve", "fine")

        await until(family, run_id, "completed")
        await until(family, child, "completed")
        assert len(family.tools.asked) == 1


async def test_runs_that_are_handed_over_go_on_at_the_next_host(
    tmp_path: Path,
) -> None:
    # laws 2 and 7
    let = asyncio.Event()

    async def waits(door: Door, guest: Guest) -> Ending:
        await let.wait()
        return await LOOK(door, guest)

    family = family_of(tmp_path, reader=waits, may=grant("demo/look"))
    service = served(family, family.host())
    run_id = await started(service)
    child = child_of(run_id)
    await until(family, child, "running")
    await service.background.drain(0)
    stopped = RunSuspended(reason="host_stopped")
    assert (await family.events(run_id))[-1] == stopped
    assert (await family.events(child))[-1] == stopped

    let.set()
    async with serving(family, family.host(2)):
        await until(family, run_id, "completed")
        await until(family, child, "completed")
    assert (await family.types(child)).count("RunResumed") == 1
    assert len(family.tools.asked) == 1


async def test_a_child_whose_log_failed_is_let_go_for_the_host_of_its_caller(
    tmp_path: Path,
) -> None:
    # law 10
    let = asyncio.Event()

    async def waits(door: Door, guest: Guest) -> Ending:
        await let.wait()
        return await LOOK(door, guest)

    family = family_of(tmp_path, reader=waits, may=grant("demo/look"))
    host, leases = family.host(), family.store.leases
    await leases.join(str(host.stream))
    service = served(family, host)
    child = child_of(await started(service))
    await until(family, child, "running")
    leases.left.add((child, 1))
    service.background._jobs.clear()
    resumer = Resumer(service=service, every=3600.0)
    watch = asyncio.create_task(resumer.watch())

    await until(family, child, "suspended")

    assert await leases.owner(child) is None
    assert (await family.events(child))[-1] == RunSuspended(reason="host_stopped")
    watch.cancel()
    let.set()
    await asyncio.wait([watch])


async def test_a_child_ends_with_a_caller_that_is_cancelled_while_it_waits(
    tmp_path: Path,
) -> None:
    family = family_of(tmp_path)
    run_id = await family.run("planner")

    await cancel_idle(family.store, run_id, ANN, "enough")

    end = RunCancelled(actor=ANN, reason="enough")
    assert (await family.events(run_id))[-1] == end
    assert (await family.events(child_of(run_id)))[-1] == end


async def test_a_child_that_its_caller_left_behind_is_cancelled(
    tmp_path: Path,
) -> None:
    family = family_of(tmp_path)
    run_id = await family.run("planner")
    history = await family.store.reader.read(f"run/{run_id}")
    end = RunCancelled(actor=ANN, reason="by an older version")
    await family.store.claim(f"run/{run_id}", end, after=history[-1].seq)

    async with serving(family, family.host(2)):
        await until(family, child_of(run_id), "cancelled")


async def test_a_call_of_an_agent_is_not_in_doubt(tmp_path: Path) -> None:
    family = family_of(tmp_path)
    run_id = await family.run("planner")
    service = served(family, family.host())

    with pytest.raises(UsageError, match="answers it"):
        await service.resolve(BOSS, run_id, 2, Fail(), "looked")


async def test_a_child_that_is_cancelled_is_an_error_for_its_caller(
    tmp_path: Path,
) -> None:
    family = family_of(tmp_path)
    run_id = await family.run("planner")
    async with serving(family, family.host(2)) as service:
        await service.cancel(BOSS, child_of(run_id), "no")
        service.decided(run_id)
        await until(family, run_id, "completed")
