"""A host that serves: runs in the background, each for its principal."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from caxton_host.config.model import ContextVar
from caxton_host.core.calls import JSON
from caxton_host.core.log.events import (
    RunStarted,
    RunSuspended,
    ToolInvoked,
    ToolProgress,
)
from caxton_host.core.log.requests import Resend
from caxton_host.errors import (
    ForbiddenError,
    NotFoundError,
    OverloadedError,
    UsageError,
)
from caxton_host.service.run_service import Submission
from tests.office import (
    ANN,
    BOB,
    BOSS,
    Office,
    Slow,
    resuming,
    until_found,
    who,
)

#: Variables that are not to be in the log, so a run that has them is not queued there.
PRIVATE = {"secret": ContextVar(private=True, caller=True)}
SECRET: dict[str, JSON] = {"secret": "a word"}


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not true():  # noqa: ASYNC110 -- nothing tells
            await asyncio.sleep(0)


async def test_a_run_goes_on_in_the_background_for_its_principal(
    tmp_path: Path,
) -> None:
    office = Office(tmp_path)

    run_id = await office.start()

    assert await office.done(run_id) == "completed"
    started = (await office.scene.store.reader.read(f"run/{run_id}"))[0].event
    assert isinstance(started, RunStarted)
    assert started.actor == {"kind": "token", "id": "ann", "authenticated": True}


async def test_an_access_token_is_kept_while_a_run_of_its_principal_is_driven(
    tmp_path: Path,
) -> None:
    tools = Slow()
    office = Office(tmp_path, tools=tools)
    ann = replace(ANN, kind="oauth", token="an access token")  # noqa: S106 -- made up
    callers = office.service.host.callers

    run_id = await office.start(ann)
    await tools.reached.wait()

    assert callers.token("oauth/ann") == ann.token
    tools.let.set()
    assert await office.done(run_id) == "completed"
    assert callers.token("oauth/ann") == ""
    assert ann.token not in repr(office.scene.store.streams)  # law 8


def test_agents_are_those_that_the_principal_may_start(tmp_path: Path) -> None:
    service = Office(tmp_path).service

    (card,) = service.agents(ANN)

    assert (card.name, card.tool) == ("weather", "sky")
    assert card.description == "Says what the sky is like."
    assert service.agents(who("carl", agents=("bank*",))) == []
    assert service.agents(who("reader", "read")) == []


async def test_an_agent_of_others_does_not_exist(tmp_path: Path) -> None:
    office = Office(tmp_path)

    for name in ("weather", "../weather", "nothing"):
        with pytest.raises(NotFoundError, match="no agent"):
            await office.service.submit(
                who("carl", agents=("bank*",)), Submission(agent=name)
            )


async def test_a_run_of_somebody_else_does_not_exist(tmp_path: Path) -> None:
    office = Office(tmp_path)
    run_id = await office.start(ANN)

    with pytest.raises(NotFoundError, match="no run"):
        await office.service.row(BOB, run_id)
    with pytest.raises(NotFoundError, match="no run"):
        await office.service.cancel(BOB, run_id, "mine now")

    assert (await office.service.row(BOSS, run_id)).agent == "weather"
    assert (await office.service.recording(ANN, run_id)).started.agent == "weather"


@pytest.mark.parametrize("trigger", ["api", "mcp"])
async def test_an_input_is_refused_that_the_configured_schema_does_not_allow(
    tmp_path: Path, trigger: str
) -> None:
    office = Office(tmp_path)
    agent = office.config.agents["weather"]
    schema: dict[str, JSON] = {"properties": {"location": {"type": "string"}}}
    exposed = replace(agent.expose, input_schema=schema)
    agents = {"weather": replace(agent, expose=exposed)}
    office.config = replace(office.config, agents=agents)

    for location, is_taken in ((5, False), ("Oslo", True)):
        wanted = Submission(
            agent="weather", input={"location": location}, trigger=trigger
        )
        with nullcontext() if is_taken else pytest.raises(UsageError, match="location"):
            await office.service.submit(ANN, wanted)


async def test_the_same_key_is_the_same_run(tmp_path: Path) -> None:
    office = Office(tmp_path)

    runs = await asyncio.gather(*(office.start(key="k1") for _ in range(5)))
    again = await office.start(key="k1")

    assert len({*runs, again}) == 1
    assert await office.start(BOB, key="k1") != again
    with pytest.raises(UsageError, match="key was used"):
        await office.service.submit(ANN, Submission(agent="weather", input=1, key="k1"))


async def test_neither_a_key_nor_what_was_asked_with_it_can_be_found_out(
    tmp_path: Path,
) -> None:  # law 8
    office = Office(tmp_path)
    asked = Submission(agent="weather", input={"pin": 1234}, key="ann's order")
    run_id = await office.service.submit(ANN, asked)
    store = office.scene.store

    assert await store.submissions.register("token/ann", "ann's order", "d", "r") == (
        "d",
        "r",
    )
    digest, known = await store.submissions.register("token/ann", asked.slot, "d", "r")

    assert known == run_id
    assert digest != replace(asked, key=None).digest
    assert digest != replace(asked, key="another").digest


async def test_a_start_that_fails_is_told_and_its_key_may_be_used_again(
    tmp_path: Path,
) -> None:
    office = Office(tmp_path)
    module = office.folder / "weather.wasm"
    module.unlink()

    with pytest.raises(UsageError, match="cannot read the module"):
        await office.start(key="k1")
    module.write_bytes(b"\0asm")

    assert await office.done(await office.start(key="k1")) == "completed"


async def test_no_more_runs_than_there_are_places(tmp_path: Path) -> None:
    office = Office(tmp_path, tools=Slow(), places=1)
    first = await office.start()
    waiting = [asyncio.create_task(office.start()) for _ in range(2)]
    await asyncio.sleep(0)

    with pytest.raises(OverloadedError):
        await office.start()

    assert isinstance(office.tools, Slow)
    office.tools.let.set()
    others = await asyncio.gather(*waiting)
    assert [await office.done(one) for one in (first, *others)] == ["completed"] * 3


async def test_who_hangs_up_before_its_run_has_begun_starts_none(
    tmp_path: Path,
) -> None:
    office = Office(tmp_path, tools=Slow(), context=PRIVATE, places=1)
    await office.start()
    waiting = asyncio.create_task(office.start(variables=SECRET))
    await asyncio.sleep(0)

    waiting.cancel()
    await asyncio.wait([waiting])
    assert isinstance(office.tools, Slow)
    office.tools.let.set()
    await until(lambda: office.service.line.present == 0)

    assert len(await office.scene.store.reader.runs(10)) == 1


async def test_a_run_that_is_waited_for_begins_before_its_start_is_durable(
    tmp_path: Path,
) -> None:
    # law 3: its calls wait for that all the same
    tools = Slow()
    office = Office(tmp_path, tools=tools)
    wanted = Submission(agent="weather", ahead=True)

    run_id = await office.service.submit(ANN, wanted)

    assert (await office.service.row(ANN, run_id)).state == "running"
    await tools.reached.wait()
    assert (await office.types(run_id)) == ["RunStarted", "ToolInvoked"]
    tools.let.set()
    end = await office.service.background.over(run_id)
    assert end == (await office.scene.store.reader.read(f"run/{run_id}"))[-1].event
    assert await office.service.background.over(run_id) is None


async def test_a_run_is_cancelled_by_who_started_it(tmp_path: Path) -> None:
    tools = Slow()
    office = Office(tmp_path, tools=tools)
    run_id = await office.start()
    await tools.reached.wait()

    assert await office.service.cancel(ANN, run_id, "enough") == "cancelled"
    with pytest.raises(UsageError, match="already") as refused:
        await office.service.cancel(ANN, run_id, "once more")
    assert f"caxton runs show {run_id}" in refused.value.fix


async def test_who_may_only_look_ends_nothing(tmp_path: Path) -> None:
    office = Office(tmp_path)
    run_id = await office.start()

    with pytest.raises(ForbiddenError):
        await office.service.cancel(who("eve", "read"), run_id, "no")
    with pytest.raises(ForbiddenError):
        await office.service.resolve(ANN, run_id, 1, Resend(), "no")


async def test_variables_are_those_of_the_configuration(tmp_path: Path) -> None:
    office = Office(tmp_path, context={"city": ContextVar(required=True)})

    with pytest.raises(UsageError, match="'city' is required"):
        await office.start()
    for by, said in ((BOSS, "no run variable"), (ANN, "cannot give")):
        with pytest.raises(UsageError, match=said):
            await office.service.submit(
                by, Submission(agent="weather", variables={"town": "x"})
            )


async def test_who_watches_a_run_is_told_of_its_calls(tmp_path: Path) -> None:
    office = Office(tmp_path)
    told: list[ToolProgress] = []
    event = ToolProgress(call=1, message="half", progress=1, total=2)

    end = office.service.watchers.add("r1", told.append)
    office.scene.host.watch("r1", event)
    office.scene.host.watch("r2", event)
    end()
    office.scene.host.watch("r1", event)

    assert told == [event]


async def test_a_host_that_stops_lets_runs_end_first(tmp_path: Path) -> None:
    office = Office(tmp_path)
    run_id = await office.start()

    assert await office.service.background.drain(10) == 0

    assert await office.done(run_id) == "completed"
    with pytest.raises(OverloadedError, match="stop"):
        await office.start()


async def test_runs_that_take_longer_are_suspended_and_taken_over(
    tmp_path: Path,
) -> None:
    # law 10; law 7: the call that was under way is unsafe, so a person is asked
    tools = Slow()
    office = Office(tmp_path, tools=tools)
    run_id = await office.start()
    await tools.reached.wait()

    assert await office.service.background.drain(0) == 1

    recorded = await office.scene.store.reader.read(f"run/{run_id}")
    assert recorded[-1].event == RunSuspended(reason="host_stopped")
    assert isinstance(recorded[-2].event, ToolInvoked)
    office.service.line.closed = False
    async with resuming(office) as resumer:
        await until_found(resumer)
    assert await office.done(run_id) == "suspended"
    assert (await office.types(run_id))[-2:] == ["RunResumed", "RunSuspended"]

    tools.let.set()
    boss = who("boss", "admin")
    await office.service.resolve(boss, run_id, recorded[-2].seq, Resend(), "try")
    await office.service.resume(ANN, run_id)

    assert await office.done(run_id) == "completed"


async def test_a_run_is_forked_by_who_started_it(tmp_path: Path) -> None:
    office = Office(tmp_path)
    run_id = await office.start()
    await office.done(run_id)

    fork = await office.service.fork(ANN, run_id, 3)

    assert await office.done(fork) == "completed"


async def test_who_asked_first_and_hung_up_takes_nobody_along(tmp_path: Path) -> None:
    office = Office(tmp_path, tools=Slow(), context=PRIVATE, places=1)
    await office.start()
    first = asyncio.create_task(office.start(key="k1", variables=SECRET))
    await until(lambda: office.service.line.waiting == 1)
    others = [
        asyncio.create_task(office.start(key="k1", variables=SECRET)) for _ in range(2)
    ]
    await asyncio.sleep(0.01)

    first.cancel()
    await asyncio.wait([first])
    assert isinstance(office.tools, Slow)
    office.tools.let.set()

    (run_id,) = {*await asyncio.gather(*others)}
    assert await office.done(run_id) == "completed"
    assert office.service.line.present == 0


async def test_who_waits_in_a_host_that_stops_is_told_to_come_again(
    tmp_path: Path,
) -> None:
    # law 10
    office = Office(tmp_path, tools=Slow(), context=PRIVATE, places=1)
    await office.start()
    waiting = asyncio.create_task(office.start(variables=SECRET))
    await until(lambda: office.service.line.waiting == 1)

    await office.service.background.drain(0)

    with pytest.raises(OverloadedError, match="stop"):
        await waiting
    assert office.service.line.present == 0


async def test_a_run_of_an_agent_that_is_gone_is_left_as_it_is(tmp_path: Path) -> None:
    # law 4: nothing is granted to it now, and its log is not to say so call by call
    tools = Slow()
    office = Office(tmp_path, tools=tools)
    run_id = await office.start()
    await tools.reached.wait()
    await office.service.background.drain(0)
    before = await office.types(run_id)
    office.service.line.closed = False
    office.config = replace(office.config, agents={})

    async with resuming(office) as resumer:
        await until_found(resumer)
    with pytest.raises(UsageError, match="nothing is granted to it now"):
        await office.service.resume(ANN, run_id)

    assert await office.types(run_id) == before
    assert office.service.line.present == 0


async def test_a_run_goes_on_with_private_variables_of_the_configuration(
    tmp_path: Path,
) -> None:
    tools = Slow()
    hidden = ContextVar(private=True, caller=True)
    office = Office(tmp_path, tools=tools, context={"key": hidden})
    run_id = await office.service.submit(
        ANN, Submission(agent="weather", variables={"key": "a secret word"})
    )
    await tools.reached.wait()
    await office.service.background.drain(0)
    office.service.line.closed = False
    required = {"key": ContextVar(private=True, required=True)}
    office.config = replace(office.config, context=required)

    with pytest.raises(UsageError, match="'key' is required"):
        await office.service.resume(ANN, run_id)

    known = {"key": ContextVar(private=True, default="another word")}
    office.config = replace(office.config, context=known)
    async with resuming(office) as resumer:
        await until_found(resumer)
    assert await office.done(run_id) == "suspended"
    assert (await office.types(run_id))[-2:] == ["RunResumed", "RunSuspended"]


async def test_a_run_of_an_agent_that_is_not_ones_own_any_more_stays(
    tmp_path: Path,
) -> None:
    # law 4
    office = Office(tmp_path, tools=Slow())
    run_id = await office.start()
    await office.service.background.drain(0)
    office.service.line.closed = False

    with pytest.raises(ForbiddenError, match="agent"):
        await office.service.resume(who("ann", agents=("bank*",)), run_id)

    assert await office.done(run_id) == "suspended"
    assert office.service.line.present == 0
