"""A custom section is found in any module, and in any bytes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caxton_host.core.limits import COMPONENT
from caxton_host.core.sections import INTERPRETER, find, is_interpreter, section
from caxton_host.errors import BadBytes

CORE = b"\0asm\1\0\0\0"


@pytest.mark.parametrize("header", [CORE, COMPONENT])
@pytest.mark.parametrize("size", [0, 1, 127, 128, 70_000])
@pytest.mark.parametrize("name", ["x", "n" * 300])
def test_section_is_found_by_its_name(header: bytes, size: int, name: str) -> None:
    module = header + section("other", b"1") + section(name, bytes(size))

    assert find(module, name, size) == bytes(size)
    assert find(module, "another", size) is None


def test_section_larger_than_its_limit_is_refused() -> None:  # law 9
    with pytest.raises(BadBytes, match="larger than 3 bytes"):
        find(CORE + section("x", b"1234"), "x", 3)


def test_section_that_is_there_twice_is_refused() -> None:  # law 9
    with pytest.raises(BadBytes, match="two of it"):
        find(CORE + section("x", b"") * 2, "x", 3)


@pytest.mark.parametrize("header", [CORE, COMPONENT])
def test_interpreter_is_known_by_its_section(header: bytes) -> None:
    mark = section(INTERPRETER, b"")

    assert is_interpreter(header + section("caxton:manifest", b"{}") + mark)
    assert is_interpreter(header + mark * 2)
    assert not is_interpreter(header + mark[:-1])
    assert not is_interpreter(header + section("name", mark))


@given(st.binary(max_size=200))
def test_any_bytes_can_be_searched(tail: bytes) -> None:  # law 9
    try:
        found = find(CORE + tail, INTERPRETER, 200) is not None
    except BadBytes:
        found = True
    assert is_interpreter(CORE + tail) == found
