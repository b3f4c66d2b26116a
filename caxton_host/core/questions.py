"""
Questions that tool servers put to people, and the answers.

A question is hostile: of its schema only what is known is kept, which is a flat form of
primitive fields. What cannot be shown as one is declined.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from .calls import JSON
from .text.redact import Redactor, plain

#: Who is asked: the people who decide about calls, or the user of a session's client.
To: TypeAlias = Literal["people", "client"]
Action: TypeAlias = Literal["accept", "decline", "cancel"]

#: Questions of one call that are put to people. More are declined unseen.
QUESTIONS = 5
#: Bytes of a form, and of an answer.
BYTES = 16 * 1024

_FIELDS, _CHOICES = 32, 100
_MESSAGE, _TEXT, _NAME = 2_000, 500, 100
_TYPES = ("string", "number", "integer", "boolean", "array")
_FORMATS = ("email", "uri", "date", "date-time")
_TEXTS = ("title", "description")
_COUNTS = ("minLength", "maxLength", "minItems", "maxItems")
_RANGE = ("minimum", "maximum")
_LARGEST = 2**53

_Text: TypeAlias = Callable[[str], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """
    The answer to a question.

    Attributes:
        action: What is done: ``accept`` gives the fields, ``cancel`` is no choice.

        content: The fields, if they are given. Not trusted.

        actor: Who answers; ``None``: nobody did, and the host answers.

        reason: Why; it is recorded.

        role: The role of the person.
    """

    action: Action
    content: dict[str, JSON] | None = None
    actor: Mapping[str, JSON] | None = None
    reason: str = ""
    role: str = ""


class _Unsound(Exception):  # noqa: N818 -- says why a form is declined
    """It is not a form that people can be shown."""


def question_of(
    params: JSON, redact: Redactor
) -> tuple[str, dict[str, JSON] | None, str]:
    """
    Return the text of a question, its form, and why it has none.

    Args:
        params: What the server sent. Not trusted, but bounded in size and depth.

        redact: Removes secrets.

    >>> form = {"type": "object", "properties": {"sure": {"type": "boolean"}}}
    >>> asked = {"message": "Delete all?", "requestedSchema": form}
    >>> question_of(asked, Redactor()) == ("Delete all?", {**form, "required": []}, "")
    True
    """
    if not isinstance(params, dict) or not isinstance(params.get("message"), str):
        return "", None, "it has no text"
    message = plain(str(params["message"]), redact, _MESSAGE)
    if params.get("mode", "form") != "form":
        where = plain(str(params.get("url")), redact, _TEXT)
        return f"{message} {where}", None, "a server may not send people to an address"

    def text(value: str) -> str:
        return plain(value, redact, _TEXT)

    try:
        form = _form(params.get("requestedSchema"), text)
    except _Unsound as exc:
        return message, None, f"its form cannot be shown: {exc}"
    if len(json.dumps(form)) > BYTES:
        return message, None, f"its form has more than {BYTES} bytes"
    return message, form, ""


def _form(schema: JSON, text: _Text) -> dict[str, JSON]:
    known = schema if isinstance(schema, dict) else {}
    fields, wanted = known.get("properties"), known.get("required", [])
    if not isinstance(fields, dict) or not isinstance(wanted, list):
        raise _Unsound("it has no fields")
    if len(fields) > _FIELDS:
        raise _Unsound(f"it has more than {_FIELDS} fields")
    found: dict[str, JSON] = {
        _exact(name, text): _field(field, text) for name, field in fields.items()
    }
    if any(not isinstance(name, str) or name not in found for name in wanted):
        raise _Unsound("it requires a field that it does not have")
    needed: list[JSON] = [*dict.fromkeys(map(str, wanted))]
    return {"type": "object", "properties": found, "required": needed}


def _field(raw: JSON, text: _Text) -> dict[str, JSON]:
    if not isinstance(raw, dict) or raw.get("type") not in _TYPES:
        raise _Unsound("a field is not a text, a number, a yes or no, or a choice")
    found: dict[str, JSON] = {"type": raw["type"], **dict(_chosen(raw, text))}
    for key in _TEXTS:
        if isinstance(value := raw.get(key), str):
            found[key] = text(value)
    found |= _bounds(raw)
    if raw.get("format") in _FORMATS:
        found["format"] = raw["format"]
    if raw["type"] == "array":
        items = raw.get("items")
        picked = dict(_chosen(items, text)) if isinstance(items, dict) else {}
        if not picked:
            raise _Unsound("a list does not say what is to be chosen from")
        found["items"] = {"type": "string", **picked}
    match raw.get("default"):
        case str(default):
            found["default"] = _exact(default, text)
        case bool() | int() | float() as default:
            found["default"] = default
        case [_, *_] as default:
            found["default"] = _values(default, text)
        case _:
            pass
    return found


def _bounds(raw: Mapping[str, JSON]) -> dict[str, JSON]:
    found: dict[str, JSON] = {}
    for key in (*_COUNTS, *_RANGE):
        value, is_count = raw.get(key), key in _COUNTS
        if isinstance(value, bool) or not isinstance(value, int | float):
            continue
        least, fits = (0, isinstance(value, int)) if is_count else (-_LARGEST, True)
        if fits and least <= value < _LARGEST:
            found[key] = value
    return found


def _chosen(raw: Mapping[str, JSON], text: _Text) -> Iterator[tuple[str, JSON]]:
    """Yield what a field says of the values that are to be chosen from."""
    if isinstance(values := raw.get("enum"), list):
        yield "enum", _values(values, text)
    if isinstance(names := raw.get("enumNames"), list):
        yield "enumNames", _values(names, text)
    for key in ("oneOf", "anyOf"):
        if isinstance(titled := raw.get(key), list):
            pairs = [one if isinstance(one, dict) else {} for one in titled]
            values = _values([one.get("const") for one in pairs], text)
            names = _values([one.get("title") for one in pairs], text)
            both = zip(values, names, strict=True)
            yield key, [{"const": value, "title": name} for value, name in both]


def _values(values: list[JSON], text: _Text) -> list[JSON]:
    if not 0 < len(values) <= _CHOICES:
        raise _Unsound(f"a field has no choices, or more than {_CHOICES}")
    return [_exact(value, text) for value in values]


def _exact(value: JSON, text: _Text) -> str:
    """Return a text that is sent back as it is: it must be one that can be shown."""
    if not isinstance(value, str) or len(value) > _NAME or text(value) != value:
        raise _Unsound(f"a name or choice is no text of {_NAME} characters to show")
    return value
