"""Ctrl-C, and the signals that are handled like it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Generator
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias, TypeVar

if TYPE_CHECKING:
    from sys import UnraisableHookArgs


_T = TypeVar("_T")

_Stop: TypeAlias = Callable[
    [asyncio.AbstractEventLoop, asyncio.Task[Any], int, object], None
]

_STDERR = 2
_SHOW_CURSOR = "\x1b[?25h"

_signals: list[int] = []
_runs: list[str] = []
_stops: list[Callable[[int, object], None]] = []
_restores: list[Callable[[], None]] = []


def terminate(number: int, frame: object) -> None:
    """Handle a signal like Ctrl-C, even where Ctrl-C itself is ignored."""
    _signals.append(number)
    _interrupt(number, frame)


def _interrupt(number: int, frame: object) -> None:
    (_stops[-1] if _stops else _raise)(number, frame)


def _raise(*_: object) -> NoReturn:
    raise KeyboardInterrupt


def unhandled(lost: UnraisableHookArgs) -> None:
    """End the process if an interrupt came where Python cannot raise it."""
    if lost.exc_type is KeyboardInterrupt:
        _exit()
    sys.__unraisablehook__(lost)


def code() -> int:
    """Return the exit code of a command that a signal ended."""
    return 128 + (_signals or [signal.SIGINT])[-1]


def began(run_id: str) -> None:
    """Register a run that this process drives: Ctrl-C cancels it."""
    _runs.append(run_id)


def ended(run_id: str) -> None:
    """Forget a run that has ended."""
    _runs.remove(run_id)


@contextlib.contextmanager
def restoring(restore: Callable[[], None]) -> Generator[None]:
    """Call *restore* in the end, also if a second Ctrl-C ends the process."""
    _restores.append(restore)
    try:
        yield
    finally:
        _restores.remove(restore)
        restore()


@contextlib.contextmanager
def asking() -> Generator[None]:
    """While a question is open no run is driven: Ctrl-C withdraws the question."""
    asked = _runs[:]
    _runs.clear()
    try:
        yield
    finally:
        _runs.extend(asked)


@contextlib.contextmanager
def interruptible() -> Generator[None]:
    """
    Let an interrupt end a command that blocks its event loop to read a line.

    By itself, asyncio only notes it for when the reading is over.
    """
    _stops.append(_raise)
    try:
        with _caught():
            yield
    finally:
        _stops.pop()


def run(work: Coroutine[Any, Any, _T]) -> _T:
    """
    Run the coroutine of a command that does not drive runs.

    Raises:
        KeyboardInterrupt: It was interrupted.
    """
    if _stops:  # See `interruptible`.
        return asyncio.run(work)
    return _run(work, _cancel)


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
    with _caught():
        return _run(work, partial(_stop, command))


@contextlib.contextmanager
def _caught() -> Generator[None]:
    """Handle SIGINT here. asyncio replaces no handler but Python's own."""
    before = signal.getsignal(signal.SIGINT)
    if before == signal.SIG_IGN:  # Background jobs of a script ignore it.
        yield
        return
    signal.signal(signal.SIGINT, _interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _run(work: Coroutine[Any, Any, _T], stop: _Stop) -> _T:
    try:
        return asyncio.run(_stoppable(work, stop))
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None


async def _stoppable(work: Coroutine[Any, Any, _T], stop: _Stop) -> _T:
    task = asyncio.current_task()
    assert task is not None  # noqa: S101 -- it runs
    _stops.append(partial(stop, asyncio.get_running_loop(), task))
    try:
        return await work
    finally:
        _stops.pop()


def _cancel(
    loop: asyncio.AbstractEventLoop,
    task: asyncio.Task[Any],
    _number: int,
    _frame: object,
) -> None:
    if task.cancelling():
        raise KeyboardInterrupt
    task.cancel()
    # The loop may be asleep.
    loop.call_soon_threadsafe(lambda: None)


def _stop(
    command: str,
    loop: asyncio.AbstractEventLoop,
    task: asyncio.Task[Any],
    number: int,
    frame: object,
) -> None:
    if task.cancelling():
        _leave(command)
    _cancel(loop, task, number, frame)
    if _runs:
        _tell(f"\ncancelling {' and '.join(_runs)}; Ctrl-C once more ends at once\n")


def _leave(command: str) -> None:
    _tell(_SHOW_CURSOR * os.isatty(_STDERR) + "\nended at once\n")
    for run_id in _runs:
        _tell(f"if run {run_id} has not ended: {command} runs resume {run_id}\n")
    _exit()


def _exit() -> NoReturn:
    for restore in _restores:
        restore()
    os._exit(code())


def _tell(text: str) -> None:
    # Not through sys.stderr, which may be in the middle of a line.
    with contextlib.suppress(OSError):
        os.write(_STDERR, text.encode(errors="replace"))
