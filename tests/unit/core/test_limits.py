"""Limits mean what was recorded."""

from __future__ import annotations

from dataclasses import replace

from caxton_host import codec
from caxton_host.core.limits import Limits

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
