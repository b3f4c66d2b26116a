"""A run of an agent is a task: of both revisions that have tasks, on a real port."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from mcp import Client

from caxton_host.config.model import TaskSupport
from caxton_host.core.calls import JSON
from caxton_host.core.grants.approvals import Approve
from caxton_host.core.grants.grants import Grant
from caxton_host.core.grants.principals import Principal
from caxton_host.core.log.events import RunCancelled, RunStarted
from caxton_host.ports.sandbox import Door, Ending, Guest
from caxton_host.web.mcp.agents import RUN_ID
from caxton_host.web.mcp.tasks import (
    EXTENSION,
    LONGEST_TTL_MS,
    RELATED,
    SHORTEST_TTL_MS,
    TTL_MS,
)
from tests.integration.serving.clients import serving
from tests.integration.serving.rpc import (
    DATED,
    MODERN,
    Refused,
    Rpc,
    TasksExtension,
    rpc,
)
from tests.office import ANN, BOB, BOSS, Office, Slow
from tests.scene import ended, rule

UNKNOWN_METHOD, INVALID, LACKING, MISMATCH = -32601, -32602, -32021, -32020
NOBODYS = "018bcfe5-6800-7c5a-9f9b-000000000000"
_NO_TEXTS: tuple[JSON, ...] = (None, 1, [], {})
both = pytest.mark.parametrize("revision", [DATED, MODERN])


@asynccontextmanager
async def desk(
    office: Office, revision: str = DATED, who: Principal = ANN, body: int = 10_000
) -> AsyncGenerator[Rpc]:
    async with (
        serving(office.service, who, body=body) as url,
        rpc(url, revision) as ask,
    ):
        yield ask


async def over(ask: Rpc, task: str) -> dict[str, Any]:
    """Return a task once it has ended."""
    async with asyncio.timeout(20):
        while True:
            found: dict[str, Any] = await ask("tasks/get", taskId=task)
            if found["status"] not in {"working", "input_required"}:
                return found
            await asyncio.sleep(0.01)


def exposed(office: Office, **more: JSON) -> None:
    agent = office.config.agents["weather"]
    agent = replace(agent, expose=replace(agent.expose, **more))  # type: ignore[arg-type]  # of `Expose`
    office.config = replace(office.config, agents={"weather": agent})


def asking(folder: Path) -> Office:
    wanting = replace(rule("demo/*"), approve=Approve(by=("ops",)))
    return Office(folder, grant=Grant(allow=(wanting,)))


OPS = replace(BOSS, roles=("ops",))


async def refusal(call: Awaitable[object]) -> Refused:
    with pytest.raises(Refused) as refused:
        await call
    return refused.value


async def code(call: Awaitable[object]) -> int:
    return (await refusal(call)).code


@both
async def test_a_call_is_at_once_a_task_whose_id_is_the_run(
    tmp_path: Path, revision: str
) -> None:  # law 3
    tools = Slow()
    office = Office(tmp_path, tools=tools)
    async with desk(office, revision) as ask:
        task = await ask.begin("sky", arguments={"city": "Oslo"})
        run_id = task["taskId"]
        started = (await office.scene.store.reader.read(f"run/{run_id}"))[0].event
        assert isinstance(started, RunStarted)
        assert (started.actor, started.input) == (ANN.actor, {"city": "Oslo"})
        assert task["status"] == "working"
        assert (await ask("tasks/get", taskId=run_id))["status"] == "working"
        tools.let.set()
        assert (await over(ask, run_id))["status"] == "completed"


@both
async def test_its_result_is_that_of_the_call(tmp_path: Path, revision: str) -> None:
    async with desk(Office(tmp_path), revision) as ask:
        plain = await replace(ask, can=False)("tools/call", name="sky")
        key = (await ask.begin("sky"))["taskId"]
        ended = await over(ask, key)
        if revision == DATED:
            result = await ask("tasks/result", taskId=key)
            assert result["_meta"].pop(RELATED) == {"taskId": key}
        else:
            result = ended["result"]
            plain["_meta"].pop("io.modelcontextprotocol/serverInfo")

    assert plain["_meta"].pop(RUN_ID) != result["_meta"].pop(RUN_ID) == key
    assert result == plain


async def test_a_result_is_waited_for(tmp_path: Path) -> None:
    tools = Slow()
    office = Office(tmp_path, tools=tools)
    async with desk(office) as ask:
        key = (await ask.begin("sky"))["taskId"]
        waiting = asyncio.create_task(ask("tasks/result", taskId=key))
        await tools.reached.wait()
        assert not waiting.done()
        tools.let.set()
        assert (await waiting)["structuredContent"] == {"sky": "clear"}


@both
async def test_a_task_says_whose_approval_it_waits_for_and_goes_on_with_it(
    tmp_path: Path, revision: str
) -> None:
    office = asking(tmp_path)
    async with desk(office, revision) as ask:
        key = (await ask.begin("sky"))["taskId"]
        assert await office.done(key) == "suspended"
        found = await ask("tasks/get", taskId=key)
        # In the extension, input is what the client gives.
        waits = "input_required" if revision == DATED else "working"
        assert found["status"] == waits
        assert "waits for the approval of ops" in found["statusMessage"]
        asked = []
        if revision == DATED:
            asked = [asyncio.create_task(ask("tasks/result", taskId=key))]

        await office.service.decide(OPS, key, None, "approve", "fine")
        await office.service.resume(ANN, key)
        assert (await over(ask, key))["status"] == "completed"
        for one in asked:
            assert (await one)["structuredContent"] == {"sky": "clear"}


@both
async def test_cancelling_a_task_cancels_its_run(tmp_path: Path, revision: str) -> None:
    office = Office(tmp_path, tools=Slow())
    async with desk(office, revision) as ask:
        key = (await ask.begin("sky"))["taskId"]
        told = await ask("tasks/cancel", taskId=key)
        last = (await office.scene.store.reader.read(f"run/{key}"))[-1].event
        assert isinstance(last, RunCancelled)
        assert last.actor == ANN.actor
        assert (await ask("tasks/get", taskId=key))["status"] == "cancelled"
        again = ask("tasks/cancel", taskId=key)
        if revision == MODERN:
            assert (await again)["resultType"] == told["resultType"] == "complete"
            assert "taskId" not in told
        else:
            assert told["status"] == "cancelled"
            assert await code(again) == INVALID
            result = await ask("tasks/result", taskId=key)
            assert "was cancelled" in result["content"][0]["text"]


@both
@pytest.mark.parametrize("steps", [0, 1, 5, 20])
async def test_a_cancellation_and_an_end_at_once_leave_one_of_them(
    tmp_path: Path, revision: str, steps: int
) -> None:
    tools = Slow()
    office = Office(tmp_path, tools=tools)
    async with desk(office, revision) as ask:
        key = (await ask.begin("sky"))["taskId"]
        await tools.reached.wait()
        cancelling = asyncio.create_task(ask("tasks/cancel", taskId=key))
        for _ in range(steps):
            await asyncio.sleep(0)
        tools.let.set()
        await asyncio.wait([cancelling])
        status = (await over(ask, key))["status"]
        if revision == DATED and status == "completed":
            assert await code(cancelling) == INVALID
        ends = [one for one in await office.types(key) if one.startswith("Run")]
    assert ends in (["RunStarted", "RunCompleted"], ["RunStarted", "RunCancelled"])
    assert (status == "completed") == (ends[-1] == "RunCompleted")


@both
@pytest.mark.parametrize(
    "other", [BOB, replace(ANN, tenant="acme"), replace(BOB, scopes=BOSS.scopes)]
)
async def test_a_task_of_another_principal_or_tenant_does_not_exist(
    tmp_path: Path, revision: str, other: Principal
) -> None:
    office = Office(tmp_path, tools=Slow())
    async with (
        desk(office, revision) as ask,
        desk(office, revision, who=other) as theirs,
    ):
        key = (await ask.begin("sky"))["taskId"]
        methods = ["tasks/get", "tasks/cancel"]
        methods += ["tasks/result"] if revision == DATED else ["tasks/update"]
        for method in methods:
            hidden, unknown = [
                await refusal(theirs(method, taskId=one)) for one in (key, NOBODYS)
            ]
            assert hidden == unknown
            assert hidden.code == INVALID
        if revision == DATED:
            assert (await theirs("tasks/list"))["tasks"] == []
        assert (await ask("tasks/get", taskId=key))["status"] == "working"


@pytest.mark.parametrize(
    ("asked", "given"),
    [(None, TTL_MS), (1, SHORTEST_TTL_MS), (70_000, 70_000), (10**15, LONGEST_TTL_MS)],
)
async def test_a_task_exists_for_its_ttl_and_the_run_for_longer(
    tmp_path: Path, asked: int | None, given: int
) -> None:
    office = Office(tmp_path)
    async with desk(office) as ask:
        task = await ask.begin("sky", ttl=asked)
        assert task["ttl"] == given
        key = task["taskId"]
        await over(ask, key)
        office.scene.clock.time += given * 1_000
        assert await code(ask("tasks/get", taskId=key)) == INVALID
        assert await code(ask("tasks/result", taskId=key)) == INVALID
        assert (await ask("tasks/list"))["tasks"] == []
    assert (await office.service.row(ANN, key)).state == "completed"


@pytest.mark.parametrize("ttl", [0, -1, "1", 1.5, [], True])
async def test_a_ttl_that_is_none_starts_no_run(tmp_path: Path, ttl: JSON) -> None:
    office = Office(tmp_path)
    async with desk(office) as ask:
        call = ask("tools/call", name="sky", task={"ttl": ttl})
        if ttl is True or ttl == "1":  # Read leniently, as the rest of the protocol.
            assert (await call)["task"]["ttl"] == SHORTEST_TTL_MS
            return
        assert await code(call) == INVALID
    assert await office.scene.store.reader.runs(1) == []


@both
@pytest.mark.parametrize(
    "key", ["", "x", "x" * 100_000, "%", "../..", "-" * 36, f"{NOBODYS}\n", "é", "\0"]
)
async def test_an_id_that_is_none_is_no_task(
    tmp_path: Path, revision: str, key: str
) -> None:
    async with desk(Office(tmp_path), revision, body=200_000) as ask:
        ask.named = revision == MODERN and key.isascii() and key.isprintable()
        wanted = {INVALID} if ask.named or revision == DATED else {INVALID, MISMATCH}
        for method in ("tasks/get", "tasks/cancel"):
            assert await code(ask(method, taskId=key)) in wanted
        for wrong in _NO_TEXTS:
            assert await code(ask("tasks/get", taskId=wrong)) in {INVALID, MISMATCH}


async def test_tasks_are_listed_in_pages_newest_first(tmp_path: Path) -> None:
    office = Office(tmp_path, places=64)
    mine: list[str] = []
    for n in range(45):
        office.scene.clock.time += 1_000_000 * (n % 3)  # Some begin at one time.
        await office.done(await office.start(BOB))
        mine.append(await office.start(ANN))
        await office.done(mine[-1])
    found: list[list[str]] = []
    async with desk(office) as ask:
        cursor: dict[str, str] = {}
        while True:
            page = await ask("tasks/list", **cursor)
            found.append([task["taskId"] for task in page["tasks"]])
            if "nextCursor" not in page:
                break
            cursor = {"cursor": page["nextCursor"]}
            assert (
                base64.urlsafe_b64decode(cursor["cursor"])
                .decode()
                .endswith(found[-1][-1])
            )
    assert [len(page) for page in found] == [20, 20, 5]
    rows = await office.scene.store.reader.runs(1_000)
    assert [*chain(*found)] == [row.run_id for row in rows if row.run_id in {*mine}]


@pytest.mark.parametrize("cursor", ["", "x", "é", "MSAx" * 10_000, "LTEgeA=="])
async def test_a_cursor_that_is_none_is_refused(tmp_path: Path, cursor: str) -> None:
    async with desk(Office(tmp_path), body=100_000) as ask:
        assert await code(ask("tasks/list", cursor=cursor)) == INVALID


async def test_a_page_ends_where_too_many_runs_of_others_are_in_between(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("caxton_host.web.mcp.agent_tasks._ROWS", 2)
    monkeypatch.setattr("caxton_host.web.mcp.agent_tasks._READS", 1)
    office = Office(tmp_path)
    mine = await office.start(ANN)
    await office.done(mine)
    others: list[str] = []
    for _ in range(4):
        office.scene.clock.time += 1
        others.append(await office.start(BOB))
        await office.done(others[-1])
    async with desk(office) as ask:
        page, found = await ask("tasks/list"), list[str]()
        while True:
            found += [task["taskId"] for task in page["tasks"]]
            if "nextCursor" not in page:
                break
            told = base64.urlsafe_b64decode(page["nextCursor"]).decode()
            assert not any(other in told for other in others)
            page = await ask("tasks/list", cursor=page["nextCursor"])
    assert found == [mine]


@pytest.mark.parametrize("revision", ["2024-11-05", "2025-03-26", "2025-06-18"])
async def test_older_revisions_have_no_tasks(tmp_path: Path, revision: str) -> None:
    async with desk(Office(tmp_path), revision) as ask:
        hello = await ask(
            "initialize",
            protocolVersion=revision,
            capabilities={},
            clientInfo={"name": "x", "version": "1"},
        )
        assert "tasks" not in hello["capabilities"]
        called = await ask("tools/call", name="sky", task={"ttl": 1})
        assert called["structuredContent"] == {"sky": "clear"}
        for method in ("get", "result", "cancel", "list", "update"):
            call = ask(f"tasks/{method}", taskId=called["_meta"][RUN_ID])
            assert await code(call) == UNKNOWN_METHOD


async def test_the_extension_is_for_clients_that_declare_it(tmp_path: Path) -> None:
    async with desk(Office(tmp_path), MODERN) as ask:
        told = (await ask("server/discover"))["capabilities"]
        assert told["extensions"] == {EXTENSION: {}}
        assert "tasks" not in told
        key = (await ask.begin("sky"))["taskId"]
        ask.can = False
        called = await ask("tools/call", name="sky", task={"ttl": 1})
        assert called["structuredContent"] == {"sky": "clear"}
        for method in ("get", "cancel", "update"):
            assert await code(ask(f"tasks/{method}", taskId=key)) == LACKING
        for method in ("list", "result"):
            assert await code(ask(f"tasks/{method}", taskId=key)) == UNKNOWN_METHOD


async def test_a_header_that_names_another_task_is_refused(tmp_path: Path) -> None:
    async with desk(Office(tmp_path), MODERN) as ask:
        key = (await ask.begin("sky"))["taskId"]
        ask.http.headers["mcp-name"] = NOBODYS
        ask.named = False
        assert await code(ask("tasks/get", taskId=key)) == MISMATCH
        del ask.http.headers["mcp-name"]
        assert await code(ask("tasks/get", taskId=key)) == MISMATCH


@pytest.mark.parametrize("support", ["required", "forbidden"])
@both
async def test_an_agent_may_only_or_never_be_called_as_a_task(
    tmp_path: Path, revision: str, support: TaskSupport
) -> None:
    office = Office(tmp_path)
    exposed(office, tasks=support)
    async with desk(office, revision) as ask:
        if revision == DATED:
            (tool,) = (await ask("tools/list"))["tools"]
            assert tool["execution"] == {"taskSupport": support}
        plain: dict[str, Any] = {"name": "sky", "arguments": {}}
        ask.can = False
        if support == "required":
            refused = await refusal(ask("tools/call", **plain))
            assert refused.code == (LACKING if revision == MODERN else UNKNOWN_METHOD)
            ask.can = True
            task = await ask.begin("sky")
            assert (await over(ask, task["taskId"]))["status"] == "completed"
        else:
            called = await ask("tools/call", **plain)
            key = called["_meta"][RUN_ID]
            ask.can = True
            assert await code(ask("tasks/get", taskId=key)) == INVALID
            if revision == DATED:
                assert await code(ask.begin("sky")) == UNKNOWN_METHOD
            else:
                again = await ask("tools/call", **plain)
                assert again["structuredContent"] == {"sky": "clear"}
    if support == "required":
        assert len(await office.scene.store.reader.runs(9)) == 1


def ending(how: Ending) -> Callable[[Door, Guest], Any]:
    async def script(door: Door, guest: Guest) -> Ending:
        del door, guest
        return how

    return script


@pytest.mark.parametrize(
    ("how", "dated", "modern", "said"),
    [
        (ended(code=1), "failed", "completed", "agent_error"),
        (Ending(kind="trap", message="unreachable"), "failed", "failed", "trap"),
    ],
)
@both
async def test_what_an_agent_says_is_a_result_and_what_ends_it_is_a_failure(  # noqa: PLR0913, PLR0917 -- parameters
    tmp_path: Path, revision: str, how: Ending, dated: str, modern: str, said: str
) -> None:
    async with desk(Office(tmp_path, script=ending(how)), revision) as ask:
        key = (await ask.begin("sky"))["taskId"]
        found = await over(ask, key)
        assert found["status"] == (dated if revision == DATED else modern)
        assert said in found["statusMessage"]
        if revision == DATED:
            assert (await ask("tasks/result", taskId=key))["isError"]
        elif modern == "failed":
            assert found["error"]["message"] == found["statusMessage"]
            assert found["error"]["data"]["_meta"][RUN_ID] == key
            assert "result" not in found
        else:
            assert found["result"]["isError"]


@both
async def test_a_call_that_starts_no_run_is_no_task(
    tmp_path: Path, revision: str
) -> None:
    office = Office(tmp_path)
    exposed(office, input_schema={"type": "object", "required": ["city"]})
    async with desk(office, revision) as ask:
        if revision == DATED:
            refused = await refusal(ask.begin("sky"))
            assert refused.code == INVALID
            assert "was not started" in refused.message
            assert await code(ask.begin("moon")) == INVALID
        else:
            assert (await ask("tools/call", name="sky"))["isError"]


@both
async def test_another_host_on_the_log_knows_the_task(
    tmp_path: Path, revision: str
) -> None:  # law 10
    office = Office(tmp_path, tools=Slow())
    async with desk(office, revision) as ask:
        key = (await ask.begin("sky"))["taskId"]
        await office.service.background.drain(0)
    other = Office(tmp_path)
    other.service.store = office.scene.store
    other.scene.host = other.service.host = replace(
        other.scene.host, store=office.scene.store
    )
    async with desk(other, revision) as ask:
        found = await ask("tasks/get", taskId=key)
        assert found["status"] == "working"
        assert "outcome is unknown: a person" in found["statusMessage"]


async def test_who_waits_for_a_result_is_told_that_the_host_stops(
    tmp_path: Path,
) -> None:
    office = asking(tmp_path)
    async with desk(office) as ask:
        key = (await ask.begin("sky"))["taskId"]
        waiting = asyncio.create_task(ask("tasks/result", taskId=key))
        await office.done(key)
        await office.service.background.drain(0)
        refused = await refusal(waiting)
    assert "about to stop" in refused.message


async def test_a_run_that_was_erased_is_no_task(tmp_path: Path) -> None:
    office = Office(tmp_path)
    async with desk(office) as ask:
        key = (await ask.begin("sky"))["taskId"]
        await over(ask, key)
        stream = office.scene.store.streams[f"run/{key}"]
        stream[:] = [replace(one, event=None) for one in stream]
        assert await code(ask("tasks/get", taskId=key)) == INVALID
        assert (await ask("tasks/list"))["tasks"] == []


# -- the official client --------------------------------------------------------


async def test_the_official_client_gets_the_result_of_a_task(tmp_path: Path) -> None:
    tools = Slow()
    office, extension = Office(tmp_path, tools=tools), TasksExtension()
    async with (
        serving(office.service) as url,
        Client(url, extensions=[extension]) as served,
    ):
        calling = asyncio.create_task(served.call_tool("sky", {"city": "Oslo"}))
        while not extension.polled:  # noqa: ASYNC110 -- or the test times out
            await asyncio.sleep(0.01)
        tools.let.set()
        result = await calling
    assert result.structured_content == {"sky": "clear"}
    assert (extension.polled[0], extension.polled[-1]) == ("working", "completed")
