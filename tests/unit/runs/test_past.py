"""What a run did before a call is known without a look at all before it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from caxton_host.core.calls import JSON
from caxton_host.core.log.events import Event, RunStarted, ToolInvoked
from caxton_host.errors import UsageError
from caxton_host.runs.explain import explanation
from caxton_host.runs.recording import Recording
from caxton_host.store.memory import MemoryStore
from caxton_host.testing import FakeClock, FakeEntropy
from tests.turns import completed, denied, invoked, suspended
from tests.unit.store.fakes import run_queued, run_started

GRANT: dict[str, JSON] = {
    "allow": [
        {"id": "allow[1]", "tools": ["s/t"], "calls": 3},
        {"id": "allow[2]", "tools": ["s/*"], "only_after": ["s/t"]},
    ],
    "deny": [],
}
STARTED = replace(
    run_started(),
    grants=GRANT,
    bounds=({"name": "narrow", "grants": GRANT, "owner": ""},),
    carried={"used": {"allow[1]": 1}, "spent": {"k": 5}, "called": ["s/u"], "done": []},
)


async def recorded(*events: Event, started: RunStarted = STARTED) -> Recording:
    store = MemoryStore(clock=FakeClock(), entropy=FakeEntropy())
    await store.create("run/a").append(run_queued(), started, *events, suspended())
    return await Recording.load("a", store.reader)


async def test_the_calls_of_a_run_that_was_queued_are_explained_by_those_before() -> (
    None
):
    calls = [replace(invoked(n), rule="allow[1]") for n in (1, 2, 3)]
    ends = [completed(1), completed(2), denied(3)]
    events = [event for pair in zip(calls, ends, strict=True) for event in pair]
    grants: dict[str, JSON] = {
        "allow": [{"id": "allow[1]", "tools": ["s/t"], "calls": 2}],
        "deny": [],
    }
    recording = await recorded(*events, started=replace(run_started(), grants=grants))
    seqs = [e.seq for e in recording.own if isinstance(e.event, ToolInvoked)]

    explained: list[Any] = [explanation(recording, {}, seq) for seq in seqs]

    refused = [bool(rule["refusal"]) for one in explained for rule in one["considered"]]
    assert refused == [False, False, True]
    assert recording.until(4).own[-1].seq == 4
    with pytest.raises(UsageError) as caught:
        recording.until(1)
    assert caught.value.fix == "name one of 2 to 9"
