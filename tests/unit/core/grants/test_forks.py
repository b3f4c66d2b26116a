"""Where a run with batches can be forked: behind whole ones."""

from __future__ import annotations

import pytest

from caxton_host.core.calls import Completed
from caxton_host.core.grants.forks import forking_point, prefix
from caxton_host.core.log.events import (
    Event,
    LogWritten,
    RunSuspended,
    ToolProgress,
    settled,
)
from caxton_host.errors import UsageError

from ..log.test_diff import invoked, run


def done(call: int) -> Event:
    return settled(call, Completed())


#: 1 start, 2-4 a batch, of which call 2 answers first; 8 a line, 9-10 call 4.
BATCH = run(
    "a",
    *(invoked(1), invoked(2), invoked(3), done(2), done(1), done(3)),
    *(LogWritten(n=1, level="info", text="hi"), invoked(4), done(4)),
)


@pytest.mark.parametrize("seq", range(2, 7))
def test_fork_in_a_batch_is_refused(seq: int) -> None:
    with pytest.raises(UsageError, match=f"cannot fork at event {seq}") as caught:
        forking_point(BATCH, seq, edit=False)
    assert "event 1, 7, 8 or 10" in caught.value.fix


@pytest.mark.parametrize(
    ("seq", "last", "call"),
    [(2, 7, 1), (6, 7, 1), (3, 7, 2), (4, 6, 3), (7, 6, 3), (9, 9, 4), (10, 9, 4)],
)
def test_edited_call_of_a_batch_keeps_what_was_asked_beside_it(
    seq: int, last: int, call: int
) -> None:
    point = forking_point(BATCH, seq, edit=True)

    assert point.last.seq == last
    assert point.edited
    assert point.edited.call == call


def test_edited_call_that_people_were_asked_about_begins_with_its_intent() -> None:
    # law 2: the fork ended a call that it had not begun, and could not go on
    waits = RunSuspended(reason="approval", call=2)
    asked = run("a", invoked(1), done(1), waits, invoked(2), done(2))

    point = forking_point(asked, 4, edit=True)

    assert (point.last.seq, point.edited) == (5, asked[4].event)


def test_edited_call_beside_one_in_doubt_is_refused() -> None:
    with pytest.raises(UsageError, match="another call is in doubt"):
        forking_point(BATCH[:5], 3, edit=True)


def test_what_was_told_of_a_call_is_no_call() -> None:
    told = run(
        "a",
        *(invoked(1), ToolProgress(call=1, message="half"), done(1)),
        *(invoked(2), ToolProgress(call=2, message="half"), done(2)),
    )

    kept, calls = prefix(told, 4)

    assert ([e.seq for e in kept], calls) == ([1, 2, 3, 4], 1)
    with pytest.raises(UsageError, match="cannot fork at event 3"):
        forking_point(told, 3, edit=False)


def test_prefix_ends_with_its_last_call() -> None:
    kept, calls = prefix(BATCH, 8)

    assert ([e.seq for e in kept], calls) == ([1, 2, 3, 4, 5, 6, 7], 3)
    assert prefix(BATCH, 1) == (BATCH[:1], 0)
    assert prefix(BATCH, 9) == (BATCH[:9], 4)
