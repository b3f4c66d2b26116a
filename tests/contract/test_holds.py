"""What a hold keeps, and who set it. Each store passes all of it."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from caxton_host.core.calls import JSON
from caxton_host.core.log.events import RunErased, RunHeld, RunReleased
from caxton_host.core.log.holds import HOLDS, hold_document
from caxton_host.errors import CaxtonError, NotFoundError, NotKeptError, UsageError
from tests.contract.conftest import Store
from tests.unit.store.fakes import run_started

from .test_erasure import ANN, DONE, RUN, ended, erase

BOB: dict[str, JSON] = {"kind": "token", "id": "bob", "authenticated": True}


def hold(run_id: str = RUN) -> RunHeld:
    return RunHeld(run=run_id, actor=BOB, reason="litigation")


def release(run_id: str = RUN) -> RunReleased:
    return RunReleased(run=run_id, actor=ANN, reason="settled")


async def test_nobody_erases_a_run_on_hold(store: Store) -> None:
    await ended(store)
    await store.holding.record(hold())

    with pytest.raises(UsageError, match=f"run {RUN} is on hold") as caught:
        await erase(store)

    assert caught.value.fix
    assert all(event.event for event in await store.reader.read(f"run/{RUN}"))
    await store.holding.record(release())
    assert (await erase(store)).run == RUN


async def test_hold_is_recorded_with_who_and_why(store: Store) -> None:
    await ended(store)
    await store.holding.record(hold())

    [found] = await store.reader.read(HOLDS + RUN)

    assert found.event == hold()
    assert hold_document(RUN, [found]) == {
        "$type": "caxton.hold/v1",
        "run_id": RUN,
        "hold": {"actor": BOB, "reason": "litigation", "at": found.recorded_at},
    }
    await store.holding.record(release())
    holds = await store.reader.read(HOLDS + RUN)
    assert hold_document(RUN, holds)["hold"] is None


async def test_run_that_goes_on_can_be_held(store: Store) -> None:
    log = store.create(f"run/{RUN}")
    await log.append(run_started())
    await store.holding.record(hold())
    await log.append(DONE)

    with pytest.raises(UsageError, match="on hold"):
        await erase(store)


async def test_hold_keeps_what_its_run_was_forked_from(store: Store) -> None:
    await ended(store)
    forked_from: dict[str, JSON] = {"run": RUN, "seq": 1, "hash": "00"}
    started = replace(run_started(), forked_from=forked_from)
    await store.create("run/0199").append(started, DONE)
    await store.holding.record(hold("0199"))

    with pytest.raises(UsageError, match=f"0199, a fork of run {RUN}, is on hold"):
        await erase(store)

    await store.holding.record(release("0199"))
    assert (await erase(store)).run == RUN


async def test_holds_of_other_runs_keep_nothing(store: Store) -> None:
    await ended(store)
    await ended(store, f"{RUN}4")
    await store.holding.record(hold(f"{RUN}4"))

    assert (await erase(store)).run == RUN


async def test_what_cannot_be_held_or_released_is_refused(store: Store) -> None:
    with pytest.raises(NotFoundError):
        await store.holding.record(hold())
    await ended(store)
    with pytest.raises(UsageError, match="not on hold"):
        await store.holding.record(release())
    await store.holding.record(hold())
    with pytest.raises(UsageError, match="is on hold"):
        await store.holding.record(hold())
    await store.holding.record(release())
    await erase(store)
    with pytest.raises(NotKeptError, match="erased before"):
        await store.holding.record(hold())

    assert len(await store.reader.read(HOLDS + RUN)) == 2


@pytest.mark.parametrize("fork", [False, True])
async def test_of_a_hold_and_an_erasure_one_loses(store: Store, *, fork: bool) -> None:
    """Law 10, and the promise of a hold: both are never recorded."""
    for number in range(8):
        run_id = held = f"02{number}"
        await ended(store, run_id)
        if fork:
            held = f"03{number}"
            forked_from: dict[str, JSON] = {"run": run_id, "seq": 1, "hash": "00"}
            started = replace(run_started(), forked_from=forked_from)
            await store.create(f"run/{held}").append(started, DONE)

        erased, kept = await asyncio.gather(
            erase(store, run_id),
            store.holding.record(hold(held)),
            return_exceptions=True,
        )

        whole = all(event.event for event in await store.reader.read(f"run/{run_id}"))
        assert whole is not isinstance(erased, RunErased)
        if isinstance(erased, RunErased):
            # A fork can be held without the parent that is gone already.
            assert fork or isinstance(kept, NotKeptError)
        else:
            assert isinstance(erased, CaxtonError)
            assert kept is None
