"""A replay finds the first difference, and touches nothing: law 6."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import replace
from typing import Any

import pytest

from caxton_host.core.calls import JSON, Completed, Effect
from caxton_host.core.grants.tool_catalog import Offered
from caxton_host.core.log.events import RunFailed, ToolInvoked
from caxton_host.core.text.redact import Redactor
from caxton_host.errors import (
    Divergence,
    LogBrokenError,
    NotFoundError,
    NotKeptError,
    SandboxError,
    ToolError,
    UsageError,
)
from caxton_host.gateway import guest_calls as door_module
from caxton_host.lib import codec
from caxton_host.ports.sandbox import Door, Ending, Guest
from caxton_host.ports.tools import ToolRequest
from caxton_host.runs.replay import Halt, Options, Replayed, replay
from caxton_host.testing import FakeSandbox, FakeTools, Script
from tests.scene import ANSWERS, Scene, Watched, calling, ended, pack, types


def scripted(*steps: tuple[str, dict[str, JSON]] | bytes, last: Ending) -> Script:
    """Return a guest that calls and logs in this order."""

    async def script(door: Door, guest: Guest) -> Ending:
        del guest
        for fuel, step in enumerate(steps, 1):
            if isinstance(step, bytes):
                door.log(1, step)
            else:
                await door.call(step[0].encode(), pack(**step[1]), fuel)
        return last

    return script


OSLO: tuple[str, dict[str, JSON]] = ("weather", {"city": "Oslo"})
ECHO: tuple[str, dict[str, JSON]] = ("mcp__demo__echo", {"n": 1})
DONE = ended("done")
USUAL = scripted(b"hi", OSLO, ECHO, last=DONE)


async def recorded(script: Script = USUAL, **limits: float) -> Scene:
    scene = Scene(script)
    scene.limit(**limits)
    await scene.run()
    return scene


async def divergence(scene: Scene, script: Script, engine: str = "fake") -> Divergence:
    found = (await scene.replay(script, engine=engine)).divergence
    assert found is not None
    return found


async def seq_of(scene: Scene, call: int) -> int:
    [seq] = [
        r.seq
        for r in await scene.recorded()
        if isinstance(r.event, ToolInvoked) and r.event.call == call
    ]
    return seq


# -- identical -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("script", "limits"),
    [
        (USUAL, {}),
        (calling("weather", "rm", "mcp__demo__fail", "nothing"), {}),
        (calling(), {}),
        (scripted(OSLO, last=ended(code=3)), {}),
        (scripted(OSLO, last=Ending(kind="trap", message="unreachable", fuel=4)), {}),
        (scripted(OSLO, last=Ending(kind="returned", output=b"\xc1", fuel=4)), {}),
        (
            scripted(
                OSLO, last=Ending(kind="limit", limit="fuel", message="9", fuel=9)
            ),
            {},
        ),
        (calling("weather", "weather", "weather"), {"total_calls": 2}),
        (calling("weather", "weather", "weather"), {"recorded": 90}),
        (scripted(b"x" * 90, b"y", last=DONE), {"log": 64}),
    ],
    ids=[
        "usual",
        "every outcome",
        "no calls",
        "returned 3",
        "trap",
        "bad output",
        "fuel",
        "total_calls",
        "recorded",
        "logs cut",
    ],
)
async def test_same_guest_is_identical(script: Script, limits: dict[str, int]) -> None:
    scene = await recorded(script, **limits)

    replayed = await scene.replay()

    assert replayed.divergence is None
    assert replayed.verdict == "identical"
    assert replayed.calls == types(await scene.events()).count("ToolInvoked")


async def test_replayed_guest_gets_the_same_bytes() -> None:  # law 5
    steps = calling("weather", "rm", "mcp__demo__fail", "nothing", "bad name")
    live, again = Watched(steps), Watched(steps)
    scene = Scene(live, redact=Redactor(["hunter2hunter2"]))
    scene.request = replace(scene.request, input="hunter2hunter2", context={"a": [1]})
    await scene.run()

    assert (await scene.replay(again)).verdict == "identical"

    assert again.answers == live.answers
    assert len(live.answers) == 5
    [guest], [replayed] = live.guests, again.guests
    assert replace(replayed, domain=guest.domain, limits=guest.limits) == guest


async def test_replay_shares_no_worker_with_the_agent() -> None:
    again = Watched(USUAL)
    await (await recorded()).replay(again)

    assert again.guests[0].domain == "replay/weather"


async def test_replay_calls_no_tool_and_appends_nothing() -> None:  # law 6
    class Forbidden(FakeTools):
        async def offered(self, servers: Collection[str]) -> Offered:
            pytest.fail(f"{servers} asked under replay")

        async def call_tool(self, request: ToolRequest) -> Completed:
            pytest.fail(f"{request} sent under replay")

    scene = await recorded()
    before = [r async for r in scene.store.reader.stream_events()]
    blobs = dict(scene.store.blobs)
    scene.tools = Forbidden({})

    assert (await scene.replay()).verdict == "identical"
    for script in (calling("weather", "rm"), scripted(*[OSLO] * 9, last=DONE)):
        assert (await scene.replay(script)).verdict == "diverged"

    assert [r async for r in scene.store.reader.stream_events()] == before
    assert scene.store.blobs == blobs


async def test_replay_lifts_the_clocks() -> None:
    again = Watched(USUAL)
    scene = await recorded(compute=0.5)
    await scene.replay(again)

    assert again.guests[0].limits.compute > 1e6


async def test_output_that_was_redacted_replays_identical() -> None:
    scene = Scene(scripted(OSLO, last=ended("hunter2hunter2")))
    scene.host = replace(scene.host, redact=Redactor(["hunter2hunter2"]))
    await scene.run()

    assert (await scene.replay()).verdict == "identical"


async def test_params_that_were_redacted_replay_identical() -> None:
    step: tuple[str, dict[str, JSON]] = ("weather", {"key": "hunter2hunter2"})
    scene = Scene(scripted(step, last=DONE), redact=Redactor(["hunter2hunter2"]))
    await scene.run()

    assert (await scene.replay()).verdict == "identical"


# -- diverged ------------------------------------------------------------------


async def test_other_name_diverges() -> None:
    scene = await recorded()

    found = await divergence(scene, scripted(b"hi", ECHO, OSLO, last=DONE))

    assert found == Divergence(
        await seq_of(scene, 1), "$.name", "weather", "mcp__demo__echo"
    )


async def test_other_params_diverge_at_their_json_path() -> None:
    scene = await recorded(scripted(("weather", {"at": [{"n": 1}]}), last=DONE))

    found = await divergence(
        scene, scripted(("weather", {"at": [{"n": True}]}), last=DONE)
    )

    assert (found.path, found.recorded, found.replayed) == ("$.params.at[0].n", 1, True)
    assert found.seq == 2


async def test_other_fuel_of_a_call_diverges() -> None:
    scene = await recorded()

    async def slower(door: Door, guest: Guest) -> Ending:
        del guest
        door.log(1, b"hi")
        await door.call(b"weather", pack(city="Oslo"), 3)
        return DONE

    assert await divergence(scene, slower) == Divergence(
        await seq_of(scene, 1), "$.fuel", 2, 3
    )


async def test_other_fuel_at_the_end_diverges() -> None:
    scene = await recorded()

    found = await divergence(
        scene, scripted(b"hi", OSLO, ECHO, last=ended("done", fuel=101))
    )

    assert (found.path, found.recorded, found.replayed) == ("$.fuel", 100, 101)
    assert found.seq == len(await scene.recorded())


async def test_fuel_is_compared_only_under_the_recorded_engine() -> None:
    scene = await recorded()
    other = scripted(b"hi", OSLO, ECHO, last=ended("done", fuel=101))

    assert (await scene.replay(other, engine="newer")).verdict == "identical"


@pytest.mark.parametrize(
    "empty",
    [
        Ending(kind="limit", limit="fuel", message="all burnt", fuel=9),
        Ending(kind="limit", limit="memory", message="64 pages", fuel=9),
        Ending(kind="trap", message="stack overflow", fuel=9),
    ],
    ids=["fuel", "memory", "stack"],
)
async def test_end_for_lack_of_fuel_or_room_binds_only_the_recorded_engine(
    empty: Ending,
) -> None:
    scene = await recorded(scripted(OSLO, last=empty))

    assert (await scene.replay(engine="newer")).verdict == "identical"
    longer = scripted(OSLO, ECHO, last=empty)
    assert (await scene.replay(longer, engine="newer")).verdict == "identical"
    assert (await divergence(scene, longer)).replayed == "mcp__demo__echo"


async def test_end_for_a_number_of_calls_of_wasi_binds_every_engine() -> None:
    over = Ending(kind="limit", limit="wasi_calls", message="more", fuel=9)
    scene = await recorded(scripted(OSLO, last=over))

    longer = scripted(OSLO, ECHO, last=over)
    found = await divergence(scene, longer)
    assert found.replayed == "mcp__demo__echo"


async def test_other_engine_may_charge_more_fuel() -> None:
    again = Watched(USUAL)
    scene = await recorded(fuel=100)
    await scene.replay(again, engine="newer")
    await scene.replay(again)

    assert [guest.limits.fuel for guest in again.guests] == [200, 100]


async def test_other_output_diverges() -> None:
    scene = await recorded()

    found = await divergence(scene, scripted(b"hi", OSLO, ECHO, last=ended("other")))

    assert (found.path, found.recorded, found.replayed) == ("$.output", "done", "other")


async def test_same_output_in_other_bytes_diverges_by_its_digest() -> None:
    scene = await recorded(scripted(last=ended(1)))
    longer = Ending(kind="returned", output=b"\xcd\x00\x01", fuel=100)

    found = await divergence(scene, scripted(last=longer))

    assert found.path == "$.output_sha256"


async def test_other_kind_of_end_diverges() -> None:
    scene = await recorded()
    trap = Ending(kind="trap", message="unreachable", fuel=100)

    found = await divergence(scene, scripted(b"hi", OSLO, ECHO, last=trap))

    assert (found.path, found.recorded, found.replayed) == (
        "$.type",
        "RunCompleted",
        "RunFailed",
    )


async def test_extra_call_diverges_at_the_end_of_the_log() -> None:
    scene = await recorded()

    found = await divergence(scene, scripted(b"hi", OSLO, ECHO, OSLO, last=DONE))

    assert found == Divergence(None, "$.name", None, "weather")


async def test_missing_call_diverges_at_the_recorded_one() -> None:
    scene = await recorded()

    found = await divergence(scene, scripted(b"hi", OSLO, last=DONE))

    assert found == Divergence(
        await seq_of(scene, 2), "$.name", "mcp__demo__echo", None
    )


async def test_extra_log_line_diverges() -> None:
    scene = await recorded()

    found = await divergence(scene, scripted(b"hi", OSLO, ECHO, b"more", last=DONE))

    assert found == Divergence(None, "$.type", None, "LogWritten")


async def test_other_text_of_a_log_line_diverges() -> None:
    scene = await recorded()

    found = await divergence(scene, scripted(b"ho", OSLO, ECHO, last=DONE))

    assert found == Divergence(2, "$.text", "hi", "ho")


async def test_other_level_of_a_log_line_diverges() -> None:
    async def louder(door: Door, guest: Guest) -> Ending:
        del guest
        door.log(3, b"hi")
        raise AssertionError

    scene = await recorded()

    found = await divergence(scene, louder)

    assert found == Divergence(2, "$.level", "info", "error")


async def test_missing_log_line_diverges() -> None:
    scene = await recorded(scripted(OSLO, b"hi", b"ho", last=DONE))

    found = await divergence(scene, scripted(OSLO, b"hi", last=DONE))

    assert found == Divergence(5, "$.text", "ho", None)


@pytest.mark.parametrize(
    "lines",
    [
        [b"key hunter2hunter2, sent"],
        [b"x" * 56 + b"hunter2hunter2", b"more"],
        [b"hunter2hunter2" * 9],
        [b"x" * 55 + b"hunter22", b"y"],
    ],
    ids=["whole", "cut in it", "shorter", "grown"],
)
async def test_log_line_that_was_redacted_replays_identical(
    lines: list[bytes],
) -> None:  # law 8: a replay knows no secret
    script = scripted(*lines, OSLO, last=DONE)
    scene = Scene(script, redact=Redactor(["hunter2hunter2", "hunter22"]))
    scene.limit(log=64)
    await scene.run()

    assert "hunter" not in str(await scene.events())
    assert (await scene.replay()).verdict == "identical"


async def test_redacted_log_line_still_diverges_around_the_secret() -> None:
    script = scripted(b"key hunter2hunter2, sent", last=DONE)
    scene = Scene(script, redact=Redactor(["hunter2hunter2"]))
    await scene.run()

    found = await divergence(scene, scripted(b"key hunter2hunter2, lost", last=DONE))

    assert (found.path, found.recorded) == ("$.text", "key [redacted], sent")


# -- another module, and how far -----------------------------------------------


async def follow(
    scene: Scene,
    script: Script | None = None,
    **options: Any,  # noqa: ANN401 -- any
) -> Replayed:
    return await replay(
        scene.run_id,
        store=scene.store.reader,
        sandbox=FakeSandbox(script or scene.script),
        telemetry=scene.telemetry,
        options=Options(**options),
    )


@pytest.mark.parametrize(
    "script",
    [
        scripted(OSLO, ECHO, last=ended("done", fuel=1)),
        scripted(b"ho", b"ho", OSLO, b"ho", ECHO, b"ho", last=DONE),
    ],
    ids=["none", "more"],
)
async def test_other_module_may_log_and_burn_otherwise(script: Script) -> None:
    scene = await recorded()

    assert (await follow(scene, script, against=b"\0asm2")).verdict == "identical"


async def test_other_module_must_call_and_end_alike() -> None:
    scene = await recorded()

    for script, path in (
        (scripted(ECHO, last=DONE), "$.name"),
        (scripted(OSLO, last=DONE), "$.name"),
        (scripted(OSLO, ECHO, OSLO, last=DONE), "$.name"),
        (scripted(OSLO, ECHO, last=ended("new")), "$.output"),
        (scripted(OSLO, ECHO, last=ended("done", code=1)), "$.type"),
    ):
        found = (await follow(scene, script, against=b"\0asm2")).divergence
        assert found
        assert found.path == path


async def test_other_module_follows_a_run_without_an_end_to_its_last_call() -> None:
    scene = await recorded(hang, wall=0.02)

    quiet = scripted(OSLO, ECHO, last=DONE)
    assert (await follow(scene, quiet, against=b"\0asm2")).verdict == "identical"


@pytest.mark.parametrize(
    ("until", "calls"), [(1, 0), (2, 0), (3, 1), (4, 1), (5, 2), (6, 2), (7, 2)]
)
async def test_replay_stops_after_the_event_that_is_named(
    until: int, calls: int
) -> None:
    scene = await recorded()

    found = await follow(scene, until=until)

    assert (found.verdict, found.calls, found.until) == ("identical", calls, until)


def batching(*names: str) -> Script:
    async def script(door: Door, guest: Guest) -> Ending:
        del guest
        await door.call_many(codec.encode([[name, {}] for name in names]), 1)
        return DONE

    return script


@pytest.mark.parametrize("until", range(1, 7))
async def test_replay_stops_in_the_middle_of_a_batch(until: int) -> None:
    # law 6; calls that are denied have two events each
    scene = await recorded(batching("rm", "cp"))

    found = await follow(scene, until=until)

    assert (found.verdict, found.until) == ("identical", until)


async def test_batch_that_differs_in_front_of_the_end_diverges() -> None:
    scene = await recorded(batching("rm", "cp"))

    found = await follow(scene, batching("mv", "cp"), until=3)

    assert found.divergence == Divergence(2, "$.name", "rm", "mv")


async def test_what_differs_behind_the_last_event_does_not_count() -> None:
    scene = await recorded()
    short = scripted(b"hi", OSLO, last=DONE)

    assert (await follow(scene, short, until=4)).verdict == "identical"
    assert (await follow(scene, short, until=5)).verdict == "diverged"
    assert (await follow(scene, short)).verdict == "diverged"


@pytest.mark.parametrize("until", [0, 8])
async def test_event_that_is_not_there_is_refused(until: int) -> None:
    scene = await recorded()

    with pytest.raises(UsageError, match=f"no event {until}") as caught:
        await follow(scene, until=until)
    assert "1 to 7" in caught.value.fix


async def test_replay_pauses_at_each_call_of_a_run_without_an_end_too() -> None:
    scene = await recorded(hang, wall=0.02)
    seen: list[tuple[int, int]] = []

    async def pause(call: int, lines: int) -> None:
        seen.append((call, lines))

    assert (await follow(scene, pause=pause)).until is None
    assert seen == [(1, 1)]


async def test_pause_may_end_a_replay() -> None:
    scene = await recorded()

    async def pause(call: int, lines: int) -> None:
        del call, lines
        raise Halt

    found = await follow(scene, pause=pause)

    assert (found.verdict, found.calls, found.until) == ("identical", 1, 4)


async def test_call_beyond_a_limit_that_the_recording_did_not_reach_diverges() -> None:
    scene = await recorded(calling("weather"), total_calls=1)

    found = await divergence(scene, calling("weather", "weather"))

    assert found == Divergence(None, "$.name", None, "weather")


# -- ends that only a clock, a person or a crash knows -------------------------


async def hang(door: Door, guest: Guest) -> Ending:
    del guest
    door.log(1, b"hi")
    await door.call(b"weather", pack(city="Oslo"), 1)
    await asyncio.sleep(30)
    raise AssertionError


async def test_run_that_the_wall_ended_replays_to_its_last_event() -> None:
    scene = await recorded(hang, wall=0.02)

    replayed = await scene.replay()

    assert (replayed.verdict, replayed.calls) == ("identical", 1)


async def test_run_that_the_wall_ended_in_a_call_replays_identical() -> None:
    class Hanging(FakeTools):
        async def call_tool(self, request: ToolRequest) -> Completed:
            del request
            await asyncio.sleep(30)
            raise AssertionError

    scene = Scene(calling("weather", "weather"), tools=Hanging(ANSWERS))
    scene.limit(wall=0.02)
    await scene.run()

    assert types(await scene.events())[-2:] == ["ToolFailed", "RunFailed"]
    assert (await scene.replay()).verdict == "identical"


async def test_run_that_was_cancelled_replays_identical() -> None:
    scene = Scene(hang)
    await scene.cancelled_after(4)

    assert (await scene.replay()).verdict == "identical"


async def test_run_of_which_the_clock_left_nothing_replays_identical() -> None:
    async def spin(door: Door, guest: Guest) -> Ending:
        del door, guest
        await asyncio.sleep(30)
        raise AssertionError

    scene = await recorded(spin, wall=0.01)

    assert (await scene.replay()).verdict == "identical"


async def test_run_that_a_clock_ended_still_diverges_before_that() -> None:
    scene = await recorded(hang, wall=0.02)

    found = await divergence(scene, scripted(b"hi", ECHO, last=DONE))
    assert found.path == "$.name"
    found = await divergence(scene, scripted(b"hi", last=DONE))
    assert (found.path, found.replayed) == ("$.name", None)
    found = await divergence(scene, scripted(OSLO, last=DONE))
    assert (found.path, found.recorded, found.replayed) == ("$.text", "hi", None)


@pytest.mark.parametrize("kind", ["worker", "host"])
async def test_run_that_the_host_failed_replays_to_its_last_event(kind: str) -> None:
    exc = SandboxError("died") if kind == "worker" else ZeroDivisionError()

    async def script(door: Door, guest: Guest) -> Ending:
        await USUAL(door, guest)
        raise exc

    scene = await recorded(script)

    end = (await scene.events())[-1]
    assert isinstance(end, RunFailed)
    assert end.kind == kind
    assert (await scene.replay(USUAL)).verdict == "identical"


@pytest.mark.parametrize("effect", ["unsafe", "read"])
async def test_crashed_run_replays_to_the_call_in_doubt(effect: Effect) -> None:
    class Effective(FakeTools):
        async def offered(self, servers: Collection[str]) -> Offered:
            found = await super().offered(servers)
            return replace(
                found, offers=tuple(replace(o, effect=effect) for o in found.offers)
            )

    scene = Scene(USUAL, tools=Effective(ANSWERS))
    await scene.run()
    stream = scene.store.streams[f"run/{scene.run_id}"]
    del stream[5:]
    assert types(await scene.events())[-1] == "ToolInvoked"

    replayed = await scene.replay()

    assert (replayed.verdict, replayed.calls) == ("identical", 2)


async def test_log_without_an_end_replays_to_its_last_event() -> None:
    scene = await recorded()
    stream = scene.store.streams[f"run/{scene.run_id}"]
    del stream[-1]

    assert (await scene.replay()).verdict == "identical"


async def test_run_that_crashed_right_at_its_limit_replays_identical() -> None:
    scene = await recorded(calling("weather", "weather"), total_calls=1)
    stream = scene.store.streams[f"run/{scene.run_id}"]
    assert isinstance(stream.pop().event, RunFailed)

    assert (await scene.replay()).verdict == "identical"
    found = await divergence(scene, calling("weather"))
    assert (found.path, found.replayed) == ("$.name", None)


# -- what cannot be replayed ---------------------------------------------------


async def test_run_that_is_not_there_is_not_found() -> None:
    scene = Scene(USUAL, run_id="none")

    with pytest.raises(NotFoundError) as caught:
        await scene.replay()
    assert caught.value.fix


@pytest.mark.parametrize("seq", [1, 4])
async def test_erased_run_is_refused(seq: int) -> None:
    scene = await recorded()
    stream = scene.store.streams[f"run/{scene.run_id}"]
    stream[seq - 1] = replace(stream[seq - 1], event=None)

    with pytest.raises(NotKeptError, match=f"event {seq} of run .* was erased"):
        await scene.replay()


async def test_log_that_does_not_begin_with_a_start_is_broken() -> None:
    scene = await recorded()
    del scene.store.streams[f"run/{scene.run_id}"][0]

    with pytest.raises(LogBrokenError, match="does not begin with RunStarted"):
        await scene.replay()


async def test_run_without_its_module_is_refused() -> None:
    scene = await recorded()
    scene.store.blobs.clear()

    with pytest.raises(NotFoundError):
        await scene.replay()


async def test_worker_that_dies_under_replay_is_no_divergence() -> None:
    async def dies(door: Door, guest: Guest) -> Ending:
        del door, guest
        raise SandboxError("the worker died")

    scene = await recorded()

    with pytest.raises(SandboxError):
        await scene.replay(dies)


# -- the document --------------------------------------------------------------


def test_document_of_an_identical_replay() -> None:
    document = Replayed(run_id="1", calls=2, divergence=None).to_document()

    assert document == {
        "$type": "caxton.replay/v1",
        "run_id": "1",
        "verdict": "identical",
        "calls": 2,
        "until": None,
        "state": "completed",
        "divergence": None,
        "not_kept": None,
        "executed": True,
    }


def test_document_of_a_divergence() -> None:
    found = Divergence(seq=4, path="$.params.n", recorded=1, replayed=True)

    document = Replayed(run_id="1", calls=2, divergence=found).to_document()

    assert document["verdict"] == "diverged"
    assert document["divergence"] == {
        "seq": 4,
        "path": "$.params.n",
        "recorded": 1,
        "replayed": True,
        "run": None,
    }
    codec.encode(document)


async def test_tools_of_a_replay_reach_nothing() -> None:  # law 6
    from caxton_host.runs.replay import _NoTools  # noqa: PLC0415

    tools = _NoTools()

    assert await tools.offered(["demo"]) == Offered()
    request = ToolRequest(
        run_id="1",
        call=1,
        server="demo",
        tool="echo",
        params={},
        definition_sha256=None,
        idempotency_key="",
    )
    with pytest.raises(ToolError):
        await tools.call_tool(request)


async def test_run_that_answers_too_large_together_ended_replays_to_that_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def script(door: Door, guest: Guest) -> Ending:
        del guest
        await door.call_many(codec.encode([["weather", {}], ["rm", {}]]), 1)
        return DONE

    monkeypatch.setattr(door_module, "MAX_REPLIES", 100)
    scene = await recorded(script)
    end = (await scene.events())[-1]
    assert isinstance(end, RunFailed)
    assert end.message.startswith("result: ")

    assert (await scene.replay()).verdict == "identical"
    monkeypatch.setattr(door_module, "MAX_REPLIES", 1_000)
    assert (await divergence(scene, script)).path == "$.type"
