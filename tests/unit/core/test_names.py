"""Names that agents, logs and terminals can bear."""

from __future__ import annotations

import re
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caxton_host.core.names import (
    clean_name,
    exposed_name,
    idempotency_key,
    is_server_name,
    is_tool_name,
    meant_tool,
    nearest,
    uuid7,
)

SERVERS = st.from_regex(r"[A-Za-z0-9](_?[A-Za-z0-9.-]){0,20}", fullmatch=True)
TOOLS = st.from_regex(r"[A-Za-z0-9_./-]{1,128}", fullmatch=True)


@given(st.tuples(SERVERS, TOOLS), st.tuples(SERVERS, TOOLS))
def test_exposed_names_are_fit_for_every_provider_and_tell_tools_apart(
    one: tuple[str, str], other: tuple[str, str]
) -> None:
    # attack 23
    names = {exposed_name(*one), exposed_name(*other)}

    assert all(re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", name) for name in names)
    assert len(names) == len({one, other})


def test_exposed_name_most_likely_means_a_tool_of_a_server_that_there_is() -> None:
    servers = ["demo", "crm"]

    assert meant_tool("mcp__crm__find", servers) == ("crm", "find")
    assert meant_tool("mcp__other__find", servers) is None
    assert meant_tool("mcp__crm__", servers) is None
    assert meant_tool("find", servers) is None


def test_exposed_name_of_exactly_64_is_not_cut() -> None:
    tool = "t" * (64 - len("mcp__demo__"))

    assert exposed_name("demo", tool) == f"mcp__demo__{tool}"
    assert len(exposed_name("demo", tool + "t")) == 64


def test_tools_that_differ_behind_the_cut_or_in_what_is_replaced_differ() -> None:
    names = [
        exposed_name("demo", tool)
        for tool in ("x" * 70 + "a", "x" * 70 + "b", "get.a", "get/a", "get_a")
    ]

    assert len(set(names)) == len(names)


@pytest.mark.parametrize(
    ("name", "good"),
    [
        ("demo", True),
        ("my-crm.v2", True),
        ("a_b", True),
        ("a" * 64, True),
        ("a" * 65, False),
        ("", False),
        ("_a", False),
        ("a_", False),
        ("a__b", False),
        ("a/b", False),
        ("a b", False),
        ("dem\u00f6", False),
        ("demo\n", False),
    ],
)
def test_server_name(name: str, good: bool) -> None:  # noqa: FBT001
    # attack 23
    assert is_server_name(name) is good


@pytest.mark.parametrize(
    ("name", "good"),
    [
        ("get.a-b_c", True),
        ("a/b", False),
        ("t" * 128, True),
        ("t" * 129, False),
        ("", False),
        ("a b", False),
        ("a\n", False),
        ("a*", False),
    ],
)
def test_tool_name(name: str, good: bool) -> None:  # noqa: FBT001
    assert is_tool_name(name) is good


@given(st.binary(max_size=300))
def test_clean_name_is_short_printable_ascii(raw: bytes) -> None:
    name = clean_name(raw)

    assert name.isascii()
    assert name.isprintable()
    assert len(name) <= 4 * 128


@given(st.binary(max_size=64), st.binary(max_size=64))
def test_clean_name_tells_bytes_apart(one: bytes, other: bytes) -> None:
    assert (clean_name(one) == clean_name(other)) is (one == other)


def test_clean_name_is_cut() -> None:
    assert clean_name(b"abcdef", length=3) == "abc"


@given(st.integers(0, 2**48 * 1000 - 1), st.binary(min_size=10, max_size=10))
def test_uuid7_has_the_shape_and_the_time_of_one(at: int, entropy: bytes) -> None:
    made = uuid.UUID(uuid7(at, entropy))

    assert str(made) == uuid7(at, entropy)
    assert (made.version, made.variant) == (7, uuid.RFC_4122)
    assert made.int >> 80 == at // 1000


#: As many milliseconds as a uuid7 has bits for.
_TIMES = st.integers(0, 1000 * 2**48 - 1)


@given(_TIMES, _TIMES, st.binary(min_size=10, max_size=10))
def test_uuid7_sorts_by_time(one: int, other: int, entropy: bytes) -> None:
    flat = bytes(10)
    if one // 1000 < other // 1000:
        assert uuid7(one, entropy) < uuid7(other, flat)


def test_uuid7_uses_its_entropy() -> None:
    made = {uuid7(0, bytes(i) + b"\xff" + bytes(9 - i)) for i in range(10)}

    assert len(made) == 10


def test_idempotency_key_belongs_to_one_call_of_one_run() -> None:
    keys = {idempotency_key(run, call) for run in ("a", "b") for call in (1, 2, 11)}

    assert len(keys) == 6
    assert idempotency_key("a", 1) == idempotency_key("a", 1)


def test_nearest_is_the_likely_meaning_or_none() -> None:
    assert nearest("comand", ["args", "command"]) == "command"
    assert nearest("zzz", ["args", "command"]) is None
