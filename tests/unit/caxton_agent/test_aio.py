"""What coroutines await together is sent together; asyncio works without a clock."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable
from typing import Any

import caxton_agent as ca
import pytest
from caxton_agent import aio
from caxton_agent.testing import Answer, FakeHost, _Wire


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Return the names of each call alone, and of each batch."""
    seen: list[list[str]] = []
    one, many = _Wire.mcp_call, _Wire.mcp_call_many

    def call(self: _Wire, name: str, params: str) -> str:
        seen.append([name])
        return one(self, name, params)

    def call_many(self: _Wire, batch: str) -> str:
        seen.append([name for name, _ in json.loads(batch)])
        return many(self, batch)

    monkeypatch.setattr(_Wire, "mcp_call", call)
    monkeypatch.setattr(_Wire, "mcp_call_many", call_many)
    return seen


def finish(
    work: Callable[[], Awaitable[object]], answers: dict[str, Answer] | None = None
) -> Any:  # noqa: ANN401 -- the output
    """Return the output of an agent."""
    host = FakeHost(answers or {"a": "one", "b": "two"})

    async def run() -> object:
        return await work()

    assert host.run(run) is None
    return host.output


def failing(work: Callable[[], Awaitable[object]]) -> str:
    """Return the reason of an agent's failure."""
    reason = FakeHost({"a": "one"}).run(work)
    assert reason
    return reason


async def message(name: str, n: int = 0) -> str:
    return (await aio.mcp_call(name, {"n": n})).message


def test_what_is_gathered_is_one_batch_in_order(sent: list[list[str]]) -> None:
    async def work() -> object:
        first = await message("a")
        return [first, *await asyncio.gather(message("b"), message("a"))]

    assert finish(work) == ["one", "two", "one"]
    assert sent == [["a"], ["b", "a"]]


def test_a_batch_has_at_most_64_calls(sent: list[list[str]]) -> None:
    async def work() -> object:
        return len(await asyncio.gather(*(message("a", n) for n in range(130))))

    assert finish(work) == 130
    assert [len(batch) for batch in sent] == [64, 64, 2]


def test_a_batch_stays_below_what_the_host_takes(sent: list[list[str]]) -> None:
    async def work() -> None:
        params = {"text": "x" * 150_000}
        await asyncio.gather(*(aio.mcp_call("a", params) for _ in range(5)))

    finish(work)
    assert [len(batch) for batch in sent] == [2, 2, 1]


def test_a_call_waits_until_no_task_can_go_on(sent: list[list[str]]) -> None:
    async def later() -> str:
        for _ in range(5):
            await asyncio.sleep(0)
        return await message("b")

    async def work() -> object:
        return await asyncio.gather(message("a"), later())

    assert finish(work) == ["one", "two"]
    assert sent == [["a", "b"]]


def test_a_call_that_a_failing_group_cancels_is_never_sent(
    sent: list[list[str]],
) -> None:
    async def fails() -> None:
        await asyncio.sleep(0)
        raise ValueError("no")

    async def work() -> None:
        with pytest.raises(ExceptionGroup):  # noqa: PT012 -- the group is what raises
            async with asyncio.TaskGroup() as group:
                group.create_task(message("a"))
                group.create_task(fails())

    finish(work)
    assert sent == []


def test_errors_are_those_of_the_synchronous_calls() -> None:
    async def work() -> object:
        found = await asyncio.gather(
            message("a"), message("denied"), return_exceptions=True
        )
        assert isinstance(found[1], ca.Denied)
        with pytest.raises(TypeError, match="params of a: "):
            await aio.mcp_call("a", {"n": b"bytes"})
        return found[0]

    assert finish(work) == "one"


def test_time_jumps_when_only_timers_wait() -> None:
    async def work() -> object:
        loop = asyncio.get_running_loop()
        began = loop.time()
        order: list[str] = []

        async def sleeper(seconds: float) -> None:
            await asyncio.sleep(seconds)
            order.append(f"{seconds}")

        await asyncio.gather(sleeper(86400 * 3), sleeper(0.5), sleeper(60))
        return [round(loop.time() - began, 3), order]

    assert finish(work) == [86400 * 3, ["0.5", "60", f"{86400 * 3}"]]


def test_a_timer_that_is_due_comes_before_a_call(sent: list[list[str]]) -> None:
    async def work() -> object:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0):
                await message("a")
        try:
            await asyncio.wait_for(asyncio.Event().wait(), 5)
        except TimeoutError:
            return "timeout"
        return "went on"

    assert finish(work) == "timeout"
    assert sent == []


def test_an_answer_comes_before_the_timeout_that_it_outlasted() -> None:
    async def work() -> object:
        return await asyncio.wait_for(message("slow"), 1)

    def slow(_: object) -> str:
        host.now += 5_000_000
        return "late"

    host = FakeHost({"slow": slow})
    assert host.run(work) is None
    assert host.output == "late"


def test_queues_and_semaphores_and_completions_work(sent: list[list[str]]) -> None:
    async def work() -> object:
        queue: asyncio.Queue[int] = asyncio.Queue(2)
        limit = asyncio.Semaphore(3)
        done: list[str] = []

        async def worker() -> None:
            while True:
                n = await queue.get()
                async with limit:
                    done.append(await message("a", n))
                queue.task_done()

        workers = [asyncio.create_task(worker()) for _ in range(4)]
        for n in range(10):
            await queue.put(n)
        await queue.join()
        for each in workers:
            each.cancel()
        results = [
            await each for each in asyncio.as_completed([message("b"), message("a")])
        ]
        return [len(done), sorted(results)]  # as_completed begins with a set.

    assert finish(work) == [10, ["one", "two"]]
    assert max(map(len, sent)) == 3


def test_async_generators_are_closed() -> None:
    closed: list[str] = []

    async def numbers() -> Any:  # noqa: ANN401 -- an async generator
        try:
            yield 1
            yield 2
        finally:
            closed.append("closed")

    async def work() -> object:
        async for number in numbers():
            return number
        return None

    assert finish(work) == 1
    assert closed == ["closed"]


def test_a_deadlock_says_which_task_waits_where() -> None:
    async def starving() -> None:
        await asyncio.Queue[int]().get()

    async def work() -> None:
        await asyncio.gather(*(asyncio.create_task(starving()) for _ in range(7)))

    reason = failing(work)
    assert reason.startswith("DeadlockError: deadlock: no call or timer is left")
    assert "waits in starving (test_aio.py:" in reason
    assert "; and 3 more" in reason


@pytest.mark.parametrize(
    ("attempt", "reason"),
    [
        (lambda: asyncio.to_thread(print), "RuntimeError: an agent has one thread"),
        (
            lambda: asyncio.open_connection("localhost", 1),
            "PermissionError: [Errno 1] an agent has no network",
        ),
        (
            lambda: asyncio.create_subprocess_exec("true"),
            "PermissionError: [Errno 1] an agent cannot start processes",
        ),
    ],
)
def test_what_needs_a_machine_has_an_error_of_its_own(
    attempt: Callable[[], Awaitable[object]], reason: str
) -> None:
    async def work() -> None:
        await attempt()

    assert failing(work).startswith(reason)


def test_an_agent_may_use_asyncio_run_itself() -> None:
    async def main() -> list[str]:
        return [*await asyncio.gather(message("a"), message("a"))]

    host = FakeHost({"a": "one"})
    assert host.run(lambda: asyncio.run(main())) is None
    assert host.output == ["one", "one"]


def test_a_batch_that_the_host_refuses_fails_each_of_its_calls(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reply = {
        "status": "bad_request",
        "message": "too large",
        "data": None,
        "error": {"code": "bad_request", "message": "too large"},
    }
    monkeypatch.setattr(_Wire, "mcp_call_many", lambda _self, _batch: json.dumps(reply))

    async def work() -> object:
        found = await asyncio.gather(message("a"), message("b"), return_exceptions=True)
        return [type(each).__name__ for each in found]

    assert finish(work) == ["BadRequest", "BadRequest"]


def test_a_test_may_bring_its_own_loop(sent: list[list[str]]) -> None:
    async def test() -> list[str]:
        with FakeHost({"a": "one", "b": "two"}):
            return [*await asyncio.gather(message("a"), message("b"))]

    assert asyncio.run(test()) == ["one", "two"]
    assert sent == [["a", "b"]]
