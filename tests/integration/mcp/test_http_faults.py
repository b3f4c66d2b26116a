"""A server over HTTP may do what it likes: one call fails, and the next one works."""

from __future__ import annotations

import asyncio
import json
import resource
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import pytest

from caxton_host.core.log.events import Event, ToolsChanged
from caxton_host.core.text.redact import Redactor
from caxton_host.core.tools.servers import (
    BreakerOptions,
    Restart,
    ServerConfig,
    ToolOptions,
)
from caxton_host.errors import FailureKind, Sent, ToolError
from caxton_host.mcp import McpTools

from .conftest import SECRET, request, until
from .faults import HTTP, HTTP_SLOW
from .faulty_http import ASKED, FaultyHttp

MODERN_AND_LEGACY = pytest.mark.parametrize("legacy", [False, True])


class Scene(NamedTuple):
    tools: McpTools
    server: FaultyHttp
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
async def scene(
    mode: str = "sound",
    *,
    legacy: bool = False,
    **options: Any,  # noqa: ANN401
) -> AsyncGenerator[Scene]:
    events: list[Event] = []
    given: dict[str, Any] = {
        "timeout": 10.0,
        "headers": {"authorization": SECRET},
    } | options
    async with FaultyHttp(mode, legacy=legacy, secret=SECRET) as server:
        config = ServerConfig(name="faulty", url=server.url, transport="http", **given)
        async with McpTools(
            {"faulty": config}, redact=Redactor([SECRET]), on_event=events.append
        ) as tools:
            yield Scene(tools, server, events)


@MODERN_AND_LEGACY
@pytest.mark.parametrize(("mode", "kind", "sent"), HTTP)
async def test_a_fault_fails_its_own_call_at_once_and_no_other(
    mode: str, kind: FailureKind, sent: Sent, *, legacy: bool
) -> None:
    # attacks 33 and 35
    # law 9: at once, not at the deadline
    async with (
        scene(mode, legacy=legacy, timeout=60.0) as it,
        FaultyHttp() as other,
        asyncio.timeout(20),
    ):
        it.server.elsewhere = other.url
        await it.tools.offered(["faulty"])
        bad, good = await asyncio.gather(it.failing(), it.works("echo"))
        assert (bad.kind, bad.sent) == (kind, sent)
        assert good
        assert await it.works()
        assert other.asked == []
        status = mode.partition(" ")[2]
        assert status in str(bad) or mode.startswith("refuses")


async def test_the_memory_for_an_oversized_answer_is_bounded() -> None:
    # attack 31: a line of 40 MiB, a body without an end, a bomb of 50 MB
    for mode in ("long_line", "unsized", "gzip"):
        async with scene(mode, timeout=60.0) as it:
            await it.tools.offered(["faulty"])
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            await it.failing()
            grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
            # The bomb itself is made in this process.
            assert grown < 16 * 1024 or mode == "gzip"


async def test_an_answer_over_max_result_is_too_large() -> None:
    async with scene(max_result=1000) as it:
        with pytest.raises(ToolError, match="of 1000 allowed") as caught:
            await it.tools.call_tool(request("echo", {"text": "x" * 2000}))
        assert (caught.value.kind, caught.value.sent) == ("too_large", "yes")
        fits = await it.tools.call_tool(request("echo", {"text": "x" * 500}))
    assert fits.bytes > 500


@MODERN_AND_LEGACY
@pytest.mark.parametrize("mode", HTTP_SLOW)
async def test_a_call_ends_at_its_deadline_however_slow_the_answer(
    mode: str, *, legacy: bool
) -> None:
    # attack 32
    options = {"act": ToolOptions(timeout=0.3)}
    async with scene(mode, legacy=legacy, timeout=60.0, tools=options) as it:
        await it.tools.offered(["faulty"])
        began = asyncio.get_running_loop().time()
        bad, good = await asyncio.gather(it.failing(), it.works("echo"))
        took = asyncio.get_running_loop().time() - began
        assert (bad.kind, bad.sent) == ("timeout", "unknown")
        assert good
        assert 0.3 <= took < 30  # and not the 60 of the server
        await until(lambda: it.server.gone == 1)
        # The late answer has no connection left to come over (attack 33).
        assert await it.works()
        assert it.names() == ["ServerConnected"]


@MODERN_AND_LEGACY
async def test_a_server_hears_that_nobody_waits_any_more(*, legacy: bool) -> None:
    async with scene("never", legacy=legacy) as it:
        call = asyncio.create_task(it.tools.call_tool(request("act")))
        await until(lambda: it.server.told("tools/call"))
        number = it.server.asked[-1].message["id"]
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        await until(lambda: it.server.gone == 1)
        if legacy:
            await until(lambda: it.server.told("notifications/cancelled"))
            [params] = it.server.told("notifications/cancelled")
            assert params["requestId"] == number
        else:
            # Since 2026 the closed connection is the word for it.
            assert it.server.told("notifications/cancelled") == []


@pytest.mark.parametrize("mode", ["string_id", "twice", "wrong_id_first"])
async def test_what_can_be_understood_is_an_answer(mode: str) -> None:
    async with scene(mode) as it:
        assert await it.works()
        assert await it.works()


async def test_an_answer_that_breaks_off_where_it_may_is_asked_for_again() -> None:
    async with scene("polls", legacy=True) as it:
        answer = await it.tools.call_tool(request("act"))
        [again] = [asked for asked in it.server.asked if asked.verb == "GET"]
    assert answer.message == "later"
    assert again.headers["last-event-id"] == "one"
    assert again.headers["mcp-session-id"]


async def test_no_stream_is_opened_where_no_changes_are_told() -> None:
    for legacy in (False, True):
        async with scene(legacy=legacy) as it:
            assert await it.works()
            assert {asked.verb for asked in it.server.asked} == {"POST"}


async def test_a_flood_of_notices_slows_the_server_and_not_the_host() -> None:
    # attacks 28 and 34
    async with scene("floods", timeout=30.0) as it:
        await it.tools.offered(["faulty"])
        began = asyncio.get_running_loop().time()
        flood = asyncio.create_task(it.works())
        assert await it.works("echo")
        assert not flood.done()
        assert await flood
        assert asyncio.get_running_loop().time() - began > 1


async def test_requests_of_a_server_are_refused() -> None:
    # attack 34: the host lends a server nothing.
    async with scene("asks", legacy=True) as it:
        answers = json.loads((await it.tools.call_tool(request("act"))).message)
    found = {answer["id"]: answer for answer in answers}
    assert found.pop("ping")["result"] == {}
    assert set(found) == set(ASKED)
    assert {answer["error"]["code"] for answer in found.values()} == {-32601}


async def test_requests_of_a_server_break_a_protocol_that_has_none() -> None:
    async with scene("asks") as it:
        error = await it.failing()
        assert (error.kind, error.sent) == ("protocol", "yes")
        assert await it.works()


async def test_what_a_server_says_of_an_error_is_one_bounded_line() -> None:
    # attack 39
    async with scene("refuses 200") as it:
        said = str(await it.failing())
    assert r"bad [redacted] \x1b[31m\n/etc/shadow" in said
    assert len(said) < 5000


async def test_a_status_is_told_without_a_word_of_the_server() -> None:
    async with scene("status 403") as it:
        assert str(await it.failing()) == "the server answered 403 (Forbidden)"
    async with scene("status 599") as it:
        assert str(await it.failing()) == "the server answered 599"


async def test_nobody_at_the_address_is_never_sent() -> None:
    async with scene(restart=Restart(backoff=0.05)) as it:
        assert await it.works()
        await it.server.stop()
        errors = [await it.failing("echo") for _ in range(3)]
        assert {(e.kind, e.sent) for e in errors} == {("transport", "no")}
        await it.server.start()
        assert await it.works()
    assert it.names() == [
        "ServerConnected",
        "ServerLost",
        "ServerFailed",
        "ServerConnected",
    ]


async def test_a_server_may_be_away_for_as_long_as_it_likes() -> None:
    restart = Restart(backoff=0.01, max_restarts=1)
    for_ever = BreakerOptions(failures=0)
    async with scene(restart=restart, breaker=for_ever) as it:
        await it.server.stop()
        for _ in range(8):
            assert (await it.failing()).sent == "no"
        await it.server.start()
        assert await it.works()
        assert "ServerDisabled" not in it.names()


@MODERN_AND_LEGACY
async def test_a_restart_between_two_calls_goes_unnoticed_or_is_never_sent(
    *, legacy: bool
) -> None:
    async with scene(legacy=legacy) as it:
        assert await it.works()
        await it.server.stop()
        await it.server.start()
        if legacy:
            error = await it.failing()
            assert (error.kind, error.sent) == ("transport", "no")
        assert await it.works()


async def test_a_forgotten_session_fails_as_never_sent_and_is_made_anew() -> None:
    async with scene("never", legacy=True) as it:
        waiting = asyncio.create_task(it.failing())
        await until(lambda: it.server.told("tools/call"))
        it.server.forget()
        error = await it.failing("echo")
        assert (error.kind, error.sent) == ("transport", "no")
        assert await it.works("echo")
        # Whoever waits under the old session is left alone.
        assert not waiting.done()
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        sessions = {a.headers.get("mcp-session-id") for a in it.server.asked}
        assert len(sessions) == 3
    assert it.names() == ["ServerConnected", "ServerLost", "ServerConnected"]


async def test_each_call_under_a_forgotten_session_fails_as_never_sent() -> None:
    # law 2
    async with scene(legacy=True) as it:
        assert await it.works("echo")
        it.server.forget()
        errors = await asyncio.gather(*(it.failing("echo") for _ in range(5)))
        assert {(one.kind, one.sent) for one in errors} == {("transport", "no")}
        assert await it.works("echo")


async def test_a_session_refused_with_400_is_made_anew_too() -> None:
    async with scene("session_400", legacy=True) as it:
        error = await it.failing()
        assert (error.kind, error.sent) == ("protocol", "yes")
        assert await it.works()


async def test_a_broken_connection_makes_the_tools_be_listed_again() -> None:
    async with scene("closes") as it:
        shown = (await it.tools.offered(["faulty"])).offers[0]
        pinned = request("act", pin=shown.definition_sha256)
        it.server.schema = {"type": "object", "title": "another one"}
        await it.failing()
        with pytest.raises(ToolError) as caught:
            await it.tools.call_tool(pinned)
    assert (caught.value.kind, caught.value.sent) == ("changed", "no")


async def test_a_changed_definition_is_never_called() -> None:
    async with scene("changes") as it:
        shown = (await it.tools.offered(["faulty"])).offers[0]
        pinned = request("act", pin=shown.definition_sha256)
        assert (await it.tools.call_tool(pinned)).message == "fine"
        with pytest.raises(ToolError) as caught:
            await it.tools.call_tool(pinned)
    assert (caught.value.kind, caught.value.sent) == ("changed", "no")
    assert [e.changed for e in it.events if isinstance(e, ToolsChanged)] == [("act",)]
