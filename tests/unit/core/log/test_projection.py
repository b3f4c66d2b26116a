"""What a list shows of a run follows from its events, however they come."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caxton_host.core.log.events import Event, RunCompleted, RunQueued
from caxton_host.core.log.projection import Projection, Wait, should_be, summarise
from caxton_host.core.log.runs import CHILD, RESTORED, RunRow
from tests.turns import (
    answered,
    asked,
    completed,
    decided,
    denied,
    failed,
    invoked,
    question,
    resolved,
    resumed,
    retried,
    suspended,
    trapped,
)
from tests.unit.store.fakes import line, run_started

DONE = RunCompleted(output=None, output_sha256="00", fuel=None)
SESSION = replace(run_started(), abi="client/1")


def folded(*events: Event | None, begin: int = 1) -> Projection:
    known = Projection("r")
    for at, event in enumerate(events, begin):
        known.apply(type(event).__name__, event, at)
    return known


def row(*events: Event) -> RunRow:
    found = folded(run_started(), *events).row
    assert found
    return found


def test_row_before_the_start_of_a_run_is_none() -> None:
    assert folded(invoked(), suspended()).row is None


def test_row_names_agent_actor_and_kind() -> None:
    program = replace(run_started(), program={"language": "python"})
    found = [folded(one).row for one in (run_started(), SESSION, program)]

    assert [one and one.kind for one in found] == ["agent", "session", "program"]
    assert [one and one.actor_id for one in found] == ["me"] * 3
    assert [one and one.phase for one in found] == ["running/1"] * 3


def test_row_counts_calls_and_names_tools_once_the_run_turns() -> None:
    calls = [invoked(1), completed(1), invoked(2, None), denied(2), invoked(3, "u")]
    more = [completed(3, is_error=True), invoked(4), failed(4), invoked(5, "u")]

    before, after = row(*calls, *more), row(*calls, *more, trapped())

    assert before == row()  # no call changes a row
    assert json.loads(after.calls) == {
        "total": 5,
        "ok": 1,
        "tool_error": 1,
        "denied": 1,
        "failed": 1,
        "in_doubt": 1,
    }
    assert json.loads(after.tools) == [
        ["", "denied"],
        ["s/t", "failed"],
        ["s/t", "ok"],
        ["s/u", "in_doubt"],
        ["s/u", "tool_error"],
    ]
    assert (after.state, after.reason, after.events) == ("failed", "trap", 11)
    assert (after.ended_at, after.changed_at, after.owner) == (11, 11, None)


def test_call_that_a_fork_inherited_is_not_counted() -> None:
    assert row(completed(1), DONE).calls == "{}"


def waits(*events: Event) -> list[tuple[str, int, int]]:
    found = folded(run_started(), *events).waits
    return [(wait.kind, wait.call, wait.seq) for wait in found]


def test_approvals_wait_until_they_are_decided() -> None:
    both = asked(1), asked(2), suspended()

    assert waits(*both) == [("approval", 1, 2), ("approval", 2, 3)]
    assert waits(*both, decided(1)) == [("approval", 2, 3)]
    assert waits(*both, decided(1), decided(2, "deny")) == []
    assert waits(asked(count=2), suspended(), decided()) == [("approval", 1, 2)]
    assert waits(asked(), suspended(), decided(), asked()) == [("approval", 1, 5)]


def test_approval_waits_in_a_running_session_and_in_no_other_running_run() -> None:
    assert waits(asked()) == []
    assert folded(SESSION, asked(7)).waits == (Wait(2, 2, "approval", 7, "s/t"),)
    assert folded(SESSION, asked(7), invoked(7)).waits == ()


def test_nothing_waits_in_a_run_that_has_ended() -> None:
    assert waits(asked(), suspended(), trapped()) == []
    assert waits(invoked(), suspended("in_doubt"), trapped()) == []


def test_call_in_doubt_waits_until_it_may_be_sent_again() -> None:
    doubt = invoked(3), suspended("in_doubt", 3)
    unsent = replace(suspended("in_doubt", 3), unsent=(3,))
    frozen = replace(suspended("frozen", 3), frozen={"kind": "agent", "name": "a"})

    assert waits(*doubt) == [("in_doubt", 3, 2)]
    assert waits(*doubt, resolved(3, "fail")) == [("in_doubt", 3, 2)]
    assert waits(*doubt, resolved(3, "fail"), failed(3)) == []
    assert waits(*doubt, resolved(3)) == []
    assert waits(invoked(3), unsent) == []
    assert waits(invoked(3), frozen) == []
    again = *doubt, resolved(3), resumed(), retried(3), suspended("in_doubt", 3)
    assert waits(*again) == [("in_doubt", 3, 2)]


def test_question_waits_until_its_answer_the_end_of_its_call_or_a_turn() -> None:
    ask = invoked(), question()

    assert waits(*ask) == [("question", 1, 3)]
    assert waits(*ask, question(number=2), answered()) == [("question", 1, 4)]
    for end in (answered(), completed(), suspended("host_stopped", None), trapped()):
        assert waits(*ask, end) == []
    assert waits(*ask, suspended(), resumed()) == []
    assert waits(invoked(), question(to="client")) == []
    assert waits(invoked(), replace(question(), form=None)) == []


@pytest.mark.parametrize(
    ("events", "due"),
    [
        ([], None),
        ([suspended("host_stopped", None)], 0),
        ([suspended("frozen", None)], 0),
        ([suspended(RESTORED, None)], None),
        ([suspended(CHILD)], None),
        ([asked(), suspended()], None),
        ([asked(until=7), suspended()], 7),
        ([asked(1, until=7), asked(2, until=9), suspended()], 9),
        ([asked(1, until=7), asked(2), suspended()], None),
        ([asked(), suspended(), decided()], 0),
        ([invoked(), suspended("in_doubt")], None),
        ([invoked(), suspended("in_doubt"), resolved()], 0),
        ([invoked(), suspended("in_doubt"), resolved(1, "result"), completed()], 0),
        ([asked(until=7), suspended(), resumed()], None),
    ],
)
def test_run_is_due_once_nobody_has_to_decide(
    events: Sequence[Event], due: int | None
) -> None:
    assert row(*events).due == due
    session = folded(SESSION, *events).row
    assert session
    assert session.due is None  # it goes on with its client


def test_erased_run_is_what_its_row_still_tells() -> None:
    events = [run_started(), invoked(), completed(), asked(), suspended(), trapped()]
    whole = folded(*events)
    erased = Projection("r")
    for at, event in enumerate(events, 1):
        erased.apply(type(event).__name__, None, at)
    assert whole.row

    found = should_be(whole.row, erased)

    assert erased.erased
    assert (found.agent, found.kind, found.events) == ("weather", "agent", 6)
    assert (found.actor, found.actor_id, found.reason) == ("{}", None, None)
    assert (found.calls, found.tools) == ("{}", "[]")
    assert should_be(found, erased) == found


def test_row_stays_if_its_events_are_gone() -> None:
    known = row(trapped())

    assert should_be(known, Projection("r")) == known


CALLS = st.integers(1, 3)
EVENTS = st.lists(
    st.one_of(
        st.builds(invoked, CALLS, st.sampled_from(["t", "u", None])),
        st.builds(completed, CALLS, is_error=st.booleans()),
        *(st.builds(make, CALLS) for make in (denied, failed, retried, answered)),
        st.builds(asked, CALLS, st.sampled_from([None, 5]), st.integers(1, 2)),
        st.builds(decided, CALLS, st.sampled_from(["approve", "deny"])),
        st.builds(resolved, CALLS, st.sampled_from(["retry", "fail"])),
        st.builds(question, CALLS, to=st.sampled_from(["people", "client"])),
        st.builds(suspended, st.sampled_from(["approval", "in_doubt", "child"]), CALLS),
        *map(st.just, (resumed(), trapped(), line(1), run_started())),
    ),
    max_size=12,
)


@given(events=EVENTS, cut=st.integers(0, 12))
def test_copy_goes_on_by_itself_and_ends_the_same(
    events: list[Event], cut: int
) -> None:
    whole = folded(*events)
    first = folded(*events[:cut])
    before = folded(*events[:cut])

    second = first.copy()
    for at, event in enumerate(events[cut:], cut + 1):
        second.apply(type(event).__name__, event, at)

    assert second == whole
    assert first == before


def test_queued_run_begins_once_and_keeps_the_time_at_which_it_was_asked_for() -> None:
    queued = RunQueued(
        agent="weather",
        actor={"kind": "token", "id": "ann", "authenticated": True},
        module_sha256="ab" * 32,
        input=None,
        context={},
        grants={},
        grants_sha256="cd" * 32,
        trigger="api",
        host="host/7",
    )
    waits, begun = folded(queued).row, folded(queued, run_started()).row

    assert waits
    assert begun
    assert (waits.state, waits.phase, waits.owner) == ("queued", "queued/0", None)
    assert (waits.host, waits.actor_id, waits.kind) == ("host/7", "ann", "agent")
    assert waits.numbers is None
    assert (begun.state, begun.phase) == ("running", "running/1")
    assert (begun.host, begun.owner, begun.started_at) == ("host/1", "host/1", 1)
    assert summarise("r", []).events == 0
    assert folded(queued, run_started(), run_started()).starts == 2
