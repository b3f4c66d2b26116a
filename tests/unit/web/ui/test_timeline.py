"""The rows of a timeline: nothing is dropped, and a call is one row."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from caxton_host.web.ui.timeline import SCALE, Lane, place, rows_of

TYPES: dict[str, dict[str, Any]] = {
    "ToolInvoked": {"name": "weather", "params": {"city": "Oslo"}},
    "ApprovalRequested": {"name": "pay", "params": {}},
    "ApprovalDecided": {"verdict": "approve", "actor": {"id": "ann"}},
    "ToolRetried": {"attempt": 2, "reason": "transport"},
    "QuestionAsked": {},
    "ToolProgress": {},
    "CallResolved": {"verdict": "retry", "actor": {"id": "ann"}},
    "ToolCompleted": {"is_error": False},
    "ToolDenied": {},
    "ToolFailed": {},
}
OTHERS: dict[str, dict[str, Any]] = {
    "RunStarted": {"agent": "weather"},
    "RunQueued": {"agent": "weather"},
    "RunSuspended": {"reason": "approval", "call": 1},
    "RunResumed": {"reason": "decided", "host": "host/1"},
    "LogWritten": {"level": "info", "text": "hello"},
    "RunCompleted": {},
    "RunFailed": {"kind": "trap", "message": "no"},
    "RunCancelled": {"reason": "", "actor": {}},
}


def events(*said: tuple[str, int, int]) -> list[dict[str, Any]]:
    """Return events of a type, at a time, of a call."""
    return [
        {
            "seq": seq,
            "type": kind,
            "recorded_at": at,
            "payload": {**TYPES[kind], "call": call} if kind in TYPES else OTHERS[kind],
        }
        for seq, (kind, at, call) in enumerate(said, 1)
    ]


@given(
    st.lists(
        st.tuples(
            st.sampled_from([*TYPES, *OTHERS]), st.integers(0, 10**9), st.integers(1, 5)
        ),
        max_size=60,
    )
)
def test_every_event_is_in_one_row_and_every_bar_inside(
    said: list[tuple[str, int, int]],
) -> None:
    found = rows_of(events(*said))

    assert sorted(seq for row in found for seq in row.seqs) == [
        *range(1, len(said) + 1)
    ]
    assert all(0 <= row.left <= SCALE for row in found)
    assert all(row.width >= 1 for row in found)


def test_a_call_that_people_approved_is_one_row() -> None:
    [row] = rows_of(
        events(
            ("ApprovalRequested", 1, 1),
            ("ApprovalDecided", 5, 1),
            ("ToolInvoked", 6, 1),
            ("ToolCompleted", 9, 1),
        )
    )
    assert (row.title, row.outcome, row.took_us) == ("pay", "ok", 8)
    assert row.notes == ["approved by ann"]


def test_a_call_that_nobody_answered_is_open() -> None:
    started, call = rows_of(events(("RunStarted", 1, 0), ("ToolInvoked", 2, 1)))
    assert (started.outcome, call.outcome, call.took_us) == ("started", "open", None)


def test_the_time_of_a_suspension_is_left_out() -> None:
    found = rows_of(
        events(
            ("RunStarted", 0, 0),
            ("ToolInvoked", 10, 1),
            ("RunSuspended", 20, 0),
            ("RunResumed", 10**12, 0),
            ("ToolCompleted", 10**12 + 20, 1),
        )
    )
    assert [row.left * 40 // SCALE for row in found] == [0, 10, 20, 20]
    assert found[2].took_us == 10**12 - 20


def test_calls_side_by_side_have_lanes_of_their_own() -> None:
    found = rows_of(
        events(
            ("ToolInvoked", 1, 1),
            ("ToolInvoked", 2, 2),
            ("ToolCompleted", 3, 1),
            ("ToolCompleted", 4, 2),
            ("ToolInvoked", 5, 3),
        )
    )
    assert [row.lane for row in found] == [0, 1, 0]


def made(said: tuple[int, int], *, begins: int, ends: int) -> list[dict[str, Any]]:
    """Return the events of a call, by its number and the fuel that was used then."""
    call, fuel = said
    [began, ended] = events(
        ("ToolInvoked", begins, call), ("ToolCompleted", ends, call)
    )
    return [began | {"payload": began["payload"] | {"fuel": fuel}}, ended]


def test_calls_that_a_program_made_as_one_are_a_batch_and_others_only_overlap() -> None:
    calls = [
        made((1, 70), begins=1, ends=2),
        made((2, 70), begins=1, ends=1),  # It was denied.
        made((3, 70), begins=1, ends=5),
        made((4, 80), begins=6, ends=7),
        made((5, 0), begins=8, ends=12),
        made((6, 0), begins=9, ends=10),
    ]
    ordered = sorted((e for one in calls for e in one), key=lambda e: e["recorded_at"])
    found = {row.call: row for row in rows_of(ordered)}

    assert [found[n].batch for n in range(1, 7)] == [(1, 3)] * 3 + [None] * 3
    assert [found[n].notes for n in range(1, 7)] == [
        *[["in a batch: calls 1 to 3"]] * 3,
        [],
        [],
        ["at the same time as another"],
    ]


def test_the_calls_of_a_run_below_have_bars_on_the_scale_of_the_caller() -> None:
    said = events(
        ("RunStarted", 0, 0),
        ("ToolInvoked", 10, 1),
        ("RunSuspended", 20, 0),
        ("RunResumed", 120, 0),
        ("ToolCompleted", 140, 1),
    )
    below = rows_of(
        events(
            ("ToolInvoked", 15, 1),
            ("ToolCompleted", 60, 1),
            ("ToolInvoked", 130, 2),
        )
    )
    rows = rows_of(said)
    rows[1].child = Lane(run="0a", rows=below, more="")
    place(rows, said)
    assert [(row.left, row.width) for row in below] == [
        (SCALE * 15 // 40, SCALE * 5 // 40),
        (SCALE * 30 // 40, SCALE * 10 // 40),
    ]


def test_a_run_below_that_goes_on_extends_the_scale() -> None:
    said = events(("RunStarted", 0, 0), ("ToolInvoked", 10, 1))
    below = rows_of(events(("ToolInvoked", 20, 1), ("ToolCompleted", 30, 1)))
    rows = rows_of(said)
    rows[1].child = Lane(run="0a", rows=below, more="")
    place(rows, said, 40)
    assert [(row.left, row.width) for row in (rows[1], *below)] == [
        (SCALE // 4, SCALE * 3 // 4),
        (SCALE // 2, SCALE // 4),
    ]


def test_an_erased_event_is_a_row_without_words() -> None:
    [row] = rows_of(
        [{"seq": 1, "type": "ToolCompleted", "recorded_at": 1, "payload": None}]
    )
    assert (row.title, row.text) == ("ToolCompleted", {})
