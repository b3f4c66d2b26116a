"""Lines come out whole, however the bytes come in, and none longer than allowed."""

from __future__ import annotations

from contextlib import suppress
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caxton_host.errors import ToolError
from caxton_host.mcp.transport.frames import Event, Events, Lines, Overlong


def test_a_line_may_come_in_pieces_and_pieces_may_hold_many_lines() -> None:
    lines = Lines(limit=100)
    assert list(lines.feed(b"on")) == []
    assert list(lines.feed(b"e\r\n\n two\nthree\nfo")) == [
        b"one",
        b"",
        b"two",
        b"three",
    ]
    assert list(lines.feed(b"ur\n")) == [b"four"]


@given(st.binary(max_size=200), st.lists(st.integers(0, 200)))
def test_lines_do_not_depend_on_how_the_bytes_are_cut(
    data: bytes, cuts: list[int]
) -> None:
    whole = list(Lines(limit=20).feed(data))
    pieces: list[bytes | Overlong] = []
    lines, last = Lines(limit=20), 0
    for cut in [*sorted(cuts), len(data)]:
        pieces += lines.feed(data[last : max(cut, last)])
        last = max(cut, last)
    assert pieces == whole


def test_an_overlong_line_names_the_request_it_answers_at_either_end() -> None:
    lines = Lines(limit=50)
    head = b'{"jsonrpc":"2.0","id":7,"result":"' + b"x" * 50
    assert list(lines.feed(head)) == [Overlong(7)]
    assert list(lines.feed(b'"}\nnext\n')) == [b"next"]
    tail = b'{"result":"' + b"x" * 500 + b'","id":8}'
    assert list(lines.feed(tail + b"\n")) == [Overlong(8)]


def test_an_overlong_line_that_names_nobody_blames_nobody() -> None:
    lines = Lines(limit=50)
    inner = b'{"result":{"x":"' + b"x" * 500 + b'","id":8}}\n'
    assert list(lines.feed(inner)) == [Overlong(None)]
    assert list(lines.feed(b"fine\n")) == [b"fine"]


def test_an_endless_line_is_held_in_little_memory_and_told() -> None:
    lines = Lines(limit=1000)
    piece = b"x" * (1024 * 1024)
    found = [item for _ in range(80) for item in lines.feed(piece)]
    assert found[0] == Overlong(None, endless=True)
    assert len(lines._held) <= 1000


STREAM = (
    b": welcome\r\n\r\nid: 1\rretry: 250\rdata:\r\revent: message\ndata: {\n"
    b"data: }\nodd\n\ndata:one\n\nid: a\0b\nretry: soon\n\n"
)
FOUND = [
    Event(b"", id=b"1", retry=250),
    Event(b"{\n}"),
    Event(b"one"),
]


@given(st.lists(st.integers(0, len(STREAM)), max_size=8))
def test_the_cuts_between_chunks_do_not_matter(cuts: list[int]) -> None:
    events = Events(limit=100)
    found: list[Event] = []
    edges = [0, *sorted(cuts), len(STREAM)]
    for start, end in pairwise(edges):
        found += events.feed(STREAM[start:end])
    assert found == FOUND


@given(st.binary(max_size=300))
def test_no_bytes_break_it_or_grow_beyond_the_limit(data: bytes) -> None:
    events = Events(limit=50)
    found: list[Event] = []
    with suppress(ToolError):
        found += events.feed(data)
    assert all(len(event.data) <= 50 for event in found)


@pytest.mark.parametrize("piece", [b"x", b"data: x\n", b": x\n", b"x\r"])
def test_what_does_not_end_is_too_large(piece: bytes) -> None:
    events = Events(limit=1000)
    chunks = (event for _ in range(1001) for event in events.feed(piece))
    with pytest.raises(ToolError) as caught:
        list(chunks)
    assert (caught.value.kind, caught.value.sent) == ("too_large", "yes")


def test_an_event_that_is_not_ended_is_none() -> None:
    assert list(Events(limit=100).feed(b"data: one\n")) == []


LONG = b'data: {"jsonrpc":"2.0","id":7,"result":{"text":"' + b"x" * 2000 + b'"}}\n\n'
LATE_ID = b'data: {"result":"' + b"x" * 4000 + b'","jsonrpc":"2.0","id":8}\n\n'


@pytest.mark.parametrize(("stream", "number"), [(LONG, 7), (LATE_ID, 8)])
@pytest.mark.parametrize("size", [1, 7, 64, 500])
def test_a_long_line_may_be_thrown_away_and_what_it_answers_told(
    stream: bytes, number: int, size: int
) -> None:
    events = Events(limit=1000, discard=10_000)
    whole = b"data: one\n\n" + stream + b"data: two\n\n"
    found = [
        event
        for start in range(0, len(whole), size)
        for event in events.feed(whole[start : start + size])
    ]
    assert [event.data for event in found] == [b"one", b"", b"two"]
    assert found[1].overlong == Overlong(number)


@pytest.mark.parametrize("piece", [b"x", b"data: x\n", b": x\n", b"x\r"])
def test_what_is_thrown_away_has_an_end_too(piece: bytes) -> None:
    events = Events(limit=1000, discard=5000)
    with pytest.raises(ToolError) as caught:
        [event for _ in range(6001) for event in events.feed(piece)]
    assert caught.value.kind == "too_large"
