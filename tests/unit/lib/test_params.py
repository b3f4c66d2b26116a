"""What a word on the command line means is for the schema of the tool to say."""

from __future__ import annotations

from typing import Any

import pytest

from caxton_host.core.calls import JSON
from caxton_host.errors import UsageError
from caxton_host.lib.params import Words

SCHEMA: dict[str, JSON] = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "text": {"type": "string"},
        "count": {"type": "integer"},
        "share": {"type": "number"},
        "sure": {"type": "boolean"},
        "tags": {"type": "array"},
        "map": {"type": "object"},
        "maybe": {"type": ["string", "null"]},
        "either": {"anyOf": [{"type": "integer"}, {"type": "string"}]},
        "level": {"enum": ["1", "2"]},
        "step": {"enum": [1, 2]},
        "only": {"const": True},
        "named": {"$ref": "#/$defs/name"},
        "lost": {"$ref": "#/$defs/none"},
        "round": {"$ref": "#/$defs/round"},
        "any": {},
        "odd": {"type": "thing"},
    },
    "$defs": {"name": {"type": "string"}, "round": {"$ref": "#/$defs/round"}},
}


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("text=007", "007"),
        ("text=true", "true"),
        ("text=", ""),
        ("text=a=b", "a=b"),
        ("count=7", 7),
        ("count=7.0", 7),
        ("share=7.0", 7.0),
        ("share=0.5", 0.5),
        ("share=1", 1),
        ("sure=true", True),
        ('tags=["a"]', ["a"]),
        ('map={"a": 1}', {"a": 1}),
        ("maybe=null", None),
        ("maybe=7", "7"),
        ("either=7", 7),
        ("either=seven", "seven"),
        ("level=1", "1"),
        ("step=1", 1),
        ("only=true", True),
        ("named=1", "1"),
        ("lost=1", 1),
        ("round=1", 1),
        ("any=1", 1),
        ("any=one", "one"),
    ],
)
def test_a_word_is_what_the_schema_wants(word: str, value: object) -> None:
    found: Any = Words.read([word]).params(SCHEMA)[word.partition("=")[0]]
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["count=seven"], "count wants integer"),
        (["count=0.5"], "count wants integer"),
        (["count=true"], "count wants integer"),
        (["sure=1"], "sure wants boolean"),
        (["tags=a"], "tags wants array"),
        (["odd=1"], "odd wants thing"),
        (["cuont=7"], "no parameter 'cuont'"),
        (["zzzzzzzzzz=7"], "it has: any, count"),
        (["count=1", "count=2"], "given twice"),
        (["count"], "not KEY=VALUE"),
        (['{"count": '], "the parameters"),
    ],
)
def test_a_word_that_cannot_be_meant_is_refused(words: list[str], said: str) -> None:
    with pytest.raises(UsageError, match=said) as caught:
        Words.read(words).params(SCHEMA)
    assert caught.value.fix


def test_a_whole_map_is_taken_as_it_is() -> None:
    whole = Words.read(['{"count": "x", "new": 1}'])
    assert whole.params(SCHEMA) == {"count": "x", "new": 1}
    assert whole.params({"required": ["text"]}) == {"count": "x", "new": 1}
    assert Words.read([]).params(SCHEMA) == {}


def test_what_the_tool_cannot_do_without_is_asked_for() -> None:
    with pytest.raises(UsageError, match="text is missing") as caught:
        Words.read(["count=1"]).params({**SCHEMA, "required": ["count", "text"]})
    assert caught.value.fix == "add text=VALUE"


def test_misspelt_parameter_is_named_before_the_missing_one() -> None:
    schema: dict[str, JSON] = {
        "properties": {"timezone": {"type": "string"}},
        "required": ["timezone"],
    }
    with pytest.raises(UsageError, match="no parameter 'timezon'") as caught:
        Words.read(["timezon=UTC"]).params(schema)
    assert caught.value.fix == "write timezone=VALUE instead"
