"""A schema becomes the type of its values; what cannot be told is of any type."""

from __future__ import annotations

from typing import Any

import pytest

from caxton_host.core.calls import JSON
from caxton_host.core.tools.shapes import Fields, parameters_of, result_of, shape_of
from caxton_host.core.tools.typed import PYTHON


def told(schema: JSON) -> str:
    return PYTHON.type(shape_of(schema))


def fields(**properties: Any) -> dict[str, Any]:  # noqa: ANN401 -- schemas
    return {"type": "object", "properties": properties}


TEXT: dict[str, JSON] = {"type": "string"}
COUNT: dict[str, JSON] = {"type": "integer"}


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        (TEXT, "str"),
        ({"type": "number"}, "float"),
        ({"type": "boolean"}, "bool"),
        ({"type": "null"}, "None"),
        (True, "Any"),
        ({}, "Any"),
        ({"type": "stranger"}, "Any"),
        ({"type": 7}, "Any"),
        ({"type": ["string", "integer"]}, "str | int"),
        ({"type": "string", "nullable": True}, "str | None"),
        ({"type": ["string", "null"], "nullable": True}, "str | None"),
        ({"type": "array", "items": TEXT}, "list[str]"),
        ({"type": "array"}, "list[Any]"),
        ({"type": "object"}, "dict[str, Any]"),
        ({"type": "object", "additionalProperties": COUNT}, "dict[str, int]"),
        ({"type": "object", "patternProperties": {"a": COUNT}}, "dict[str, Any]"),
        (fields(), "dict[str, Any]"),
        ({**fields(a=TEXT, b=COUNT), "required": ["b"]}, "{a?: str, b: int}"),
        ({"properties": {"a": TEXT}}, "{a?: str}"),
        (fields(**{"a-b": TEXT}), '{"a-b"?: str}'),
    ],
)
def test_types(schema: JSON, expected: str) -> None:
    assert told(schema) == expected


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"const": "a"}, "'a'"),
        ({"const": None}, "None"),
        ({"const": {"a": 1}}, "Any"),
        ({"const": "a" * 61}, "str"),
        ({"const": 1 << 63}, "int"),
        ({"const": 1.5}, "float"),
        ({"enum": ["a", 1, True, None]}, "'a' | 1 | True | None"),
        ({"enum": [*range(21), "a", False]}, "int | str | bool"),
        ({"enum": [*range(21), None]}, "int | None"),
        ({"enum": [*range(201)]}, "Any"),
        ({"enum": []}, "Any"),
    ],
)
def test_values(schema: JSON, expected: str) -> None:
    assert told(schema) == expected


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"anyOf": [TEXT, COUNT, TEXT]}, "str | int"),
        ({"oneOf": [TEXT]}, "str"),
        ({"anyOf": [TEXT, {"anyOf": [COUNT, {"type": "null"}]}]}, "str | int | None"),
        ({"anyOf": [TEXT, {}]}, "Any"),
        ({"anyOf": [{"const": at} for at in range(21)]}, "Any"),
        ({"type": []}, "Any"),
        ({"allOf": [TEXT]}, "str"),
        ({"allOf": [fields(a=TEXT), fields(b=COUNT)]}, "{a?: str, b?: int}"),
        ({"allOf": [fields(a=TEXT)], **fields(b=COUNT)}, "{a?: str, b?: int}"),
        ({"allOf": [fields(a=TEXT), TEXT]}, "Any"),
    ],
)
def test_choices(schema: JSON, expected: str) -> None:
    assert told(schema) == expected


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"$ref": "#/$defs/a", "$defs": {"a": TEXT}}, "str"),
        ({"$ref": "#/$defs/a~1b~0", "$defs": {"a/b~": TEXT}}, "str"),
        ({"$ref": "#/$defs/a"}, "Any"),
        ({"$ref": "#/$defs/a", "$defs": []}, "Any"),
        ({"$ref": "https://example.com/"}, "Any"),
        ({"$ref": "#"}, "Any"),
        (fields(a={"$ref": "#"}), "{a?: {a?: Any}}"),
    ],
)
def test_references(schema: JSON, expected: str) -> None:
    assert told(schema) == expected


def test_what_is_deeper_or_larger_than_the_bounds_is_of_any_type() -> None:
    # law 9
    deep: JSON = TEXT
    for _ in range(50):
        deep = {"type": "array", "items": deep}
    assert told(deep) == f"{'list[' * 9}Any{']' * 9}"
    doubled: dict[str, JSON] = {
        f"a{at}": fields(**{str(n): {"$ref": f"#/$defs/a{at + 1}"} for n in range(50)})
        for at in range(50)
    }
    assert len(told({"$ref": "#/$defs/a0", "$defs": doubled})) < 10_000
    wide = parameters_of(fields(**{f"a{at}": TEXT for at in range(61)}))
    assert (len(wide.fields), wide.more) == (60, True)
    long = parameters_of(fields(**{"a" * 101: TEXT}))
    assert long == Fields((), more=True)


def test_required_parameters_are_first() -> None:
    found = parameters_of({**fields(a=TEXT, b=TEXT), "required": ["b"]})
    assert [(one.name, one.required) for one in found.fields] == [
        ("b", True),
        ("a", False),
    ]


@pytest.mark.parametrize("schema", [None, {}, {"type": "object"}, TEXT])
def test_parameters_that_the_schema_does_not_name_are_any(schema: JSON) -> None:
    assert parameters_of(schema) == Fields((), more=True)


@pytest.mark.parametrize("rest", [True, {"type": "string"}])
def test_further_parameters_have_to_be_said(rest: JSON) -> None:
    assert not parameters_of(fields(a=TEXT)).more
    assert parameters_of({**fields(a=TEXT), "additionalProperties": rest}).more


@pytest.mark.parametrize(
    ("default", "expected"),
    [
        ("a", "a"),
        (3, 3),
        (1.5, 1.5),
        (False, False),
        ("a" * 61, None),
        (1 << 63, None),
        (float("inf"), None),
        (float("nan"), None),
        ([], None),
    ],
)
def test_defaults(default: JSON, expected: JSON) -> None:
    (field,) = parameters_of(fields(a={"default": default})).fields
    assert field.default == expected


def test_only_a_text_describes_a_parameter() -> None:
    found = parameters_of(fields(a={"description": "Where"}, b={"description": 7}, c=1))
    assert [one.description for one in found.fields] == ["Where", "", ""]


def test_a_result_alone_is_the_value_of_it() -> None:
    assert result_of(fields(result=COUNT)) == shape_of(COUNT)
    both = fields(result=COUNT, more=COUNT)
    assert result_of(both) == shape_of(both)
    assert result_of(None) == shape_of({})
