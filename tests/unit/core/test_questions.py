"""What is kept of a question of a tool server, and what is declined."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given

from caxton_host.core.questions import BYTES, question_of
from caxton_host.core.text.redact import Redactor
from caxton_host.lib.json_schema import mismatch
from tests.scene import JSON_VALUES

SECRET = "hush-hush-1"  # noqa: S105 -- made up
REDACT = Redactor([SECRET])


def asked(*required: str, **fields: object) -> tuple[str, Any, str]:
    schema: Any = {"type": "object", "properties": fields, "required": [*required]}
    return question_of({"message": "?", "requestedSchema": schema}, REDACT)


def field(**keys: Any) -> Any:  # noqa: ANN401 -- JSON
    _, form, why = asked(one=keys)
    assert form, why
    return form["properties"]["one"]


def test_what_is_known_of_a_field_is_kept_and_nothing_else() -> None:  # law 9
    known = {
        "type": "string",
        "title": "A name",
        "description": "Yours",
        "minLength": 1,
        "maxLength": 9,
        "format": "email",
        "default": "x",
    }
    more = {"pattern": "(a+)+$", "$ref": "#", "minimum": "1", "x-evil": {"a": "b"}}
    assert field(**known, **more) == known
    assert field(type="boolean", default=True)["default"] is True
    assert field(type="number", minimum=0.5, maximum=True, minLength=-1) == {
        "type": "number",
        "minimum": 0.5,
    }
    assert "format" not in field(type="string", format="regex")
    assert "format" not in field(type="string", format=["email"])


@pytest.mark.parametrize(
    "choices",
    [
        {"type": "string", "enum": ["a", "b"], "enumNames": ["A", "B"]},
        {"type": "string", "oneOf": [{"const": "a", "title": "A"}]},
        {"type": "array", "items": {"type": "string", "enum": ["a"]}, "default": ["a"]},
        {
            "type": "array",
            "items": {"type": "string", "anyOf": [{"const": "a", "title": "A"}]},
            "minItems": 1,
        },
    ],
)
def test_choices_are_kept_as_each_revision_has_them(choices: dict[str, Any]) -> None:
    assert field(**choices) == choices


@pytest.mark.parametrize(
    "wrong",
    [
        None,
        "text",
        {"type": "object", "properties": {}},
        {"type": ["string", "null"]},
        {"type": "string", "enum": []},
        {"type": "string", "enum": [1]},
        {"type": "string", "enum": ["x" * 101]},
        {"type": "string", "enum": ["a\u202eb"]},
        {"type": "string", "enum": [SECRET]},
        {"type": "string", "enum": [str(n) for n in range(101)]},
        {"type": "string", "oneOf": [{"const": "a"}]},
        {"type": "string", "oneOf": ["a"]},
        {"type": "string", "default": "a\nb"},
        {"type": "array"},
        {"type": "array", "items": {"type": "string"}},
        {"type": "array", "items": {"enum": ["a"]}, "default": [1]},
    ],
)
def test_a_field_that_cannot_be_shown_is_declined(wrong: object) -> None:  # law 9
    _, form, why = asked(one=wrong)
    assert form is None
    assert why.startswith("its form cannot be shown")


@pytest.mark.parametrize(
    ("fields", "required"),
    [
        ({"a\x1b[31m": {"type": "boolean"}}, ()),
        ({SECRET: {"type": "boolean"}}, ()),
        ({f"f{n}": {"type": "boolean"} for n in range(33)}, ()),
        ({"a": {"type": "boolean"}}, ("b",)),
    ],
)
def test_a_form_that_cannot_be_shown_is_declined(
    fields: dict[str, object], required: tuple[str, ...]
) -> None:  # law 9
    assert asked(*required, **fields)[1] is None


def test_a_form_that_is_too_large_is_declined() -> None:  # law 9
    fields = {f"f{n}": {"type": "string", "title": "x" * 600} for n in range(32)}
    message, form, why = asked(**fields)
    assert (message, form) == ("?", None)
    assert str(BYTES) in why


def test_texts_are_cut_escaped_and_without_secrets() -> None:  # law 8
    message = f"a\x1b[31m {SECRET} " + "x" * 5_000
    schema = {"properties": {"a": {"type": "string", "title": f"t\n{SECRET}"}}}
    params: Any = {"message": message, "requestedSchema": schema}
    text, form, _ = question_of(params, REDACT)
    shown = text + json.dumps(form)
    assert SECRET not in shown
    assert "\x1b" not in text
    assert len(text) < 2_100
    assert "t\\\\n" in shown


def test_an_address_is_shown_and_not_followed() -> None:  # law 9
    params: dict[str, Any] = {"mode": "url", "message": "Log in", "url": "https://e.x/"}
    text, form, why = question_of(params, REDACT)
    assert (text, form) == ("Log in https://e.x/", None)
    assert why == "a server may not send people to an address"


@pytest.mark.parametrize("params", [None, [], {}, {"message": 7}])
def test_what_is_no_question_is_declined(params: Any) -> None:  # noqa: ANN401
    assert question_of(params, REDACT) == ("", None, "it has no text")


@given(JSON_VALUES)
def test_whatever_a_server_sends_is_declined_or_a_sound_form(value: Any) -> None:  # noqa: ANN401
    for schema in (value, {"properties": value}, {"properties": {"a": value}}):
        params: Any = {"message": "?", "requestedSchema": schema}
        _, form, why = question_of(params, REDACT)
        assert (form is None) == bool(why)
        if form is not None:
            mismatch(form, {})  # It is a schema.
