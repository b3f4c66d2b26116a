"""A guest's bytes, however bad, and the bytes that it gets back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caxton_host.core.calls import JSON, Completed, Route
from caxton_host.core.grants.journal import Journal
from caxton_host.core.limits import Limits
from caxton_host.core.log.events import Event, LogWritten, ToolDenied, ToolInvoked
from caxton_host.core.text.redact import Redactor
from caxton_host.errors import BadBytes, RunStopped
from caxton_host.gateway.gateway import Gateway
from caxton_host.gateway.guest_calls import GuestCalls, output_value
from caxton_host.gateway.judge import Judge
from caxton_host.gateway.recorder import Recorder
from caxton_host.lib import codec
from caxton_host.sandbox.session import tail
from caxton_host.store.memory import MemoryLog, MemoryStore
from caxton_host.telemetry import NoTelemetry
from caxton_host.testing import FakeClock, FakeEntropy, FakeTools
from tests.scene import DEMO, pack

ANSWERS: Mapping[tuple[str, str], JSON | Completed] = {
    ("demo", "echo"): Completed(message="hi", data=[1, "a"])
}


class Scene:
    """A door, and what is behind it."""

    def __init__(self, *secrets: str, **limits: int) -> None:
        self.clock = FakeClock()
        store = MemoryStore(clock=self.clock, entropy=FakeEntropy())
        self.log: MemoryLog = store.create("run/1")
        self.tools = FakeTools(ANSWERS)
        journal = Journal()
        self.gateway = Gateway(
            judge=Judge(
                run_id="1",
                grant=DEMO,
                routes={
                    "echo": Route(server="demo", tool="echo"),
                    "exec": Route(server="shell", tool="exec"),
                },
                journal=journal,
                redact=Redactor(secrets),
                now=self.clock.now,
            ),
            recorder=Recorder(self.log, journal),
            tools=self.tools,
        )
        self.limits = replace(Limits(), **limits)
        self.door = self.new_door()

    def new_door(self) -> GuestCalls:
        """Return the door of a further execution over the same journal."""
        return GuestCalls(gateway=self.gateway, limits=self.limits, span=NoTelemetry())

    @property
    def events(self) -> list[Event]:
        return self.log.events

    def lines(self) -> list[tuple[int, str, str]]:
        return [(e.n, e.level, e.text) for e in self.events if type(e) is LogWritten]


async def test_blobs_count_towards_what_a_run_may_record() -> None:  # law 9
    for many in (False, True):
        scene = Scene(recorded=1000)
        blob: dict[str, JSON] = {"sha256": "d", "bytes": 900, "media_type": "a/b"}
        scene.tools.answers = {
            ("demo", "echo"): Completed(data=[1], blobs=(blob, {"bytes": "odd"}))
        }
        if many:
            await scene.door.call_many(codec.encode([["echo", {}]]), 42)
        else:
            await scene.door.call(b"echo", pack(a=1), 42)
        assert scene.door.recorded > 900
        await scene.door.call(b"nothing", pack(a=1), 43)
        with pytest.raises(RunStopped, match="recorded"):
            await scene.door.call(b"nothing", pack(a=1), 44)


# -- calls ---------------------------------------------------------------------


async def test_answer_is_the_reply_in_msgpack_and_its_time() -> None:
    scene = Scene()

    answer = await scene.door.call(b"echo", pack(a=1), 42)

    assert (answer.status, answer.at) == (0, scene.clock.time)
    assert codec.decode_trusted(answer.reply) == {
        "status": "ok",
        "message": "hi",
        "data": [1, "a"],
    }
    intent = scene.events[0]
    assert isinstance(intent, ToolInvoked)
    assert (intent.call, intent.fuel) == (1, 42)
    assert intent.params_sha256 == codec.sha256(pack(a=1))


@pytest.mark.parametrize(
    "name",
    [b"", b"a b", b"demo/echo", b"echo\x00", b"\xff", b"e" * 65, b"echo\n", b"x" * 500],
)
async def test_name_that_is_none_is_a_bad_request(name: bytes) -> None:
    scene = Scene()

    answer = await scene.door.call(name, pack(), 0)

    assert answer.status == 4
    intent, denial = scene.events
    assert isinstance(intent, ToolInvoked)
    assert isinstance(denial, ToolDenied)
    assert (intent.params, denial.code) == (None, "bad_request")
    assert intent.name.isascii()
    assert intent.name.isprintable()
    assert len(intent.name) <= 512
    assert scene.tools.asked == []


@pytest.mark.parametrize("params", [b"", b"\xc1", b"\x90", b"\xc0", b"\x80\x80"])
async def test_params_that_are_no_map_are_a_bad_request(params: bytes) -> None:
    scene = Scene()

    answer = await scene.door.call(b"echo", params, 0)

    assert answer.status == 4
    intent = scene.events[0]
    assert isinstance(intent, ToolInvoked)
    assert (intent.name, intent.params) == ("echo", None)
    assert intent.params_sha256 == codec.sha256(params)
    assert "params" in codec.decode_trusted(answer.reply)["message"]


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        (b"demo/echo", "; that tool is called echo here"),
        (b"shell/exec", ""),  # It has a route, and no grant.
        (b"demo/ech", ""),
        (b"demo/echo/", ""),
    ],
)
async def test_a_path_is_answered_with_the_name_of_a_granted_tool_alone(
    name: bytes, hint: str
) -> None:
    answer = await Scene().door.call(name, pack(), 0)

    said = codec.decode_trusted(answer.reply)["message"]
    assert answer.status == 4
    assert said == f"a tool name is 1 to 64 of a-z, A-Z, 0-9, _ and -{hint}"


async def test_params_over_the_limit_are_a_bad_request() -> None:
    scene = Scene(params=10)

    assert (await scene.door.call(b"echo", pack(a="x" * 39), 0)).status == 4
    assert (await scene.door.call(b"echo", pack(a="x"), 0)).status == 0


async def test_params_over_the_limit_arrive_cut_with_the_digest_of_the_whole() -> None:
    scene = Scene(params=10)
    whole = pack(a="x" * 100)

    answer = await scene.door.call(b"echo", whole[:10] + tail(whole), 0)

    intent = scene.events[0]
    assert isinstance(intent, ToolInvoked)
    assert intent.params_sha256 == codec.sha256(whole)
    told = codec.decode_trusted(answer.reply)["message"]
    assert told == "params: 105 bytes, of 10 allowed by limits.params"


@given(st.binary(max_size=80), st.binary(max_size=80))
async def test_whatever_a_guest_says_is_answered_and_recorded(
    name: bytes, params: bytes
) -> None:  # law 2, law 9
    scene = Scene()

    answer = await scene.door.call(name, params, 0)

    assert answer.status in range(5)
    assert len(scene.events) == 2


async def test_attempts_are_counted_and_one_more_ends_the_run() -> None:
    scene = Scene(total_calls=2)
    await scene.door.call(b"echo", pack(), 0)
    await scene.door.call(b"nothing", pack(), 0)

    with pytest.raises(RunStopped) as caught:
        await scene.door.call(b"echo", pack(), 0)

    assert caught.value.limit == "total_calls"
    assert len(scene.events) == 6  # the last attempt is on record


async def test_what_a_run_may_record_is_bounded() -> None:  # law 9
    scene = Scene(recorded=100)
    await scene.door.call(b"echo", pack(), 0)
    await scene.door.call(b"echo", pack(), 0)

    with pytest.raises(RunStopped) as caught:
        await scene.door.call(b"echo", pack(a="x" * 90), 0)
    assert caught.value.limit == "recorded"


async def test_guest_that_runs_again_gets_the_same_bytes() -> None:  # law 5
    scene = Scene()
    first = await scene.door.call(b"echo", pack(a=1), 7)
    scene.clock.time += 1_000_000

    assert await scene.new_door().call(b"echo", pack(a=1), 7) == first
    assert len(scene.tools.asked) == 1


async def test_seed_of_a_fork_comes_with_the_answer_of_its_last_inherited_call() -> (
    None
):
    scene = Scene()
    scene.door.seeds = {2: b"s" * 32}

    answers = [await scene.door.call(b"echo", pack(n=n), n) for n in range(3)]

    assert [answer.seed for answer in answers] == [b"", b"s" * 32, b""]


# -- log lines -----------------------------------------------------------------


def test_log_line_is_recorded_with_number_and_level() -> None:
    scene = Scene()
    for level in (0, 1, 2, 3):
        scene.door.log(level, b"hi")

    assert [line[:2] for line in scene.lines()] == [
        (1, "debug"),
        (2, "info"),
        (3, "warning"),
        (4, "error"),
    ]


@pytest.mark.parametrize(("level", "name"), [(-5, "debug"), (9, "error")])
def test_level_out_of_range_is_the_nearest(level: int, name: str) -> None:
    scene = Scene()
    scene.door.log(level, b"hi")

    assert scene.lines() == [(1, name, "hi")]


def test_log_line_that_is_no_text_is_recorded_as_far_as_it_is() -> None:
    scene = Scene()
    scene.door.log(1, b"a\xffb")

    assert scene.lines() == [(1, "info", "a\ufffdb")]


def test_log_line_is_redacted() -> None:  # law 8
    scene = Scene("hunter2hunter2")
    scene.door.log(1, b"hunter2hunter2")

    assert scene.lines() == [(1, "info", "[redacted]")]


def test_logs_over_the_limit_are_cut_with_one_truncated_event() -> None:
    scene = Scene(log=40)
    scene.door.log(1, b"x" * 30)
    scene.door.log(1, b"y" * 30)
    scene.door.log(1, b"z")

    assert scene.lines() == [
        (1, "info", "x" * 30),
        (2, "info", "y" * 10),
        (3, "truncated", "the run reached its limit log: 40"),
    ]


def test_empty_lines_are_bounded_too() -> None:  # law 9
    scene = Scene(log=1600)
    for _ in range(10_000):
        scene.door.log(1, b"")

    assert len(scene.lines()) == 102
    assert scene.lines()[-1][1] == "truncated"


def test_secret_that_the_cut_would_split_is_not_recorded_in_part() -> None:  # law 8
    scene = Scene("hunter2hunter2", log=20)
    scene.door.log(1, b"password: hunter2hunter2")

    assert "hunter2" not in scene.lines()[0][2]


def test_lines_are_not_written_twice_when_the_guest_runs_again() -> None:
    scene = Scene(log=40)
    for door in (scene.door, scene.new_door()):
        door.log(1, b"x" * 30)
        door.log(1, b"y" * 30)

    assert [line[0] for line in scene.lines()] == [1, 2, 3]


# -- the output ----------------------------------------------------------------


def test_no_output_is_nil() -> None:
    assert output_value(None, Limits()) == (None, codec.sha256(b"\xc0"))


def test_digest_is_of_the_guests_own_bytes() -> None:
    odd = b"\xcd\x00\x01"  # 1, in a longer form than needed

    assert output_value(odd, Limits()) == (1, codec.sha256(odd))


def test_output_is_bounded() -> None:
    with pytest.raises(BadBytes):
        output_value(b"\xc1", Limits())
    with pytest.raises(BadBytes, match="of 4 allowed"):
        output_value(pack(a="long"), replace(Limits(), output=4))
