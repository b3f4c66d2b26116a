"""Runs are ended from outside, and the log says by whom."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

import pytest

from caxton_host.core.calls import JSON
from caxton_host.core.grants.grants import Grant
from caxton_host.core.grants.journal import Journal
from caxton_host.core.log.events import (
    RunCancelled,
    RunStarted,
    RunSuspended,
    ToolFailed,
)
from caxton_host.core.log.requests import Request
from caxton_host.errors import BusyError, NotFoundError, StoreError, UsageError
from caxton_host.gateway.recorder import Recorder
from caxton_host.ports.sandbox import Door, Ending, Guest
from caxton_host.runs.cancellation import UnderWay, cancel_idle, watching
from caxton_host.store.memory import MemoryRequests, MemoryStore
from caxton_host.testing import FakeClock, FakeEntropy
from tests.scene import Scene, calling, ended, pack, types

BOB: dict[str, JSON] = {"kind": "local", "id": "bob", "authenticated": False}
HOST = "host/1"


async def sleeps(door: Door, guest: Guest) -> Ending:
    del guest
    await door.call(b"weather", pack(), 1)
    await asyncio.sleep(3600)
    return ended()


async def until(condition: Callable[[], Awaitable[object]]) -> None:
    async with asyncio.timeout(20):
        while not await condition():  # noqa: ASYNC110 -- nobody tells
            await asyncio.sleep(0.001)


async def asleep(scene: Scene) -> bool:
    """Return whether a run that sleeps after its call does so."""
    return bool(scene.run_id) and len(await scene.events()) > 2


class Living(Scene):
    """A scene whose host has joined, and looks often."""

    async def cancelled(self, kind: str = "cancel") -> int:
        await self.store.leases.join(HOST)
        async with (
            watching(self.store, HOST, self.host.under_way, every=0.01),
            asyncio.TaskGroup() as tasks,
        ):
            task = tasks.create_task(self.run())
            await until(partial(asleep, self))
            number = await self.store.requests.ask_run(
                self.run_id, kind, BOB, "no more"
            )

            async def answered() -> bool:
                return await self.store.requests.outcome(number) is not None

            await until(answered)
            if kind != "cancel":
                task.cancel()
        assert task.cancelled() == (kind != "cancel")
        return number


async def test_request_ends_the_run_and_its_caller_goes_on() -> None:
    scene = Living(sleeps)

    number = await scene.cancelled()

    assert await scene.store.requests.outcome(number) == "cancelled"
    assert (await scene.events())[-1] == RunCancelled(actor=BOB, reason="no more")
    assert await scene.store.leases.owner(scene.run_id) is None
    assert (await scene.replay()).divergence is None


async def test_request_of_a_kind_from_the_future_is_refused() -> None:
    scene = Living(sleeps)

    number = await scene.cancelled("dance")

    assert await scene.store.requests.outcome(number) == (
        "refused: the host does not know this kind of request"
    )


async def test_host_that_drives_nothing_does_what_is_asked_of_itself() -> None:
    scene = Scene(calling())
    store = scene.store
    asked: list[Request] = []

    async def reload(request: Request) -> str:
        asked.append(request)
        if request.subject:
            raise UsageError("line 3: unknown key")
        return "reloaded"

    await store.leases.join(HOST)
    numbers = [
        await store.requests.ask_host(HOST, "reload", BOB, "new keys"),
        await store.requests.ask_host(HOST, "reload", BOB, "", "crm"),
        await store.requests.ask_host(HOST, "cancel", BOB, ""),
    ]
    kinds = {"reload": reload}
    under_way = scene.host.under_way
    async with watching(store, HOST, under_way, every=0.001, kinds=kinds):

        async def answered() -> bool:
            return all([await store.requests.outcome(number) for number in numbers])

        await until(answered)

    assert [await store.requests.outcome(number) for number in numbers] == [
        "reloaded",
        "failed: line 3: unknown key",
        "refused: the host does not know this kind of request",
    ]
    assert [(one.actor, one.reason) for one in asked] == [(BOB, "new keys"), (BOB, "")]


async def test_first_of_two_requests_is_the_one_that_is_recorded() -> None:
    scene = Scene(sleeps)
    task = asyncio.create_task(scene.run())
    await until(partial(asleep, scene))

    ends = await asyncio.gather(
        *(
            scene.host.under_way.stop(
                scene.run_id, RunCancelled(actor=BOB, reason=reason)
            )
            for reason in ("first", "second")
        )
    )

    await task
    assert ends == [RunCancelled(actor=BOB, reason="first")] * 2
    assert types(await scene.events()).count("RunCancelled") == 1


async def test_caller_that_is_cancelled_too_stays_cancelled() -> None:
    scene = Scene(sleeps)
    task = asyncio.create_task(scene.run())
    await until(partial(asleep, scene))

    cancelled = RunCancelled(actor=BOB, reason="first")
    asked = asyncio.create_task(scene.host.under_way.stop(scene.run_id, cancelled))
    await asyncio.sleep(0)
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task
    assert await asked == cancelled
    assert (await scene.events())[-1] == cancelled


async def test_run_that_is_not_under_way_here_is_not_cancelled_here() -> None:
    scene = Scene(calling("weather"))
    await scene.run()

    cancelled = RunCancelled(actor=BOB, reason="")
    assert await scene.host.under_way.stop(scene.run_id, cancelled) is None


async def interrupted(store: MemoryStore, *more: RunSuspended) -> str:
    """Return a run that began, made a call, and was left alone."""
    scene = Scene(sleeps)
    await scene.cancelled_after(3)
    events = await scene.events()
    log = store.create(f"run/{scene.run_id}")
    assert isinstance(events[0], RunStarted)
    await log.append(*events[:2], *more)
    return scene.run_id


async def test_run_of_a_dead_host_is_ended_with_its_open_calls() -> None:
    store = MemoryStore(clock=FakeClock(), entropy=FakeEntropy())
    run_id = await interrupted(store, RunSuspended(reason="in_doubt", call=1))

    await cancel_idle(store, run_id, BOB, "why not")

    closed, end = [item.event for item in await store.reader.read(f"run/{run_id}")][-2:]
    assert isinstance(closed, ToolFailed)  # law 2
    assert (closed.call, closed.kind, closed.sent) == (1, "cancelled", "unknown")
    assert end == RunCancelled(actor=BOB, reason="why not")
    with pytest.raises(UsageError, match="has been cancelled already") as refusal:
        await cancel_idle(store, run_id, BOB, "")
    assert refusal.value.fix


async def test_run_that_has_completed_is_not_cancelled() -> None:
    scene = Scene(calling("weather"))
    await scene.run()

    with pytest.raises(UsageError, match="has completed already"):
        await cancel_idle(scene.store, scene.run_id, BOB, "")
    with pytest.raises(NotFoundError):
        await cancel_idle(scene.store, "nothing", BOB, "")


async def test_run_that_a_living_host_drives_is_not_ended_from_outside() -> None:
    store = MemoryStore(clock=FakeClock(), entropy=FakeEntropy())
    await store.leases.join(HOST)
    run_id = await interrupted(store)

    with pytest.raises(BusyError, match=HOST):
        await cancel_idle(store, run_id, BOB, "")


async def test_run_that_its_host_let_go_of_is_asked_again_until_it_ends(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Failing(MemoryRequests):
        looks = 0

        async def waiting(self, host: str) -> list[Request]:
            self.looks += 1
            if self.looks == 1:
                raise StoreError("the server is away")
            return await super().waiting(host)

        async def answer(self, request_id: int, outcome: str) -> None:
            if self.looks == 2:
                raise StoreError("the disk is full")
            await super().answer(request_id, outcome)

    scene = Scene(sleeps)
    scene.store = MemoryStore(clock=scene.clock, entropy=scene.entropy)
    scene.store.requests = Failing(scene.store)
    other = await interrupted(scene.store)
    await scene.store.leases.join(HOST)
    numbers = [
        await scene.store.requests.ask_run(other, "cancel", BOB, ""),
        await scene.store.requests.ask_run(other, "dance", BOB, ""),
    ]
    under_way = scene.host.under_way
    recorder = Recorder(scene.store.create("run/another"), Journal())
    async with (
        watching(scene.store, HOST, under_way, every=0.01),
        under_way.run("another", recorder, BOB) as run,
    ):

        async def answered() -> bool:
            return await scene.store.requests.outcome(numbers[1]) is not None

        await until(answered)
        run.end = RunCancelled(actor=BOB, reason="")

    # Its host lives and drives it as far as anybody knows: nothing is done to it.
    assert await scene.store.requests.outcome(numbers[0]) is None
    assert "the server is away" in caplog.text
    assert "the disk is full" in caplog.text


async def test_run_that_goes_on_here_after_its_log_failed_can_still_be_cancelled() -> (
    None
):
    store, under_way = MemoryStore(clock=FakeClock(), entropy=FakeEntropy()), UnderWay()
    over, done = asyncio.Event(), RunCancelled(actor=BOB, reason="")

    async def first() -> None:
        async with under_way.run(
            "r", Recorder(store.create("run/1"), Journal()), BOB
        ) as run:
            run.end = done
            await over.wait()

    task = asyncio.create_task(first())
    await under_way.wait()
    async with under_way.run(
        "r", Recorder(store.create("run/2"), Journal()), BOB
    ) as again:
        over.set()
        await task
        asking = asyncio.create_task(under_way.stop("r", done))
        with pytest.raises(asyncio.CancelledError):
            await asyncio.sleep(10)
        raise asyncio.CancelledError
    assert await asking == again.end == done
    assert await under_way.stop("r", done) is None


async def test_run_whose_log_failed_is_resumed_once_it_is_over_here() -> None:
    # law 7: what it called would go on without it
    scene = Scene(sleeps)
    run_id = await interrupted(scene.store)
    recorder = Recorder(scene.store.create("run/another"), Journal())
    async with scene.host.under_way.run(run_id, recorder, BOB) as run:
        with pytest.raises(BusyError, match="still drives run"):
            await scene.host.resume(run_id, actor=BOB, grant=Grant())
        run.end = RunCancelled(actor=BOB, reason="")


async def test_a_stop_that_could_not_be_recorded_returns_no_end() -> None:
    store, under_way = MemoryStore(clock=FakeClock(), entropy=FakeEntropy()), UnderWay()
    recorder = Recorder(store.create("run/1"), Journal())

    async def work() -> None:
        async with under_way.run("1", recorder, BOB):
            recorder.log.leave()
            await asyncio.sleep(10)

    task = asyncio.create_task(work())
    await under_way.wait()
    assert await under_way.stop("1", RunCancelled(actor=BOB, reason="")) is None
    with pytest.raises(StoreError):
        await task
