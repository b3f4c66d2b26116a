"""Lines come out whole, however the bytes come in, and none longer than allowed."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from caxton_host.mcp.transport.lines import Lines, Overlong


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
