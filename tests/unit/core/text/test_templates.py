"""Placeholders become values; whatever else a text holds stays as it is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caxton_host.core.calls import JSON
from caxton_host.core.text.templates import Filled, fill, named, unfilled

VALUES: dict[str, JSON] = {
    "name": "Ada",
    "n": 3,
    "none": None,
    "a.b": "dotted",
    "a": {"b": "deep", "c": {"d": ["x", True]}},
}


@pytest.mark.parametrize(
    ("text", "filled"),
    [
        ("Hello {name}!", "Hello Ada!"),
        ("${context.name} and {name}", "Ada and Ada"),
        ("{n}", "3"),
        ("[{none}]", "[]"),
        ("{a.b}", "dotted"),
        ("{a.c.d}", '["x",true]'),
        ('{"a": {"n": 1}} {n}', '{"a": {"n": 1}} 3'),
        ("{ name } {} {1}", "{ name } {} {1}"),
        ("", ""),
    ],
)
def test_placeholders_become_values_and_other_braces_stay(
    text: str, filled: str
) -> None:
    assert fill(text, VALUES, longest=100) == Filled(text=filled)


def test_unknown_placeholders_stay_and_are_told_once() -> None:
    text = "{who} {who} {name.first} {a.x} ${context.y}"
    found = fill(text, VALUES, longest=100)
    assert found == Filled(text=text, unknown=("who", "name.first", "a.x", "y"))


@pytest.mark.parametrize("text", ["{name", "name} {name}", "} {", "{{name}"])
def test_a_broken_template_stays_as_it_is(text: str) -> None:
    found = fill(text, VALUES, longest=100)
    assert found.text == text
    assert found.problem == "a brace in it has no partner"


def test_a_text_that_would_be_too_long_stays_as_it_is() -> None:
    values: dict[str, JSON] = {"big": "x" * 60}
    assert fill("{big}", values, longest=60).problem is None
    for text in ("{big}{big}{big}", "{big}!"):
        found = fill(text, values, longest=60)
        assert found == Filled(text=text, problem="it would have over 60 characters")


def test_a_value_is_not_filled_in_again() -> None:
    found = fill("{a}", {"a": "{b}", "b": "secret"}, longest=100)
    assert found.text == "{b}"


@given(st.text(), st.dictionaries(st.text(), st.text()))
def test_any_text_is_filled_or_stays(text: str, values: dict[str, JSON]) -> None:
    found = fill(text, values, longest=10_000)
    if found.problem or not named(text):
        assert found.text == text


def test_placeholders_left_in_a_value_are_found() -> None:
    value: JSON = {"to": ["{name}", {"x": "{a.c} {zip}"}], "n": 1, "again": "{name}"}
    assert unfilled(value, VALUES) == ["name", "a.c"]
