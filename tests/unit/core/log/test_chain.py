"""The hash binds every field of an event to all before it."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caxton_host.core.log.chain import (
    GENESIS,
    SALT_SIZE,
    envelope,
    event_hash,
    payload_digest,
)
from caxton_host.lib import codec

SHORT = st.text(max_size=60)
ID = st.none() | st.text("0123456789abcdef", min_size=16, max_size=32)
NUMBER = st.integers(0, 2**64 - 1)
HEADS = st.tuples(SHORT, NUMBER, SHORT, NUMBER, NUMBER, ID, ID)


@given(HEADS)
def test_envelope_is_the_msgpack_array_that_is_documented(
    head: tuple[str, int, str, int, int, str | None, str | None],
) -> None:
    assert envelope(*head) == codec.encode([1, *head])


@pytest.mark.parametrize("length", [0, 31, 32, 255])
def test_envelope_holds_names_of_every_length(length: int) -> None:
    assert envelope("s" * length, 1, "T", 1, 0) == codec.encode(
        [1, "s" * length, 1, "T", 1, 0, None, None]
    )


@pytest.mark.parametrize("number", [127, 255, 65_535, 65_536, 1 << 32])
def test_envelope_holds_numbers_of_every_length(number: int) -> None:
    assert envelope("s", number, "T", number, number) == codec.encode(
        [1, "s", number, "T", number, number, None, None]
    )


def test_envelope_holds_short_names_only() -> None:
    with pytest.raises(ValueError, match="short names"):
        envelope("s" * 256, 1, "T", 1, 0)


@given(HEADS, HEADS)
def test_other_field_other_envelope(
    one: tuple[str, int, str, int, int, str | None, str | None],
    other: tuple[str, int, str, int, int, str | None, str | None],
) -> None:
    assert (envelope(*one) == envelope(*other)) is (one == other)


def hashed(
    previous: bytes = GENESIS,
    stream: str = "run/1",
    seq: int = 1,
    salt: bytes = bytes(SALT_SIZE),
    payload: bytes = b"\x80",
) -> bytes:
    head = envelope(stream, seq, "RunStarted", 1, 5, "a" * 32, "b" * 16)
    return event_hash(previous, head, payload_digest(salt, payload))


def test_hash_changes_with_everything_it_binds() -> None:
    hashes = {
        hashed(),
        hashed(previous=bytes(31) + b"\x01"),
        hashed(stream="run/2"),
        hashed(seq=2),
        hashed(salt=bytes(SALT_SIZE - 1) + b"\x01"),
        hashed(payload=b"\xc0"),
    }

    assert len(hashes) == 6
    assert {len(h) for h in hashes} == {32}


def test_hash_is_as_documented() -> None:
    # docs promise this formula to everyone who verifies a log without us
    head = bytes.fromhex("9801a572756e2f3101aa52756e537461727465640100c0c0")
    digest = hashlib.sha256(bytes(16) + b"\x80").digest()

    assert envelope("run/1", 1, "RunStarted", 1, 0) == head
    assert event_hash(GENESIS, head, payload_digest(bytes(16), b"\x80")) == (
        hashlib.sha256(bytes(32) + head + digest).digest()
    )
