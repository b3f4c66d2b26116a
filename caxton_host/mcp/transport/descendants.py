"""
What a process started, and what that started: also in sessions of their own.

On Linux alone, and while the process lives: whose the children of a dead one were
cannot be told any more.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

_MOST = 1000


def descendants(pid: int) -> list[int]:
    """Return a handle of each; a number could be somebody else's by the end."""
    handles: list[int] = []
    if sys.platform == "linux":
        for below in _below(pid):
            with suppress(OSError):
                handles.append(os.pidfd_open(below))
    return handles


def end(handles: Iterable[int]) -> None:
    """End those that still live, and let go of all."""
    for handle in handles:
        if sys.platform == "linux":
            with suppress(ProcessLookupError, PermissionError):
                signal.pidfd_send_signal(handle, signal.SIGKILL)
        os.close(handle)


def _below(pid: int) -> list[int]:
    found = [pid]
    for parent in found:
        children = [int(child) for child in _children(parent)]
        found += children[: _MOST - len(found)]
    return found[1:]


def _children(pid: int) -> Iterator[str]:
    # It may end at any moment, and its folder with it.
    with suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208 -- names will do
            with suppress(OSError):
                yield from Path(f"/proc/{pid}/task/{task}/children").read_text().split()
