"""Whatever a server does, its call ends as what it was, and the next one works."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from caxton_host.core.log.events import Event
from caxton_host.core.tools.servers import Restart, ToolOptions
from caxton_host.errors import FailureKind, Sent, ToolError
from caxton_host.mcp import McpTools

from .conftest import SECRET, Faulty, noted, processes, request, until
from .faults import STDIO_BAD, STDIO_BROKEN


async def failing(tools: McpTools, tool: str = "act") -> ToolError:
    with pytest.raises(ToolError) as caught:
        await tools.call_tool(request(tool))
    assert SECRET not in str(caught.value)  # law 8
    return caught.value


def names(events: list[Event]) -> list[str]:
    return [type(event).__name__ for event in events]


@pytest.mark.parametrize(("mode", "kind", "sent"), STDIO_BROKEN)
async def test_a_broken_connection_fails_the_call_at_once_and_is_rebuilt(
    faulty: Faulty, events: list[Event], mode: str, kind: FailureKind, sent: Sent
) -> None:
    # law 9: at once, not at the deadline
    async with faulty(mode, timeout=60.0) as tools:
        async with asyncio.timeout(20):
            error = await failing(tools)
            assert (error.kind, error.sent) == (kind, sent)
            again = await tools.call_tool(request("act"))
    assert again.message == "fine"
    assert names(events) == [
        "ServerConnected",
        "ServerLost",
        "ServerRestarted",
        "ServerConnected",
    ]


@pytest.mark.parametrize(("mode", "kind", "sent"), STDIO_BAD)
async def test_a_bad_answer_fails_its_own_call_and_no_other(
    faulty: Faulty, events: list[Event], mode: str, kind: FailureKind, sent: Sent
) -> None:
    async with faulty(mode, timeout=60.0) as tools, asyncio.timeout(20):
        bad, good = await asyncio.gather(
            failing(tools), tools.call_tool(request("echo", {"text": "hello"}))
        )
        assert (bad.kind, bad.sent) == (kind, sent)
        assert good.message == "hello"
    assert names(events) == ["ServerConnected"]


@pytest.mark.parametrize("mode", ["huge_line", "endless"])
async def test_the_memory_for_an_oversized_line_is_bounded(
    faulty: Faulty, mode: str
) -> None:
    # attacks 31 and 37: a line of 100 MB, and one without an end
    async with faulty(mode, timeout=60.0) as tools:
        await tools.offered(["faulty"])
        before = new_peak()
        assert (await failing(tools)).kind == "too_large"
        assert peak() - before < 16 * 1024


def new_peak() -> int:
    """Forget the old one."""
    Path("/proc/self/clear_refs").write_text("5", "ascii")
    return peak()


def peak() -> int:
    """Return the most KiB that this process had in memory."""
    status = Path("/proc/self/status").read_text("utf-8")
    return int(status.partition("VmHWM:")[2].split()[0])


async def test_what_a_server_says_of_an_error_is_one_bounded_line(
    faulty: Faulty,
) -> None:
    # attack 39
    async with faulty("refuses") as tools:
        said = str(await failing(tools))
    assert said.startswith(r"bad [redacted] \x1b[31m\n/etc/shadow")
    assert said.isprintable()
    assert len(said) < 5000


async def test_an_answer_over_max_result_is_too_large(faulty: Faulty) -> None:
    async with faulty("sound", max_result=1000) as tools:
        with pytest.raises(ToolError, match="of 1000 allowed") as caught:
            await tools.call_tool(request("echo", {"text": "x" * 2000}))
        assert (caught.value.kind, caught.value.sent) == ("too_large", "yes")
        fits = await tools.call_tool(request("echo", {"text": "x" * 500}))
    assert fits.bytes > 500


@pytest.mark.parametrize("mode", ["never", "drips"])
async def test_no_answer_is_a_timeout_and_the_server_is_told(
    faulty: Faulty, state: Path, mode: str
) -> None:
    # attack 32
    async with faulty(mode, timeout=1.0) as tools:
        await tools.offered(["faulty"])
        error = await failing(tools)
        assert (error.kind, error.sent) == ("timeout", "unknown")
        if mode == "never":
            await tools.call_tool(request("echo"))
            assert noted(state, "told notifications/cancelled")


async def test_a_call_may_be_less_patient_than_its_server(faulty: Faulty) -> None:
    async with faulty("never", timeout=60.0) as tools, asyncio.timeout(20):
        await tools.offered(["faulty"])
        with pytest.raises(ToolError) as caught:
            await tools.call_tool(replace(request("act"), timeout=0.2))
    assert (caught.value.kind, caught.value.sent) == ("timeout", "unknown")


@pytest.mark.parametrize("mode", ["wrong_id", "null_id", "twice"])
async def test_an_answer_with_a_wrong_id_fails_no_call_beside_it(
    faulty: Faulty, events: list[Event], mode: str
) -> None:
    act = {"act": ToolOptions(timeout=0.3)}
    async with faulty(mode, timeout=60.0, tools=act) as tools, asyncio.timeout(20):
        await tools.offered(["faulty"])
        calls = [tools.call_tool(request(tool)) for tool in ("act", *["echo"] * 8)]
        acted, *others = await asyncio.gather(*calls, return_exceptions=True)
    assert [getattr(one, "message", one) for one in others] == ["fine"] * 8
    if mode != "twice":
        assert isinstance(acted, ToolError)
        assert (acted.kind, acted.sent) == ("timeout", "unknown")
    assert names(events) == ["ServerConnected"]


async def test_a_late_answer_is_dropped(faulty: Faulty, events: list[Event]) -> None:
    # attack 33
    async with faulty("late", timeout=0.4) as tools:
        await tools.offered(["faulty"])
        assert (await failing(tools)).kind == "timeout"
        await asyncio.sleep(0.3)
        answers = [await tools.call_tool(request("echo")) for _ in range(3)]
    assert [answer.message for answer in answers] == ["fine"] * 3
    assert names(events) == ["ServerConnected"]


async def test_a_cancelled_call_is_cancelled_at_the_server(
    faulty: Faulty, state: Path
) -> None:
    async with faulty("never") as tools:
        await tools.offered(["faulty"])
        call = asyncio.create_task(tools.call_tool(request("act")))
        await until(lambda: noted(state, "call act"))
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        await tools.call_tool(request("echo"))
    assert noted(state, "told notifications/cancelled")


async def test_a_call_that_could_not_be_written_was_not_sent(faulty: Faulty) -> None:
    async with faulty("stops_reading", timeout=1.0) as tools:
        await tools.offered(["faulty"])
        filling = asyncio.create_task(failing(tools))
        await asyncio.sleep(0.1)
        text = {"text": "x" * 500_000}
        stuck = asyncio.create_task(tools.call_tool(request("echo", {**text})))
        await asyncio.sleep(0.1)
        assert (await failing(tools, "echo")).sent == "no"
        await asyncio.gather(filling, stuck, return_exceptions=True)


@pytest.mark.parametrize("mode", ["floods_stderr", "floods_notices", "string_id"])
async def test_noise_does_not_spoil_a_call(faulty: Faulty, mode: str) -> None:
    # attack 37
    async with faulty(mode) as tools:
        assert (await tools.call_tool(request("act"))).message == "fine"


async def test_requests_of_a_server_are_refused(faulty: Faulty) -> None:
    # attack 34
    # Sampling, roots, elicitation: the host lends a server nothing.
    async with faulty("asks") as tools:
        answer = (await tools.call_tool(request("act"))).message
    assert '"id": "s1", "error": {"code": -32601' in answer
    assert '"id": 7, "result": {}' in answer


async def test_one_death_fails_every_call_that_waits(faulty: Faulty) -> None:
    async with faulty("dies") as tools:
        await tools.offered(["faulty"])
        errors = await asyncio.gather(*(failing(tools) for _ in range(8)))
        assert {error.kind for error in errors} == {"transport"}
        assert errors[0].sent == "unknown"
        assert "exit code 3" in str(errors[0])


async def test_a_server_that_dies_too_often_is_disabled(
    faulty: Faulty, events: list[Event]
) -> None:
    restart = Restart(max_restarts=2, backoff=0.05)
    async with faulty("dies_always", restart=restart) as tools:
        for _ in range(3):
            assert (await failing(tools)).sent == "unknown"
        await until(lambda: "ServerDisabled" in names(events))
        error = await failing(tools)
    assert (error.kind, error.sent) == ("transport", "no")
    assert names(events).count("ServerRestarted") == 2


async def test_a_healthy_while_starts_the_count_of_restarts_anew(
    faulty: Faulty, events: list[Event]
) -> None:
    restart = Restart(max_restarts=1, backoff=0.05, reset_after=0.0)
    async with faulty("dies_always", restart=restart) as tools:
        for _ in range(4):
            assert (await failing(tools)).sent == "unknown"
        assert (await tools.call_tool(request("echo"))).message == "fine"
    assert names(events).count("ServerRestarted") == 4
    assert "ServerDisabled" not in names(events)


async def test_without_restarts_a_dead_server_stays_down(
    faulty: Faulty, events: list[Event]
) -> None:
    async with faulty("dies", restart=Restart(enabled=False)) as tools:
        await failing(tools)
        await until(lambda: "ServerDisabled" in names(events))
        assert (await failing(tools, "echo")).sent == "no"


async def test_a_call_waits_for_a_slot_no_longer_than_its_deadline(
    faulty: Faulty,
) -> None:
    options = {"act": ToolOptions(timeout=1.5)}
    async with faulty("never", timeout=0.3, concurrency=1, tools=options) as tools:
        await tools.offered(["faulty"])
        first = asyncio.create_task(failing(tools))
        await asyncio.sleep(0.05)
        second = await failing(tools, "echo")
        assert (second.kind, second.sent) == ("timeout", "no")
        assert (await first).sent == "unknown"
        assert (await tools.call_tool(request("echo"))).message == "fine"


async def test_a_call_that_waits_for_a_slot_or_a_start_is_queued_and_not_sent(
    faulty: Faulty,
) -> None:  # law 2: a call that is stopped in the queue was not sent
    turns: list[str] = []

    @contextmanager
    def queued() -> Generator[None]:
        turns.append("waits")
        yield
        turns.append("goes")

    asked = replace(request("echo"), queued=queued)
    async with faulty("never", timeout=5, concurrency=1) as tools:
        await tools.call_tool(asked)
        assert turns == ["waits", "goes"]
        first = asyncio.create_task(tools.call_tool(request("act")))
        await asyncio.sleep(0.05)
        second = asyncio.create_task(tools.call_tool(asked))
        await asyncio.sleep(0.05)
        for call in (second, first):
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
    assert turns == ["waits", "goes", "waits"]


async def test_a_start_does_not_count_as_the_time_of_a_call(faulty: Faulty) -> None:
    async with faulty("slow_start", timeout=0.3) as tools:
        # The start takes 1.5 s.
        assert (await tools.call_tool(request("echo"))).message == "fine"


async def test_a_call_waits_for_a_start_as_long_as_a_start_may_take(
    faulty: Faulty, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = Restart(backoff=60.0)
    async with (
        faulty("silent", timeout=60.0, start_timeout=0.2, restart=late) as tools,
        asyncio.timeout(20),
    ):
        failed = await failing(tools)
        assert (failed.kind, failed.sent) == ("transport", "no")
        monkeypatch.setattr("caxton_host.mcp.supervisor._PATIENCE", 0.1)
        waited = await failing(tools)  # for an attempt that comes after the backoff
        assert (waited.kind, waited.sent) == ("timeout", "no")


async def test_secrets_are_taken_out_of_answers(faulty: Faulty) -> None:
    async with faulty("tells_environment") as tools:
        answer = await tools.call_tool(request("act"))
    assert SECRET not in str(answer)  # law 8
    assert "[redacted]" in answer.message


@pytest.mark.parametrize(
    "mode", ["stubborn", "grandchild", "grandchild_apart", "never"]
)
async def test_nothing_is_left_running(
    faulty: Faulty, state: Path, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("caxton_host.mcp.transport.stdio.GRACE", 0.2)
    async with faulty(mode) as tools:
        await tools.call_tool(request("echo"))
        # One that has just begun shows its command line a moment later.
        started = 1 + mode.startswith("grandchild")
        await until(lambda: len(processes(str(state))) == started)
    # The fixture looks for what is left.


async def test_a_cancelled_host_leaves_nothing_running(
    faulty: Faulty, state: Path
) -> None:
    async def host() -> None:
        async with faulty("never") as tools:
            await tools.call_tool(request("act"))

    running = asyncio.create_task(host())
    await until(lambda: noted(state, "call act"))
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert processes(str(state)) == []


async def test_last_words_of_a_server_are_for_the_operator_and_redacted(
    faulty: Faulty, caplog: pytest.LogCaptureFixture
) -> None:
    async with faulty("dies_at_start") as tools:
        with caplog.at_level(logging.WARNING):
            offered = await tools.offered(["faulty"])
        error = await failing(tools)
    assert offered.offers == ()
    assert offered.servers["faulty"]["name"] is None
    assert "MCP: failed to initialize" in caplog.text
    assert "exit code 5; its last words: no luck, [redacted]" in caplog.text
    assert "no luck" not in str(error)
    assert (error.kind, error.sent) == ("transport", "no")
