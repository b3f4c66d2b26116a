"""Sources are suggested by where recorded values stood before the calls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from caxton_host.core.analysis import suggest_sources
from caxton_host.core.analysis.suggest_sources import SourcesSeen
from caxton_host.core.calls import JSON, Completed
from caxton_host.core.log.events import Event, LogWritten, RunCompleted, settled
from tests.unit.store.fakes import run_started

from .test_tracing import call, recorded

DONE = RunCompleted(output=None, output_sha256="", fuel=None)


def seen(*runs: tuple[JSON, Sequence[Sequence[Event]]]) -> SourcesSeen:
    found = SourcesSeen()
    for number, (given, calls) in enumerate(runs):
        start = replace(run_started("clerk"), input=given, context={"user": "ada"})
        events: list[Event] = [start, *(e for one in calls for e in one), DONE]
        for one in recorded(events, str(number)):
            found.take(one)
    return found


def suggested(found: SourcesSeen, tool: str = "pay") -> list[object]:
    return [*found.suggested("clerk", "bank", tool)]


def test_a_value_that_an_answer_had_suggests_its_place() -> None:
    book: JSON = {"people": [{"iban": "DE01"}, {"iban": "DE02"}]}
    runs = [
        (None, [call(1, "office/list", book), call(2, "bank/pay", None, to=iban)])
        for iban in ("DE01", "DE02", "LT60")
    ]

    assert suggested(seen(*runs)) == [
        ("to", ["office/list$.people[*].iban"], 3, 1),
    ]


def test_the_source_of_most_values_comes_first() -> None:
    runs: list[tuple[JSON, list[list[Event]]]] = [
        ({"text": "pay DE01"}, [call(1, "bank/pay", None, to="DE01")]),
        ({"text": "pay DE02"}, [call(1, "bank/pay", None, to="DE02")]),
        (None, [call(1, "bank/pay", None, to="ada")]),
    ]

    assert suggested(seen(*runs)) == [("to", ["input", "context.user"], 3, 0)]


def test_values_that_came_from_nowhere_suggest_nothing() -> None:
    assert suggested(seen((None, [call(1, "bank/pay", None, to="LT60")]))) == []


def test_no_more_than_four_sources_are_suggested() -> None:
    tools = [f"office/list{n}" for n in range(6)]
    runs = [
        (None, [call(1, tool, {"iban": "DE01"}), call(2, "bank/pay", None, to="DE01")])
        for tool in tools
    ]

    ((_, sources, values, others),) = SourcesSeen.suggested(
        seen(*runs), "clerk", "bank", "pay"
    )

    assert (len(sources), values, others) == (4, 6, 2)


def test_errors_agents_and_short_or_masked_values_suggest_nothing() -> None:
    error = Completed(is_error=True, data={"structuredContent": {"iban": "DE01"}})
    calls: list[list[Event]] = [
        call(1, "office/list", error),
        call(2, "agents/helper", {"iban": "DE01"}),
        call(3, "bank/pay", None, to="DE01", n="ab", s="[redacted]"),
        [LogWritten(n=1, level="info", text="DE01")],
        [settled(9, Completed(data={"structuredContent": {"iban": "DE01"}}))],
    ]

    assert suggested(seen((None, calls))) == []


def test_a_history_is_compared_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suggest_sources, "_MAX_GIVEN", 1)
    monkeypatch.setattr(suggest_sources, "_MAX_SEEN", 1)
    calls = [
        call(1, "office/list", {"a": "DE01", "b": "DE02"}),
        call(2, "bank/pay", None, to="DE01"),
        call(3, "bank/pay", None, to="DE02"),
    ]

    assert suggested(seen((None, calls))) == [("to", ["office/list$.a"], 1, 0)]


def test_events_of_a_run_without_a_start_are_ignored() -> None:
    found = SourcesSeen()

    for one in recorded(call(1, "bank/pay", None, to="DE01")):
        found.take(one)

    assert suggested(found) == []


def test_sources_of_one_tool_are_not_suggested_for_another() -> None:
    found = seen(({"to": "DE01"}, [call(1, "bank/pay", None, to="DE01")]))

    assert suggested(found, "refund") == []
