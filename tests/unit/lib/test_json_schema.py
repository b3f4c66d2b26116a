"""Regular expressions and schemas, by their one engine: law 9."""

from __future__ import annotations

import pytest

from caxton_host.core.calls import JSON
from caxton_host.errors import BadBytes
from caxton_host.lib.json_schema import check_pattern, fits, input_check

LONG = 64 * 1024


@pytest.mark.parametrize(
    ("pattern", "text", "fit"),
    [
        ("a|b", "a", True),
        ("a|b", "ab", False),
        ("a", "a\n", False),
        ("(?m)a", "a\nb", False),
        ("(?i)a", "A", True),
        ("^a$", "a", True),
        ("", "", True),
        (r"\d+", "١٢", False),
        (r"\p{L}+", "größe", True),
    ],
)
def test_pattern_fits_a_text_as_a_whole(pattern: str, text: str, *, fit: bool) -> None:
    check_pattern(pattern)

    assert fits(pattern, text) is fit


@pytest.mark.parametrize(
    ("pattern", "text", "fit"),
    [
        (".*rm -rf.*", "x\nrm -rf /", None),
        (".*rm -rf.*", "x\r\nrm", False),
        ("secret.*", "secret\nx", None),
        ("(?R)secret.*", "secret\rx", None),
        ("secret.*", "secret\r\u2028\u2029\x85x", True),
        ("secret(?s:.)*", "secret\nx", True),
    ],
)
def test_text_that_fits_only_if_a_dot_is_a_line_break_is_in_doubt(
    pattern: str, text: str, *, fit: bool | None
) -> None:  # law 4
    assert fits(pattern, text) is fit


@pytest.mark.parametrize(
    "pattern",
    [
        "(",
        "a)|(?:b",
        "(?x) a # ",
        "(?=a)a",
        "(?!a)b",
        r"(a)\1",
        r"[\p{L} ]{1,80}",
        "(a{1000}){1000}",
    ],
)
def test_pattern_that_is_none_or_not_of_linear_time_is_refused(pattern: str) -> None:
    # attack 29
    with pytest.raises(BadBytes, match="linear time"):
        check_pattern(pattern)

    assert fits(pattern, "a") is None


def test_text_that_is_too_long_for_a_large_pattern_is_not_judged() -> None:
    assert fits("[a-z]+", "a" * LONG) is True
    assert fits(r"\p{L}+", "a" * 4096) is True
    assert fits(r"\p{L}+", "a" * LONG) is None


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ({"$ref": "#"}, "refers to itself"),
        ({"$ref": "https://a.org/x"}, "not a reference into it"),
        ({"type": 5}, "no JSON Schema"),
        ({"properties": {"a": {"pattern": "("}}}, "no JSON Schema"),
    ],
)
def test_schema_that_cannot_be_used_takes_nothing(
    schema: dict[str, JSON], reason: str
) -> None:  # law 4
    # attack 29
    found = input_check(schema)({})

    assert found is not None
    assert found.path == "$"
    assert reason in found.reason


def test_value_that_is_too_large_for_a_schema_is_not_taken() -> None:
    schema: dict[str, JSON] = {
        "properties": {f"p{n}": {"pattern": "a"} for n in range(50)}
    }

    found = input_check(schema)({"p1": "a" * LONG})

    assert found is not None
    assert "too large" in found.reason
