"""Suspended runs go on when what they wait for has come, and not before."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from caxton_host.app.serve_app import Serving
from caxton_host.core.calls import JSON, Completed
from caxton_host.core.grants.approvals import Approve
from caxton_host.core.grants.grants import Grant
from caxton_host.core.log.events import (
    Frozen,
    RunCompleted,
    RunResumed,
    RunSuspended,
    Thawed,
)
from caxton_host.core.log.requests import Request, Resend
from caxton_host.core.log.runs import RESTORED, RunRow
from caxton_host.errors import (
    BusyError,
    CaxtonError,
    ForbiddenError,
    LogBrokenError,
    RestoredError,
    StoreError,
)
from caxton_host.ports.tools import ToolRequest
from caxton_host.runs.approvals import Word, say
from caxton_host.runs.freezing import FreezeWatch, freeze, thaw
from caxton_host.service.resumer import Resumer
from tests.office import ANN, BOSS, Office, Slow, resuming, until_found, who
from tests.scene import DEMO

if TYPE_CHECKING:
    from caxton_host.app.bootstrap import Running
    from caxton_host.ports.serving import ServingStore

BOB: dict[str, JSON] = {"kind": "local", "id": "bob", "authenticated": False}
DONE = RunCompleted(output=None, output_sha256="00", fuel=None)
RESUMED = RunResumed(actor={}, host=None, epoch=2, reason="", grants_sha256="00")


def asks(within: float | None = None, *, places: int = 8, folder: Path) -> Office:
    rule = replace(DEMO.allow[0], approve=Approve(within=within))
    return Office(folder, grant=Grant(allow=(rule,)), places=places)


async def pass_time(office: Office) -> None:
    for _ in range(10):
        await asyncio.sleep(0.01)
        office.scene.clock.time += 5_000


async def until(office: Office, run_id: str, state: str) -> None:
    async with asyncio.timeout(20):
        while True:
            row = await office.scene.store.reader.row(run_id)
            if row and row.state == state:
                return
            await asyncio.sleep(0.001)


async def said(office: Office, run_id: str) -> None:
    word = Word(verdict="approve", actor=BOB, reason="fine")
    now = office.scene.clock.now()
    await say(office.scene.store, run_id, None, word, now=now)


async def test_a_run_goes_on_with_a_word_that_is_said_here(tmp_path: Path) -> None:
    office = asks(folder=tmp_path)
    async with resuming(office):
        run_id = await office.start()
        assert await office.done(run_id) == "suspended"

        decides = who("ops", "decide")
        await office.service.decide(decides, run_id, None, "approve", "fine")

        await until(office, run_id, "completed")


async def test_a_run_goes_on_with_a_word_that_is_said_elsewhere(tmp_path: Path) -> None:
    office = asks(folder=tmp_path)
    async with resuming(office) as resumer:
        run_id = await office.start()
        await office.done(run_id)
        await said(office, run_id)

        asked = Request(
            id=1, run_id=None, kind="go_on", actor=BOB, reason="", subject=run_id
        )
        assert await resumer.asked(asked) == "looks at it"

        await until(office, run_id, "completed")


async def test_a_frozen_run_goes_on_when_it_is_thawed(tmp_path: Path) -> None:
    office = Office(tmp_path)
    store, freezes = office.scene.store, FreezeWatch(office.scene.store.reader)
    office.service.host.freezes = freezes
    async with resuming(office) as resumer, freezes.watching(every=0.001):
        freezes.thawed = resumer.look_again
        frozen = Frozen(kind="server", name="demo", actor=BOB, reason="")
        await freeze(store, frozen, agents=(), servers={"demo"})
        await freezes.look()
        run_id = await office.start()
        assert await office.done(run_id) == "suspended"

        await thaw(store, Thawed(kind="server", name="demo", actor=BOB, reason=""))

        await until(office, run_id, "completed")
    types = await office.types(run_id)
    assert types.count("RunSuspended") == types.count("RunResumed") == 1


async def test_a_run_goes_on_when_nobody_said_a_word_in_time(tmp_path: Path) -> None:
    # law 4: no word is never a yes
    office = asks(within=60, folder=tmp_path)
    async with resuming(office, every=0.005):
        run_id = await office.start()
        await office.done(run_id)
        await asyncio.sleep(0.05)
        assert await office.done(run_id) == "suspended"

        office.scene.clock.time += 60_000_000

        await until(office, run_id, "completed")
    types = await office.types(run_id)
    assert types[types.index("ApprovalDecided") :][:2] == [
        "ApprovalDecided",
        "RunResumed",
    ]
    assert "ToolDenied" in types


async def test_the_time_of_a_word_needs_no_look_at_all_runs(tmp_path: Path) -> None:
    office = asks(within=0.05, folder=tmp_path)
    async with resuming(office):
        run_id = await office.start()
        await office.done(run_id)
        office.scene.clock.time += 49_999

        await asyncio.sleep(0.02)
        office.scene.clock.time += 1

        await until(office, run_id, "completed")


async def test_one_that_waits_for_ever_is_left_alone(tmp_path: Path) -> None:
    office = asks(folder=tmp_path)
    async with resuming(office, every=0.005):
        run_id = await office.start()
        await office.done(run_id)
        office.scene.clock.time += 10**15
        await asyncio.sleep(0.05)

        assert await office.done(run_id) == "suspended"


async def test_a_run_of_a_restored_log_is_not_taken_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:  # law 7
    office = asks(folder=tmp_path)
    run_id = await office.start()
    await office.done(run_id)
    await said(office, run_id)
    log = await office.scene.store.resume_log(f"run/{run_id}")
    await log.append(RunSuspended(reason=RESTORED))
    async with resuming(office, every=0.005) as resumer:
        resumer.look(run_id)
        await asyncio.sleep(0.05)

        assert (await office.types(run_id))[-1] == "RunSuspended"
        assert not caplog.messages
        # Who may not decide about effects cannot say that it goes on.
        with pytest.raises(ForbiddenError):
            await office.service.resume(ANN, run_id, restored=True)
        with pytest.raises(RestoredError):
            await office.service.resume(BOSS, run_id)
        await office.service.resume(BOSS, run_id, restored=True)

        await until(office, run_id, "completed")


async def test_what_another_host_let_go_of_goes_on(tmp_path: Path) -> None:
    # law 10
    tools = Slow()
    office = Office(tmp_path, tools=tools)
    run_id = await office.start()
    await tools.reached.wait()
    await office.service.background.drain(0)
    office.service.line.closed = False
    async with resuming(office, every=0.005):
        await until(office, run_id, "suspended")
        tools.let.set()
        (doubt,) = [
            e
            for e in await office.scene.store.reader.read(f"run/{run_id}")
            if e.type == "ToolInvoked"
        ]

        await office.service.resolve(BOSS, run_id, doubt.seq, Resend(), "try")

        await until(office, run_id, "completed")


async def test_a_run_of_a_host_that_died_goes_on(tmp_path: Path) -> None:
    # law 10
    tools = Slow()
    dead, other = Office(tmp_path, tools=tools), Office(tmp_path)
    run_id = await dead.start()
    await tools.reached.wait()
    other.service.store = dead.scene.store
    other.service.host = replace(other.scene.host, store=dead.scene.store)

    async with resuming(other, every=0.005):
        await until(dead, run_id, "suspended")

    # law 7: its call is unsafe, and may have happened
    assert (await dead.types(run_id))[-2:] == ["RunResumed", "RunSuspended"]
    tools.let.set()
    await dead.service.background.over(run_id)


class Losing(Slow):
    """Tools during whose call the log fails."""

    async def call_tool(self, request: ToolRequest) -> Completed:
        await super().call_tool(request)
        raise StoreError("the disk is full")


async def test_a_run_that_was_found_while_it_was_driven_is_taken_up_later(
    tmp_path: Path,
) -> None:
    # law 10
    tools = Losing()
    office = Office(tmp_path, tools=tools)
    run_id = await office.start()
    await tools.reached.wait()
    async with resuming(office) as resumer:
        await until_found(resumer)

        tools.let.set()
        await office.service.background.over(run_id)
        resumer.search()

        await until(office, run_id, "suspended")


async def test_a_store_that_cannot_be_read_is_asked_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    office = asks(folder=tmp_path)
    run_id = await office.start()
    await office.done(run_id)
    await said(office, run_id)
    office.service.store = cast(
        "ServingStore", Broken(office.scene.store, "due", "read")
    )

    with caplog.at_level(logging.WARNING):
        async with resuming(office, patience=0.005):
            await pass_time(office)
            await until(office, run_id, "completed")

    assert "runs that wait cannot be read" in caplog.text


async def test_a_run_that_another_host_only_seemed_to_drive_is_tried_again(
    tmp_path: Path,
) -> None:
    # law 10: a host that was stopped came back in between, and died later
    office = asks(folder=tmp_path)
    run_id = await office.start()
    await office.done(run_id)
    await said(office, run_id)
    store = Broken(office.scene.store, "read")
    store.error = BusyError("a living host drives it")
    office.service.store = cast("ServingStore", store)

    async with resuming(office, patience=0.005):
        await pass_time(office)
        await until(office, run_id, "completed")


async def test_a_run_that_has_ended_is_not_looked_after(tmp_path: Path) -> None:
    office = Office(tmp_path)
    run_id = await office.start()
    await office.done(run_id)
    before = await office.types(run_id)
    async with resuming(office) as resumer:
        resumer.look(run_id)
        await asyncio.sleep(0.02)

    assert await office.types(run_id) == before
    assert (await office.service.row(ANN, run_id)).state == "completed"


class Broken:
    """A store that cannot be read once, in each of some ways."""

    error: CaxtonError = StoreError("the disk is away")

    def __init__(self, store: object, *ways: str) -> None:
        self._store: Any = store
        self._left = {*ways}

    def __getattr__(self, name: str) -> object:
        if name in self._left:
            self._left.remove(name)
            return self._fails
        found = getattr(self._store, name)
        if name in {"reader", "leases"}:
            part = Broken(found)
            part._left, part.error = self._left, self.error
            return part
        return found

    async def _fails(self, *_: object, **__: object) -> list[RunRow]:
        raise self.error


async def test_a_run_whose_host_is_gone_goes_on_in_one_that_is_up(
    tmp_path: Path,
) -> None:
    # law 10
    office = Office(tmp_path)
    store, driven = office.scene.store, await office.start()
    await office.done(driven)
    started = (await store.reader.read(f"run/{driven}"))[0].event
    assert started is not None
    async with resuming(office, every=0.01):
        lost = office.scene.host.new_id()
        await store.create(f"run/{lost}").append(started)

        await until(office, lost, "completed")

    assert (await office.types(lost))[:2] == ["RunStarted", "RunResumed"]


async def test_a_host_whose_store_is_away_when_it_starts_takes_over_later(
    tmp_path: Path,
) -> None:
    # law 10
    office = asks(folder=tmp_path)
    run_id = await office.start()
    await office.done(run_id)
    await said(office, run_id)
    broken = Broken(office.scene.store, "idle")
    office.service.store = cast("ServingStore", broken)
    resumer = Resumer(service=office.service, every=0.01)
    it = Serving(up=cast("Running", None), service=office.service, resumer=resumer)

    it.begin()

    await until(office, run_id, "completed")
    await it.drain(0)


async def test_a_run_whose_host_died_as_it_asked_people_is_suspended(
    tmp_path: Path,
) -> None:
    # law 10
    office = asks(folder=tmp_path)
    store, asked = office.scene.store, await office.start()
    await office.done(asked)
    *before, _ = [
        recorded.event for recorded in await store.reader.read(f"run/{asked}")
    ]
    lost = office.scene.host.new_id()
    await store.create(f"run/{lost}").append(*filter(None, before))

    async with resuming(office):
        await until(office, lost, "suspended")

    *_, resumed, suspended = [e.event for e in await store.reader.read(f"run/{lost}")]
    assert isinstance(resumed, RunResumed)
    assert resumed.reason == "host_started"
    assert isinstance(suspended, RunSuspended)


async def test_runs_of_a_dead_host_are_spread_over_the_living(tmp_path: Path) -> None:
    tools = Slow()
    office = Office(tmp_path, tools=tools, places=16)
    store, host = office.scene.store, office.service.host
    office.service.line.each = 12
    runs = [await office.start() for _ in range(12)]
    await asyncio.sleep(0)
    for one in runs:
        row = await office.service.row(ANN, one)
        store.rows[one] = replace(row, owner="host/9")
    await store.leases.join("host/9")
    store.leases.joined.remove("host/9")
    for one in (str(host.stream), "host/other"):
        await store.leases.join(one)
    resumer = Resumer(service=office.service)
    idle = {row.run_id for row in await store.leases.idle()}
    hosts = await store.leases.hosts()
    mine = resumer._part(idle, hosts)
    assert 0 < len(mine) < len(runs)
    assert len(idle) == len(runs)

    # What the other one does not take is taken soon, as many as there are places.
    resumer._left = Counter(idle - mine)
    office.service.line.places = 3
    assert len(resumer._part(idle, hosts) - mine) == 3
    tools.let.set()


async def test_a_run_that_was_lost_comes_before_those_that_are_queued(
    tmp_path: Path,
) -> None:
    # law 10: it has had its place
    tools = Slow()
    office = Office(tmp_path, tools=tools, places=1)
    store, driven = office.scene.store, await office.start()
    await tools.reached.wait()
    queued = await office.start()
    started = (await store.reader.read(f"run/{driven}"))[0].event
    assert started is not None
    async with resuming(office) as resumer:
        lost = [office.scene.host.new_id() for _ in range(2)]
        for one in lost:
            await store.create(f"run/{one}").append(started)
        resumer.search()
        while office.service.line.waiting < len(lost):  # noqa: ASYNC110 -- nobody tells
            await asyncio.sleep(0.001)
        # Another host has had a place for one of them meanwhile.
        other = await store.claim(
            f"run/{lost[0]}", replace(RESUMED, host="host/9"), after=1
        )
        await other.append(DONE)

        tools.let.set()
        await until(office, queued, "completed")
        assert (await office.service.row(ANN, lost[1])).state == "completed"

    assert (await office.types(lost[0]))[1:] == ["RunResumed", "RunCompleted"]


async def test_a_run_that_cannot_be_read_is_told_of_once_and_tried_later_each_time(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    office = asks(folder=tmp_path)
    async with resuming(office, patience=1.0) as resumer:
        run_id = await office.start()
        await office.done(run_id)
        reader, seconds = office.scene.store.reader, list[int]()
        read, clock = reader.read, office.scene.clock
        await said(office, run_id)

        async def broken(stream: str) -> list[Any]:
            if len(seconds) == 4:
                return await read(stream)
            seconds.append(clock.now() // 1_000_000)
            raise LogBrokenError("an event was changed", fix="caxton audit verify")

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(reader, "read", broken)
            resumer.look(run_id)
            async with asyncio.timeout(30):
                while (await reader.row(run_id)).state != "completed":  # type: ignore[union-attr]
                    clock.time += 1_000_000
                    resumer.search()
                    await asyncio.sleep(0.01)
    pauses = [after - before for before, after in pairwise(seconds)]
    assert pauses == [2, 4, 8]
    assert caplog.text.count(f"run {run_id} cannot be read") == 1
    assert "To fix: caxton audit verify" in caplog.text
