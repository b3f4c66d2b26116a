"""What becomes of servers over time: what they say, how they fail, how they end."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from caxton_host.core.log.events import (
    BreakerClosed,
    BreakerOpened,
    Event,
    ServerConnected,
    ServerFailed,
    ServerLost,
    ServerRestarted,
)
from caxton_host.core.text.redact import Redactor
from caxton_host.core.tools.confinement import NOT_CONFINED, Confine
from caxton_host.core.tools.servers import (
    BreakerOptions,
    Rate,
    Restart,
    ServerConfig,
    ToolOptions,
)
from caxton_host.errors import ToolError
from caxton_host.mcp import McpTools
from caxton_host.mcp.health import ServerStatus
from caxton_host.ports.tools import RunScope

from .conftest import FAULTY, SECRET, Faulty, noted, processes, request, until
from .faulty_http import FaultyHttp

SCOPE = RunScope(run_id="0198", agent="a")


async def test_what_a_server_writes_for_people_is_kept_without_secrets(
    faulty: Faulty, tmp_path: Path
) -> None:
    # law 8
    folder = tmp_path / "logs"
    async with faulty("dies_at_start", logs=folder) as tools:
        await tools.offered(["faulty"])
    told = (folder / "faulty.log").read_text()
    assert "-- started: " in told
    assert "no luck, [redacted]" in told
    assert SECRET not in told


async def test_a_server_that_its_confinement_refuses_was_not_started(
    tmp_path: Path,
) -> None:
    confine = Confine(read=(str(tmp_path / "away"),))
    config = ServerConfig(name="a", command=(sys.executable,), confine=confine)
    logs = tmp_path / "logs"
    tools = McpTools({"a": config}, redact=Redactor(), logs=logs)
    async with tools, tools.open(SCOPE) as own:
        offered = await own.offered(["a"])
    assert "does not exist" in str(offered.servers)
    assert not logs.exists()


async def test_a_server_that_the_launcher_cannot_confine_is_a_refusal(
    faulty: Faulty, tmp_path: Path
) -> None:
    (tmp_path / "out").symlink_to(tmp_path)  # As a server may do while it runs.
    confine = Confine(write=(str(tmp_path / "out"),))
    tools = faulty("dies_at_start", confine=confine)
    async with tools, tools.open(SCOPE) as own:
        offered = await own.offered(["faulty"])
    assert isinstance(problem := offered.servers["faulty"], dict)
    assert str(problem["problem"]).startswith(NOT_CONFINED)


async def test_a_flood_on_standard_error_fills_no_disk_and_stops_no_call(
    faulty: Faulty, tmp_path: Path
) -> None:
    # attack 37
    async with faulty("floods_stderr", logs=tmp_path / "logs") as tools:
        assert (await tools.call_tool(request("act"))).message == "fine"
    assert "bytes left out" in (tmp_path / "logs" / "faulty.log").read_text()
    assert (tmp_path / "logs" / "faulty.log").stat().st_size < 1_000_000


async def test_a_server_that_keeps_failing_is_not_asked_for_a_while(
    faulty: Faulty, state: Path, events: list[Event]
) -> None:
    async with faulty(
        "dies_always",
        restart=Restart(backoff=0.01),
        breaker=BreakerOptions(failures=2, pause=0.3),
    ) as tools:
        for _ in range(3):
            with pytest.raises(ToolError):
                await tools.call_tool(request("act"))
        with pytest.raises(ToolError) as caught:
            await tools.call_tool(request("act"))
        assert (caught.value.kind, caught.value.sent) == ("transport", "no")
        assert "failed 2 times in a row" in str(caught.value)
        assert len(noted(state, "call act")) == 2
        await asyncio.sleep(0.4)
        assert (await tools.call_tool(request("echo"))).message == "fine"
    told = [one for one in events if isinstance(one, (BreakerOpened, BreakerClosed))]
    assert told == [
        BreakerOpened(server="faulty", failures=2),
        BreakerClosed(server="faulty"),
    ]


async def test_a_server_that_answers_is_asked_whatever_it_answers(
    faulty: Faulty,
) -> None:
    async with faulty("large", max_result=1000) as tools:
        for _ in range(7):
            with pytest.raises(ToolError) as caught:
                await tools.call_tool(request("act"))
            assert caught.value.kind == "too_large"


async def test_of_two_calls_one_finds_out_whether_a_server_answers_again(
    faulty: Faulty, state: Path
) -> None:
    async with faulty("late", breaker=BreakerOptions(failures=1, pause=0.01)) as tools:
        await tools.offered(["faulty"])
        gate = next(iter(tools._pool.values()))._gate
        gate.breaker.ended("failed", began=0, now=0)
        first = asyncio.create_task(tools.call_tool(request("act")))
        await until(lambda: noted(state, "call act"))
        with pytest.raises(ToolError, match="calls are refused for a while"):
            await tools.call_tool(request("echo"))
        assert (await first).message == "fine"
        assert (await tools.call_tool(request("echo"))).message == "fine"


async def test_calls_that_wait_for_a_place_learn_that_a_server_failed(
    faulty: Faulty, state: Path
) -> None:
    async with faulty(
        "killed", concurrency=1, breaker=BreakerOptions(failures=1, pause=60.0)
    ) as tools:
        await tools.offered(["faulty"])
        calls = [tools.call_tool(request("act")) for _ in range(3)]
        failed = await asyncio.gather(*calls, return_exceptions=True)
    assert [getattr(one, "sent", one) for one in failed] == ["unknown", "no", "no"]
    assert len(noted(state, "call act")) == 1


async def test_a_server_that_hangs_while_nobody_asks_it_is_started_again(
    faulty: Faulty, events: list[Event]
) -> None:
    async with faulty("hangs_later", health=0.05) as tools:
        assert (await tools.call_tool(request("act"))).message == "fine"
        await until(lambda: ServerRestarted(server="faulty", attempt=1) in events)
        assert (await tools.call_tool(request("act"))).message == "fine"
    lost = ServerLost(server="faulty", reason="the server does not answer")
    assert events.index(lost) == 1


@pytest.mark.parametrize("mode", ["drips", "stops_reading"])
async def test_a_server_that_hangs_in_a_call_is_started_again_while_calls_come(
    faulty: Faulty, events: list[Event], mode: str
) -> None:
    slow = {"act": ToolOptions(timeout=0.5)}
    async with faulty(mode, health=0.3, tools=slow) as tools:
        await tools.offered(["faulty"])
        ends: list[tuple[str, str]] = []
        for tool in ("act", "echo"):
            with pytest.raises(ToolError) as caught:
                await tools.call_tool(request(tool))
            ends.append((caught.value.kind, caught.value.sent))
        assert ends == [("timeout", "unknown"), ("transport", "unknown")]
        assert (await tools.call_tool(request("act"))).message == "fine"
    assert ServerLost(server="faulty", reason="the server does not answer") in events


async def test_a_server_that_keeps_one_call_waiting_for_another_is_let_alone(
    faulty: Faulty, events: list[Event]
) -> None:
    # It does one thing at a time, and says nothing for 0.5 s.
    quick = {"echo": ToolOptions(timeout=0.1)}
    async with faulty("late", health=0.05, tools=quick) as tools:
        await tools.offered(["faulty"])
        late = asyncio.create_task(tools.call_tool(request("act")))
        await asyncio.sleep(0.05)
        with pytest.raises(ToolError, match="in time"):
            await tools.call_tool(request("echo"))
        assert (await late).message == "fine"
    assert [type(event) for event in events] == [ServerConnected]


@pytest.mark.parametrize("mode", ["sound", "legacy"])
async def test_any_answer_is_a_sign_of_life(
    faulty: Faulty, state: Path, events: list[Event], mode: str
) -> None:
    # The old one answers a ping with an error.
    async with faulty(mode, health=0.02) as tools:
        await tools.offered(["faulty"])
        await until(lambda: mode == "sound" or len(noted(state, "told ping")) > 4)
        await asyncio.sleep(0.2)
        assert (await tools.call_tool(request("echo"))).message == "fine"
    assert [type(event) for event in events] == [ServerConnected]


async def test_a_server_at_work_is_let_alone(
    faulty: Faulty, events: list[Event]
) -> None:
    async with faulty("late", health=0.05) as tools:
        assert (await tools.call_tool(request("act"))).message == "fine"
    assert [type(event) for event in events] == [ServerConnected]


async def test_a_web_server_is_asked_as_well_if_that_is_wanted(
    events: list[Event],
) -> None:
    async with FaultyHttp("sound") as server:
        config = ServerConfig(name="web", url=server.url, transport="http", health=0.02)
        async with McpTools(
            {"web": config}, redact=Redactor(), on_event=events.append
        ) as tools:
            await tools.offered(["web"])
            await until(lambda: len(server.told("server/discover")) > 4)
            await server.stop()
            await until(lambda: len(events) == 2)
    assert isinstance(events[1], ServerLost)


async def test_calls_follow_one_another_no_faster_than_the_rate_of_a_server(
    faulty: Faulty, state: Path
) -> None:
    loop = asyncio.get_running_loop()
    rate = Rate(number=2, seconds=0.4)
    async with faulty("sound", rate=rate, timeout=10.0) as tools:
        await tools.offered(["faulty"])
        began = loop.time()
        await asyncio.gather(*(tools.call_tool(request("echo")) for _ in range(5)))
        assert loop.time() - began >= 0.6
    assert len(noted(state, "call echo")) == 5


async def test_a_call_that_would_be_too_late_is_not_made_and_holds_up_no_other(
    faulty: Faulty, state: Path
) -> None:
    rate = Rate(number=1, seconds=60.0)
    hurried = {"act": ToolOptions(timeout=10.0)}
    async with faulty("sound", rate=rate, tools=hurried, timeout=100.0) as tools:
        await tools.call_tool(request("echo"))
        with pytest.raises(ToolError, match="rate of the server") as caught:
            await tools.call_tool(request("act"))
        assert (caught.value.kind, caught.value.sent) == ("timeout", "no")
        gate = next(iter(tools._pool.values()))._gate
        for _ in range(3):
            waits = asyncio.create_task(tools.call_tool(request("echo")))
            await asyncio.sleep(0.01)
            waits.cancel()
            await asyncio.wait([waits])
        assert gate.breaker.failures == 0
        waits = asyncio.create_task(tools.call_tool(request("echo")))
        await asyncio.sleep(0.01)
        assert not waits.done()
        waits.cancel()
    assert len(noted(state, "call ")) == 1


@pytest.mark.parametrize("mode", ["without_tools", "legacy_without_tools"])
async def test_a_server_that_has_resources_alone_is_not_asked_for_tools(
    faulty: Faulty, state: Path, mode: str
) -> None:
    async with faulty(mode, required=True) as tools:
        offered = await tools.offered(["faulty"])
    assert offered.offers == ()
    assert offered.servers["faulty"]["name"] is not None
    assert noted(state, "listed") == []


@pytest.mark.parametrize(
    "mode", ["without_tools_of_no_use", "legacy_without_tools_of_no_use"]
)
async def test_a_server_without_a_capability_that_is_used_here_is_skipped(
    faulty: Faulty, caplog: pytest.LogCaptureFixture, mode: str
) -> None:
    async with faulty(mode) as tools:
        assert (await tools.offered(["faulty"])).offers == ()
    [line] = caplog.messages
    assert re.search("failed to initialize .*, skipping: no usable capability", line)


async def test_an_outage_is_told_and_recorded_once(
    faulty: Faulty, caplog: pytest.LogCaptureFixture, events: list[Event]
) -> None:
    async with faulty("dies_at_start", restart=Restart(backoff=0.01)) as tools:
        offered = [await tools.offered(["faulty"]) for _ in range(3)]
        [status] = tools.status()
    assert len(caplog.messages) == 1
    [event] = events
    assert isinstance(event, ServerFailed)
    assert "exit code 5; its last words: no luck, [redacted]" in event.reason  # law 8
    assert {one.servers["faulty"]["problem"] for one in offered} == {event.reason}
    assert (status.up, status.problem is None) == (False, False)


async def test_what_a_confined_server_ends_for_may_be_its_confinement(
    faulty: Faulty, caplog: pytest.LogCaptureFixture
) -> None:
    tools = faulty("dies_at_start", confine=Confine(memory=1024))
    async with tools, tools.open(SCOPE) as own:
        await own.offered(["faulty"])
    assert "the server was ended by SIG" in caplog.text
    assert "check command and confine of [servers.faulty]" in caplog.text


async def test_the_next_outage_is_told_and_recorded_as_well(
    caplog: pytest.LogCaptureFixture, events: list[Event]
) -> None:
    async with FaultyHttp() as server:
        config = ServerConfig(name="faulty", url=server.url, transport="http")
        async with McpTools(
            {"faulty": config}, redact=Redactor(), on_event=events.append
        ) as tools:
            for _ in range(2):
                await server.stop()
                assert (await tools.offered(["faulty"])).unlisted == ("faulty",)
                assert (await tools.offered(["faulty"])).unlisted == ("faulty",)
                await server.start()
                assert (await tools.offered(["faulty"])).unlisted == ()
                with suppress(ToolError):
                    await server.stop()
                    await tools.call_tool(request("echo"))  # finds that it is gone
    assert len(caplog.messages) == 2
    assert sum(isinstance(event, ServerFailed) for event in events) == 2


async def test_each_tool_is_told_once_by_both_its_names(
    faulty: Faulty, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "caxton_host")
    renamed = {"echo": ToolOptions(expose_as="again")}
    async with faulty("changes", tools=renamed) as tools:
        await tools.offered(["faulty"])
        await tools.call_tool(request("act"))
        await tools.offered(["faulty"])
    assert [line for line in caplog.messages if "registered" in line] == [
        "MCP: registered tool mcp__faulty__act (faulty/act)",
        "MCP: registered tool again (faulty/echo)",
    ]


async def test_a_server_tells_how_it_does(faulty: Faulty) -> None:
    async with faulty("changes", restart=Restart(enabled=False)) as tools:
        [before] = tools.status()
        assert (before.up, before.generation, before.latency_us) == (False, 0, None)
        await tools.call_tool(request("act"))
        await tools.offered(["faulty"])
        [now] = tools.status()
        assert now == ServerStatus(
            server="faulty",
            up=True,
            protocol="2026-07-28",
            latency_us=now.latency_us,
            restarts=0,
            disabled=False,
            breaker="closed",
            generation=2,
            tools=2,
            problem=None,
        )
        assert now.latency_us
    [after] = tools.status()
    assert (after.up, after.protocol, after.disabled) == (False, None, True)


def zombies() -> set[int]:
    """Return the children of this process that ended and were not asked how."""
    found = set[int]()
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            state, parent = entry.read_text().rpartition(")")[2].split()[:2]
            if state == "Z" and int(parent) == os.getpid():
                found.add(int(entry.parent.name))
    return found


def held() -> tuple[set[int], int, int]:
    """Return zombies, and the number of descriptors and of tasks."""
    descriptors = len([*Path("/proc/self/fd").iterdir()])
    return zombies(), descriptors, len(asyncio.all_tasks())


async def test_fifty_starts_and_ends_leave_nothing_behind(
    state: Path,
) -> None:
    # attack 37
    modes = (
        "sound",
        "grandchild",
        "grandchild_apart",
        "grandchild_of_dead",
        "dies_at_start",
    )

    async def cycle(number: int) -> None:
        mode, mark = modes[number % len(modes)], f"{state}-{number:04}"
        config = ServerConfig(
            name="faulty",
            command=(sys.executable, "-S", str(FAULTY), mode, mark),
            restart=Restart(enabled=False),
        )
        async with McpTools({"faulty": config}, redact=Redactor()) as tools:
            await tools.offered(["faulty"])
            if mode.startswith("grandchild"):
                # One that is just being started has no command line yet.
                await until(lambda: len(processes(mark)) == 2)
            with suppress(ToolError):
                await tools.call_tool(request("act"))
        await until(lambda: not processes(mark))  # A signal takes its time.

    async def cycles(first: int) -> None:
        for number in range(first, 50, 10):
            await cycle(number)

    await cycle(1000)
    before = held()
    await asyncio.gather(*map(cycles, range(10)))
    children, descriptors, threads = held()
    assert (children, threads) == (before[0], before[2])
    # What earlier tests left open may have been closed meanwhile.
    assert descriptors <= before[1]
