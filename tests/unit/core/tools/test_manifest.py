"""A manifest is what a stranger says: found in any bytes, bounded, not believed."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caxton_host.core.tools.manifest import (
    LIMIT,
    Manifest,
    Wanted,
    find,
    is_agent_name,
    section,
)
from caxton_host.errors import BadBytes

CORE = b"\0asm\1\0\0\0"
COMPONENT = b"\0asm\x0d\0\1\0"
OTHER = b"\0\5\4name"  # a custom section of another name


def test_a_manifest_is_what_it_was_made_of() -> None:
    value: dict[str, Any] = {
        "name": "auditor",
        "version": "1",
        "description": "Reads a repository.",
        "input_schema": {"type": "object"},
        "output_schema": True,
        "tools": [{"name": "git/git_log", "reason": "to know the commits"}],
    }
    manifest = Manifest.of(value)
    assert manifest.tools == (Wanted(name="git/git_log", reason="to know the commits"),)
    assert manifest.to_payload() == value


def test_a_name_is_enough_and_later_keys_are_passed_over() -> None:
    manifest = Manifest.of({"name": "a", "of_tomorrow": 1})
    assert manifest == Manifest(name="a")
    assert manifest.to_payload() == {"name": "a"}


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([], "not a map"),
        ({}, "name is not one"),
        ({"name": 1}, "name is not one"),
        ({"name": "../up"}, "name is not one"),
        ({"name": "a", "version": 1}, "version is not a text"),
        ({"name": "a", "description": "x" * 4_001}, "of 4000 allowed"),
        ({"name": "a", "tools": {}}, "tools is not an array"),
        ({"name": "a", "tools": [{"name": "t"}] * 101}, "of 100 allowed"),
        ({"name": "a", "tools": ["t"]}, r"tools\[0\] is not a map"),
        ({"name": "a", "tools": [{"name": "a/b"}, {}]}, r"tools\[1\]\.name"),
        ({"name": "a", "tools": [{"name": "a/*"}]}, r"tools\[0\]\.name"),
        ({"name": "a", "input_schema": "x"}, "input_schema is not a JSON Schema"),
    ],
)
def test_what_is_no_manifest_is_refused_with_the_key(  # law 9
    value: Any,  # noqa: ANN401 -- anything
    message: str,
) -> None:
    with pytest.raises(BadBytes, match=message):
        Manifest.of(value)


def test_a_name_may_name_a_folder() -> None:
    assert is_agent_name("no-tools")
    assert not is_agent_name("a" * 64)


@pytest.mark.parametrize("header", [CORE, COMPONENT])
@pytest.mark.parametrize("size", [0, 1, 100, 111, 112, 20_000, LIMIT])
def test_a_section_is_found_where_it_was_put(header: bytes, size: int) -> None:
    content = b"x" * size
    module = header + OTHER + b"\1\2ab" + section(content)
    assert find(module) == content
    assert find(module + OTHER) == content


def test_a_module_without_one_has_none() -> None:
    assert find(CORE) is None
    assert find(CORE + OTHER) is None
    assert find(b"") is None


def test_two_manifests_and_a_large_one_are_refused() -> None:
    with pytest.raises(BadBytes, match="two of it"):
        find(CORE + section(b"{}") + section(b"{}"))
    with pytest.raises(BadBytes, match="larger than 65,536"):
        find(CORE + section(b"x" * (LIMIT + 1)))


def test_the_search_ends_at_a_cut_and_among_many_sections() -> None:  # law 9
    whole = CORE + section(b"{}")
    for size in range(len(whole)):
        assert find(whole[:size]) is None
    assert find(CORE + b"\0\0" * 20_000 + section(b"{}")) is None
    assert find(CORE + b"\0\xff\xff\xff\xff\xff\xff" + section(b"{}")) is None


@given(st.binary(max_size=200))
def test_any_bytes_can_be_searched(tail: bytes) -> None:  # law 9
    assert find(CORE + tail) is None
