"""Messages go through pipes whole, and no one's pipe is changed."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Generator

import pytest

from caxton_host.web.mcp import pipes
from caxton_host.web.mcp.pipes import Lines, Out, claimed

TEXT = "x" * 300_000 + "\n"


@pytest.fixture
def pipe() -> Generator[tuple[int, int]]:
    ends = os.pipe()
    yield ends
    for fd in ends:
        try:
            os.close(fd)
        except OSError:  # The test closed it.
            continue


async def test_lines_arrive_as_they_were_written(pipe: tuple[int, int]) -> None:
    out, into = pipe

    async def write() -> None:
        for part in (b'{"a', b'": 1}\n{}\n', b"\n\xff", b"\nlast"):
            os.write(into, part)
            await asyncio.sleep(0)
        os.close(into)

    writing = asyncio.create_task(write())
    assert [line async for line in Lines(out)] == [
        b'{"a": 1}',
        b"{}",
        b"",
        b"\xff",
        b"last",
    ]
    await writing


async def test_a_line_that_is_too_long_is_cut(  # law 9
    pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipes, "LONGEST", 10)
    out, into = pipe
    os.write(into, b"0123456789abcdef\nshort\n")
    os.close(into)
    assert [line async for line in Lines(out)] == [b"0123456789", b"short"]


async def test_a_slow_reader_gets_all_and_delays_no_one(pipe: tuple[int, int]) -> None:
    out, into = pipe
    writing = asyncio.create_task(Out(into).write(TEXT))
    await asyncio.sleep(0)
    for _ in range(100):  # The loop goes on while the pipe is full.
        await asyncio.sleep(0)
    assert not writing.done()

    read = 0
    while read < len(TEXT):
        read += len(await asyncio.to_thread(os.read, out, 50_000))
    await writing
    assert os.get_blocking(into)
    assert os.get_blocking(out)


async def test_a_reader_that_is_gone_is_told(pipe: tuple[int, int]) -> None:
    out, into = pipe
    writing = asyncio.create_task(Out(into).write(TEXT))
    await asyncio.sleep(0)
    os.close(out)
    with pytest.raises(BrokenPipeError):
        await writing


def test_a_descriptor_is_another_while_it_is_claimed(pipe: tuple[int, int]) -> None:
    out, into = pipe
    other_out, other_into = os.pipe()
    with claimed(into, other_into) as private:
        os.write(into, b"stray")
        os.write(private, b"message")
        assert not os.get_inheritable(private)
    os.write(into, b", later")
    assert os.read(other_out, 100) == b"stray"
    assert os.read(out, 100) == b"message, later"
    os.close(other_out)
    os.close(other_into)
