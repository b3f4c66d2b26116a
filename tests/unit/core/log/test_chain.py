"""The hash binds every field of an event to all before it."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caxton_host.core.log.chain import (
    GENESIS,
    MAX_FAULTS,
    SALT_SIZE,
    Chains,
    Fault,
    Signer,
    Verdict,
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


def test_first_bad_event_is_of_the_first_fault_that_names_one() -> None:
    of_stream = Fault(kind="tree", message="m", stream="run/a")
    of_event = Fault(kind="chain", message="n", stream="run/b", seq=3)

    found = Verdict(streams=2, events=9, faults=(of_stream, of_event))

    assert found.first_bad == ("run/b", 3, "n")


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


SALT = b"0123456789abcdef"


def stream(name: str, count: int) -> list[tuple[Any, ...]]:
    rows: list[tuple[Any, ...]] = []
    previous = GENESIS
    for seq in range(1, count + 1):
        payload = b"%d" % seq
        digest = payload_digest(SALT, payload)
        head = (name, seq, "LogWritten", 1, 1_000_000, None, None)
        previous = event_hash(previous, envelope(*head), digest)
        rows.append((*head, digest, previous, SALT, payload))
    return rows


def checked(*rows: tuple[Any, ...], erasable: bool = False) -> Chains:
    chains = Chains(erasable=lambda name: erasable and name == "run/a")
    chains.check(rows)
    return chains


def test_streams_may_come_mixed() -> None:
    a, b = stream("run/a", 3), stream("run/b", 3)
    chains = checked(a[0], b[0], b[1], a[1])
    chains.check([a[2], b[2]])
    assert (chains.streams, chains.events, chains.faults) == (2, 6, [])


def test_a_bad_stream_is_told_once() -> None:
    a, b = stream("run/a", 4), stream("run/b", 4)
    chains = checked(a[0], b[0], b[2], a[1], b[3], a[2])
    assert (chains.streams, chains.events) == (2, 6)
    (fault,) = chains.faults
    assert (fault.kind, fault.stream, fault.seq) == ("missing", "run/b", 2)
    assert str(fault) == "run/b event 2: event 2 is missing: the next is 3"


def test_a_row_of_nothing_is_found() -> None:
    row = (None, 1, None, None, None, None, None, None, None, b"", b"")
    (fault,) = checked(row).faults
    assert fault.kind == "payload"


def test_there_is_an_end_to_what_is_told() -> None:
    rows = [stream(f"run/{number}", 2)[1] for number in range(MAX_FAULTS + 5)]
    chains = checked(*rows)
    assert len(chains.faults) == MAX_FAULTS
    assert chains.streams == MAX_FAULTS + 5


@pytest.mark.parametrize(
    ("column", "value", "kind"),
    [
        (1, 9, "missing"),
        (2, "RunFailed", "envelope"),
        (4, "now", "column"),
        (4, None, "column"),
        (7, bytes(32), "payload"),
        (8, bytes(32), "envelope"),
        (9, b"", "payload"),
        (9, 5, "column"),
        (10, b"x", "payload"),
        (10, None, "payload"),
        (10, "x", "column"),
    ],
)
def test_what_was_changed_is_named(column: int, value: object, kind: str) -> None:
    first, second, *_ = stream("run/a", 2)
    changed = (*second[:column], value, *second[column + 1 :])
    (fault,) = checked(first, changed).faults
    assert (fault.kind, fault.seq) == (kind, 2)


def test_a_salt_takes_nothing_from_its_payload() -> None:
    (row,) = stream("run/a", 1)
    (fault,) = checked((*row[:9], row[9] + row[10], b"")).faults
    assert fault.kind == "payload"


def test_an_erased_payload_leaves_the_chain_whole() -> None:
    rows = [(*row[:9], None, None) for row in stream("run/a", 2)]
    chains = checked(*rows, erasable=True)
    assert (chains.missing, chains.erased_runs, chains.faults) == (2, ("a",), [])
    (fault,) = checked(*rows).faults
    assert fault.kind == "payload"
    changed = (*rows[0][:7], bytes(32), *rows[0][8:])
    (fault,) = checked(changed, erasable=True).faults
    assert fault.kind == "envelope"


@pytest.mark.parametrize(
    ("gone", "known", "bad"),
    [
        ([1, 2, 3], {"run/a": 3}, None),
        ([1, 2, 3], {"run/a": 9}, None),
        ([1, 2], {"run/a": 2}, None),
        ([1, 2, 3], {"run/a": 1}, (2, "missing")),
        ([2, 3], {}, (2, "missing")),
        ([1, 2], {"run/a": 3}, (3, "is there")),
        ([1, 3], {"run/a": 3}, (2, "is there")),
        ([2, 3], {"run/a": 3}, (1, "is there")),
    ],
)
def test_an_erasure_takes_every_payload_it_names_and_no_other(
    gone: list[int], known: dict[str, int], bad: tuple[int, str] | None
) -> None:
    rows = [
        (*row[:9], None, None) if row[1] in gone else row for row in stream("run/a", 3)
    ]
    chains = checked(*rows, erasable=True)

    chains.excuse(known)
    chains.refuse_restored(known)

    assert [fault.seq for fault in chains.faults] == ([bad[0]] if bad else [])
    assert all(bad and bad[1] in fault.message for fault in chains.faults)
    assert chains.missing == (0 if bad else len(gone))


def test_a_stream_that_is_bad_is_not_reported_again_for_its_payloads() -> None:
    first, second, third = stream("run/a", 3)
    chains = checked((*first[:9], None, None), third, second, erasable=True)

    chains.excuse({})
    chains.refuse_restored(["run/a", "run/none"])

    assert [fault.kind for fault in chains.faults] == ["missing"]


def test_no_payload_is_there_of_a_stream_that_was_erased_before() -> None:
    chains = checked(*stream("run/a", 2), *stream("run/b", 2), erasable=True)

    chains.refuse_restored(["run/a"])

    assert [(fault.stream, fault.seq) for fault in chains.faults] == [("run/a", 1)]


def test_nothing_is_intact_without_a_pinned_key() -> None:
    known = Signer(public_key=bytes(32), trusted=True)
    unknown = Signer(public_key=bytes(32), trusted=False)
    fault = Fault(kind="cut", message="the log was cut")
    for signer, faults, verdict in (
        (known, (), "intact"),
        (unknown, (), "signer_unknown"),
        (None, (), "signer_unknown"),
        (known, (fault,), "broken"),
        (unknown, (fault,), "broken"),
    ):
        found = Verdict(streams=1, events=1, signer=signer, faults=faults)
        assert found.verdict == verdict
        assert found.first_bad is None
    assert Verdict(streams=0, events=0).verdict == "intact"
    assert str(fault) == "the log was cut"


def test_the_first_bad_event_is_told() -> None:
    log = Fault(kind="cut", message="the log was cut")
    event = Fault(kind="payload", message="edited", stream="run/a", seq=3)
    found = Verdict(streams=1, events=1, faults=(log, event))
    assert found.first_bad == ("run/a", 3, "edited")
