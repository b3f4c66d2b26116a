"""What a run did before a call is known without a look at all before it."""

from __future__ import annotations

import random  # noqa: TID251 -- drawn by hypothesis
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caxton_host.core.calls import JSON
from caxton_host.core.log.events import Event, RunStarted, ToolInvoked
from caxton_host.errors import UsageError
from caxton_host.runs import past
from caxton_host.runs.explain import explanation
from caxton_host.runs.recording import Recording
from caxton_host.store.memory import MemoryStore
from caxton_host.testing import FakeClock, FakeEntropy
from tests.turns import completed, denied, failed, invoked, suspended
from tests.unit.store.fakes import line, run_queued, run_started

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
#: The tool of a call, its rule, how it ends, and how many events later.
CALLS = st.tuples(
    st.sampled_from("tu"),
    st.sampled_from([None, "allow[1]", "allow[2]"]),
    st.sampled_from(["ok", "error", "denied", "failed", "open"]),
    st.integers(0, 3),
)


def history(calls: list[tuple[str, str | None, str, int]]) -> list[Event]:
    """Return the events of calls, some under way at the same time."""
    ordered: list[tuple[int, Event]] = []
    for number, (tool, rule, end, later) in enumerate(calls, 1):
        call = replace(invoked(number, tool), rule=rule, spends={"k": 2, "@o/k": 3})
        ordered.append((number, call))
        ended: dict[str, Event] = {
            "ok": replace(completed(number), settles={"k": 1}, reached=("s/v",)),
            "error": completed(number, is_error=True),
            "denied": denied(number),
            "failed": failed(number),
            "open": line(number),
        }
        ordered.append((number + later, ended[end]))
    return [event for _, event in sorted(ordered, key=lambda one: one[0])]


async def recorded(*events: Event, started: RunStarted = STARTED) -> Recording:
    store = MemoryStore(clock=FakeClock(), entropy=FakeEntropy())
    await store.create("run/a").append(run_queued(), started, *events, suspended())
    return await Recording.load("a", store.reader)


@given(calls=st.lists(CALLS, max_size=8), order=st.randoms(use_true_random=False))
async def test_tallies_before_each_event_are_those_of_all_events_before_it(
    calls: list[tuple[str, str | None, str, int]], order: random.Random
) -> None:
    recording = await recorded(*history(calls))
    behind = [one.seq for one in recording.own[1:]] * 2
    order.shuffle(behind)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(past, "_EACH", 3)
        found = [(seq, recording.past.before(seq)) for seq in behind]

    for seq, tallies in found:
        assert tallies == recording.until(seq - 1).journal(judging=True).tallies


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
