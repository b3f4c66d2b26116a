"""Runs that wait for a place: queued in the log, started once, judged as of now."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest

from caxton_host.core.grants.grants import Grant, Rule
from caxton_host.core.log.events import (
    RunCancelled,
    RunFailed,
    RunQueued,
    RunStarted,
    ToolDenied,
)
from caxton_host.core.pins import Pin
from caxton_host.core.text.globs import Pattern
from caxton_host.errors import NotStartedError, OverloadedError, UsageError
from caxton_host.lib.minisign import SecretKey
from caxton_host.runs.pinning import signature_of
from caxton_host.runs.recording import Recording
from caxton_host.service import placing
from caxton_host.testing import FakePlacement
from caxton_host.testing.fakes import Fate
from tests.office import ANN, BOB, Office, Slow, resuming, until_found

NOTHING = Grant(allow=(Rule(id="allow[1]", tools=(Pattern.parse("other/*"),)),))


async def full(folder: Path) -> tuple[Office, Slow, str]:
    """Return an office whose only place is taken, by a call that does not end yet."""
    tools = Slow()
    office = Office(folder, tools=tools, places=1)
    run_id = await office.start()
    await tools.reached.wait()
    return office, tools, run_id


def other(office: Office) -> Office:
    """Return another host of the same log."""
    found, store = Office(office.folder), office.scene.store
    found.service.store = found.service.placer.store = store
    found.service.host = found.service.placer.host = replace(
        found.scene.host, store=store, stream="host/2"
    )
    return found


async def test_a_run_that_has_to_wait_is_queued_in_the_log(tmp_path: Path) -> None:
    # law 3: the caller is told of it once that is durable
    office, tools, _ = await full(tmp_path)

    run_id = await office.start()

    assert await office.types(run_id) == ["RunQueued"]
    row = await office.service.row(ANN, run_id)
    assert (row.state, row.owner, row.epoch) == ("queued", None, 0)
    with pytest.raises(NotStartedError, match="has not started"):
        await office.service.recording(ANN, run_id)
    tools.let.set()
    assert await office.done(run_id) == "completed"
    assert (await office.types(run_id))[:2] == ["RunQueued", "RunStarted"]


async def test_a_run_that_was_queued_replays_as_any_other(tmp_path: Path) -> None:
    # law 5
    office, tools, first = await full(tmp_path)
    second = await office.start()
    tools.let.set()
    await office.done(second)

    one, other = [
        await Recording.load(run, office.scene.store.reader) for run in (first, second)
    ]

    assert [item.type for item in one.own] == [item.type for item in other.own]
    assert other.started.grants == one.started.grants
    assert other.started.bounds == ()


async def test_it_may_do_what_it_could_then_and_may_now(tmp_path: Path) -> None:
    # law 4
    office, tools, _ = await full(tmp_path)
    run_id = await office.start()
    agent = office.config.agents["weather"]
    office.config = replace(
        office.config, agents={"weather": replace(agent, grant=NOTHING)}
    )

    tools.let.set()
    await office.done(run_id)

    history = await office.scene.store.reader.read(f"run/{run_id}")
    queued, started = history[0].event, history[1].event
    assert isinstance(queued, RunQueued)
    assert isinstance(started, RunStarted)
    assert started.grants == queued.grants
    assert [bound["name"] for bound in started.bounds if isinstance(bound, dict)] == [
        "today"
    ]
    (denied,) = [item.event for item in history if isinstance(item.event, ToolDenied)]
    assert denied.code == "not_granted"


@pytest.mark.parametrize("gone", ["the agent", "the token"])
async def test_it_does_not_start_without_its_agent_or_its_token(
    tmp_path: Path, gone: str
) -> None:
    # law 4
    office, tools, _ = await full(tmp_path)
    run_id = await office.start(BOB)
    if gone == "the agent":
        office.config = replace(office.config, agents={})
    else:
        await office.scene.store.tokens.revoke("bob", 1, "host/0")

    tools.let.set()

    assert await office.done(run_id) == "failed"
    history = await office.scene.store.reader.read(f"run/{run_id}")
    assert [item.type for item in history] == ["RunQueued", "RunFailed"]
    assert isinstance(end := history[-1].event, RunFailed)
    assert end.kind == "start"
    with pytest.raises(UsageError, match="failed, and had not started"):
        await Recording.load(run_id, office.scene.store.reader)


async def test_a_queued_run_is_cancelled_by_one_event_and_never_starts(
    tmp_path: Path,
) -> None:
    office, tools, _ = await full(tmp_path)
    run_id = await office.start()

    assert await office.service.cancel(ANN, run_id, "no more") == "cancelled"

    tools.let.set()
    other = await office.start()
    assert await office.done(other) == "completed"
    history = await office.scene.store.reader.read(f"run/{run_id}")
    assert [type(item.event) for item in history] == [RunQueued, RunCancelled]


async def test_a_run_that_was_cancelled_elsewhere_is_not_started(
    tmp_path: Path,
) -> None:
    office, tools, _ = await full(tmp_path)
    run_id = await office.start()
    store = office.scene.store
    cancelled = RunCancelled(actor={}, reason="by another host")
    await store.claim(f"run/{run_id}", cancelled, after=1)

    tools.let.set()
    other = await office.start()

    assert await office.done(other) == "completed"
    assert await office.types(run_id) == ["RunQueued", "RunCancelled"]


async def test_the_queue_is_bounded_for_all_and_for_each(tmp_path: Path) -> None:
    # law 10
    office, _, _ = await full(tmp_path)
    for _ in range(2):
        await office.start()
    assert office.service.waiting == 2  # Without a look at a database.

    with pytest.raises(OverloadedError, match="2 wait"):
        await office.start()

    office.service.line.queue, office.service.line.each = 10, 3
    with pytest.raises(OverloadedError, match="you have 3"):
        await office.start()


async def test_the_same_key_twice_at_the_same_time_is_one_queued_run(
    tmp_path: Path,
) -> None:
    office, tools, _ = await full(tmp_path)

    runs = await asyncio.gather(*(office.start(key="k1") for _ in range(2)))

    assert len({*runs, await office.start(key="k1")}) == 1
    tools.let.set()
    assert await office.done(runs[0]) == "completed"


async def test_the_same_key_at_two_hosts_at_the_same_time_is_one_run(
    tmp_path: Path,
) -> None:
    office = Office(tmp_path)
    hosts = office, other(office)

    first, second = await asyncio.gather(*(one.start(key="k1") for one in hosts))

    assert first == second
    assert (await office.types(first)).count("RunStarted") == 1


async def test_what_a_dead_host_had_in_its_queue_is_started_by_another(
    tmp_path: Path,
) -> None:
    office, tools, _ = await full(tmp_path)
    run_id = await office.start()
    assert office.placing is not None
    office.placing.cancel()
    # Another host of the same log, that has never heard of it.
    tools.let.set()
    heir = other(office)
    heir.placing = asyncio.create_task(heir.service.placer.watch())

    async with resuming(heir) as resumer:
        await until_found(resumer)
    await heir.service.over(run_id)
    assert (await office.service.row(ANN, run_id)).state == "completed"
    assert (await office.types(run_id))[:2] == ["RunQueued", "RunStarted"]


async def test_the_host_that_queued_a_run_finds_the_job_that_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(placing, "_LOST_S", 0.001)
    fates: list[Fate] = ["lost"]
    queue = FakePlacement(fate=lambda _: fates.pop() if fates else None)
    tools = Slow()
    office = Office(tmp_path, tools=tools, places=1)
    placer = office.service.placer
    office.service.placement = placer.placement = queue
    await office.start()
    await tools.reached.wait()
    run_id = await office.start()
    tools.let.set()
    while fates:  # noqa: ASYNC110 -- nobody tells
        await asyncio.sleep(0)
    assert await office.types(run_id) == ["RunQueued"]
    office.scene.clock.time += 1_000
    looking = asyncio.create_task(placer.look_after())

    async with asyncio.timeout(20):
        await office.done(run_id)
        # It is forgotten, as it has begun.
        while placer._queued_at:  # noqa: ASYNC110 -- nobody tells
            await asyncio.sleep(0.001)
    looking.cancel()

    assert (await office.types(run_id))[:2] == ["RunQueued", "RunStarted"]


def pin(office: Office, pinned: Pin) -> None:
    agent = replace(office.config.agents["weather"], pin=pinned)
    office.config = replace(office.config, agents={"weather": agent})


@pytest.mark.parametrize(
    ("digest", "state"),
    [(sha256(b"\0asm").hexdigest(), "completed"), ("0" * 64, "failed")],
)
async def test_a_pin_of_today_decides_about_what_was_queued(
    tmp_path: Path, digest: str, state: str
) -> None:
    office, tools, _ = await full(tmp_path)
    run_id = await office.start()
    pin(office, Pin(sha256=(digest,)))
    tools.let.set()
    assert await office.done(run_id) == state
    started = "RunStarted" in await office.types(run_id)
    assert started == (state == "completed")


async def test_a_queued_run_takes_its_signature_along(tmp_path: Path) -> None:
    office, tools, _ = await full(tmp_path)
    key, module = SecretKey.new(), tmp_path / "weather.wasm"
    signature = key.sign(module.read_bytes(), "by hand").to_bytes()
    signature_of(module).write_bytes(signature)
    pin(office, Pin(signers=(key.public,)))
    run_id = await office.start()
    signature_of(module).unlink()
    tools.let.set()
    assert await office.done(run_id) == "completed"
    started = (await office.scene.store.reader.read(f"run/{run_id}"))[1].event
    assert isinstance(started, RunStarted)
    (row,) = started.signatures
    assert isinstance(row, dict)
    assert (row["signer"], row["signature"]) == (str(key.public), signature.decode())
