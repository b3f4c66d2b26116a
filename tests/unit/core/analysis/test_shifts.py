"""Two sets of runs are compared run by run, and chance is not taken for a shift."""

from __future__ import annotations

import random  # noqa: TID251 -- drawn from named seeds
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from caxton_host.core.analysis.shifts import Measure, Shift, measured, shifts
from caxton_host.core.calls import JSON
from caxton_host.core.log.events import (
    Event,
    Recorded,
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunSuspended,
    ToolCompleted,
    ToolInvoked,
)
from tests import turns
from tests.unit.store.fakes import run_started

RUN = "run/0198c1d2-0000-7000-8000-000000000001"


def recorded(*events: Event | None, stream: str = RUN) -> list[Recorded]:
    return [
        Recorded(
            position=seq,
            stream=stream,
            seq=seq,
            type=type(event).__name__ if event else "RunStarted",
            schema_version=1,
            recorded_at=1_000_000 + seq * 1000,
            trace_id=None,
            span_id=None,
            hash=b"",
            event=event,
        )
        for seq, event in enumerate(events, 1)
    ]


def invoked(call: int, spends: dict[str, JSON] | None = None) -> ToolInvoked:
    return replace(turns.invoked(call), spends=spends)


COMPLETED = RunCompleted(output=None, output_sha256="", fuel=9)


def told(*events: Event) -> Mapping[tuple[str, str], float]:
    found = measured(recorded(run_started(), *events))
    assert found is not None
    return {(one.about, one.what): value for one, value in found.items()}


def answer(call: int, **more: Any) -> ToolCompleted:  # noqa: ANN401 -- its fields
    return ToolCompleted(call=call, is_error=False, message="", data=None, **more)


def test_a_run_is_measured_by_its_calls_its_end_and_what_it_spent() -> None:
    found = told(
        invoked(1, spends={"pay/sum": 5_000_000, "pay/calls": 1_000_000}),
        answer(1, duration_us=4000, settles={"pay/sum": 3_000_000}),
        invoked(2),
        turns.denied(2),
        invoked(3),
        turns.failed(3),
        invoked(4),
        answer(4, cached=True),
        COMPLETED,
    )
    tool = next(about for about, what in found if what == "called")

    assert found == {
        ("", "completed"): 1.0,
        ("", "calls"): 4.0,
        ("", "denied"): 1.0,
        ("", "ms"): 9.0,
        ("", "fuel"): 9.0,
        (tool, "called"): 1.0,
        (tool, "calls"): 4.0,
        (tool, "denied"): 1.0,
        (tool, "failed"): 1.0,
        (tool, "ms"): 4.0,
        ("pay/sum", "spent"): 3.0,
        ("pay/calls", "spent"): 1.0,
    }


def test_a_run_that_goes_on_or_was_erased_has_no_measure() -> None:
    paused = RunSuspended(reason="approval", call=None)

    assert measured(recorded(run_started(), paused)) is None
    assert measured(recorded(None, None)) is None
    assert measured([]) is None


def test_calls_of_the_run_that_it_was_forked_from_are_not_its_own() -> None:
    other = recorded(run_started(), invoked(1), stream=RUN[:-1] + "2")
    own = recorded(run_started(), answer(1), COMPLETED)
    found = measured([*other, *own])

    assert found is not None
    assert found[Measure("", "calls", "mean")] == 0.0


@pytest.mark.parametrize(
    "end",
    [
        RunFailed(kind="trap", message="", fuel=None),
        RunCancelled(actor={}, reason=""),
    ],
)
def test_a_run_that_ended_otherwise_did_not_complete(end: Event) -> None:
    assert told(end)["", "completed"] == 0.0


def by_name(found: Sequence[Shift]) -> dict[tuple[str, str], Shift]:
    return {(one.measure.about, one.measure.what): one for one in found}


CALLED = Measure("crm/find", "called", "share")
CALLS = Measure("crm/find", "calls", "mean")
TOOK = Measure("", "ms", "factor")


def runs(
    seed: int, count: int, *, called: float = 0.5, calls: float = 3.0, ms: float = 100.0
) -> list[Mapping[Measure, float]]:
    chance = random.Random(seed)  # noqa: S311 -- a sample
    return [
        {
            CALLED: float(chance.random() < called),
            CALLS: chance.gauss(calls, 1.0),
            TOOK: chance.lognormvariate(0.0, 0.3) * ms,
        }
        for _ in range(count)
    ]


def test_a_change_of_every_kind_is_a_shift() -> None:
    found = by_name(shifts(runs(1, 200), runs(2, 200, called=0.8, calls=4.0, ms=150.0)))

    assert all(one.shifted for one in found.values())
    share, mean, factor = (found[one.about, one.what] for one in (CALLED, CALLS, TOOK))
    assert share.low is not None
    assert share.high is not None
    assert share.low < 0.3 < share.high
    assert mean.low is not None
    assert mean.high is not None
    assert mean.low < 1.0 < mean.high
    assert factor.low is not None
    assert factor.high is not None
    assert factor.low < 1.5 < factor.high
    assert factor.before == pytest.approx(100, rel=0.1)


def test_chance_alone_is_a_shift_in_about_one_comparison_of_twenty() -> None:
    named = sum(
        any(one.shifted for one in shifts(runs(seed, 12), runs(seed + 1000, 12)))
        for seed in range(400)
    )

    assert named <= 30  # 20 are expected


def test_few_runs_show_no_shift_and_no_interval() -> None:
    found = shifts(runs(1, 4), runs(2, 200, calls=99.0))

    assert not any(one.shifted for one in found)
    assert {(one.low, one.high) for one in found} == {(None, None)}


def test_what_never_varies_shifts_as_soon_as_it_changes() -> None:
    one, other = [{CALLS: 3.0}] * 5, [{CALLS: 4.0}] * 5

    assert [found.shifted for found in shifts(one, other)] == [True]
    assert [found.shifted for found in shifts(one, one)] == [False]


def test_a_time_that_only_one_set_has_is_compared_with_nothing() -> None:
    (found,) = shifts([{}] * 9, [{TOOK: 5.0}] * 9)

    assert found.before is None
    assert found.after == pytest.approx(5.0)
    assert not found.shifted
    assert found.to_document() == {
        "about": None,
        "what": "ms",
        "kind": "factor",
        "before": None,
        "after": found.after,
        "low": None,
        "high": None,
        "shifted": False,
    }
    assert shifts([], []) == []
