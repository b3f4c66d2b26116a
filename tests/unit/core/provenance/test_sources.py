"""The fold of a run's events into its sources."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from caxton_host.core.calls import JSON
from caxton_host.core.log.events import ApprovalDecided, Event, Payload, ToolFailed
from caxton_host.core.provenance import Sources, Wanted, places_in
from tests.provenance.runs import completed, invoked, started

IDS = "crm/find$.ids[*]"


def wanted(*sources: str, mention: JSON = None) -> Wanted:
    return Wanted.parse([*sources], mention, ("from",))


def told(want: Wanted, *events: Event, limit: int = 2**20) -> Sources:
    sources = Sources([want], limit)
    for event in events:
        sources.apply(event)
    return sources


def ids(*values: JSON) -> dict[str, JSON]:
    return {"structuredContent": {"ids": [*values]}}


@pytest.mark.parametrize(
    ("vouched", "holds"),
    [
        (None, (True, True)),
        ({}, (False, False)),
        ({"input": []}, (False, False)),
        ({"input": ["$.a"]}, (True, False)),
        ({"input": ["$"]}, (True, True)),
    ],
)
def test_part_of_an_input_that_an_agent_made_is_no_source(
    vouched: Payload | None, holds: tuple[bool, bool]
) -> None:
    want = wanted("input")
    sources = told(want, started({"a": ["bob"], "b": "eve"}, vouched=vouched))

    assert sources.find("bob", want).holds is holds[0]
    assert sources.find("eve", want).holds is holds[1]


@pytest.mark.parametrize(
    ("vouched", "holds"),
    [
        (None, True),
        ({"input": []}, True),
        ({"input": ["$"], "context": ["town"]}, True),
        ({"input": ["$"], "context": []}, False),
        ({"input": ["$"], "context": "town"}, True),
    ],
)
def test_variable_that_a_caller_gave_is_no_source(
    vouched: Payload | None, *, holds: bool
) -> None:
    want = wanted("context.town")
    begun = replace(started(None, vouched=vouched), context={"town": "Oslo"})
    sources = told(want, begun)

    assert sources.find("Oslo", want).holds is holds


@pytest.mark.parametrize(
    "change",
    [
        {"is_error": True},
        {"cut": True},
        {"withheld": {"sha256": "", "bytes": 1}},
        {"data": None},
        {"data": {"content": "x"}},
        {"data": {"content": [{"type": "text", "text": "[" * 100_000}]}},
    ],
)
def test_answer_that_was_not_kept_whole_is_no_source(
    change: Mapping[str, JSON],
) -> None:
    done = replace(completed(1, ids("A-1")), **change)  # type: ignore[arg-type]
    want = wanted(IDS)

    sources = told(want, started(None), invoked(1, "crm/find"), done)

    assert sources.find("A-1", want).holds is False


def test_answer_of_an_agent_is_no_source() -> None:
    want = wanted("agents/x$.ids[*]", "own:agents/x$.ids[*]")

    sources = told(
        want, started(None), invoked(1, "agents/x"), completed(1, ids("A-1"))
    )

    assert sources.find("A-1", want).holds is False


def test_denied_call_writes_nothing() -> None:
    want = wanted(IDS)
    sources = told(
        want,
        started(None),
        invoked(1, "crm/add", {"id": "A-1"}, rule=None),
        invoked(2, "crm/find"),
        completed(2, ids("A-1")),
    )

    assert sources.find("A-1", want).holds is True


def test_call_that_a_fork_would_not_allow_was_sent_by_its_parent() -> None:
    want = wanted(IDS)
    failed = ToolFailed(call=1, kind="timeout", sent="unknown", message="")
    sources = told(
        want,
        started(None),
        invoked(1, "crm/add", {"id": "A-1"}, rule=None),
        failed,
        invoked(2, "crm/find"),
        completed(2, ids("A-1")),
    )

    assert sources.find("A-1", want).holds is False


def test_call_that_is_under_way_may_have_written_what_another_reads() -> None:
    want = wanted(IDS)
    sources = told(
        want,
        started(None),
        invoked(1, "crm/find"),
        invoked(2, "crm/add", {"id": "A-1"}),
        completed(1, ids("A-1")),
    )

    assert sources.find("A-1", want).holds is False


def test_parameter_that_was_not_indexed_may_be_an_echo() -> None:
    want = wanted(IDS)
    sources = told(
        want,
        started(None),
        invoked(1, "crm/add", {"text": "x" * 5000}),
        invoked(2, "crm/find"),
        completed(2, ids("A-1")),
        limit=4000,
    )

    assert sources.find("A-1", want).holds is None


def test_word_that_a_longer_word_begins_with_is_found_behind_it() -> None:
    want = wanted(IDS)
    sources = told(
        want,
        started(None),
        invoked(1, "crm/add", {"text": "A-12, not A-1"}),
        invoked(2, "crm/find"),
        completed(2, ids("A-1", "A-2")),
    )

    assert sources.find("A-1", want).holds is False
    assert sources.find("A-2", want).holds is True


@pytest.mark.parametrize(
    ("value", "text"),
    [("A-1", "A-12 " * 5000 + "A 1"), ("x" * 65_537, "x")],
    ids=["too many words that begin with it", "too long"],
)
def test_answer_that_cannot_be_compared_with_what_was_written_is_no_source(
    value: str, text: str
) -> None:  # law 4
    want = wanted(IDS)
    sources = told(
        want,
        started(None),
        invoked(1, "crm/add", {"id": text}),
        invoked(2, "crm/find"),
        completed(2, ids(value)),
    )

    assert not sources.find(value, want).holds


def test_number_of_too_many_digits_counts_only_as_a_whole() -> None:
    large = 10**41
    want = wanted("input", IDS)
    events = [started(f"pay {large}"), invoked(1, "crm/find")]

    assert told(want, *events).find(large, want).holds is False
    sources = told(want, *events, completed(1, ids(large)))
    assert sources.find(large, want).holds is True


def test_sources_that_nobody_filled_in_cannot_be_judged() -> None:  # law 4
    want = wanted("trusted")

    assert told(want, started("bob")).find("bob", want).holds is None


def test_input_that_was_not_indexed_cannot_be_judged() -> None:
    want = wanted("input")
    sources = told(want, started(["ann", "bob"]), limit=200)

    assert sources.find("ann", want).holds is True
    assert sources.find("bob", want).holds is None


@pytest.mark.parametrize(
    ("data", "limit", "holds"),
    [
        ({"structuredContent": {"owed": 1250}}, 2**20, True),
        ({"structuredContent": {"owed": [True, None]}}, 2**20, False),
        ({"structuredContent": "1250x " * 5000 + "1250"}, 2**20, None),
        ({"structuredContent": {"owed": 1250}}, 200, None),
        (None, 2**20, False),
    ],
)
def test_number_in_a_document_is_found_if_the_document_was_indexed(
    data: JSON, limit: int, *, holds: bool | None
) -> None:
    want = wanted("input", mention={"tool": "files/read", "param": "path"})
    sources = told(
        want,
        started("pay bill.txt"),
        invoked(1, "files/read", {"path": "bill.txt"}, ["path"]),
        completed(1, data),
        limit=limit,
    )

    assert sources.find(1250, want).holds is holds


def test_decision_of_a_person_brings_no_value() -> None:
    want = wanted("input")
    decided = ApprovalDecided(call=1, verdict="approve", actor={}, reason="bob")

    assert told(want, started(""), decided).find("bob", want).holds is False


def test_value_has_at_most_four_places() -> None:
    want = wanted("input", *(f"input$.{key}" for key in "abcdef"))
    given: dict[str, JSON] = dict.fromkeys("abcdef", "bob")
    sources = told(want, started(given))

    assert len(sources.find("bob", want).places) == 4


def test_list_of_too_many_items_cannot_be_judged() -> None:
    want = wanted("input")
    sources = told(want, started("bob"))
    most: list[JSON] = ["bob"] * 500

    assert sources.find([*most], want).holds is True
    assert sources.find([*most, "bob"], want).holds is None


def test_every_place_of_a_value_is_found_for_a_trace() -> None:
    data: JSON = {"n": [1250, "pay 1,250", 125], "to": {"x": "1250"}}

    assert [*places_in(1250, data)] == ["$.n[0]", "$.n[1]", "$.to.x"]
