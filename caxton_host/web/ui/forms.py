"""
Fields that are made from a JSON Schema, and the values that were typed into them.

Schemas are those of tool servers: what is not understood is a field that takes JSON.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from ...core.calls import JSON
from ...errors import BadBytes
from ...lib.codec import load_json
from ..edge.messages import Refusal

#: Begins the names of such fields, so that none is taken for another of the form.
_PREFIX = "field:"
_MOST, _CHOICES = 40, 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """
    A field of a form.

    Attributes:
        key: What its value is called.

        choices: All that it may say; empty: anything.

        takes_json: What is typed is JSON, and not a text.

        is_needed: It must not be left out.
    """

    key: str
    title: str
    about: str
    choices: tuple[str, ...]
    takes_json: bool
    is_needed: bool

    @property
    def name(self) -> str:
        """Its name in the form."""
        return _PREFIX + self.key


def fields_of(schema: JSON) -> list[Field]:
    """
    Return the fields for an object with that schema; none if it is no such.

    >>> form = {"properties": {"n": {"type": "integer"}, "why": {}}}
    >>> [(one.name, one.takes_json) for one in fields_of(form)]
    [('field:n', True), ('field:why', False)]
    """
    said = schema if isinstance(schema, dict) else {}
    known, needed = said.get("properties"), said.get("required")
    names = needed if isinstance(needed, list) else []
    if not isinstance(known, dict):
        return []
    return [_field(key, of, key in names) for key, of in [*known.items()][:_MOST]]


def _field(key: str, schema: JSON, is_needed: bool) -> Field:  # noqa: FBT001 -- the last
    said = schema if isinstance(schema, dict) else {}
    kind, choices = said.get("type", "string"), said.get("enum")
    takes_json = "string" not in (kind if isinstance(kind, list) else [kind])
    if kind == "boolean":
        choices = [True, False]
    return Field(
        key=key,
        title=str(said.get("title") or key),
        about=str(said.get("description") or ""),
        choices=tuple(
            json.dumps(one) if takes_json else str(one) for one in choices[:_CHOICES]
        )
        if isinstance(choices, list)
        else (),
        takes_json=takes_json,
        is_needed=is_needed,
    )


def typed(schema: JSON, form: Mapping[str, str]) -> dict[str, JSON]:
    """
    Return the object with the values of a form; empty fields are left out.

    Raises:
        Refusal: A field does not hold JSON, and has to.
    """
    return {
        one.key: json_of(text, one.key) if one.takes_json else text
        for one in fields_of(schema)
        if (text := form.get(one.name, ""))
    }


def json_of(text: str, name: str) -> JSON:
    """
    Return the value of a field that holds JSON.

    Raises:
        Refusal: It does not.
    """
    try:
        return load_json(text, limit=1_000_000)
    except BadBytes as exc:
        raise Refusal(
            "bad-request", f"{name}: {exc}", fix='write JSON, like {"a": 1}'
        ) from None
