"""Limits mean what was recorded."""

from __future__ import annotations

from dataclasses import replace

import pytest

from caxton_host.core.limits import (
    COMPONENT,
    CORE_MEMORY,
    LARGE_MEMORY,
    Limits,
    is_component,
)
from caxton_host.core.sections import INTERPRETER, section
from caxton_host.lib import codec

RECORDED = replace(Limits(), fuel=7, wall=2.5)


def test_recorded_limits_are_the_limits() -> None:
    stored = codec.decode_trusted(codec.encode(RECORDED.to_payload()))

    assert Limits.from_payload(stored) == RECORDED


def test_limit_of_a_later_version_is_ignored_and_a_missing_one_has_its_default() -> (
    None
):
    payload = RECORDED.to_payload() | {"moons": 3}
    del payload["wall"]

    assert Limits.from_payload(payload) == replace(RECORDED, wall=Limits().wall)


CORE = b"\0asm\1\0\0\0"


@pytest.mark.parametrize(
    ("module", "memory"),
    [
        (CORE, CORE_MEMORY),
        (COMPONENT, LARGE_MEMORY),
        (CORE + section(INTERPRETER, b""), LARGE_MEMORY),
        (CORE + section("caxton:other", b""), CORE_MEMORY),
        (b"", CORE_MEMORY),
    ],
)
def test_memory_is_what_is_right_for_the_module_unless_it_is_said(
    module: bytes, memory: int
) -> None:
    assert Limits().of(module).memory == memory
    assert Limits(memory=7).of(module).memory == 7
    assert Limits.from_payload(Limits().of(module).to_payload()).memory == memory


def test_component_is_known_by_its_first_bytes() -> None:
    assert is_component(COMPONENT + b"more")
    assert not is_component(CORE)
    assert not is_component(COMPONENT[:7])
