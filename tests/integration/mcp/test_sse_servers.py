"""Servers over the transport of 2024: a stream of events, and an address for POSTs."""

from __future__ import annotations

import asyncio
import json
import os
import re
import resource
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import pytest
import uvicorn

from caxton_host.core.log.events import Event, ToolsChanged
from caxton_host.core.text.redact import Redactor
from caxton_host.core.tools.servers import Restart, ServerConfig, ToolOptions
from caxton_host.demo_server import sse_app
from caxton_host.errors import FailureKind, Sent, ToolError
from caxton_host.mcp import McpTools

from .conftest import SECRET, request, until
from .faults import SSE, SSE_SLOW
from .faulty_http import ASKED, FaultyHttp
from .faulty_sse import STARTS, FaultySse


class Scene(NamedTuple):
    tools: McpTools
    server: FaultySse
    events: list[Event]

    def names(self) -> list[str]:
        return [type(event).__name__ for event in self.events]

    async def failing(self, tool: str = "act") -> ToolError:
        with pytest.raises(ToolError) as caught:
            await self.tools.call_tool(request(tool))
        said = str(caught.value)
        assert SECRET not in said  # law 8
        assert said.isprintable()
        return caught.value

    async def works(self, tool: str = "act") -> bool:
        return (await self.tools.call_tool(request(tool))).message == "fine"


@asynccontextmanager
async def scene(mode: str = "sound", **options: Any) -> AsyncGenerator[Scene]:  # noqa: ANN401
    events: list[Event] = []
    given: dict[str, Any] = {
        "timeout": 10.0,
        "headers": {"authorization": SECRET},
    } | options
    async with FaultySse(mode, secret=SECRET) as server:
        config = ServerConfig(name="faulty", url=server.url, transport="sse", **given)
        async with McpTools(
            {"faulty": config}, redact=Redactor([SECRET]), on_event=events.append
        ) as tools:
            yield Scene(tools, server, events)


# -- a real server -------------------------------------------------------------


@asynccontextmanager
async def sdk_server() -> AsyncGenerator[str]:
    config = uvicorn.Config(sse_app(), log_level="error", ws="none")
    server = uvicorn.Server(config)
    with socket.socket(proto=socket.IPPROTO_TCP) as listening:
        listening.bind(("127.0.0.1", 0))
        serving = asyncio.create_task(server.serve([listening]))
        await until(lambda: server.started)
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/sse"
        server.should_exit = True
        await serving


async def test_a_server_of_the_official_sdk_answers_over_sse() -> None:
    async with sdk_server() as url:
        config = ServerConfig(name="old", url=url, transport="sse")
        async with McpTools({"old": config}, redact=Redactor()) as tools:
            offered = await tools.offered(["old"])
            assert len(offered.offers) == 9
            about = offered.servers["old"]
            assert (about["transport"], about["name"]) == ("sse", "caxton-demo")
            assert about["address"] == url
            weather = await tools.call_tool(
                request("get_weather", {"location": "Seattle"}, server="old")
            )
            assert weather.message == "Seattle: 12 °C, rain"
            wrong = await tools.call_tool(request("echo", {"txt": "?"}, server="old"))
            assert wrong.is_error
            large = request("large", {"bytes": 900_000}, server="old")
            assert len((await tools.call_tool(large)).message) == 900_000
            texts = [f"höhe {number}" for number in range(40)]
            said = await asyncio.gather(
                *(
                    tools.call_tool(request("echo", {"text": text}, server="old"))
                    for text in texts
                )
            )
            assert [answer.message for answer in said] == texts


async def test_every_request_says_what_the_operator_wants_and_the_first_greets() -> (
    None
):
    given = {"authorization": f"Bearer {SECRET}", "accept": "text/html"}
    async with scene(headers=given) as it:
        assert await it.works("echo")
        assert await it.works("echo")
        stream, *posts = it.server.asked
        assert stream.verb == "GET"
        assert stream.headers["accept"] == "text/event-stream"
        assert {post.verb for post in posts} == {"POST"}
        assert {post.path for post in posts} == {"/post?session=s1"}
        for asked in it.server.asked:
            assert asked.headers["authorization"] == f"Bearer {SECRET}"
            assert asked.headers["accept-encoding"] == "identity"
        methods = [post.message["method"] for post in posts]
        first = ["initialize", "notifications/initialized", "tools/list"]
        assert methods == [*first, "tools/call", "tools/call"]
        assert posts[-1].headers["mcp-protocol-version"] == "2024-11-05"


# -- before the first request --------------------------------------------------


@pytest.mark.parametrize("mode", STARTS)
async def test_a_stream_that_begins_wrong_is_a_server_that_is_down(mode: str) -> None:
    # attack 35: nothing but the address that was configured is asked.
    # Only a server that never begins takes all of its time.
    patience = 1.0 if "within" in STARTS[mode] else 20.0
    async with FaultyHttp() as other, scene(mode, start_timeout=patience) as it:
        it.server.elsewhere = other.url
        assert (await it.tools.offered(["faulty"])).offers == ()
        problem = it.tools.problem("faulty")
        assert other.asked == []
        assert [asked.verb for asked in it.server.asked] == ["GET"]
    assert problem is not None
    assert re.search(STARTS[mode], str(problem))
    assert SECRET not in str(problem)  # law 8
    assert "url and headers of [servers.faulty]" in problem.fix


async def test_nobody_at_the_address_is_never_sent() -> None:
    async with scene(restart=Restart(backoff=0.05)) as it:
        await it.server.stop()
        errors = [await it.failing("echo") for _ in range(2)]
        assert {(e.kind, e.sent) for e in errors} == {("transport", "no")}
        await it.server.start()
        assert await it.works()


async def test_a_connection_that_does_not_come_up_in_time_is_not_waited_for() -> None:
    # A server that accepts nobody: its queue is full.
    full = socket.socket(proto=socket.IPPROTO_TCP)
    full.bind(("127.0.0.1", 0))
    full.listen(0)
    waiting: list[socket.socket] = []
    for _ in range(4):
        one = socket.socket()
        one.setblocking(False)  # noqa: FBT003 -- the standard library's
        one.connect_ex(full.getsockname())
        waiting.append(one)
    config = ServerConfig(
        name="full",
        url=f"http://127.0.0.1:{full.getsockname()[1]}/",
        transport="sse",
        connect_timeout=0.2,
    )
    async with McpTools({"full": config}, redact=Redactor()) as tools:
        began = asyncio.get_running_loop().time()
        assert (await tools.offered(["full"])).offers == ()
        assert asyncio.get_running_loop().time() - began < 5
        assert "cannot connect to 127.0.0.1 in time" in str(tools.problem("full"))
    for one in (*waiting, full):
        one.close()


# -- faults --------------------------------------------------------------------


@pytest.mark.parametrize(("mode", "kind", "sent"), SSE)
async def test_a_fault_fails_its_call_at_once_and_the_next_one_works(
    mode: str, kind: FailureKind, sent: Sent
) -> None:
    # law 9: at once, not at the deadline
    async with (
        scene(mode, timeout=60.0) as it,
        FaultyHttp() as other,
        asyncio.timeout(20),
    ):
        it.server.elsewhere = other.url
        await it.tools.offered(["faulty"])
        bad = await it.failing()
        assert (bad.kind, bad.sent) == (kind, sent)
        assert await it.works("echo")
        assert await it.works()
        assert other.asked == []


@pytest.mark.parametrize("mode", SSE_SLOW)
async def test_a_call_ends_at_its_deadline_however_slow_the_answer(mode: str) -> None:
    # attack 32
    options = {"act": ToolOptions(timeout=0.3)}
    async with scene(mode, timeout=60.0, tools=options) as it:
        await it.tools.offered(["faulty"])
        began = asyncio.get_running_loop().time()
        bad, good = await asyncio.gather(it.failing(), it.works("echo"))
        took = asyncio.get_running_loop().time() - began
        assert (bad.kind, bad.sent) == ("timeout", "unknown")
        assert good
        assert 0.3 <= took < 30  # and not the 60 of the server
        await until(lambda: it.server.told("notifications/cancelled"))
        # The late answer is nobody's (attack 33).
        await asyncio.sleep(0.3 if mode == "late" else 0)
        assert await it.works()
        assert it.names() == ["ServerConnected"]


async def test_a_late_answer_that_is_too_large_fails_no_later_call() -> None:
    options = {"act": ToolOptions(timeout=0.2)}
    async with scene("late_and_large", timeout=60.0, tools=options) as it:
        await it.tools.offered(["faulty"])
        assert (await it.failing()).kind == "timeout"
        assert await it.works("echo")
        assert it.names() == ["ServerConnected"]


@pytest.mark.parametrize("mode", ["large", "status 401", "closes", "deep_answer"])
async def test_a_fault_leaves_the_calls_beside_it_alone(mode: str) -> None:
    async with scene(mode, timeout=30.0) as it:
        await it.tools.offered(["faulty"])
        beside = [asyncio.create_task(it.works("echo")) for _ in range(8)]
        await it.failing()
        assert all(await asyncio.gather(*beside))
        assert it.names() == ["ServerConnected"]


async def test_the_memory_for_an_oversized_event_is_bounded() -> None:
    # attack 31: a line of 40 MiB, an event without an end
    for mode in ("long_line", "long_event"):
        async with scene(mode, timeout=60.0) as it:
            await it.tools.offered(["faulty"])
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            await it.failing()
            grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
            assert grown < 16 * 1024


async def test_an_answer_over_max_result_is_too_large() -> None:
    async with scene(max_result=1000) as it:
        with pytest.raises(ToolError, match="of 1000 allowed") as caught:
            await it.tools.call_tool(request("echo", {"text": "x" * 2000}))
        assert (caught.value.kind, caught.value.sent) == ("too_large", "yes")
        assert await it.works("echo")


@pytest.mark.parametrize("mode", ["string_id", "twice"])
async def test_what_can_be_understood_is_an_answer(mode: str) -> None:
    async with scene(mode) as it:
        assert await it.works()
        assert await it.works()


async def test_posts_that_are_never_answered_do_not_pile_up() -> None:
    # law 9
    async with scene("mute") as it, asyncio.timeout(20):
        for _ in range(15):
            assert all(await asyncio.gather(*(it.works("echo") for _ in range(16))))
            assert it.server.connections <= 64 + 2 * 16
        await until(lambda: it.server.gone > 15 * 16 - 64 - 16)


async def test_a_server_hears_that_nobody_waits_any_more() -> None:
    async with scene("never") as it:
        call = asyncio.create_task(it.tools.call_tool(request("act")))
        await until(lambda: it.server.told("tools/call"))
        number = it.server.asked[-1].message["id"]
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        await until(lambda: it.server.told("notifications/cancelled"))
        [params] = it.server.told("notifications/cancelled")
        assert params["requestId"] == number


async def test_a_stream_that_breaks_leaves_what_waits_in_doubt_and_is_made_anew() -> (
    None
):
    async with scene("never") as it:
        waiting = asyncio.create_task(it.failing())
        await until(lambda: it.server.told("tools/call"))
        it.server.hang_up()
        error = await waiting
        assert (error.kind, error.sent) == ("transport", "unknown")
        await until(lambda: it.server.streams == 0)
        # No stream is asked for before somebody needs it.
        await asyncio.sleep(0.1)
        assert len([a for a in it.server.asked if a.verb == "GET"]) == 1
        assert await it.works("echo")
        assert it.server.streams == 1
    assert it.names() == ["ServerConnected", "ServerLost", "ServerConnected"]


async def test_a_forgotten_session_fails_as_never_sent_and_is_made_anew() -> None:
    async with scene() as it:
        assert await it.works()
        it.server.forget()
        error = await it.failing("echo")
        assert (error.kind, error.sent) == ("transport", "no")
        assert await it.works("echo")
    assert it.names() == ["ServerConnected", "ServerLost", "ServerConnected"]


async def test_a_session_refused_with_400_is_made_anew_too() -> None:
    async with scene("session_400") as it:
        error = await it.failing()
        assert (error.kind, error.sent) == ("protocol", "yes")
        assert (await it.failing()).sent == "no"
        assert await it.works()


async def test_a_flood_of_notices_slows_the_server_and_not_the_host() -> None:
    # attack 34
    async with scene("floods", timeout=30.0) as it:
        await it.tools.offered(["faulty"])
        began = asyncio.get_running_loop().time()
        assert await it.works()
        assert asyncio.get_running_loop().time() - began > 1


async def test_requests_of_a_server_are_refused() -> None:
    # attack 34: the host lends a server nothing.
    async with scene("asks") as it:
        answers = json.loads((await it.tools.call_tool(request("act"))).message)
    found = {answer["id"]: answer for answer in answers}
    assert found.pop("ping")["result"] == {}
    assert set(found) == set(ASKED)
    assert {answer["error"]["code"] for answer in found.values()} == {-32601}


async def test_a_changed_definition_is_never_called() -> None:
    async with scene("changes") as it:
        shown = (await it.tools.offered(["faulty"])).offers[0]
        pinned = request("act", pin=shown.definition_sha256)
        assert (await it.tools.call_tool(pinned)).message == "fine"
        with pytest.raises(ToolError) as caught:
            await it.tools.call_tool(pinned)
    assert (caught.value.kind, caught.value.sent) == ("changed", "no")
    assert [e.changed for e in it.events if isinstance(e, ToolsChanged)] == [("act",)]


async def test_nothing_is_left_open_when_the_host_ends() -> None:
    descriptors = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 -- counts itself too
    tasks = asyncio.all_tasks()
    async with FaultySse("never") as server:
        config = ServerConfig(name="web", url=server.url, transport="sse")
        async with McpTools({"web": config}, redact=Redactor()) as tools:
            call = asyncio.create_task(tools.call_tool(request("act", server="web")))
            await until(lambda: server.told("tools/call"))
        with pytest.raises(ToolError) as caught:
            await call
        assert (caught.value.kind, caught.value.sent) == ("transport", "unknown")
        await until(lambda: server.streams == 0)
    await until(lambda: asyncio.all_tasks() == tasks)
    assert len(os.listdir("/proc/self/fd")) <= descriptors  # noqa: PTH208
