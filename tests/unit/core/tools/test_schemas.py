"""The work of a stranger's schema has a bound, or the schema is refused (law 9)."""

from __future__ import annotations

from typing import Any

import pytest

from caxton_host.core.calls import JSON
from caxton_host.core.tools.schemas import bounded, untyped
from caxton_host.errors import BadBytes


def laughs(levels: int) -> dict[str, Any]:
    defs: dict[str, Any] = {
        f"a{level}": {"allOf": [{"$ref": f"#/$defs/a{level + 1}"}] * 2}
        for level in range(levels)
    }
    return {"$ref": "#/$defs/a0", "$defs": {**defs, f"a{levels}": {}}}


def chain(length: int) -> dict[str, Any]:
    defs: dict[str, Any] = {
        f"a{at}": {"$ref": f"#/$defs/a{at + 1}"} for at in range(length)
    }
    return {"$ref": "#/$defs/a0", "$defs": {**defs, f"a{length}": {}}}


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({"$ref": "#"}, "'#' refers to itself"),
        ({"properties": {"a": {"$ref": "#/properties"}}}, "refers to itself"),
        ({"$ref": "#/$defs/a"}, "refers to nothing"),
        ({"$ref": "#/allOf/1", "allOf": [{}]}, "refers to nothing"),
        ({"$ref": "#/allOf/x", "allOf": [{}]}, "refers to nothing"),
        ({"$ref": f"#/allOf/{'9' * 5_000}", "allOf": [{}]}, "refers to nothing"),
        ({"$ref": "https://example.com/a"}, "is not a reference into it"),
        ({"$ref": "file:///etc/passwd"}, "is not a reference into it"),
        ({"$ref": "#anchor"}, "is not a reference into it"),
        ({"$ref": "#/a%20b"}, "is not a reference into it"),
        ({"$dynamicRef": "#a"}, r"it has \$dynamicRef"),
        ({"$recursiveRef": "#"}, r"it has \$recursiveRef"),
        ({"items": {"$id": "other"}}, r"it has \$id"),
        ({"$vocabulary": {}}, r"it has \$vocabulary"),
        ({"$schema": "http://json-schema.org/draft-04/schema#"}, r"\$schema"),
        ({"$schema": 7}, r"\$schema"),
        (laughs(24), "more than 10,000 values"),
        (chain(1_000), "deeper than 100"),
        ({"enum": list(range(10_001))}, "more than 10,000 values"),
        ({"allOf": [{"pattern": "x"}] * 101}, "more than 100 regular expressions"),
    ],
)
def test_a_schema_without_a_bound_is_refused(
    schema: dict[str, Any], message: str
) -> None:
    # attack 29
    with pytest.raises(BadBytes, match=message):
        bounded(schema)


def test_references_are_counted_as_if_written_out() -> None:
    # attack 29
    assert bounded(laughs(0)).values < bounded(laughs(5)).values
    assert bounded({"a~b": {}, "c/d": {}, "allOf": [{"$ref": "#/a~0b"}]}).values == 7
    assert bounded({"c/d": [1, 2], "$ref": "#/c~1d/1"}).values == 6


def test_a_schema_may_say_its_own_name_and_dialect() -> None:
    schema = bounded(
        {
            "$id": "https://example.com/mine",
            "$schema": "http://json-schema.org/draft-07/schema#",
            "properties": {"$id": {"type": "string"}, "$ref": {}},
        }
    )
    assert isinstance(schema.document, dict)
    assert "$id" not in schema.document


def test_true_and_false_are_schemas() -> None:
    assert bounded(schema=True).bears([1] * 100_000)
    assert bounded(schema=False).values == 1


def test_a_value_is_borne_while_the_product_is_small() -> None:
    schema = bounded({"enum": list(range(1_000))})
    assert schema.bears({"a": [1, 2.5, None, True]})
    assert not schema.bears([0] * 10_000)


def test_characters_count_for_patterns_alone() -> None:
    text: dict[str, Any] = {"key" * 10: "x" * 100_000}
    assert bounded({"type": "object"}).bears(text)
    pattern: dict[str, Any] = {"pattern": "^x+$"}
    assert bounded(pattern).bears(text)
    assert not bounded({"allOf": [pattern, pattern]}).bears(text)
    assert not bounded({"patternProperties": {"a": {}, "b": {}}}).bears(text)


def of(**properties: JSON) -> dict[str, JSON]:
    return {"type": "object", "properties": properties}


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string"},
        {"type": ["string", "null"]},
        {"enum": ["a", "b"]},
        {"const": 1},
        {"$ref": "#/$defs/place"},
        {"anyOf": [{"type": "string"}, {"const": None}]},
        {"oneOf": [{"type": "string"}, {"$ref": "#/$defs/place"}]},
        {"allOf": [{"minLength": 1}, {"type": "string"}]},
        False,
    ],
)
def test_a_property_whose_schema_says_of_what_kind_it_is_has_a_type(
    schema: JSON,
) -> None:
    assert untyped(of(location=schema)) == ()


@pytest.mark.parametrize(
    "schema",
    [
        {},
        True,
        {"description": "Where"},
        {"minLength": 3},
        {"anyOf": [{"type": "string"}, {"minimum": 1}]},
        {"allOf": [{"minLength": 1}]},
        {"anyOf": []},
    ],
)
def test_a_property_that_takes_a_value_of_any_kind_has_none(schema: JSON) -> None:
    assert untyped(of(location=schema)) == ("location",)


def test_properties_without_a_type_are_found_wherever_they_are() -> None:
    inner = of(x={})
    schema: JSON = {
        **of(place=inner, list={"type": "array", "items": {}}, many=[]),
        "anyOf": [of(way={}), of(way={})],
        "$defs": {"point": inner},
        "definitions": [],
    }

    found = untyped(schema)

    assert found == ("place.x", "list[]", "many", "$defs/point.x", "way")
    assert untyped({"type": "array", "items": inner}) == ("[].x",)
    assert untyped(None) == ()
