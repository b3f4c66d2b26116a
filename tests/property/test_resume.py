"""A run that is cut at any transaction, and resumed, ends as if it had not been."""

from __future__ import annotations

from typing import TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caxton_host.core.calls import JSON
from caxton_host.core.log.events import (
    CallResolved,
    Recorded,
    RunCancelled,
    RunCompleted,
    RunStarted,
    RunSuspended,
    ToolInvoked,
    ToolRetried,
    outcome_of,
)
from caxton_host.core.log.requests import Abort, Fail, GiveResult, Resend, Resolution
from caxton_host.core.names import idempotency_key
from caxton_host.errors import Suspend, UsageError
from caxton_host.lib import codec
from caxton_host.ports import Door, Ending, Guest, ToolRequest
from caxton_host.testing import Script
from tests.crash import Doubt, Ledger, answer, doubts, leave
from tests.scene import DEMO, Scene, Watched, ended

#: A call by name and parameters, or a log line.
Step: TypeAlias = tuple[bytes, dict[str, JSON]] | bytes
WHO: dict[str, JSON] = {"kind": "local", "id": "ann", "authenticated": False}

NAMES = st.sampled_from(
    [
        *(f"mcp__demo__{tool}".encode() for tool in ("look", "set", "pay", "fail")),
        b"mcp__demo__send",
        b"mcp__demo__send",
        b"nothing",
        b"bad name",
    ]
)
PARAMS = st.dictionaries(st.sampled_from("ab"), st.integers(0, 3), max_size=2)
STEPS = st.lists(st.tuples(NAMES, PARAMS) | st.binary(max_size=5), max_size=6)
WORDS = st.sampled_from(["retry", "result", "fail", "abort"])
#: Where each host dies, and what a person says of a call in doubt after that.
CRASHES = st.lists(st.tuples(st.integers(0, 99), WORDS), min_size=1, max_size=4)


def guest_of(steps: list[Step]) -> Script:
    async def script(door: Door, guest: Guest) -> Ending:
        del guest
        statuses: list[JSON] = []
        for fuel, step in enumerate(steps):
            if isinstance(step, bytes):
                door.log(1, step)
            else:
                name, params = step
                sent = await door.call(name, codec.encode(params), fuel)
                statuses.append([sent.status, codec.sha256(sent.reply)])
        return ended(statuses)

    return script


async def whole(steps: list[Step]) -> Scene:
    scene = Scene(guest_of(steps), tools=Ledger())
    await scene.run()
    return scene


async def after_crash(before: Scene, cut: int) -> Scene:
    """Return a fresh host over what a crash after some transaction leaves."""
    scene = Scene(Watched(before.script), tools=Ledger())
    scene.run_id = before.run_id
    scene.store.blobs |= before.store.blobs
    commits = before.store.commits[f"run/{before.run_id}"]
    kept = commits[: 1 + cut % len(commits)]
    await leave(await before.recorded(), kept, scene.store)
    return scene


async def resume(scene: Scene) -> None:
    await scene.host.resume(scene.run_id, actor=WHO, grant=DEMO)


def said(word: str, doubt: Doubt) -> Resolution:
    words: dict[str, Resolution] = {"retry": Resend(), "fail": Fail(), "abort": Abort()}
    if word in words:
        return words[word]
    call = doubt.invoked
    request = ToolRequest(
        run_id="",
        call=call.call,
        server="demo",
        tool=call.tool or "",
        params=call.params or {},
        definition_sha256=None,
        idempotency_key="",
    )
    return GiveResult(answer(request))


async def see_to_its_end(scene: Scene, word: str) -> None:
    """Resume the run, and say *word* of whatever call is in doubt."""
    ledger = scene.tools
    assert isinstance(ledger, Ledger)
    open_ = doubts(await scene.recorded())
    waits = [d for d in open_ if d.invoked.effect == "unsafe" and not d.resolved]
    if not waits:
        await resume(scene)
        return
    (doubt,) = waits
    if scene_is_suspended(await scene.recorded()):
        with pytest.raises(Suspend):
            await resume(scene)
    else:
        await resume(scene)
        assert (await scene.events())[-1] == RunSuspended(
            reason="in_doubt", call=doubt.invoked.call
        )
    assert ledger.asked == []  # law 7
    await scene.host.resolve(
        scene.run_id, doubt.seq, said(word, doubt), actor=WHO, reason="looked"
    )
    if word == "abort":
        assert isinstance((await scene.events())[-1], RunCancelled)
        with pytest.raises(UsageError):
            await resume(scene)
    else:
        await resume(scene)


def scene_is_suspended(history: list[Recorded]) -> bool:
    states = [one.type for one in history if one.type.startswith("Run")]
    return states[-1] == "RunSuspended"


def has_ended(history: list[Recorded]) -> bool:
    return isinstance(history[-1].event, RunCompleted | RunCancelled)


def check_sends(scene: Scene, left: list[Recorded], now: list[Recorded]) -> None:
    """Assert that this host sent what it had to, once, and nothing else."""
    ledger = scene.tools
    assert isinstance(ledger, Ledger)
    news = now[len(left) :]
    assert [one.hash for one in now[: len(left)]] == [one.hash for one in left]
    sends = [
        (event.call, 1 if isinstance(event, ToolInvoked) else event.attempt)
        for event in (one.event for one in news)
        if (isinstance(event, ToolInvoked) and event.rule)
        or isinstance(event, ToolRetried)
    ]
    assert [(one.call, one.attempt) for one in ledger.asked] == sends
    for one in ledger.asked:
        assert one.idempotency_key == idempotency_key(scene.run_id, one.call)
    for doubt in doubts(left):
        again = [one for one in ledger.asked if one.call == doubt.invoked.call]
        reasons = {
            one.event.reason for one in news if isinstance(one.event, ToolRetried)
        }
        if doubt.invoked.effect != "unsafe":
            assert [one.attempt for one in again] == [doubt.attempts + 1]
            assert reasons == {"resolved" if doubt.resolved else "resumed"}
        elif again:
            assert [one.attempt for one in again] == [doubt.attempts + 1]
            assert reasons == {"resolved"}


@given(steps=STEPS, crashes=CRASHES)
async def test_run_cut_at_any_transaction_ends_as_the_uncut_one(
    steps: list[Step], crashes: list[tuple[int, str]]
) -> None:  # laws 2, 7 and 10
    scene = await whole(steps)
    expected = (await scene.events())[-1]
    assert isinstance(expected, RunCompleted)

    for cut, word in crashes:
        scene = await after_crash(scene, cut)
        left = await scene.recorded()
        if has_ended(left):
            with pytest.raises(UsageError):
                await resume(scene)
            return
        await see_to_its_end(scene, word)
        check_sends(scene, left, await scene.recorded())

    events = await scene.events()
    assert sum(isinstance(event, RunStarted) for event in events) == 1
    assert doubts(await scene.recorded()) == []
    if isinstance(events[-1], RunCancelled):
        return
    end = events[-1]
    assert isinstance(end, RunCompleted)
    assert isinstance(end.output, list)
    assert isinstance(expected.output, list)
    given_up = {
        event.call
        for event in events
        if isinstance(event, CallResolved) and event.verdict == "fail"
    }
    for call, (now, then) in enumerate(
        zip(end.output, expected.output, strict=True), 1
    ):
        if call in given_up:
            assert isinstance(now, list)
            assert now[0] == 3
        else:
            assert now == then
    assert (await scene.replay()).verdict == "identical"


@given(steps=STEPS, crashes=CRASHES)
async def test_log_of_any_number_of_hosts_is_well_formed(
    steps: list[Step], crashes: list[tuple[int, str]]
) -> None:  # law 2
    scene = await whole(steps)
    for cut, word in crashes:
        scene = await after_crash(scene, cut)
        if not has_ended(await scene.recorded()):
            await see_to_its_end(scene, word)

    history = await scene.recorded()
    assert [one.seq for one in history] == [*range(1, len(history) + 1)]
    ends = [end[0] for one in history if one.event and (end := outcome_of(one.event))]
    made = [one.event.call for one in history if isinstance(one.event, ToolInvoked)]
    assert sorted(ends) == made
    assert sorted(made) == [*range(1, len(made) + 1)]
    lines = [one.event for one in history if one.type == "LogWritten"]
    assert [getattr(line, "n", 0) for line in lines] == [*range(1, len(lines) + 1)]


@pytest.mark.parametrize("tool", ["look", "set", "pay", "send"])
async def test_crash_right_after_a_retry_was_decided_is_in_doubt_again(
    tool: str,
) -> None:  # law 7
    scene = await whole([(f"mcp__demo__{tool}".encode(), {"a": 1}), b"done"])
    types = [one.type for one in await scene.recorded()]
    scene = await after_crash(scene, types.index("ToolInvoked"))
    for attempt in (2, 3, 4):
        await see_to_its_end(scene, "retry")
        history = await scene.recorded()
        commits = scene.store.commits[f"run/{scene.run_id}"]
        retried = [one.seq for one in history if one.type == "ToolRetried"]
        assert len(retried) == attempt - 1
        left = await after_crash(scene, commits.index(retried[-1]))
        (doubt,) = doubts(await left.recorded())
        assert (doubt.attempts, doubt.resolved) == (attempt, False)
        scene = left
    await see_to_its_end(scene, "result" if tool == "send" else "")
    assert isinstance((await scene.events())[-1], RunCompleted)
