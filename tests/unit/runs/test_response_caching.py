"""An answer is kept for who asked for it, for as long as the operator says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import pytest

from caxton_host.cli.run_text import call_lines, remark
from caxton_host.core.calls import JSON, Completed
from caxton_host.core.grants.grants import Grant
from caxton_host.core.log.events import ToolCompleted, ToolDenied
from caxton_host.core.text.redact import MASK, Redactor
from caxton_host.errors import ToolError
from caxton_host.lib import codec
from caxton_host.ports import Asker, Door, Ending, Guest, RunScope, ToolRequest
from caxton_host.runs.explain import explanation
from caxton_host.runs.recording import Recording
from caxton_host.runs.response_caching import Answers, Cached
from caxton_host.telemetry.attributes import outcome_fields
from caxton_host.testing import FakeClock, FakeTools
from tests.scene import Scene, calling, ended, pack, rule, types

ASKER = Asker(agent="a", grants=(Grant(allow=(rule("demo/*"),)),), params_sha256="00")
REQUEST = ToolRequest(
    run_id="1",
    call=1,
    server="demo",
    tool="look",
    params={},
    definition_sha256="d",
    idempotency_key="k",
    asker=ASKER,
)
TTLS = {("demo", "look"): 60.0, ("other", "look"): 60.0}
DONE = Completed(message="clear", data={"sky": "clear"}, bytes=10, duration_us=7)


@dataclass
class Shelf:
    """Tools whose answers are kept."""

    answer: Completed | ToolError = DONE
    ttls: Mapping[tuple[str, str], float] = field(default_factory=lambda: TTLS)
    bounds: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.tools = FakeTools(
            {(server, "look"): self.answer for server in ("demo", "other")}
        )
        self.clock = FakeClock()
        self.redact = Redactor()
        self.answers = Answers(
            ttls=self.ttls,
            redact=self.redact,
            monotonic=self.clock.monotonic,
            **self.bounds,
        )
        self.cached = Cached(self.tools, self.answers)

    async def asked(self, request: ToolRequest = REQUEST) -> bool:
        """Make a call, and return whether a server was asked."""
        before = len(self.tools.asked)
        done = await self.cached.call_tool(request)
        sent = len(self.tools.asked) > before
        assert done.cached is not sent
        return sent


def other(**changes: object) -> ToolRequest:
    return replace(REQUEST, asker=replace(ASKER, **changes))  # type: ignore[arg-type]  # of any kind


async def test_same_call_has_the_same_answer_and_sends_nothing() -> None:
    shelf = Shelf()

    first = await shelf.cached.call_tool(REQUEST)
    again = await shelf.cached.call_tool(replace(REQUEST, run_id="2", call=9))

    assert first == DONE
    assert again == replace(DONE, cached=True, duration_us=0)
    assert len(shelf.tools.asked) == 1


async def test_answer_is_kept_no_longer_than_its_time() -> None:
    shelf = Shelf()
    assert await shelf.asked()
    shelf.clock.time += 59_999_999
    assert not await shelf.asked()
    shelf.clock.time += 1
    assert await shelf.asked()
    assert not await shelf.asked()


@pytest.mark.parametrize(
    "request_",
    [
        other(agent="b"),
        other(grants=(Grant(allow=(rule("demo/look"),)),)),
        other(grants=(*ASKER.grants, *ASKER.grants)),  # those of today as well
        other(params_sha256="01"),
        replace(REQUEST, definition_sha256=None),
        replace(REQUEST, server="other"),
        replace(REQUEST, asker=None),
    ],
)
async def test_no_answer_is_for_another_asker(request_: ToolRequest) -> None:
    # law 4: what one may see says nothing of what another may
    shelf = Shelf()
    assert await shelf.asked()
    assert await shelf.asked(request_)
    assert not await shelf.asked()


async def test_nothing_is_kept_of_a_tool_without_a_time() -> None:
    shelf = Shelf(ttls={("demo", "other"): 60.0})
    assert await shelf.asked()
    assert await shelf.asked()


async def test_error_of_a_tool_is_not_kept() -> None:
    shelf = Shelf(replace(DONE, is_error=True))
    assert await shelf.asked()
    assert await shelf.asked()


async def test_failure_is_not_kept() -> None:
    shelf = Shelf(ToolError("timeout", "unknown", "late"))
    for _ in range(2):
        with pytest.raises(ToolError):
            await shelf.cached.call_tool(REQUEST)
    assert len(shelf.tools.asked) == 2


async def test_answers_of_a_server_are_forgotten_and_no_others() -> None:
    shelf = Shelf()
    elsewhere = replace(REQUEST, server="other")
    assert await shelf.asked()
    assert await shelf.asked(elsewhere)

    shelf.answers.forget("demo")

    assert not await shelf.asked(elsewhere)
    assert await shelf.asked()


async def test_answer_that_was_under_way_then_is_not_kept() -> None:
    shelf = Shelf()

    @dataclass(slots=True)
    class Changing(FakeTools):
        async def call_tool(self, request: ToolRequest) -> Completed:
            shelf.answers.forget("demo")
            return await FakeTools.call_tool(self, request)

    await Cached(Changing(shelf.tools.answers), shelf.answers).call_tool(REQUEST)

    assert await shelf.asked()


async def test_answers_are_bounded_in_number_and_size() -> None:  # law 9
    for bounds in ({"entries": 2}, {"bytes": 29}):
        shelf = Shelf(bounds=bounds)
        one, two, three = (other(params_sha256=str(n)) for n in range(3))
        assert [await shelf.asked(call) for call in (one, two, one, three)] == [
            *(True, True, False, True)
        ]
        # The one that nobody used for the longest time made room.
        assert not await shelf.asked(one)
        assert not await shelf.asked(three)
        assert await shelf.asked(two)

    shelf = Shelf(bounds={"bytes": 9})
    assert await shelf.asked()
    assert await shelf.asked()


async def test_answer_that_came_twice_counts_once() -> None:
    shelf = Shelf(bounds={"bytes": 20})

    @dataclass(slots=True)
    class Meanwhile(FakeTools):
        async def call_tool(self, request: ToolRequest) -> Completed:
            await shelf.cached.call_tool(request)
            return await FakeTools.call_tool(self, request)

    await Cached(Meanwhile(shelf.tools.answers), shelf.answers).call_tool(REQUEST)

    assert await shelf.asked(other(params_sha256="01"))
    assert not await shelf.asked()


async def test_what_is_a_secret_by_now_is_masked() -> None:  # law 8
    said: JSON = {"token": "hunter2hunter2"}
    shelf = Shelf(replace(DONE, data=said, message="hunter2hunter2"))
    await shelf.asked()
    shelf.redact.learn(["hunter2hunter2"])

    done = await shelf.cached.call_tool(REQUEST)

    assert (done.data, done.message) == ({"token": MASK}, MASK)


async def test_runs_share_what_is_kept() -> None:
    shelf = Shelf()
    for number, sent in enumerate((True, False)):
        scope = RunScope(run_id=str(number), agent="a")
        async with shelf.cached.open(scope) as tools:
            done = await tools.call_tool(REQUEST)
            assert done.cached is not sent
            assert (await tools.offered(["demo"])).offers
            assert await tools.resources(["demo"], scope) == []


async def test_call_that_is_answered_from_the_cache_counts_and_is_told() -> None:
    # law 2, law 4: what comes before the send is as ever
    key = ("demo", "get_weather")
    tools = FakeTools({key: DONE}, effects={key: "read"})
    answers = Answers(ttls={key: 60.0}, redact=Redactor())
    scene = Scene(calling(*["weather"] * 3), tools=Cached(tools, answers))
    scene.request = replace(
        scene.request, grant=Grant(allow=(rule("demo/*", calls=2),))
    )

    events = await scene.run()

    ends = [event for event in events if isinstance(event, ToolCompleted)]
    assert types(events).count("ToolInvoked") == 3
    assert [end.cached for end in ends] == [False, True]
    assert [event.code for event in events if isinstance(event, ToolDenied)] == [
        "budget"
    ]
    assert len(tools.asked) == 1
    assert (await scene.replay()).verdict == "identical"  # law 6
    history = await scene.recorded()
    lines = [line.partition("}  ")[2] for line in call_lines(history)]
    assert lines == ["ok, 0 ms", "ok, cached", "denied"]
    recording = await Recording.load(scene.run_id, scene.store.reader)
    assert explanation(recording, {}, 4)["ended"] == "ok, cached: clear"
    assert remark(history[4]) == "ok, cached: clear"
    assert outcome_fields(replace(DONE, cached=True))["caxton.call.cached"] is True


async def test_batch_is_answered_from_the_cache_like_single_calls() -> None:
    key = ("demo", "get_weather")
    tools = FakeTools({key: DONE}, effects={key: "read"})
    answers = Answers(ttls={key: 60.0}, redact=Redactor())

    async def script(door: Door, guest: Guest) -> Ending:
        del guest
        call: JSON = ["weather", {"city": "Oslo"}]
        await door.call(b"weather", pack(city="Oslo"), 1)
        await door.call_many(codec.encode([call, call]), 2)
        return ended()

    events = await Scene(script, tools=Cached(tools, answers)).run()

    ends = [event for event in events if isinstance(event, ToolCompleted)]
    assert [end.cached for end in ends] == [False, True, True]
    assert len(tools.asked) == 1
