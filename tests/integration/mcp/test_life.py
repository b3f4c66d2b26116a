"""What becomes of servers over time: what they say, how they fail, how they end."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from caxton_host.core.events import BreakerClosed, BreakerOpened, Event
from caxton_host.core.servers import BreakerOptions, Restart
from caxton_host.errors import ToolError

from .conftest import SECRET, Faulty, noted, request, until


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


async def test_a_flood_on_standard_error_fills_no_disk_and_stops_no_call(
    faulty: Faulty, tmp_path: Path
) -> None:
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
        with pytest.raises(ToolError, match="not asked for a while"):
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
