"""What Ctrl-C does, and the signals that mean the same."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Coroutine, Generator
from functools import partial
from typing import Any, TypeVar

__all__ = ["asking", "began", "code", "drive", "terminate"]

_T = TypeVar("_T")

_STDERR = 2
_SHOW_CURSOR = "\x1b[?25h"

_signals: list[int] = []
_runs: list[str] = []
_stops: list[Callable[[int, object], None]] = []


def terminate(number: int, _frame: object) -> None:
    """Take a signal as Ctrl-C."""
    _signals.append(number)
    if _stops:
        _stops[-1](number, _frame)
    else:
        signal.raise_signal(signal.SIGINT)


def code() -> int:
    """Return the exit code of a command that a signal ended."""
    return 128 + (_signals or [signal.SIGINT])[-1]


def began(run_id: str) -> None:
    """Note that this process drives a run: Ctrl-C speaks of it."""
    _runs.append(run_id)


@contextlib.contextmanager
def asking() -> Generator[None]:
    """While somebody is asked nothing is driven: Ctrl-C takes back the question."""
    asked = _runs[:]
    _runs.clear()
    try:
        yield
    finally:
        _runs.extend(asked)


def drive(work: Coroutine[Any, Any, _T], command: str) -> _T:
    """
    Run the coroutine of a command that drives runs.

    The first Ctrl-C cancels them, which is recorded. The second ends the process
    where it stands; its workers and servers end with it.

    Args:
        work: The coroutine.

        command: How a command line begins that means the same.

    Raises:
        KeyboardInterrupt: It was interrupted, and its runs are cancelled.
    """
    _runs.clear()
    try:
        return asyncio.run(_interruptible(work, command))
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None


async def _interruptible(work: Coroutine[Any, Any, _T], command: str) -> _T:
    task = asyncio.current_task()
    assert task is not None  # noqa: S101 -- it runs
    stop = partial(_stop, asyncio.get_running_loop(), task, command)
    before = signal.getsignal(signal.SIGINT)
    if before != signal.SIG_IGN:  # As for what a script runs in the background.
        signal.signal(signal.SIGINT, stop)
    _stops.append(stop)
    try:
        return await work
    finally:
        _stops.pop()
        signal.signal(signal.SIGINT, before)


def _stop(
    loop: asyncio.AbstractEventLoop,
    task: asyncio.Task[Any],
    command: str,
    _number: int,
    _frame: object,
) -> None:
    if task.cancelling():
        _leave(command)
    task.cancel()
    # The loop may be asleep.
    loop.call_soon_threadsafe(lambda: None)
    if _runs:
        _tell(f"\ncancelling {' and '.join(_runs)}; Ctrl-C once more ends at once\n")


def _leave(command: str) -> None:
    _tell(_SHOW_CURSOR * os.isatty(_STDERR) + "\nended at once\n")
    for run_id in _runs:
        _tell(f"if run {run_id} has not ended: {command} runs resume {run_id}\n")
    os._exit(code())


def _tell(text: str) -> None:
    # Not through sys.stderr, which may be in the middle of a line.
    with contextlib.suppress(OSError):
        os.write(_STDERR, text.encode(errors="replace"))
