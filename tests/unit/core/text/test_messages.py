"""How the text of an answer is picked out of its data."""

from __future__ import annotations

import pytest

from caxton_host.core.calls import JSON
from caxton_host.core.text.messages import MAX_MESSAGE, pick_message

DATA: JSON = {
    "name": "Ada",
    "age": 36,
    "admin": False,
    "none": None,
    "tags": ["a", {"b": "ü"}],
}


@pytest.mark.parametrize(
    ("field", "message"),
    [
        ("name", "Ada"),
        ("age", "36"),
        ("admin", "false"),
        ("tags", '["a",{"b":"ü"}]'),
        ("tags.1.b", "ü"),
        ("tags.2", None),
        ("tags.b", None),
        ("tags.²", None),
        ("none", None),
        ("name.first", None),
        ("", None),
    ],
)
def test_field_is_a_path_into_the_data(field: str, message: str | None) -> None:
    assert pick_message(DATA, field, None) == message


def test_nothing_asked_for_is_nothing() -> None:
    assert pick_message(DATA, None, None) is None


def test_template_leaves_out_what_is_not_there() -> None:
    template = "{name}, {age}{none}{nothing.at.all} {}"
    assert pick_message(DATA, None, template) == "Ada, 36 {}"


def test_template_is_filled_once() -> None:
    assert pick_message({"a": "{b}", "b": "x"}, None, "{a}") == "{b}"


def test_template_wins_over_field() -> None:
    assert pick_message(DATA, "age", "{name}") == "Ada"


def test_template_cannot_multiply_a_long_value() -> None:
    # law 9
    message = pick_message({"a": "x" * MAX_MESSAGE}, None, "{a}" * 100)
    assert message is not None
    assert len(message) == MAX_MESSAGE
