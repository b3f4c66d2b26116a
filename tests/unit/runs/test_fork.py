"""A fork begins with what its parent did, and goes on by itself: laws 3, 4, 5, 6."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace

import pytest

from caxton_host.core.calls import JSON, Completed
from caxton_host.core.grants.forks import MAX_LINEAGE
from caxton_host.core.grants.grants import Grant
from caxton_host.core.limits import Limits
from caxton_host.core.log.events import (
    Event,
    RunFailed,
    RunStarted,
    ToolCompleted,
    ToolDenied,
    ToolInvoked,
)
from caxton_host.core.log.projection import summarise
from caxton_host.errors import LogBrokenError, NotFoundError, NotKeptError, UsageError
from caxton_host.lib import codec
from caxton_host.ports.sandbox import Answer, Door, Ending, Guest
from caxton_host.ports.tools import RunScope
from caxton_host.runs.recording import Recording
from caxton_host.runs.replay import Options, Replayed, replay
from caxton_host.runs.run_request import ForkRequest
from caxton_host.telemetry import NoTelemetry
from caxton_host.testing import FakeSandbox, FakeTools, Script
from tests.scene import (
    ANSWERS,
    DEMO,
    Scene,
    Watched,
    calling,
    ended,
    pack,
    rule,
    types,
)

ANN: dict[str, JSON] = {"kind": "local", "id": "ann", "authenticated": False}
#: What the usual run records: 1 start, 2 line, 3-4 call 1, 5 line, 6-7 call 2,
#: 8 line, 9-10 call 3, 11 end.
LAST = 11


async def usual(door: Door, guest: Guest) -> Ending:
    """Make three calls, each with what the one before answered."""
    del guest
    said: JSON = None
    texts: list[JSON] = []
    for fuel in (1, 2, 3):
        door.log(1, f"call {fuel}".encode())
        answer = await door.call(b"weather", pack(n=fuel, said=said), fuel)
        reply = codec.decode(answer.reply, limit=1 << 20)
        assert isinstance(reply, dict)
        said = reply["message"]
        texts.append(said)
    return ended(texts)


@dataclass
class Forks:
    """A scene whose run was recorded, and its forks."""

    scene: Scene
    asked: FakeTools
    parent: str = ""
    runs: list[str] = field(default_factory=list)

    @classmethod
    async def recorded(cls, script: Script = usual, **limits: float) -> Forks:
        tools = FakeTools(ANSWERS)
        scene = Scene(script, tools=tools)
        scene.limit(**limits)
        await scene.run()
        tools.asked.clear()
        return cls(scene, tools, scene.run_id)

    async def fork(  # noqa: PLR0913 -- one an attribute of a fork
        self,
        seq: int,
        *,
        run: str = "",
        grant: Grant = DEMO,
        module: bytes | None = None,
        edited: Completed | None = None,
        script: Script | None = None,
    ) -> str:
        if script:
            self.scene.sandbox.script = script
        request = ForkRequest(
            run_id=run or self.parent,
            seq=seq,
            actor=ANN,
            grant=grant,
            module=module,
            edited=edited,
        )
        run_id = await self.scene.host.fork(request, on_started=self.runs.append)
        assert self.runs[-1] == run_id
        return run_id

    async def events(self, run: str) -> list[Event]:
        recorded = await self.scene.store.reader.read(f"run/{run}")
        return [one.event for one in recorded if one.event]

    async def output(self, run: str) -> JSON:
        return summarise(run, await self.scene.store.reader.read(f"run/{run}")).output

    async def replay(
        self, run: str, script: Script | None = None, options: Options | None = None
    ) -> Replayed:
        return await replay(
            run,
            store=self.scene.store.reader,
            sandbox=FakeSandbox(script or self.scene.script),
            telemetry=NoTelemetry(),
            options=options or Options(),
        )

    def erase(self, run: str, seq: int) -> None:
        stream = self.scene.store.streams[f"run/{run}"]
        stream[seq - 1] = replace(stream[seq - 1], event=None)


def numbers(asked: FakeTools) -> list[int]:
    return [request.call for request in asked.asked]


async def test_a_fork_reaches_servers_for_whoever_asked_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Not for the one who started its parent, whose tokens are not its own."""
    forks = await Forks.recorded()
    scopes: list[RunScope] = []
    opened = FakeTools.open

    def noting(self: FakeTools, scope: RunScope) -> nullcontext[FakeTools]:
        scopes.append(scope)
        return opened(self, scope)

    monkeypatch.setattr(FakeTools, "open", noting)
    bob: dict[str, JSON] = {"kind": "oauth", "id": "bob", "authenticated": True}
    request = ForkRequest(run_id=forks.parent, seq=4, actor=bob, grant=DEMO)
    await forks.scene.host.fork(request)
    assert [scope.actor for scope in scopes] == [bob]


async def test_usual_run_is_as_the_tests_here_count_it() -> None:
    forks = await Forks.recorded()

    events = await forks.events(forks.parent)

    one = ["LogWritten", "ToolInvoked", "ToolCompleted"]
    assert types(events) == ["RunStarted", *one, *one, *one, "RunCompleted"]
    assert len(events) == LAST


# -- what a fork is ------------------------------------------------------------


async def test_nothing_of_the_prefix_is_sent_again() -> None:  # law 7
    forks = await Forks.recorded()

    run = await forks.fork(7)

    assert numbers(forks.asked) == [3]
    assert types(await forks.events(run)) == [
        "RunStarted",
        "LogWritten",
        "ToolInvoked",
        "ToolCompleted",
        "RunCompleted",
    ]


async def test_start_of_a_fork_names_its_parent_and_keeps_what_it_was_given() -> None:
    forks = await Forks.recorded()
    recorded = await forks.scene.store.reader.read(f"run/{forks.parent}")
    before = recorded[0].event

    [after, *_] = await forks.events(await forks.fork(4))

    assert isinstance(before, RunStarted)
    assert isinstance(after, RunStarted)
    assert after.forked_from == {
        "run": forks.parent,
        "seq": 4,
        "hash": recorded[3].hash.hex(),
    }
    assert after.seed != before.seed
    same = replace(after, seed=before.seed, forked_from=None)
    assert same == before


async def test_guest_of_a_fork_is_given_what_its_parent_was_given() -> None:  # law 5
    forks = await Forks.recorded()
    first, again = forks.scene.sandbox.guests[0], Watched(usual)
    forks.scene.clock.time += 60_000_000

    run = await forks.fork(7, script=again)

    [guest] = again.guests
    assert replace(guest, seeds={}) == first
    recording = await Recording.load(run, forks.scene.store.reader)
    assert guest.seeds == {2: bytes.fromhex(recording.started.seed)}
    times = [e.recorded_at for e in recording.history if e.type == "ToolCompleted"]
    assert [answer.at for answer in again.answers] == times
    assert times[1] < times[2] - 59_000_000
    assert [bool(answer.seed) for answer in again.answers] == [False, True, False]


async def test_fork_before_the_first_call_has_other_random_numbers_at_once() -> None:
    forks = await Forks.recorded()

    run = await forks.fork(2)

    [_, guest] = forks.scene.sandbox.guests
    [started, *_] = await forks.events(run)
    assert isinstance(started, RunStarted)
    assert (guest.seed.hex(), guest.seeds) == (started.seed, {})
    assert numbers(forks.asked) == [1, 2, 3]


async def test_calls_of_a_fork_have_keys_of_their_own() -> None:
    forks = await Forks.recorded()
    keys = [
        e.idempotency_key
        for e in await forks.events(forks.parent)
        if isinstance(e, ToolInvoked)
    ]

    await forks.fork(4)

    new = [request.idempotency_key for request in forks.asked.asked]
    assert len({*keys, *new}) == 5


async def test_lines_behind_the_last_call_are_written_anew() -> None:
    forks = await Forks.recorded()

    for seq in (7, 8):
        run = await forks.fork(seq)
        assert "LogWritten" in types(await forks.events(run))
        assert (await forks.replay(run)).verdict == "identical"


async def test_fork_at_the_end_makes_no_call() -> None:
    forks = await Forks.recorded()

    run = await forks.fork(LAST)

    assert numbers(forks.asked) == []
    assert types(await forks.events(run)) == ["RunStarted", "RunCompleted"]
    assert (await forks.replay(run)).verdict == "identical"


# -- grants --------------------------------------------------------------------


async def test_fork_is_judged_by_the_grants_of_today_alone() -> None:  # law 4
    forks = await Forks.recorded()

    run = await forks.fork(7, grant=Grant())

    events = await forks.events(run)
    [denied] = [e for e in events if isinstance(e, ToolDenied)]
    assert (denied.call, denied.code) == (3, "not_granted")
    assert numbers(forks.asked) == []
    assert (await forks.replay(run)).verdict == "identical"


async def test_inherited_calls_count_towards_the_grants_of_a_fork() -> None:  # law 4
    forks = await Forks.recorded()
    named_alike = rule("shell/*", name="allow[1]", calls=2)
    twice = Grant(allow=(named_alike, rule("demo/*", name="allow[2]", calls=2)))

    run = await forks.fork(4, grant=twice)

    assert numbers(forks.asked) == [2]
    [denied] = [e for e in await forks.events(run) if isinstance(e, ToolDenied)]
    assert (denied.call, denied.rule) == (3, "allow[2]")


async def test_what_a_fork_may_not_call_itself_was_called_all_the_same() -> None:
    # law 4: a rule that a call rules out does not forget one of the parent
    forks = await Forks.recorded(calling("weather", "mcp__demo__echo"))
    echo = replace(rule("demo/echo"), unless_after=rule("demo/get_weather").tools)

    run = await forks.fork(3, grant=Grant(allow=(echo,)))

    (denied,) = (e for e in await forks.events(run) if isinstance(e, ToolDenied))
    assert (denied.call, denied.code) == (2, "order")


async def test_inherited_calls_count_towards_the_limits_of_a_fork() -> None:
    forks = await Forks.recorded(total_calls=3)

    async def more(door: Door, guest: Guest) -> Ending:
        await usual(door, guest)
        await door.call(b"weather", pack(), 4)
        raise AssertionError

    run = await forks.fork(7, script=more)

    end = (await forks.events(run))[-1]
    assert isinstance(end, RunFailed)
    assert end.message.startswith("total_calls")


# -- an edited result ----------------------------------------------------------


RAIN = Completed(message="rain", data={"sky": "rain"})


@pytest.mark.parametrize("seq", [6, 7])
async def test_edited_result_is_in_the_log_of_the_fork(seq: int) -> None:  # law 5
    forks = await Forks.recorded()

    run = await forks.fork(seq, edited=RAIN)

    started, edited, *_ = await forks.events(run)
    assert isinstance(started, RunStarted)
    assert started.forked_from
    assert started.forked_from["seq"] == 6
    assert edited == ToolCompleted(
        call=2, is_error=False, message="rain", data=RAIN.data
    )
    [request] = forks.asked.asked
    assert request.params == {"n": 3, "said": "rain"}
    assert (await forks.replay(run)).verdict == "identical"


async def test_start_and_edited_result_are_one_transaction() -> None:  # law 3
    forks = await Forks.recorded()

    async def dies(door: Door, guest: Guest) -> Ending:
        del door, guest
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        await forks.fork(6, edited=RAIN, script=dies)

    assert types(await forks.events(forks.runs[-1])) == ["RunStarted", "ToolCompleted"]


async def test_denied_call_can_be_given_a_result() -> None:
    async def asks(door: Door, guest: Guest) -> Ending:
        del guest
        return ended((await door.call(b"rm", pack(), 1)).status)

    forks = await Forks.recorded(asks)

    run = await forks.fork(2, edited=RAIN)

    assert await forks.output(forks.parent) == 2
    assert await forks.output(run) == 0


async def test_summary_names_the_parent_and_counts_what_is_the_forks_own() -> None:
    forks = await Forks.recorded()

    run = await forks.fork(6, edited=RAIN)

    summary = summarise(run, await forks.scene.store.reader.read(f"run/{run}"))
    assert summary.forked_from
    assert summary.forked_from["run"] == forks.parent
    assert (summary.calls["total"], summary.calls["ok"]) == (1, 1)
    assert summary.calls["in_doubt"] == 0
    assert summary.to_document()["forked_from"] == summary.forked_from


# -- batches -------------------------------------------------------------------


async def batching(door: Door, guest: Guest) -> Ending:
    """Make a batch of three calls, the second of which is denied, and one more."""
    del guest
    items: list[JSON] = [["weather", {"n": 1}], ["rm", {}], ["weather", {"n": 2}]]
    answer = await door.call_many(codec.encode(items), 1)
    last = await door.call(b"weather", pack(said=len(answer.reply)), 2)
    return ended([answer.status, last.status])


async def batch_events(forks: Forks) -> list[str]:
    return types(await forks.events(forks.parent))


async def test_fork_behind_a_batch_sends_nothing_of_it() -> None:
    forks = await Forks.recorded(batching)
    again = Watched(batching)
    [*_, before, _, _, _] = await batch_events(forks)
    assert before == "ToolCompleted"
    seq = len(await batch_events(forks)) - 3

    run = await forks.fork(seq, script=again)

    assert numbers(forks.asked) == [4]
    assert [bool(answer.seed) for answer in again.answers] == [True, False]
    assert (await forks.replay(run)).verdict == "identical"


@pytest.mark.parametrize("call", [1, 2, 3])
async def test_edited_call_of_a_batch_leaves_the_others_as_they_were(
    call: int,
) -> None:
    forks = await Forks.recorded(batching)
    events = await forks.events(forks.parent)
    seq = 1 + next(
        n
        for n, event in enumerate(events)
        if isinstance(event, ToolInvoked) and event.call == call
    )

    run = await forks.fork(seq, edited=RAIN)

    assert numbers(forks.asked) == [4]
    edited = (await forks.events(run))[1]
    assert isinstance(edited, ToolCompleted)
    assert edited.call == call
    assert (await forks.replay(run)).verdict == "identical"


async def test_replay_pauses_at_each_call_of_a_batch() -> None:
    forks = await Forks.recorded(batching)
    seen: list[int] = []

    async def pause(number: int, lines: int) -> None:
        assert lines == 0
        seen.append(number)

    await forks.replay(forks.parent, options=Options(pause=pause))

    assert seen == [1, 2, 3, 4]


# -- another module ------------------------------------------------------------


def noisy(*lines: int) -> Script:
    """Return the usual guest, burning more and logging other lines."""

    @dataclass
    class Noisy:
        door: Door

        async def call(self, name: bytes, params: bytes, fuel: int) -> Answer:
            return await self.door.call(name, params, fuel * 10)

        async def call_many(self, batch: bytes, fuel: int) -> Answer:
            return await self.door.call_many(batch, fuel * 10)

        def log(self, level: int, text: bytes) -> None:
            for n in lines:
                self.door.log(level, text + b"!" * n)

    async def script(door: Door, guest: Guest) -> Ending:
        return await usual(Noisy(door), guest)

    return script


@pytest.mark.parametrize("lines", [(), (1,), (1, 2, 3)])
async def test_other_module_may_burn_and_log_otherwise(lines: Sequence[int]) -> None:
    forks = await Forks.recorded()

    run = await forks.fork(7, module=b"\0asm2", script=noisy(*lines))

    assert numbers(forks.asked) == [3]
    assert types(await forks.events(run)).count("LogWritten") == 3 * len(lines)
    assert (await forks.replay(run, noisy(*lines))).verdict == "identical"


async def test_module_that_calls_otherwise_in_the_prefix_has_diverged() -> None:
    async def other(door: Door, guest: Guest) -> Ending:
        del guest
        await door.call(b"mcp__demo__echo", pack(), 1)
        raise AssertionError

    forks = await Forks.recorded()

    run = await forks.fork(7, module=b"\0asm2", script=other)

    end = (await forks.events(run))[-1]
    assert isinstance(end, RunFailed)
    assert end.kind == "diverged"
    assert f"event 3 of run {forks.parent}, $.name" in end.message
    assert numbers(forks.asked) == []


# -- where it cannot be --------------------------------------------------------


async def test_fork_that_leaves_a_call_in_doubt_is_refused_with_other_places() -> None:
    forks = await Forks.recorded()

    with pytest.raises(UsageError, match="cannot fork at event 6") as caught:
        await forks.fork(6)

    assert caught.value.fix.startswith("fork at event 2, 4, 5, 7, 8 or 10; or pass ")
    assert forks.runs == []


@pytest.mark.parametrize("edited", [None, RAIN])
async def test_fork_at_an_event_that_is_not_there_is_refused(
    edited: Completed | None,
) -> None:
    forks = await Forks.recorded()

    with pytest.raises(UsageError, match="no event 99") as caught:
        await forks.fork(99, edited=edited)
    assert f"1 to {LAST}" in caught.value.fix


@pytest.mark.parametrize("seq", [1, 5, LAST])
async def test_result_of_an_event_that_is_of_no_call_cannot_be_edited(seq: int) -> None:
    forks = await Forks.recorded()

    with pytest.raises(UsageError, match="not of a call") as caught:
        await forks.fork(seq, edited=RAIN)
    assert "event 3, 6 or 9" in caught.value.fix


async def test_run_without_calls_says_that_no_result_can_be_edited() -> None:
    async def idle(door: Door, guest: Guest) -> Ending:
        del door, guest
        return ended()

    forks = await Forks.recorded(idle)

    with pytest.raises(UsageError) as caught:
        await forks.fork(1, edited=RAIN)
    assert "none" in caught.value.fix


async def test_fork_of_no_run_is_not_found() -> None:
    forks = await Forks.recorded()

    with pytest.raises(NotFoundError):
        await forks.fork(1, run="none")


# -- a fork of a fork ----------------------------------------------------------


async def test_fork_of_a_fork_inherits_from_both() -> None:
    forks = await Forks.recorded()
    first = await forks.fork(6, edited=RAIN)

    # 1 start, 2 the edited result, 3 line, 4-5 call 3, 6 end
    second = await forks.fork(5, run=first)

    recording = await Recording.load(second, forks.scene.store.reader)
    assert [one.run_id for one in recording.lineage] == [forks.parent, first]
    assert [one.calls for one in recording.lineage] == [2, 3]
    assert numbers(forks.asked) == [3]
    clear = str(ANSWERS["demo", "get_weather"])
    assert await forks.output(second) == [clear, "rain", clear]
    assert (await forks.replay(second)).verdict == "identical"
    guest = forks.scene.sandbox.guests[-1]
    assert sorted(guest.seeds) == [2, 3]
    assert guest.seed == forks.scene.sandbox.guests[0].seed


async def test_fork_right_at_the_start_of_a_fork_has_the_same_prefix() -> None:
    forks = await Forks.recorded()
    first = await forks.fork(7)

    second = await forks.fork(1, run=first)

    assert numbers(forks.asked) == [3, 3]
    assert sorted(forks.scene.sandbox.guests[-1].seeds) == [2]
    assert (await forks.replay(second)).verdict == "identical"


async def test_edited_result_of_a_fork_can_be_edited_again() -> None:
    forks = await Forks.recorded()
    first = await forks.fork(6, edited=RAIN)

    second = await forks.fork(2, run=first, edited=Completed(message="snow"))

    assert forks.asked.asked[-1].params == {"n": 3, "said": "snow"}
    assert (await forks.replay(second)).verdict == "identical"
    with pytest.raises(UsageError, match="cannot fork at event 1") as caught:
        await forks.fork(1, run=first)
    assert "event 2, 3, 5 or 6" in caught.value.fix


async def test_module_of_the_ancestor_may_come_back() -> None:
    forks = await Forks.recorded()
    first = await forks.fork(4, module=b"\0asm2", script=noisy(1, 2))

    second = await forks.fork(5, run=first, module=b"\0asm", script=usual)

    assert (await forks.replay(first, noisy(1, 2))).verdict == "identical"
    assert (await forks.replay(second, usual)).verdict == "identical"


async def test_lineage_is_bounded() -> None:  # law 9
    forks = await Forks.recorded()
    run = forks.parent
    for _ in range(MAX_LINEAGE):
        run = await forks.fork(1, run=run, grant=Grant())

    assert (await forks.replay(run)).verdict == "identical"
    with pytest.raises(UsageError, match="has 100 ancestors"):
        await forks.fork(1, run=run)


# -- divergences and logs that lack something ----------------------------------


async def test_divergence_in_the_prefix_names_the_run_of_the_event() -> None:  # law 6
    async def other(door: Door, guest: Guest) -> Ending:
        del guest
        door.log(1, b"call 1")
        await door.call(b"weather", pack(n=2, said=None), 1)
        raise AssertionError

    forks = await Forks.recorded()
    run = await forks.fork(7)

    found = (await forks.replay(run, other)).divergence

    assert found
    assert (found.run, found.seq, found.path) == (forks.parent, 3, "$.params.n")
    assert f"event 3 of run {forks.parent}" in str(found)


async def test_fork_whose_parent_is_missing_says_so() -> None:
    forks = await Forks.recorded()
    run = await forks.fork(7)
    del forks.scene.store.streams[f"run/{forks.parent}"]

    with pytest.raises(LogBrokenError, match=f"from run {forks.parent}, and"):
        await forks.replay(run)


@pytest.mark.parametrize("seq", [1, 3])
async def test_fork_whose_parent_was_erased_says_so(seq: int) -> None:
    forks = await Forks.recorded()
    run = await forks.fork(7)
    forks.erase(forks.parent, seq)

    with pytest.raises(NotKeptError, match=f"{seq} of run {forks.parent} was erased"):
        await forks.replay(run)


async def test_fork_does_not_need_what_its_parent_did_later() -> None:
    forks = await Forks.recorded()
    run = await forks.fork(7)
    forks.erase(forks.parent, 9)

    assert (await forks.replay(run)).verdict == "identical"


async def test_parent_that_is_another_than_it_was_is_refused() -> None:
    forks = await Forks.recorded()
    run = await forks.fork(7)
    stream = forks.scene.store.streams[f"run/{forks.parent}"]
    stream[6] = replace(stream[6], hash=b"x" * 32)

    with pytest.raises(LogBrokenError, match="not the one"):
        await forks.replay(run)


async def test_run_that_comes_from_itself_is_refused() -> None:  # law 9
    forks = await Forks.recorded()
    run = await forks.fork(7)
    stream = forks.scene.store.streams[f"run/{run}"]
    started = stream[0].event
    assert isinstance(started, RunStarted)
    itself: dict[str, JSON] = {"run": run, "seq": 1, "hash": stream[0].hash.hex()}
    stream[0] = replace(stream[0], event=replace(started, forked_from=itself))

    with pytest.raises(LogBrokenError, match="no end of runs"):
        await forks.replay(run)


async def test_fork_that_crashed_is_resumed_from_its_own_log() -> None:  # law 10
    forks = await Forks.recorded()
    run = await forks.fork(4)
    del forks.scene.store.streams[f"run/{run}"][4:]
    forks.asked.asked.clear()

    await forks.scene.host.resume(run, actor=ANN, grant=DEMO)

    assert numbers(forks.asked) == [3]
    assert await forks.output(run) == await forks.output(forks.parent)
    assert (await forks.replay(run)).verdict == "identical"
    recording = await Recording.load(run, forks.scene.store.reader)
    assert recording.epoch == 2
    assert recording.limits == Limits.from_payload(recording.started.limits)


async def test_until_counts_the_forks_own_events() -> None:
    forks = await Forks.recorded()
    run = await forks.fork(7)

    found = await forks.replay(run, options=Options(until=1))

    assert (found.calls, found.until, found.verdict) == (2, 1, "identical")
