"""What is told of two values that differ."""

from __future__ import annotations

import pytest

from caxton_host.core.calls import JSON
from caxton_host.core.log.changes import Difference, changes, first_difference


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
