"""When a server that fails is asked no more, and when it is asked again."""

from __future__ import annotations

from itertools import product
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caxton_host.core.tools.servers import BreakerOptions
from caxton_host.mcp.admission import _NEXT, Breaker, Change, Outcome, State


@pytest.fixture
def breaker() -> Breaker:
    return Breaker(BreakerOptions(failures=3, pause=10.0))


def fail(breaker: Breaker, *at: float) -> list[Change | None]:
    return [breaker.ended("failed", began=time, now=time) for time in at]


def test_only_failures_in_a_row_count(breaker: Breaker) -> None:
    assert fail(breaker, 0, 1) == [None, None]
    assert breaker.ended("answered", began=1, now=2) is None
    assert fail(breaker, 3, 4, 5) == [None, None, "opened"]
    assert not breaker.admits(6)


def test_calls_that_were_under_way_together_fail_once(breaker: Breaker) -> None:
    for _ in range(16):
        assert breaker.ended("failed", began=0, now=5) is None
    assert breaker.failures == 1
    assert fail(breaker, 5, 6) == [None, "opened"]


def test_one_call_finds_out_after_the_pause(breaker: Breaker) -> None:
    fail(breaker, 0, 1, 2)
    assert [breaker.admits(time) for time in (2, 11.9, 12, 12)] == [0, 0, 1, 0]
    assert fail(breaker, 13) == [None]
    assert [breaker.admits(time) for time in (22, 23)] == [False, True]
    assert breaker.ended("answered", began=23, now=24) == "closed"
    assert [breaker.admits(24) for _ in range(3)] == [True] * 3
    assert breaker.failures == 0


def test_a_call_that_is_given_up_finds_out_nothing(breaker: Breaker) -> None:
    fail(breaker, 0, 1, 2)
    assert breaker.admits(12)
    assert breaker.ended("given_up", began=12, now=13) is None
    assert [breaker.admits(13) for _ in range(2)] == [True, False]


def test_a_late_answer_is_one(breaker: Breaker) -> None:
    fail(breaker, 0, 1, 2)
    assert breaker.ended("answered", began=0, now=3) == "closed"
    assert breaker.admits(3)


def test_none_is_kept_from_asking_for_ever() -> None:
    breaker = Breaker(BreakerOptions(failures=0))
    assert fail(breaker, *range(1000)) == [None] * 1000
    assert breaker.admits(1000)


def test_every_state_has_a_way_out() -> None:
    states = get_args(State)
    reached = {to for (_, _), to in _NEXT.items()}
    assert reached == {*states}
    assert {state for state, _ in _NEXT} == {*states}
    assert all(_NEXT[state, "answered"] == "closed" for state in states[1:])


@given(
    st.lists(
        st.tuples(
            st.sampled_from([None, *get_args(Outcome)]),
            st.floats(min_value=0, max_value=20),
        )
    )
)
def test_openings_and_closings_are_told_in_turn(
    steps: list[tuple[Outcome | None, float]],
) -> None:
    breaker = Breaker(BreakerOptions(failures=2, pause=10.0))
    now, told = 0.0, list[str]()
    for outcome, later in steps:
        now += later
        if outcome is None:
            breaker.admits(now)
        elif change := breaker.ended(outcome, began=now, now=now):
            told.append(change)
    assert told == ["opened", "closed"] * (len(told) // 2) + ["opened"] * (
        len(told) % 2
    )
    # However it got there: once the pause is over, a call passes or one is under way.
    assert breaker.state == "half_open" or breaker.admits(now + 10)


def test_the_table_knows_no_other_word() -> None:
    words = [*get_args(Outcome), "failed_too_often", "asked"]
    assert {*_NEXT} <= {*product(get_args(State), words)}
