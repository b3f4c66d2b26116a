"""Signals that end a command, also one that was started with SIGINT ignored."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator

import pytest

from caxton_host.cli import interrupt


@pytest.fixture(autouse=True)
def in_the_background(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Be as a background job of a script: SIGINT ignored, SIGTERM handled."""
    monkeypatch.setattr(interrupt, "_signals", [])
    before = [signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)]
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, interrupt.terminate)
    yield
    for number, handler in zip((signal.SIGINT, signal.SIGTERM), before, strict=True):
        signal.signal(number, handler)


def ended() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


async def waits() -> None:
    asyncio.get_running_loop().call_soon(ended)
    await asyncio.Event().wait()


async def blocks() -> None:
    ended()
    time.sleep(60)  # noqa: ASYNC251 -- as one who reads a line


def stepped() -> None:
    with interrupt.interruptible():
        interrupt.run(blocks())


@pytest.mark.parametrize(
    "command",
    [
        ended,
        lambda: interrupt.run(waits()),
        lambda: interrupt.drive(waits(), "caxton"),
        stepped,
    ],
    ids=["plain", "reader", "driver", "stepper"],
)
def test_sigterm_ends_every_kind_of_command_where_sigint_is_ignored(
    command: Callable[[], object],
) -> None:
    with pytest.raises(KeyboardInterrupt):
        command()
    assert interrupt.code() == 143
    assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN


def test_ctrl_c_that_is_ignored_stays_ignored() -> None:
    async def interrupted() -> str:
        os.kill(os.getpid(), signal.SIGINT)
        await asyncio.sleep(0)
        return "done"

    assert interrupt.run(interrupted()) == "done"
    assert interrupt.drive(interrupted(), "caxton") == "done"


def test_a_second_sigterm_does_not_wait_for_the_first() -> None:
    async def stubborn() -> None:
        try:
            await waits()
        finally:
            await blocks()

    with pytest.raises(KeyboardInterrupt):
        interrupt.run(stubborn())


def test_a_second_signal_restores_the_terminal_before_it_ends_the_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done: list[object] = []

    def left(code: int) -> None:
        done.append(code)
        raise SystemExit(code)

    async def stubborn() -> None:
        with interrupt.restoring(lambda: done.append("restored")):
            try:
                await waits()
            finally:
                ended()

    monkeypatch.setattr(os, "_exit", left)
    with pytest.raises(SystemExit):
        interrupt.drive(stubborn(), "caxton")

    assert done[:2] == ["restored", 143]


def test_an_interrupt_that_python_cannot_raise_ends_the_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Dropped:
        def __del__(self) -> None:
            ended()

    left: list[int] = []
    monkeypatch.setattr(os, "_exit", left.append)
    monkeypatch.setattr(sys, "unraisablehook", interrupt.unhandled)
    monkeypatch.setattr(sys, "__unraisablehook__", lambda _: None)
    Dropped()
    assert left == [143]
