"""The journal answers what the log holds, and names the first difference."""

from __future__ import annotations

from dataclasses import replace

import pytest

from caxton_host.core.calls import JSON, Completed, ToolCall
from caxton_host.core.grants.journal import Answered, Fresh, InDoubt, Journal
from caxton_host.core.log.events import (
    LogWritten,
    RunCompleted,
    ToolInvoked,
    ToolRetried,
    settled,
)
from caxton_host.core.names import AGENTS
from caxton_host.errors import Divergence, LogBrokenError, NondeterminismError

SUNNY = Completed(message="clear")


def invoked(
    call: int = 1, rule: str | None = "allow[1]", **params: JSON
) -> ToolInvoked:
    return ToolInvoked(
        call=call,
        name="weather",
        server="demo",
        tool="get_weather",
        params=params,
        params_sha256=repr(params),
        effect="unsafe",
        rule=rule,
        idempotency_key="k",
        fuel=7,
    )


def called(
    number: int = 1, name: str = "weather", fuel: int = 7, **params: JSON
) -> ToolCall:
    return ToolCall(
        number=number, name=name, params=params, digest=repr(params), fuel=fuel
    )


def journal(*events: ToolInvoked, compare_fuel: bool = False) -> Journal:
    made = Journal(compare_fuel=compare_fuel)
    for seq, event in enumerate(events, 2):
        made.apply(event, 100, seq)
    return made


def divergence(book: Journal, call: ToolCall) -> Divergence:
    with pytest.raises(NondeterminismError) as caught:
        book.recall(call)
    return caught.value.divergence


# -- recall --------------------------------------------------------------------


def test_call_that_the_log_has_never_seen_is_fresh() -> None:
    assert journal().recall(called()) == Fresh()
    assert journal(invoked(1)).recall(called(2)) == Fresh()


def test_call_that_was_settled_is_answered_with_its_time() -> None:
    book = journal(invoked())
    book.apply(settled(1, SUNNY), 250)

    assert book.recall(called()) == Answered(SUNNY, 250)
    assert (book.calls, len(book.in_doubt)) == (1, 0)


def test_call_that_is_open_is_in_doubt_with_its_attempts() -> None:
    book = journal(invoked())
    assert book.recall(called()) == InDoubt(invoked(), 1)

    book.apply(ToolRetried(call=1, attempt=2, reason="resumed"), 300)

    assert book.recall(called()) == InDoubt(invoked(), 2)
    assert (book.calls, len(book.in_doubt)) == (1, 1)


def test_every_rule_is_charged_for_the_calls_it_allowed() -> None:
    book = journal(invoked(1), invoked(2), invoked(3, rule=None))

    assert book.tallies.recorded.used == {"allow[1]": 2}


def test_calls_of_agents_that_were_allowed_are_counted() -> None:
    calls = [invoked(1), invoked(2), invoked(3, rule=None)]

    book = journal(*(replace(call, server=AGENTS) for call in calls), invoked(4))

    assert book.tallies.recorded.agents == 2


def test_log_lines_are_counted() -> None:
    book = journal()
    book.apply(LogWritten(n=3, level="info", text="hi"), 1)

    assert book.logged == 3


def test_other_events_are_skipped() -> None:
    book = journal()
    book.apply(RunCompleted(output=None, output_sha256="", fuel=1), 1)

    assert (book.calls, book.logged) == (0, 0)


@pytest.mark.parametrize(
    "event", [ToolRetried(call=4, attempt=2, reason="resumed"), settled(4, SUNNY)]
)
def test_event_of_a_call_that_was_never_made_is_a_broken_log(
    event: ToolRetried,
) -> None:
    with pytest.raises(LogBrokenError, match="call 4"):
        journal(invoked(1)).apply(event, 1)


# -- divergence ----------------------------------------------------------------


def test_another_name_diverges() -> None:
    found = divergence(journal(invoked()), called(name="time"))

    assert found == Divergence(2, "$.name", "weather", "time")
    assert str(found) == "event 2, $.name: recorded 'weather', replayed 'time'"


def test_other_params_diverge_at_their_path() -> None:
    book = journal(invoked(city="Oslo", days=[1, 2]))

    found = divergence(book, called(city="Oslo", days=[1, 3]))

    assert found == Divergence(2, "$.params.days[1]", 2, 3)


@pytest.mark.parametrize(("old", "new"), [(1, True), (1, 1.0), (True, 1.0), (0, False)])
def test_true_and_1_and_1_0_are_three_values(old: JSON, new: JSON) -> None:
    found = divergence(journal(invoked(n=old)), called(n=new))

    assert found == Divergence(2, "$.params.n", old, new)


def test_same_values_in_other_bytes_diverge_by_their_digest() -> None:
    call = ToolCall(number=1, name="weather", params={"n": 1}, digest="other")

    found = divergence(journal(invoked(n=1)), call)

    assert found == Divergence(2, "$.params_sha256", "{'n': 1}", "other")


def test_params_are_compared_as_the_log_would_hold_them() -> None:
    book = journal(invoked(key="[redacted]", n=1))

    with pytest.raises(NondeterminismError) as caught:
        book.recall(called(key="hunter2", n=2), {"key": "[redacted]", "n": 2})
    assert caught.value.divergence.path == "$.params.n"


def test_other_fuel_diverges_where_it_is_compared() -> None:
    assert journal(invoked()).recall(called(fuel=8)) == InDoubt(invoked(), 1)
    exact = journal(invoked(), compare_fuel=True)

    assert divergence(exact, called(fuel=8)) == Divergence(2, "$.fuel", 7, 8)
    assert exact.recall(called(fuel=7)) == InDoubt(invoked(), 1)


def test_recorded_call_that_was_not_made_is_named() -> None:
    book = journal(invoked(1), invoked(2))

    assert book.unmade(2, 0) is None
    assert book.unmade(1, 0) == Divergence(3, "$.name", "weather", None)


def test_difference_after_the_last_event_says_so() -> None:
    assert str(Divergence(None, "$.name", None, "x")).startswith("the end of the log")
