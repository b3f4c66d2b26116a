"""
Locks and waits of an agent, which has one thread.

A wait without an end would stop the interpreter. It raises an exception; a wait with a
timeout moves the clock forward.
"""

from __future__ import annotations

import importlib
from typing import Any, NoReturn

from . import _clock

__all__ = ["Lock", "install", "install_late"]

_ENDLESS = "an agent has one thread: this wait would never end"
_ALONE = (
    "an agent has one thread: call the function directly, or await calls of tools "
    "together with caxton_agent.aio"
)


class Lock:
    """A lock that says so if it would be awaited for ever."""

    __slots__ = ("__weakref__", "_locked")

    def __init__(self) -> None:
        self._locked = False

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:  # noqa: FBT001, FBT002 -- as in threading
        """Take the lock, if it is free."""
        if self._locked:
            if blocking:
                wait(None if timeout == -1 else timeout)
            return False
        self._locked = True
        return True

    def release(self) -> None:
        """Free the lock."""
        if not self._locked:
            raise RuntimeError("release unlocked lock")
        self._locked = False

    def locked(self) -> bool:
        """Return whether it is taken."""
        return self._locked

    acquire_lock, release_lock, locked_lock = acquire, release, locked

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()

    def _at_fork_reinit(self) -> None:
        self._locked = False


def wait(timeout: float | None) -> bool:
    """Wait for what only another thread could do."""
    if timeout is None:
        raise RuntimeError(_ENDLESS)
    _clock.sleep(max(timeout, 0))
    return False


def install() -> None:
    """Replace the locks of the interpreter. Call this before other imports."""
    threads: Any = importlib.import_module("_thread")
    for name in ("allocate_lock", "allocate", "lock", "LockType"):
        setattr(threads, name, Lock)
    for name in ("start_new_thread", "start_new", "start_joinable_thread"):
        setattr(threads, name, _start)


def _start(*_: object, **__: object) -> NoReturn:
    raise RuntimeError(_ALONE)


def install_late(threading: Any) -> None:  # noqa: ANN401 -- the module
    """Replace waits of *threading*."""
    threading.Lock = threading._allocate_lock = Lock  # noqa: SLF001 -- it keeps one of its own
    threading.Condition.wait = lambda _self, timeout=None: wait(timeout)
