"""Each line is judged as it arrives, and the right call learns of it."""

from __future__ import annotations

import asyncio
import json
import math
from typing import Any

import anyio
import pytest

from caxton_host.errors import ToolError
from caxton_host.mcp.transport.jsonrpc import Peer
from caxton_host.mcp.transport.messages import Answer, Refusal
from caxton_host.mcp.transport.wire import Strays


class Wire:
    """A peer whose other end is the test."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []
        self.ends: list[ToolError] = []
        self.peer = Peer(
            lambda data: self.sent.append(json.loads(data)),
            limit=2000,
            on_lost=self.ends.append,
        )
        self.peer.strict = True

    async def ask(self, deadline: float = math.inf) -> asyncio.Task[Answer]:
        task = asyncio.create_task(self.peer.request("tools/call", {}, deadline))
        await asyncio.sleep(0)
        return task

    def say(self, message: object) -> None:
        self.peer.feed(json.dumps(message).encode() + b"\n")

    def answer(self, number: object, **rest: object) -> None:
        self.say({"jsonrpc": "2.0", "id": number} | (rest or {"result": {}}))


async def test_answers_may_come_in_any_order() -> None:
    wire = Wire()
    one, two = await wire.ask(), await wire.ask()
    wire.answer(2, result={"n": 2})
    wire.answer(1, result={"n": 1})
    assert [(await one).result, (await two).result] == [{"n": 1}, {"n": 2}]


async def test_an_error_of_the_server_is_raised_with_its_code() -> None:
    wire = Wire()
    one, two = await wire.ask(), await wire.ask()
    wire.answer(1, error={"code": -32602, "message": "no", "data": 5})
    wire.answer(2, error={"code": "odd", "message": None})
    with pytest.raises(Refusal) as caught:
        await one
    assert (caught.value.code, caught.value.data) == (-32602, 5)
    with pytest.raises(Refusal) as caught:
        await two
    assert (caught.value.code, caught.value.message) == (0, "")


@pytest.mark.parametrize(
    "answer", [{"result": 5}, {"result": {}, "error": {}}, {"error": "no"}, {"x": 1}]
)
async def test_an_answer_that_is_neither_result_nor_error_breaks_the_protocol(
    answer: dict[str, object],
) -> None:
    # attack 33
    wire = Wire()
    call = await wire.ask()
    wire.answer(1, **answer)
    with pytest.raises(ToolError, match="neither result nor error") as caught:
        await call
    assert (caught.value.kind, caught.value.sent) == ("protocol", "yes")


@pytest.mark.parametrize("number", [2, 0, -1, None, True, 1.5, "x", [1], "9" * 500])
async def test_an_answer_to_nothing_is_dropped_and_fails_no_call(
    number: object,
) -> None:
    # attack 33
    wire = Wire()
    call = await wire.ask()
    wire.answer(number)
    wire.answer(number, error={"code": -32700, "message": "what?"})
    wire.answer(1)
    assert (await call).result == {}
    assert (wire.peer.strays.count, wire.ends) == (2, [])


@pytest.mark.parametrize(
    "number", [pytest.param(b"1", id="sent twice"), pytest.param(b"9", id="wrong id")]
)
@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(b'{"jsonrpc":"2.0","id":%b,"result":{}}', id="sound"),
        pytest.param(b'{"jsonrpc":"2.0","id":"%b","result":{}}', id="as text"),
        pytest.param(b'{"jsonrpc":"2.0","id":%b,"result":NaN}', id="refused"),
        pytest.param(b'{"jsonrpc":"2.0","id":%b,"result":"' + b"x" * 3000 + b'"}'),
        pytest.param(b'{"result":"' + b"x" * 3000 + b'","jsonrpc":"2.0","id":%b}'),
        pytest.param(b'{"result":"' + b"x" * 3000 + b'","id":%b,"jsonrpc":"2.0"}'),
        pytest.param(b'{"id":"%b","result":"' + b"x" * 3000 + b'"}'),
    ],
)
async def test_an_answer_fails_no_call_but_the_one_that_it_belongs_to(
    number: bytes, answer: bytes
) -> None:
    wire = Wire()
    answered = await wire.ask()
    wire.answer(1)
    await answered
    other = await wire.ask()
    wire.peer.feed(answer.replace(b"%b", number) + b"\n")
    wire.answer(2)
    assert (await other).result == {}
    assert (wire.peer.strays.count, wire.peer.junk, wire.ends) == (1, 0, [])


async def test_too_many_answers_to_nothing_end_the_connection_once_no_call_waits(
    caplog: pytest.LogCaptureFixture,
) -> None:
    wire = Wire()
    wire.peer.strays = Strays("crm")
    call = await wire.ask()
    for _ in range(1001):
        wire.answer(7)
    wire.answer(1)
    await call
    assert wire.ends == []
    wire.answer(7)
    [end] = wire.ends
    assert (end.kind, str(end)) == (
        "protocol",
        "the server answered 1002 requests that were not waiting",
    )
    # law 9: nor do they fill the log of the host
    assert [record.getMessage().split()[-3] for record in caplog.records] == [
        *("1", "10", "100", "1000")
    ]
    assert "crm" in caplog.text


async def test_a_call_that_was_given_up_may_be_answered_late_once() -> None:
    wire = Wire()
    call = await wire.ask()
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)
    assert wire.sent[-1]["method"] == "notifications/cancelled"
    assert wire.sent[-1]["params"]["requestId"] == 1
    other = await wire.ask()
    wire.answer(1)
    assert (wire.peer.late, wire.ends) == (1, [])
    wire.answer(2)
    await other


async def test_a_late_answer_that_is_too_large_fails_no_other_call() -> None:
    wire = Wire()
    late = await wire.ask(deadline=0)
    with pytest.raises(ToolError):
        await late
    other = await wire.ask()
    wire.peer.feed(b'{"jsonrpc":"2.0","id":1,"result":"' + b"x" * 3000 + b'"}\n')
    wire.answer(2)
    assert (await other).result == {}
    assert (wire.peer.late, wire.ends) == (1, [])


async def test_a_deadline_that_has_passed_is_a_timeout() -> None:
    wire = Wire()
    call = await wire.ask(deadline=0)
    with pytest.raises(ToolError) as caught:
        await call
    assert (caught.value.kind, caught.value.sent) == ("timeout", "unknown")


async def test_an_answer_in_the_moment_of_the_deadline_counts_as_late() -> None:
    wire = Wire()
    call = await wire.ask()
    wire.peer._expire(1)
    wire.answer(1)
    with pytest.raises(ToolError):
        await call
    assert wire.peer.late == 1
    assert [message["method"] for message in wire.sent] == ["tools/call"]


async def test_a_deadline_after_the_answer_changes_nothing() -> None:
    wire = Wire()
    call = await wire.ask()
    wire.answer(1)
    wire.peer._expire(1)
    assert (await call).result == {}


async def test_what_cannot_be_written_is_not_waited_for() -> None:
    wire = Wire()
    with pytest.raises(ValueError, match="JSON"):
        await wire.peer.request("x", {"a": math.nan}, math.inf)
    assert (wire.sent, wire.peer._pending) == ([], {})


async def test_the_memory_of_given_up_calls_is_bounded() -> None:
    wire = Wire()
    for _ in range(1100):
        call = await wire.ask()
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
    assert len(wire.peer._given_up) == 1000


async def test_junk_before_the_handshake_is_counted_and_bounded() -> None:
    wire = Wire()
    wire.peer.strict = False
    call = await wire.ask()
    wire.peer.feed(b"hello\n" * 50)
    assert (wire.peer.junk, wire.ends) == (50, [])
    wire.peer.feed(b"hello\n")
    with pytest.raises(ToolError):
        await call


async def test_junk_while_nothing_waits_is_counted_and_bounded() -> None:
    wire = Wire()
    wire.peer.feed(b"hello\n" * 1000)
    wire.peer.feed(b"x" * 3000 + b"\n")
    assert len(wire.ends) == 1
    assert wire.peer.junk == 1001


async def test_empty_lines_are_no_offence_but_count_as_noise() -> None:
    wire = Wire()
    call = await wire.ask()
    wire.peer.feed(b"\n\r\n \n")
    assert (wire.peer.unsolicited, wire.peer.junk) == (3, 0)
    wire.answer(1)
    await call


async def test_nothing_is_read_after_the_end() -> None:
    wire = Wire()
    call = await wire.ask()
    wire.peer.feed(b'nonsense\n{"jsonrpc":"2.0","id":1,"result":{}}\n')
    wire.peer.lose("transport", "again")
    with pytest.raises(ToolError, match="refused"):
        await call
    with pytest.raises(ToolError) as caught:
        await wire.peer.request("tools/call", {}, math.inf)
    assert caught.value.sent == "no"
    assert len(wire.ends) == 1


async def test_a_server_that_does_not_read_is_told_no_more_than_calls() -> None:
    wire = Wire()
    wire.peer.pause_writing()
    assert not wire.peer.ready
    wire.say({"jsonrpc": "2.0", "id": 1, "method": "ping"})
    call = await wire.ask()
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)
    assert [message["method"] for message in wire.sent] == ["tools/call"]
    wire.peer.resume_writing()
    await wire.peer.writable()


async def test_an_over_long_notification_is_skipped() -> None:
    wire = Wire()
    wire.peer.feed(b'{"jsonrpc":"2.0","method":"' + b"x" * 3000 + b'"}\n')
    assert (wire.peer.junk, wire.ends) == (1, [])


async def test_the_session_of_the_sdk_asks_through_the_same_peer() -> None:
    wire = Wire()
    options: Any = {"timeout": 5, "cancel_on_abandon": False}
    call = asyncio.create_task(wire.peer.send_raw_request("x", None, options))
    await asyncio.sleep(0)
    assert "params" not in wire.sent[-1]
    wire.answer(1, result={"a": 1})
    assert await call == {"a": 1}
    await wire.peer.notify("notifications/initialized", None)
    await wire.peer.notify("notifications/x", {"a": 1})
    assert wire.sent[-2:] == [
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "method": "notifications/x", "params": {"a": 1}},
    ]
    abandoned = asyncio.create_task(wire.peer.send_raw_request("x", {}, options))
    await asyncio.sleep(0)
    abandoned.cancel()
    await asyncio.gather(abandoned, return_exceptions=True)
    wire.peer.lose("transport", "over")
    await wire.peer.notify("notifications/x", None)
    assert wire.sent[-1]["method"] == "x"


async def test_the_session_of_the_sdk_learns_of_the_end() -> None:
    wire = Wire()

    async def unused(*_args: object) -> Any:  # noqa: ANN401
        raise NotImplementedError

    async with anyio.create_task_group() as group:
        await group.start(wire.peer.run, unused, unused)
        wire.peer.lose("transport", "over")
    assert str(await wire.peer.ended()) == "over"
