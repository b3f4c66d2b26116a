"""What an erasure takes, and what it leaves. Each store passes all of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import pytest

from caxton_host.core.calls import JSON
from caxton_host.core.log.events import (
    RunCancelled,
    RunCompleted,
    RunErased,
    RunResumed,
    RunSuspended,
)
from caxton_host.core.log.runs import RunFilter
from caxton_host.errors import NotFoundError, NotKeptError, UsageError
from caxton_host.lib.codec import sha256
from caxton_host.store.memory import MemoryStore
from tests.contract.conftest import Store
from tests.unit.store.fakes import line, run_started

RUN, HOST = "0193", "host/1"
ANN: dict[str, JSON] = {"kind": "local", "id": "ann", "authenticated": False}
DONE = RunCompleted(output="gone", output_sha256="00", fuel=1)


async def ended(store: Store, run_id: str = RUN) -> None:
    log = store.create(f"run/{run_id}")
    await log.append(
        run_started(), line(1, "gone"), DONE, blobs={sha256(b"module"): b"module"}
    )


async def erase(store: Store, run_id: str = RUN) -> RunErased:
    return await store.erasure.erase(run_id, HOST, actor=ANN, reason="asked for")


async def test_erased_run_keeps_its_envelopes_and_hashes(store: Store) -> None:
    await ended(store)
    before = await store.reader.read(f"run/{RUN}")

    await erase(store)

    after = await store.reader.read(f"run/{RUN}")
    assert [event.event for event in after] == [None, None, None]
    assert [(e.seq, e.type, e.recorded_at, e.hash) for e in after] == [
        (e.seq, e.type, e.recorded_at, e.hash) for e in before
    ]


async def test_erased_run_leaves_no_key_and_no_digest_of_what_was_asked(
    store: Store,
) -> None:  # law 8
    await ended(store)
    await store.submissions.register("token/ann", "k", "digest", RUN)
    await store.submissions.register("token/ann", "other", "digest", "r2")

    await erase(store)

    assert await store.submissions.register("token/ann", "k", "d3", "r3") == (
        "d3",
        "r3",
    )
    assert await store.submissions.register("token/ann", "other", "d3", "r3") == (
        "digest",
        "r2",
    )


async def test_erasing_is_recorded_with_who_and_why(store: Store) -> None:
    await ended(store)

    given = await erase(store)

    assert given == RunErased(
        run=RUN, actor=ANN, reason="asked for", agent="weather", events=3
    )
    assert [event.event for event in await store.reader.read(HOST)] == [given]
    assert await store.reader.erased() == {f"run/{RUN}": given}


async def test_erasures_of_one_host_are_one_stream(store: Store) -> None:
    await ended(store)
    await ended(store, "0194")

    await store.erasure.erase(RUN, HOST, line(1), actor=ANN, reason="one")
    bundle: dict[str, JSON] = {"name": "0194.caxton", "sha256": "00"}
    await store.erasure.erase("0194", HOST, actor=ANN, reason="two", bundle=bundle)

    found = await store.reader.read(HOST)
    assert [event.seq for event in found] == [1, 2, 3]
    assert isinstance(found[2].event, RunErased)
    assert found[2].event.bundle == bundle


async def test_list_of_runs_forgets_who_started_it(store: Store) -> None:
    await ended(store)
    await erase(store)

    [row] = await store.reader.runs(10)

    assert (row.agent, row.actor, row.state) == ("weather", "{}", "completed")
    assert await store.reader.find_run("01") == RUN


async def test_erased_run_stays_one_of_its_tenant(store: Store) -> None:
    begun = replace(run_started(), actor={**ANN, "tenant": "acme"})
    await store.create(f"run/{RUN}").append(begun, DONE)

    await erase(store)

    (row,) = await store.reader.runs(9, RunFilter(tenant="acme"))
    assert (row.run_id, row.tenant, row.actor) == (RUN, "acme", "{}")


async def test_blobs_and_other_runs_are_left(store: Store) -> None:
    await ended(store)
    await ended(store, "0194")
    await erase(store)

    assert await store.reader.blob(sha256(b"module")) == b"module"
    assert all(event.event for event in await store.reader.read("run/0194"))


@pytest.mark.parametrize("state", ["running", "suspended", "resumed"])
async def test_run_that_goes_on_is_not_erased(store: Store, state: str) -> None:
    log = store.create(f"run/{RUN}")
    await log.append(run_started())
    if state == "suspended":
        await log.append(RunSuspended(reason="in_doubt", call=1))
    elif state == "resumed":
        await log.append(
            RunResumed(actor=ANN, host=HOST, epoch=2, reason="", grants_sha256="")
        )

    with pytest.raises(UsageError, match="needs its log to go on") as caught:
        await erase(store)

    assert caught.value.fix
    assert all(event.event for event in await store.reader.read(f"run/{RUN}"))
    assert await store.reader.read(HOST) == []


async def forked(store: Store, run_id: str, *before: str) -> None:
    """Start a run that is the fork of the first of *before*, which is of the next."""
    for one, parent in pairwise([run_id, *before]):
        forked_from: dict[str, JSON] = {"run": parent, "seq": 1, "hash": "00"}
        started = replace(run_started(), forked_from=forked_from)
        end = [] if one == run_id else [DONE]
        await store.create(f"run/{one}").append(started, *end)


@pytest.mark.parametrize("before", [(RUN,), ("0194", RUN)])
async def test_run_is_not_erased_while_a_fork_goes_on(
    store: Store, before: Sequence[str]
) -> None:
    await ended(store)
    await forked(store, "0199", *before)

    with pytest.raises(UsageError, match="run 0199 was forked from run 0193") as caught:
        await erase(store)

    assert caught.value.fix
    assert all(event.event for event in await store.reader.read(f"run/{RUN}"))
    assert await store.reader.read(HOST) == []
    log = await store.resume_log("run/0199")
    await log.append(RunCancelled(actor=ANN, reason="enough"))
    assert (await erase(store)).run == RUN


async def test_forks_of_other_runs_keep_nothing(store: Store) -> None:
    await ended(store)
    await ended(store, "0194")
    await forked(store, "0199", "0194")
    await forked(store, "0200", "0201-is-not-here")

    assert (await erase(store)).run == RUN


async def test_who_asked_for_its_end_is_forgotten(store: Store) -> None:
    await store.leases.join(HOST)
    log = store.create(f"run/{RUN}")
    await log.append(run_started())
    number = await store.requests.ask_run(RUN, "cancel", ANN, "she said so")
    await store.requests.answer(number, "done")
    await log.append(DONE)

    await erase(store)

    assert await store.requests.outcome(number) == "done"
    assert "she said so" not in await asked(store)
    assert "ann" not in await asked(store)


async def asked(store: Store) -> str:
    if isinstance(store, MemoryStore):
        return repr(store.requests._requests)
    with store.engine.connect() as connection:
        rows = connection.exec_driver_sql("SELECT * FROM requests").all()
    assert len(rows) == 1
    return repr(rows)


async def test_cancelled_run_can_be_erased(store: Store) -> None:
    log = store.create(f"run/{RUN}")
    await log.append(run_started(), RunCancelled(actor=ANN, reason="enough"))

    assert (await erase(store)).events == 2


async def test_run_is_erased_once(store: Store) -> None:
    await ended(store)
    await erase(store)

    with pytest.raises(NotKeptError, match="erased before"):
        await erase(store)

    assert len(await store.reader.read(HOST)) == 1


async def test_unknown_run_cannot_be_erased(store: Store) -> None:
    with pytest.raises(NotFoundError):
        await erase(store)

    assert await store.reader.streams() == []
    assert await store.erasure.scrub()
