"""How much is let through in a time."""

from __future__ import annotations

from caxton_host.mcp.transport.bucket import Bucket


def test_what_is_not_there_yet_is_ordered_in_turn() -> None:
    bucket = Bucket(2, 2.0)
    assert [bucket.reserve(100.0, 200.0) for _ in range(4)] == [0, 0, 1, 2]
    assert bucket.reserve(101.0, 200.0) == 2


def test_what_would_come_too_late_is_not_taken() -> None:
    bucket = Bucket(1, 10.0)
    assert bucket.reserve(0, 5) == 0
    assert [bucket.reserve(0, 5) for _ in range(3)] == [None] * 3
    assert bucket.reserve(0, 10) == 10


def test_a_long_rest_saves_no_more_than_the_bucket_holds() -> None:
    bucket = Bucket(3, 3.0)
    assert [bucket.reserve(1e6, 1e6) for _ in range(4)] == [0, 0, 0, None]


def test_what_is_given_back_can_be_taken() -> None:
    bucket = Bucket(1, 10.0)
    assert bucket.reserve(0, 0) == 0
    bucket.give_back()
    bucket.give_back()
    assert [bucket.reserve(0, 0) for _ in range(2)] == [0, None]
