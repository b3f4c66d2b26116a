"""What a person is shown of two values that differ."""

from __future__ import annotations

from caxton_host.core.calls import JSON
from caxton_host.core.changes import changes
from caxton_host.core.diff import Difference


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
