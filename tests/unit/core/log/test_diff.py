"""Two runs that did the same are the same, whenever and wherever they did it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from caxton_host.core.calls import JSON
from caxton_host.core.log.diff import Difference, Place, changes, diff, first_difference
from caxton_host.core.log.events import (
    ApprovalRequested,
    Event,
    LogWritten,
    Recorded,
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunStarted,
    RunSuspended,
    ToolCompleted,
    ToolDenied,
    ToolFailed,
    ToolInvoked,
)

STARTED = RunStarted(
    agent="weather",
    actor={},
    module_sha256="m",
    abi="core/1",
    entry="run",
    input=None,
    context={},
    limits={},
    seed="00",
    grants={},
    grants_sha256="g",
    catalogue={},
    servers={},
    host=None,
    engine="e",
)
DONE = RunCompleted(output={"n": 1}, output_sha256="o", fuel=9)


def invoked(call: int = 1, **changes: Any) -> ToolInvoked:  # noqa: ANN401 -- any field
    base = ToolInvoked(
        call=call,
        name="weather",
        server="demo",
        tool="get_weather",
        params={"city": "Oslo"},
        params_sha256="p",
        effect="read",
        rule="allow[1]",
        idempotency_key="k",
        fuel=7,
    )
    return replace(base, **changes)


def answered(call: int = 1, message: str = "clear", sky: str = "blue") -> ToolCompleted:
    data: JSON = {"sky": sky}
    return ToolCompleted(call=call, is_error=False, message=message, data=data)


def failed(call: int = 1) -> ToolFailed:
    return ToolFailed(call=call, kind="timeout", sent="unknown", message="late")


def denied(call: int = 1, code: str = "denied") -> ToolDenied:
    return ToolDenied(call=call, code=code, rule="deny[1]", message="no")


def run(name: str, *events: Event, start: Event = STARTED) -> list[Recorded]:
    return [
        Recorded(
            position=seq,
            stream=f"run/{name}",
            seq=seq,
            type=type(event).__name__,
            schema_version=1,
            recorded_at=seq * len(name),
            trace_id=name,
            span_id=None,
            hash=name.encode(),
            event=event,
        )
        for seq, event in enumerate((start, *events), 1)
    ]


def test_run_is_the_same_as_itself() -> None:
    events = invoked(), answered(), DONE

    found = diff(run("a", *events), run("b", *events))

    assert found.same
    assert found.to_document() == {
        "$type": "caxton.diff/v1",
        "a": "a",
        "b": "b",
        "same": True,
        "first": None,
        "calls": [],
        "end": [],
    }


def test_times_ids_keys_fuel_and_log_lines_never_count() -> None:
    slower = replace(answered(), duration_us=99, attempts=2, bytes=5)
    other = replace(STARTED, engine="f", seed="11", module_sha256="n")

    found = diff(
        run("a", invoked(), answered(), DONE),
        run(
            "longer",
            LogWritten(n=1, level="info", text="hi"),
            invoked(fuel=8, idempotency_key="l", rule="allow[2]"),
            slower,
            replace(DONE, fuel=10),
            start=other,
        ),
    )

    assert found.same


@pytest.mark.parametrize(
    ("change", "path", "a", "b"),
    [
        ({"name": "echo"}, "$.name", "weather", "echo"),
        ({"tool": "forecast"}, "$.tool", "get_weather", "forecast"),
        ({"params": {"city": "Lima"}, "params_sha256": "q"}, "$.params.city", 1, 1),
        ({"params_sha256": "q"}, "$.params_sha256", "p", "q"),
        ({"params": None, "params_sha256": "q"}, "$.params", {"city": "Oslo"}, None),
    ],
)
def test_call_that_differs_is_shown_with_path_and_values(
    change: dict[str, Any], path: str, a: JSON, b: JSON
) -> None:
    [found] = diff(
        run("a", invoked(), answered(), DONE),
        run("b", LogWritten(n=1, level="info", text=""), invoked(**change), answered()),
    ).calls

    [one] = found.differences
    assert one.path == path
    if a != 1:
        assert (one.a, one.b) == (a, b)
    assert (found.call, found.name) == (1, "weather")
    assert (found.a, found.b) == (Place("a", 2), Place("b", 3))


OUTCOMES: list[tuple[Callable[[int], Event | None], list[str]]] = [
    (lambda n: answered(n, "rain"), ["$.message"]),
    (lambda n: answered(n, sky="grey"), ["$.data.sky"]),
    (lambda n: replace(answered(n), is_error=True), ["$.outcome"]),
    (failed, ["$.outcome", "$.message", "$.data", "$.kind", "$.sent"]),
    (denied, ["$.outcome", "$.message", "$.data", "$.code"]),
    (lambda _: None, ["$.outcome", "$.message", "$.data"]),
]


@pytest.mark.parametrize(("outcome", "paths"), OUTCOMES)
def test_outcome_that_differs_is_shown(
    outcome: Callable[[int], Event | None], paths: list[str]
) -> None:
    other = [event for event in [invoked(), outcome(1)] if event]

    [found] = diff(run("a", invoked(), answered()), run("b", *other)).calls

    assert [one.path for one in found.differences] == paths


def test_every_call_that_differs_is_shown_and_the_first_is_named() -> None:
    one = run("a", invoked(1), answered(1), invoked(2), answered(2), invoked(3), DONE)
    other = run("b", invoked(1), answered(1), invoked(2), failed(2), DONE)

    found = diff(one, other)

    assert [call.call for call in found.calls] == [2, 3]
    assert found.calls[1].differences == [Difference("$.name", "weather", None)]
    assert (found.calls[1].a, found.calls[1].b) == (Place("a", 6), None)
    document = found.to_document()
    assert document["first"] == found.calls[0].to_document()
    assert document["same"] is False
    [_, missing] = diff(other, one).calls
    assert missing.differences == [Difference("$.name", None, "weather")]


@pytest.mark.parametrize(
    ("end", "differences"),
    [
        (replace(DONE, output={"n": 2}), [Difference("$.output.n", 1, 2)]),
        (
            replace(DONE, output_sha256="x"),
            [Difference("$.output_sha256", "o", "x")],
        ),
        (
            RunFailed(kind="trap", message="unreachable", fuel=1),
            [
                Difference("$.state", "completed", "failed"),
                Difference("$.output", {"n": 1}, None),
                Difference("$.kind", None, "trap"),
                Difference("$.message", None, "unreachable"),
            ],
        ),
        (
            RunCancelled(actor={}, reason="interrupted"),
            [
                Difference("$.state", "completed", "cancelled"),
                Difference("$.output", {"n": 1}, None),
                Difference("$.message", None, "interrupted"),
            ],
        ),
        (
            RunSuspended(reason="in_doubt", call=1),
            [
                Difference("$.state", "completed", "suspended"),
                Difference("$.output", {"n": 1}, None),
                Difference("$.reason", None, "in_doubt"),
            ],
        ),
    ],
    ids=["output", "bytes", "failed", "cancelled", "suspended"],
)
def test_end_that_differs_is_shown(end: Event, differences: list[Difference]) -> None:
    found = diff(run("a", DONE), run("b", end))

    assert found.end == differences
    assert found.to_document()["first"] == {
        "call": None,
        "differences": [one.to_document() for one in differences],
    }


def test_runs_without_an_end_that_did_the_same_are_the_same() -> None:
    assert diff(run("a", invoked()), run("b", invoked())).same


def test_fork_is_compared_by_what_it_inherited_too() -> None:
    parent = run("a", invoked(1), answered(1), invoked(2), answered(2), DONE)
    edited = run("b", answered(1, "rain"), invoked(2), answered(2), DONE)

    found = diff(parent, [*parent[:2], *edited])

    [call] = found.calls
    assert call.a == call.b == Place("a", 2)
    assert call.differences == [Difference("$.message", "clear", "rain")]
    assert not found.end


def test_end_of_the_parent_is_none_of_the_fork() -> None:
    parent = run("a", invoked(), answered(), DONE)

    found = diff(parent, [*parent, *run("b")])

    assert [one.path for one in found.end] == ["$.state", "$.output"]


def test_outcome_of_a_call_that_the_log_lacks_is_passed_over() -> None:
    assert diff(run("a", answered()), run("b")).same


def asked(call: int = 1) -> ApprovalRequested:
    return ApprovalRequested(
        call=call,
        name="weather",
        server="demo",
        tool="get_weather",
        params={"city": "Oslo"},
        params_sha256="p",
        rule="allow[1]",
        fuel=7,
        by=("ops",),
        until=None,
    )


def test_call_that_waits_for_an_approval_differs_from_one_that_was_made() -> None:
    waits = run("a", asked(), RunSuspended(reason="approval", call=1))
    made = run("b", asked(), invoked(), answered(), DONE)

    [call] = diff(waits, made).calls

    assert (call.a, call.b) == (Place("a", 2), Place("b", 3))
    outcome = call.differences[0]
    assert outcome == Difference("$.outcome", "waits for an approval", "ok")
    assert diff(waits, waits).same


def test_question_of_the_parent_is_none_of_the_fork() -> None:
    parent = run("a", asked(), RunSuspended(reason="approval", call=1))

    assert not diff([*parent, *run("b")], run("c")).calls


def test_every_place_that_differs_is_told() -> None:
    old: JSON = {
        "name": "a",
        "schema": {"n": 1, "gone": 2, "list": [1, 2], "other": [1]},
        "same": [{"x": 1}],
    }
    new: JSON = {
        "name": "b",
        "schema": {"n": 1.0, "list": [1, 3], "other": [1, 2], "new": "x"},
        "same": [{"x": 1}],
    }
    assert list(changes(old, new)) == [
        Difference("$.name", "a", "b"),
        Difference("$.schema.n", 1, 1.0),
        Difference("$.schema.gone", 2, None),
        Difference("$.schema.list[1]", 2, 3),
        Difference("$.schema.other", [1], [1, 2]),
        Difference("$.schema.new", None, "x"),
    ]


def test_values_that_are_the_same_differ_nowhere() -> None:
    assert list(changes({"a": [None]}, {"a": [None]})) == []


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ({"a": 1}, {"a": 1}, None),
        ([1, [2]], [1, [2]], None),
        ({"a": 1}, {}, ("$.a", 1, None)),
        ({}, {"a": 1}, ("$.a", None, 1)),
        ([1], [1, 2], ("$[1]", None, 2)),
        ([[1], 2], [[1], 3], ("$[1]", 2, 3)),
        ([1], {"0": 1}, ("$", [1], {"0": 1})),
        (None, {}, ("$", None, {})),
        ("a", "b", ("$", "a", "b")),
        (
            {"a": {"b": [0, {"c": 1}]}},
            {"a": {"b": [0, {"c": 2}]}},
            ("$.a.b[1].c", 1, 2),
        ),
    ],
)
def test_first_difference(
    old: JSON, new: JSON, found: tuple[str, JSON, JSON] | None
) -> None:
    assert first_difference(old, new) == found
