"""A batch is its calls, decided in order and carried out at once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from caxton_host.core.calls import JSON, Completed, Effect, Outcome, Route, ToolCall
from caxton_host.core.grants.bounds import TODAY, Bound
from caxton_host.core.grants.grants import Grant
from caxton_host.core.grants.journal import Journal
from caxton_host.core.grants.settlement import Correction
from caxton_host.core.limits import Limits
from caxton_host.core.log.events import (
    CallResolved,
    Event,
    ToolDenied,
    ToolFailed,
    ToolInvoked,
    ToolRetried,
    settled,
)
from caxton_host.core.names import idempotency_key
from caxton_host.errors import NondeterminismError, RunStopped, StoreError, Suspend
from caxton_host.gateway import guest_calls
from caxton_host.gateway.gateway import Gateway
from caxton_host.gateway.guest_calls import GuestCalls
from caxton_host.gateway.judge import Judge
from caxton_host.gateway.recorder import Recorder
from caxton_host.lib import codec
from caxton_host.ports.log import Refused, Reservation
from caxton_host.ports.sandbox import Answer
from caxton_host.ports.tools import ToolRequest
from caxton_host.ports.watch import RunSpan, Served
from caxton_host.sandbox.session import tail
from caxton_host.store.memory import MemoryLog, MemoryStore
from caxton_host.telemetry import NoTelemetry
from caxton_host.testing import FakeClock, FakeEntropy, FakeTools
from tests.scene import DEMO, rule, types
from tests.unit.gateway.logs import Failing, Slow

OSLO: dict[str, JSON] = {"city": "Oslo"}
SUNNY = Completed(message="sunny", data={"sky": "clear"})
ANSWERS: Mapping[tuple[str, str], Completed] = {
    ("demo", tool): replace(SUNNY, message=tool) for tool in ("a", "b", "c")
}


def batch(*items: object) -> bytes:
    """Return a batch; a name alone is a call of Oslo."""
    return codec.encode([[i, OSLO] if isinstance(i, str) else i for i in items])


def invoked(
    number: int, name: str = "a", effect: Effect = "idempotent", **params: JSON
) -> ToolInvoked:
    given = params or OSLO
    return ToolInvoked(
        call=number,
        name=name,
        server="demo",
        tool=name,
        params=given,
        params_sha256=codec.sha256(codec.encode(given)),
        effect=effect,
        rule="allow[1]",
        idempotency_key=idempotency_key("1", number),
        fuel=7,
    )


def new_log(kind: type[MemoryLog] = MemoryLog) -> MemoryLog:
    store = MemoryStore(clock=FakeClock(), entropy=FakeEntropy())
    plain = store.create("run/1")
    return kind(plain._store, plain._drafter, 0)


@dataclass(slots=True)
class Meeting(FakeTools):
    """Tools that do what a function says while they work."""

    work: Callable[[ToolRequest], Awaitable[object]] = asyncio.sleep  # type: ignore[assignment]

    async def call_tool(self, request: ToolRequest) -> Completed:
        self.asked.append(request)
        await self.work(request)
        return ANSWERS[request.server, request.tool]


@dataclass
class Scene:
    """A door, and what is behind it."""

    history: Sequence[Event] = ()
    tools: FakeTools = field(default_factory=lambda: FakeTools(ANSWERS))
    log: MemoryLog = field(default_factory=new_log)
    grant: Grant = DEMO
    today: Grant | None = None
    effects: Mapping[str, Effect] = field(default_factory=dict)
    limits: Limits = field(default_factory=Limits)
    telemetry: RunSpan = field(default_factory=NoTelemetry)

    def __post_init__(self) -> None:
        today = self.today
        bounds = [] if today is None else [Bound(name=TODAY, grant=today)]
        self.journal = Journal(bounds=bounds)
        for seq, event in enumerate(self.history, 2):
            self.journal.apply(event, 70 + seq, seq)
        self.gateway = Gateway(
            judge=Judge(
                run_id="1",
                grant=self.grant,
                routes={
                    name: Route(
                        server="shell" if name == "rm" else "demo",
                        tool=name,
                        effect=self.effects.get(name, "idempotent"),
                    )
                    for name in ("a", "b", "c", "rm")
                },
                journal=self.journal,
                now=FakeClock().now,
            ),
            recorder=Recorder(self.log, self.journal),
            tools=self.tools,
        )
        self.door = self.new_door()

    def new_door(self) -> GuestCalls:
        return GuestCalls(gateway=self.gateway, limits=self.limits, span=self.telemetry)

    async def call(self, *items: object) -> list[Any]:
        """Make a batch that is sound as such, and return the replies."""
        answer = await self.door.call_many(batch(*items), 7)
        assert answer.status == 0
        replies = codec.decode_trusted(answer.reply)
        assert isinstance(replies, list)
        return replies

    def closed(self) -> bool:
        return not self.journal.in_doubt


def words(replies: list[Any]) -> list[str]:
    return [reply["status"] for reply in replies]


# -- what the agent gets ---------------------------------------------------------


async def test_batch_is_answered_in_order_with_the_maps_of_single_calls() -> None:
    items = ["a", "rm", "nothing", ["b", 7], "c"]
    replies = await Scene().call(*items)

    assert words(replies) == ["ok", "denied", "denied", "bad_request", "ok"]
    single = Scene()
    for item, reply in zip(items, replies, strict=True):
        name, params = (item, OSLO) if isinstance(item, str) else item
        answer = await single.door.call(str(name).encode(), codec.encode(params), 7)
        assert codec.decode_trusted(answer.reply) == reply


async def test_empty_batch_records_nothing_and_leaves_the_time_alone() -> None:
    scene = Scene()

    for empty in (b"\x90", b"\xdc\0\0", b"\xdd\0\0\0\0"):
        assert await scene.door.call_many(empty, 7) == Answer(0, b"\x90", 0)
    assert (scene.log.events, scene.door.calls) == ([], 0)


async def test_time_of_a_batch_is_that_of_its_newest_answer() -> None:
    clock = FakeClock()
    plain = MemoryStore(clock=clock, entropy=FakeEntropy()).create("run/1")

    async def work(request: ToolRequest) -> None:
        if request.tool == "a":  # answers last
            await asyncio.sleep(0)
        clock.time += 5

    scene = Scene(tools=Meeting(ANSWERS, work=work), log=plain)
    start = clock.time
    first = await scene.door.call_many(batch("a", "b", "rm"), 7)

    assert first.at == start + 10
    assert await scene.new_door().call_many(batch("a", "b", "rm"), 7) == first  # law 5
    assert len(scene.tools.asked) == 2


# -- decided whole, recorded whole, sent together ----------------------------------


async def test_all_intents_and_denials_are_durable_before_anything_is_sent() -> None:
    async def work(_: ToolRequest) -> None:  # law 2, law 3
        assert scene.log.durable == 5
        seen.append(types(scene.log.events[:5]))

    seen: list[list[str]] = []
    scene = Scene(tools=Meeting(ANSWERS, work=work))
    await scene.call("a", ["rm", {}], "b", "c")

    assert len(seen) == 3
    assert seen[0] == [
        "ToolInvoked",
        "ToolInvoked",
        "ToolDenied",
        "ToolInvoked",
        "ToolInvoked",
    ]
    assert [e.call for e in scene.log.events if isinstance(e, ToolInvoked)] == [
        1,
        2,
        3,
        4,
    ]


class Grouping(MemoryLog):
    """A log that keeps what came in one piece."""

    groups: list[list[str]]

    def queue(
        self,
        *events: Event,
        blobs: Mapping[str, bytes] | None = None,
        correct: Sequence[Correction] = (),
    ) -> None:
        self.groups.append(types(list(events)))
        super().queue(*events, blobs=blobs, correct=correct)

    async def append(
        self,
        *events: Event,
        blobs: Mapping[str, bytes] | None = None,
        reserve: Sequence[Reservation] = (),
    ) -> Refused | None:
        self.groups.append(types(list(events)))
        return await super().append(*events, blobs=blobs, reserve=reserve)


async def test_batch_is_one_transaction_and_each_outcome_its_own() -> None:  # law 2
    log = new_log(Grouping)
    assert isinstance(log, Grouping)
    log.groups = []
    scene = Scene(log=log)

    await scene.call("a", "rm", "b")
    await scene.call("rm", "nothing")

    assert log.groups == [
        ["ToolInvoked", "ToolInvoked", "ToolDenied", "ToolInvoked"],
        ["ToolCompleted"],
        ["ToolCompleted"],
        ["ToolInvoked", "ToolDenied", "ToolInvoked", "ToolDenied"],
    ]


async def test_calls_of_a_batch_are_under_way_at_the_same_time() -> None:
    begun = {"a": asyncio.Event(), "b": asyncio.Event()}

    async def work(request: ToolRequest) -> None:
        begun[request.tool].set()
        await begun["b" if request.tool == "a" else "a"].wait()

    scene = Scene(tools=Meeting(ANSWERS, work=work))
    async with asyncio.timeout(10):
        assert words(await scene.call("a", "b")) == ["ok", "ok"]


async def test_outcome_is_recorded_when_it_comes() -> None:
    answered = asyncio.Event()

    async def work(request: ToolRequest) -> None:
        if request.tool == "a":
            await answered.wait()
            assert scene.log.events[-1] == settled(2, ANSWERS["demo", "b"])
        else:
            asyncio.get_running_loop().call_later(0.01, answered.set)

    scene = Scene(tools=Meeting(ANSWERS, work=work))
    replies = await scene.call("a", "b")

    assert [reply["message"] for reply in replies] == ["a", "b"]
    assert scene.log.events[-1] == settled(1, ANSWERS["demo", "a"])


async def test_each_item_sees_what_those_before_it_spent() -> None:  # law 4
    scene = Scene(grant=Grant(allow=(rule("demo/*", calls=2),)))

    replies = await scene.call("a", "rm", "b", "c")

    assert words(replies) == ["ok", "denied", "ok", "denied"]
    assert replies[3]["error"]["code"] == "budget"
    assert scene.journal.tallies.recorded.used == {"allow[1]": 2}


async def test_items_see_what_is_spent_of_todays_grants_too() -> None:
    today = Grant(allow=(rule("demo/*", calls=1, name="allow[7]"),))
    scene = Scene(today=today)

    replies = await scene.call("a", "b")

    assert words(replies) == ["ok", "denied"]
    assert "today" in replies[1]["message"]


# -- bad bytes -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("item", "name", "params"),
    [
        (["", OSLO], "", OSLO),
        (["a b", OSLO], "a b", OSLO),
        (["x" * 65_536, OSLO], "x" * 128, OSLO),
        (["a", []], "a", []),
        (["a", {"k": "x" * 600_000}], "a", {"k": "x" * 600_000}),
        (["a", [[]] * 20_000], "a", [[]] * 20_000),
        (["a"], "", ["a"]),
        (["a", OSLO, 1], "", ["a", OSLO, 1]),
        ([7, OSLO], "", [7, OSLO]),
        ([["a"], OSLO], "", [["a"], OSLO]),
        ({"a": OSLO}, "", {"a": OSLO}),
        (None, "", None),
        ("just a text", "", "just a text"),
    ],
)
async def test_bad_item_spoils_only_itself(
    item: object, name: str, params: object
) -> None:  # law 2, law 9
    scene = Scene()

    answer = await scene.door.call_many(
        codec.encode([["a", OSLO], item, ["b", OSLO]]), 7
    )
    replies = codec.decode_trusted(answer.reply)

    assert answer.status == 0
    assert words(replies) == ["ok", "bad_request", "ok"]
    bad = scene.log.events[1]
    assert isinstance(bad, ToolInvoked)
    assert (bad.call, bad.name, bad.params) == (2, name, None)
    assert bad.params_sha256 == codec.sha256(codec.encode(params))
    assert isinstance(scene.log.events[2], ToolDenied)


async def test_nested_params_spoil_their_item_and_are_not_followed() -> None:  # law 9
    deep = b"\x81\xa1k" * 900 + b"\xc0"
    data = b"\x92\x92\xa1a" + deep + b"\x92\xa1b" + codec.encode(OSLO)
    scene = Scene()

    answer = await scene.door.call_many(data, 7)

    assert words(codec.decode_trusted(answer.reply)) == ["bad_request", "ok"]
    bad = scene.log.events[0]
    assert isinstance(bad, ToolInvoked)
    assert bad.params_sha256 == codec.sha256(deep)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xc1",
        b"\x80",
        b"\x07",
        b"\x91",
        b"\x91\xc1",
        b"\x90\x90",
        b"\xdd\xff\xff\xff\xff",
        b"\x91\xdb\xff\xff\xff\xff",
        b"\x91" + b"\x92\xa1a" + b"\x91" * 5_000 + b"\xc0",
        b"\xdc\0\x41" + b"\xc0" * 65,
    ],
    ids=lambda data: f"{data[:6].hex()}",
)
async def test_batch_of_which_no_item_can_be_read_is_one_bad_attempt(
    data: bytes,
) -> None:  # law 2, law 9
    scene = Scene()

    answer = await scene.door.call_many(data, 7)

    assert answer.status == 4
    reply = codec.decode_trusted(answer.reply)
    assert (reply["status"], reply["data"]) == ("bad_request", None)
    intent, denial = scene.log.events
    assert isinstance(intent, ToolInvoked)
    assert isinstance(denial, ToolDenied)
    assert (intent.call, intent.name, intent.params) == (1, "mcp_call_many()", None)
    assert intent.params_sha256 == codec.sha256(data)
    assert answer.at == scene.log.recorded_at
    assert await scene.new_door().call_many(data, 7) == answer


async def test_batch_over_a_mebibyte_arrives_cut_with_the_digest_of_the_whole() -> None:
    whole = batch(*[["a", {"k": "x" * 60_000}]] * 20)
    digest = codec.sha256(whole)
    scene = Scene()

    answer = await scene.door.call_many(whole[: codec.BATCH_BYTES] + tail(whole), 7)

    assert answer.status == 4
    intent = scene.log.events[0]
    assert isinstance(intent, ToolInvoked)
    assert intent.params_sha256 == digest
    told = codec.decode_trusted(answer.reply)["message"]
    assert told == f"batch: {len(whole)} bytes, of {codec.BATCH_BYTES} allowed"


async def test_sixty_four_items_are_not_too_many() -> None:
    scene = Scene()

    assert words(await scene.call(*["a"] * 64)) == ["ok"] * 64


async def test_long_batch_lets_others_have_their_turn() -> None:  # law 9
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    other = asyncio.ensure_future(count())
    scene = Scene(grant=Grant())
    await scene.call(*[["a", {"k": "x" * 5_000}]] * 50)
    other.cancel()

    assert turns >= 50


# -- limits --------------------------------------------------------------------


async def test_batch_over_the_limit_on_calls_is_recorded_and_not_sent() -> None:
    scene = Scene(limits=Limits(total_calls=3))  # law 2
    await scene.call("a")

    with pytest.raises(RunStopped) as caught:
        await scene.call("a", "rm", "b", "c")

    assert caught.value.limit == "total_calls"
    assert len(scene.tools.asked) == 1
    assert scene.closed()
    assert types(scene.log.events[2:]) == [
        *("ToolInvoked", "ToolFailed"),
        *("ToolInvoked", "ToolDenied"),
        *("ToolInvoked", "ToolDenied"),
        *("ToolInvoked", "ToolDenied"),
    ]
    failed = scene.log.events[3]
    assert isinstance(failed, ToolFailed)
    assert (failed.kind, failed.sent) == ("cancelled", "no")
    denied = [e for e in scene.log.events if isinstance(e, ToolDenied)]
    assert [e.code for e in denied] == ["not_granted", "limit", "limit"]
    again = scene.new_door()
    await again.call_many(batch("a"), 7)
    with pytest.raises(RunStopped, match="total_calls"):
        await again.call_many(batch("a", "rm", "b", "c"), 7)


async def test_every_item_counts_towards_what_a_run_may_record() -> None:  # law 9
    scene = Scene(limits=replace(Limits(), recorded=100))

    with pytest.raises(RunStopped) as caught:
        await scene.call(*[["a", {"k": "x" * 30}]] * 4)

    assert caught.value.limit == "recorded"
    assert scene.tools.asked == []
    assert scene.closed()


async def test_bad_batch_counts_towards_it_too() -> None:  # law 9
    scene = Scene(limits=replace(Limits(), recorded=500))
    await scene.door.call_many(b"\xc1" * 200, 7)

    with pytest.raises(RunStopped, match="recorded"):
        await scene.door.call_many(b"\xc1" * 200, 7)
    assert len(scene.log.events) == 4


async def test_answers_count_towards_it_as_well() -> None:
    scene = Scene(limits=replace(Limits(), recorded=150))
    await scene.call("a", "b", "c")

    with pytest.raises(RunStopped, match="recorded"):
        await scene.call("a")
    assert len(scene.tools.asked) == 3


async def test_answers_too_large_together_end_the_run_and_are_all_recorded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # law 9
    monkeypatch.setattr(guest_calls, "MAX_REPLIES", 100)
    scene = Scene()

    with pytest.raises(RunStopped) as caught:
        await scene.call("a", "b", "c")

    assert caught.value.limit == "result"
    assert types(scene.log.events[3:]) == ["ToolCompleted"] * 3
    with pytest.raises(RunStopped, match="of 100 allowed"):  # law 5
        await scene.new_door().call_many(batch("a", "b", "c"), 7)


# -- the store -----------------------------------------------------------------


async def test_nothing_is_sent_if_the_intents_cannot_be_stored() -> None:  # law 3
    scene = Scene(log=new_log(Failing))

    with pytest.raises(StoreError, match="disk full"):
        await scene.call("a", "b")
    assert (scene.tools.asked, scene.log.events) == ([], [])


async def test_outcome_that_cannot_be_stored_ends_the_run_with_that_error() -> None:
    async def work(_: ToolRequest) -> None:
        scene.log._failed = True

    scene = Scene(tools=Meeting(ANSWERS, work=work))
    with pytest.raises(StoreError):
        await scene.call("a", "b")


# -- stopping ------------------------------------------------------------------


async def cancelled(scene: Scene, steps: int = 5) -> None:
    task = asyncio.ensure_future(scene.call("a", "rm", "b"))
    for _ in range(steps):
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def ends(scene: Scene) -> list[tuple[int, str]]:
    return [
        (e.call, e.sent if isinstance(e, ToolFailed) else "denied")
        for e in scene.log.events
        if isinstance(e, (ToolFailed, ToolDenied))
    ]


async def test_batch_that_is_stopped_while_the_tools_work_is_closed() -> None:  # law 2
    scene = Scene(tools=Meeting(ANSWERS, work=lambda _: asyncio.sleep(30)))

    await cancelled(scene)

    assert sorted(ends(scene)) == [(1, "unknown"), (2, "denied"), (3, "unknown")]
    assert scene.closed()


async def test_batch_that_is_stopped_before_it_was_sent_says_so() -> None:  # law 2
    scene = Scene(log=new_log(Slow))

    await cancelled(scene)

    assert scene.tools.asked == []
    assert ends(scene) == [(2, "denied"), (1, "no"), (3, "no")]
    assert scene.closed()


async def test_batch_stays_open_if_its_host_leaves_before_it_was_sent() -> None:
    scene = Scene(log=new_log(Slow))  # law 7
    scene.gateway.recorder.leaving = True

    await cancelled(scene)

    assert (scene.tools.asked, ends(scene)) == ([], [(2, "denied")])
    assert len(scene.journal.in_doubt) == 2


async def test_calls_of_a_batch_that_wait_for_their_turn_were_not_sent() -> None:
    class Queueing(FakeTools):
        async def call_tool(self, request: ToolRequest) -> Completed:
            with request.queued() if request.tool == "b" else nullcontext():
                await asyncio.sleep(30)
            raise AssertionError

    scene = Scene(tools=Queueing({}))

    await cancelled(scene)

    assert sorted(ends(scene)) == [(1, "unknown"), (2, "denied"), (3, "no")]  # law 2


@pytest.mark.parametrize("steps", range(8))
async def test_batch_can_be_stopped_at_any_step(steps: int) -> None:  # law 2
    async def work(_: ToolRequest) -> None:
        await asyncio.sleep(0.05)

    scene = Scene(tools=Meeting(ANSWERS, work=work))
    await cancelled(scene, steps)

    assert scene.closed()
    sent = {request.call for request in scene.tools.asked}
    assert {call for call, how in ends(scene) if how == "unknown"} == sent


async def test_retries_that_are_stopped_before_they_are_durable_stay_in_doubt() -> None:
    scene = Scene(  # law 7
        history=[invoked(1), invoked(2, "rm"), invoked(3, "b")],
        log=new_log(Slow),
        grant=Grant(allow=(rule("*o/*"), rule("shell/*"))),
    )

    await cancelled(scene)

    assert types(scene.log.events) == ["ToolRetried"] * 3
    assert len(scene.journal.in_doubt) == 3


async def test_bug_of_a_tool_client_closes_the_batch_and_ends_the_run() -> None:
    async def work(request: ToolRequest) -> None:
        if request.tool == "b":
            raise ZeroDivisionError
        await asyncio.sleep(30)

    scene = Scene(tools=Meeting(ANSWERS, work=work))
    with pytest.raises(ZeroDivisionError):
        await scene.call("a", "b")
    assert scene.closed()


# -- recall --------------------------------------------------------------------


async def test_batch_that_the_log_answers_is_not_sent_again() -> None:  # law 7
    history = [
        invoked(1),
        invoked(2, "b"),
        settled(2, ANSWERS["demo", "b"]),
        settled(1, ANSWERS["demo", "a"]),
    ]
    scene = Scene(history=history)

    answer = await scene.door.call_many(batch("a", "b"), 7)

    assert [r["message"] for r in codec.decode_trusted(answer.reply)] == ["a", "b"]
    assert answer.at == 75  # of the newest, which is the first
    assert (scene.tools.asked, scene.log.events) == ([], [])


async def test_items_in_doubt_are_sent_again_together_if_they_may_be() -> None:
    begun = {"a": asyncio.Event(), "c": asyncio.Event()}  # law 7

    async def work(request: ToolRequest) -> None:
        assert scene.log.durable == 2  # law 2
        begun[request.tool].set()
        await begun["c" if request.tool == "a" else "a"].wait()

    history = [
        *(invoked(1), invoked(2, "b"), invoked(3, "c")),
        settled(2, ANSWERS["demo", "b"]),
    ]
    scene = Scene(history=history, tools=Meeting(ANSWERS, work=work))
    async with asyncio.timeout(10):
        assert words(await scene.call("a", "b", "c")) == ["ok"] * 3

    assert scene.log.events[:2] == [
        ToolRetried(call=1, attempt=2, reason="resumed"),
        ToolRetried(call=3, attempt=2, reason="resumed"),
    ]
    assert [(r.call, r.attempt) for r in scene.tools.asked] == [(1, 2), (3, 2)]
    assert scene.closed()


async def test_one_item_that_may_not_be_repeated_suspends_before_any_is_sent() -> None:
    scene = Scene(  # law 7
        history=[invoked(1), invoked(2, "b", "unsafe"), invoked(3, "c")]
    )

    with pytest.raises(Suspend) as caught:
        await scene.call("a", "b", "c")

    assert caught.value.call == 2
    assert (scene.tools.asked, scene.log.events) == ([], [])
    assert [doubt.attempts for doubt in scene.journal.in_doubt] == [1, 1, 1]


async def test_item_that_a_person_let_go_is_sent_again_with_the_others() -> None:
    said = CallResolved(call=2, verdict="retry", actor={}, reason="it is down")
    scene = Scene(history=[invoked(1), invoked(2, "b", "unsafe"), said])

    assert words(await scene.call("a", "b")) == ["ok", "ok"]
    assert [e.reason for e in scene.log.events if isinstance(e, ToolRetried)] == [
        "resumed",
        "resolved",
    ]


async def test_limit_leaves_in_doubt_what_is_in_doubt() -> None:
    scene = Scene(history=[invoked(1)], limits=Limits(total_calls=1))

    with pytest.raises(RunStopped):
        await scene.call("a", "b")

    assert scene.tools.asked == []
    assert [doubt.invoked.call for doubt in scene.journal.in_doubt] == [1]


@pytest.mark.parametrize(
    ("item", "path"),
    [("c", "$.name"), (["b", {"city": "Rome"}], "$.params.city")],
)
async def test_divergence_inside_a_batch_names_the_item(
    item: object, path: str
) -> None:
    outcomes = [settled(n, SUNNY) for n in (1, 2)]
    scene = Scene(history=[invoked(1), invoked(2, "b"), *outcomes])

    with pytest.raises(NondeterminismError) as caught:
        await scene.call("a", item)

    assert (caught.value.divergence.seq, caught.value.divergence.path) == (3, path)
    assert (scene.tools.asked, scene.log.events) == ([], [])


async def test_log_that_was_cut_inside_a_batch_goes_on_there() -> None:
    """No crash leaves such a log, but a fork may begin anywhere."""
    scene = Scene(history=[invoked(1), settled(1, ANSWERS["demo", "a"])])

    replies = await scene.call("a", "b")

    assert [reply["message"] for reply in replies] == ["a", "b"]
    assert [request.call for request in scene.tools.asked] == [2]


# -- telemetry -------------------------------------------------------------------


@dataclass
class Watching(NoTelemetry):
    """Keeps what it was told of calls."""

    ended_calls: list[tuple[int, str | None]] = field(default_factory=list)
    _number: int = 0
    _of: str | None = None

    @contextmanager
    def call(
        self, call: ToolCall, route: Route | None, served: Served | None = None
    ) -> Generator[Watching]:
        del route, served
        mine = Watching(self.ended_calls, call.number)
        yield mine
        self.ended_calls.append((call.number, mine._of))

    def settled(self, outcome: Outcome, route: Route | None) -> None:
        del route
        self._of = type(outcome).__name__


async def test_every_item_is_watched_once_and_none_that_the_log_answers() -> None:
    telemetry = Watching()
    scene = Scene(telemetry=telemetry)

    await scene.call("a", "rm", ["b", 7])

    assert sorted(telemetry.ended_calls) == [
        (1, "Completed"),
        (2, "Denied"),
        (3, "Denied"),
    ]
    telemetry.ended_calls.clear()
    await scene.new_door().call_many(batch("a", "rm", ["b", 7]), 7)
    assert telemetry.ended_calls == []


async def test_replay_watches_every_item() -> None:
    telemetry = Watching()
    scene = Scene(
        telemetry=telemetry, history=[invoked(1), settled(1, ANSWERS["demo", "a"])]
    )
    scene.door.served = {1: Served(by="log")}

    await scene.call("a")

    assert telemetry.ended_calls == [(1, "Completed")]
