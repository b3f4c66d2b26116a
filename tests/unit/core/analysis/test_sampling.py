"""A sample keeps what is distinct."""

from __future__ import annotations

import random as chance  # noqa: TID251 -- drawn from a named seed
from dataclasses import replace

from caxton_host.core.analysis.sampling import Course, Courses, sample
from caxton_host.core.log.events import Event
from caxton_host.core.log.runs import RunRow
from tests import turns
from tests.unit.store.fakes import run_started

from .test_shifts import RUN, answer, invoked, recorded

ROW = RunRow(
    run_id="1",
    agent="a",
    actor="{}",
    module_sha256="",
    state="completed",
    started_at=0,
    ended_at=0,
    host=None,
    trace_id=None,
    owner=None,
    epoch=1,
)
DENIED = "denied (params)"


def course(*calls: str, agent: str = "a", end: str = "completed") -> Course:
    return Course(agent, end, tuple((one, "ok") for one in calls))


def test_what_nothing_else_has_comes_first_and_then_what_most_runs_do() -> None:
    rare = Course("a", "completed", (("crm/refund", DENIED),))
    courses = {
        "1": course("crm/find"),
        "2": course("crm/find"),
        "3": course("crm/find", "crm/find"),
        "4": rare,
        "5": course("crm/find", "crm/find", "crm/find"),
        "6": course("crm/find"),
        "7": course("crm/find", "crm/find", "crm/find"),
    }

    found = sample(courses, 3)

    assert found.runs == ("4", "6", "7")
    assert found.coverage == {
        "runs": (6, 7),
        "sequences": (3, 4),
        "tools": (2, 2),
        "outcomes": (2, 2),
        "denials": (1, 1),
        "ends": (1, 1),
        "agents": (1, 1),
    }
    assert found.to_document()["runs"] == ["4", "6", "7"]
    assert sample(courses, 99).coverage["sequences"] == (4, 4)
    assert sample({}, 9).runs == ()


def test_ten_thousand_runs_become_two_hundred_and_every_outcome_is_kept() -> None:
    random = chance.Random(7)  # noqa: S311
    tools = [f"s/t{n}" for n in range(40)]
    outcomes = ["ok"] * 50 + [DENIED, "tool_error", "failed (timeout)"]
    courses = {
        f"{n:05}": Course(
            f"agent{random.randrange(5)}",
            "completed",
            tuple(
                (random.choice(tools), random.choice(outcomes))
                for _ in range(random.randrange(6))
            ),
        )
        for n in range(10_000)
    }

    found = sample(courses, 200)

    assert len(found.runs) == 200
    for kind in ("tools", "outcomes", "denials", "ends", "agents"):
        kept, every = found.coverage[kind]
        assert kept == every > 0, kind
    shuffled = random.sample([*courses.items()], len(courses))
    assert sample(dict(shuffled), 200) == found


def folded(*events: Event | None, row: RunRow = ROW) -> Course | None:
    courses = Courses()
    for one in recorded(*events):
        courses.take(one)
    return courses.of(row, RUN)


def test_a_course_has_tool_and_outcome_of_each_call_and_the_end() -> None:
    called = (invoked(1), invoked(2), invoked(3), invoked(4), invoked(5))
    ended = (
        answer(1),
        turns.denied(2),
        turns.failed(3),
        turns.completed(4, is_error=True),
    )
    row = replace(ROW, state="failed", reason="trap")
    found = folded(run_started(), *called, *ended, row=row)

    assert found is not None
    assert found.end == "failed (trap)"
    tools, outcomes = zip(*found.calls, strict=True)
    assert len({*tools}) == 1
    assert outcomes == (
        "ok",
        "denied (denied)",
        "failed (timeout)",
        "tool_error",
        "in_doubt",
    )


def test_a_run_that_cannot_be_executed_to_its_end_has_no_course() -> None:
    assert folded(run_started(), invoked(1), answer(1, cut=True)) is None
    assert folded(None, None) is None
