from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caxton_host.core.limits import Limits
from caxton_host.ports.sandbox import Answer, Guest
from caxton_host.sandbox import wire
from caxton_host.sandbox.wire import ENDS, LIMITS, End, Inbox, WireError

CAPS = {1: 200_000, 2: 0}


def cap(kind: int, run: int) -> int:
    del run
    return CAPS.get(kind, -1)


def _feed(inbox: Inbox, data: bytes, step: int) -> list[tuple[int, int, bytes]]:
    frames: list[tuple[int, int, bytes]] = []
    while data:
        room = inbox.room()
        assert len(room) > 0
        count = min(step, len(room), len(data))
        room[:count], data = data[:count], data[count:]
        frames += inbox.received(count)
    return frames


@given(
    bodies=st.lists(
        st.binary(max_size=50) | st.integers(60_000, 200_000).map(bytes), max_size=6
    ),
    step=st.sampled_from([1_000, 4_093, 65_536, 10**6]),
)
def test_frames_come_out_as_they_went_in(bodies: list[bytes], step: int) -> None:
    frames = [(1, number, body) for number, body in enumerate(bodies)]
    data = b"".join(wire.frame(*frame) for frame in frames)
    assert _feed(Inbox(cap), data, step) == frames


@given(data=st.binary(max_size=300), step=st.integers(1, 40))
def test_noise_is_frames_or_an_error(data: bytes, step: int) -> None:
    try:
        frames = _feed(Inbox(cap), data, step)
    except WireError:
        return
    assert all(kind in CAPS and len(body) <= CAPS[kind] for kind, _, body in frames)


def test_header_alone_costs_no_memory() -> None:
    inbox = Inbox(lambda _kind, _run: 1 << 30)
    header = wire.frame(1, 1, b"")[4:]
    _feed(inbox, (1 << 30).to_bytes(4, "little") + header, 9)
    assert len(inbox.room()) <= 64 * 1024


@given(announced=st.integers(0, 1 << 20), came=st.integers(0, 1 << 20))
def test_no_more_is_held_than_the_largest_frame_of_the_run(
    announced: int, came: int
) -> None:
    """Law 9: what a worker says is bounded before it is taken."""
    caps = wire.to_host(Limits(output=300_000))
    inbox = Inbox(lambda kind, _run: caps[kind])
    most = caps[wire.END]
    header = wire.frame(wire.END, 1)[4:]
    data = announced.to_bytes(4, "little") + header + bytes(min(came, announced))
    if announced > most:
        with pytest.raises(WireError):
            _feed(inbox, data, 65_536)
    else:
        _feed(inbox, data, 65_536)
    assert inbox.held <= max(9 + most, 64 * 1024)


def test_the_bound_of_each_frame_is_the_run_s_own() -> None:
    small = wire.to_host(Limits(params=10, log=20, output=30))
    large = wire.to_host(Limits(params=1_000, log=2_000, output=3_000))
    assert {kind: large[kind] - small[kind] for kind in large} == {
        wire.CALL: 990,
        wire.CALLS: 0,
        wire.LOG: 1_980,
        wire.END: 2_970,
    }
    longest = End(kind="returned", message="x" * 9_999, output=bytes(30))
    assert len(_body(wire.end(1, longest))) == small[wire.END]


def test_room_of_a_large_frame_is_given_back() -> None:
    inbox = Inbox(cap)
    _feed(inbox, wire.frame(1, 1, bytes(200_000)), 10**6)
    assert len(inbox.room()) == 64 * 1024


def _body(frame: bytes) -> bytes:
    return frame[9:]


def test_start_carries_all_that_a_guest_is_given() -> None:
    guest = Guest(
        domain="d",
        entry="main",
        limits=Limits(fuel=5),
        input=b"\xc0",
        context={"k": b"\xa1v"},
        tools=b"\x90",
        program=b"\xc0",
        seed=bytes(32),
        now=7,
    )
    start = wire.read_start(_body(wire.start(1, "key", 65536, guest)))
    assert (start.module, start.memory, start.entry) == ("key", 65536, "main")
    assert start.limits == guest.limits
    assert (start.input, start.context, start.tools) == (
        b"\xc0",
        {"k": b"\xa1v"},
        b"\x90",
    )
    assert (start.seed, start.now) == (bytes(32), 7)


def test_module_carries_key_settings_and_code() -> None:
    body = _body(wire.module("key", "{}", b"\0native"))
    assert wire.read_module(body) == ("key", "{}", b"\0native")


def test_call_log_and_reply_are_read_as_they_were_written() -> None:
    limits = Limits()
    assert wire.read_call(_body(wire.call(1, b"n", b"p", 9)), limits) == (b"n", b"p", 9)
    assert wire.read_calls(_body(wire.calls(1, b"b", 9)), limits) == (b"b", 9)
    assert wire.read_log(_body(wire.log(1, 3, b"t"))) == (3, b"t")
    answer = Answer(4, b"\x80", 2**50)
    assert wire.read_reply(_body(wire.reply(1, answer))) == answer
    seeded = Answer(0, b"\x80", 1, b"s" * 32)
    assert wire.read_reply(_body(wire.reply(1, seeded))) == seeded


@given(
    end=st.builds(
        End,
        kind=st.sampled_from(ENDS),
        code=st.integers(-(2**31), 2**31 - 1),
        limit=st.sampled_from(["", *LIMITS]),
        message=st.text("abc ", max_size=100),
        fuel=st.none() | st.integers(0, 1_000),
        output=st.none() | st.binary(max_size=100),
    )
)
def test_end_is_read_as_it_was_written(end: End) -> None:
    limits = Limits(fuel=1_000, output=100)
    read = wire.read_end(_body(wire.end(1, end)), limits)
    if end.kind != "limit" or not end.limit:
        end.limit = read.limit
    assert read == end


def test_message_of_an_end_is_fit_for_a_terminal() -> None:
    frame = wire.end(1, End(kind="trap", message="\x1b[2J" + "ä" * 600))
    message = wire.read_end(_body(frame), Limits()).message
    assert message.isascii()
    assert message.isprintable()


def test_end_that_a_run_survives_is_no_ending() -> None:
    with pytest.raises(AssertionError):
        End(kind="no_room").ending()


def test_params_are_whole_up_to_their_limit_and_fit_the_door() -> None:
    assert wire.params_cap(Limits()) == Limits().params
    assert wire.params_cap(Limits(params=2**30)) + 32 == wire.MAX_PARAMS
