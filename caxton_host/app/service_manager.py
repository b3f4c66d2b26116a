"""
Telling systemd how this host is, if that started it: sd_notify, without its library.

See https://www.freedesktop.org/software/systemd/man/latest/sd_notify.html
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping


def notify(state: str) -> None:
    """Send *state* to systemd, if that started this process."""
    if not (where := os.environ.get("NOTIFY_SOCKET")):
        return
    if where.startswith("@"):  # An abstract socket: its address begins with a zero.
        where = f"\0{where[1:]}"
    with (
        contextlib.suppress(OSError),
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as to,
    ):
        to.sendto(state.encode(), where)


def watchdog_seconds(environ: Mapping[str, str], pid: int) -> float | None:
    """
    Return how often systemd has to be told that this process lives, if it has to be.

    >>> watchdog_seconds({"WATCHDOG_USEC": "60000000", "WATCHDOG_PID": "7"}, 7)
    30.0
    >>> watchdog_seconds({"WATCHDOG_USEC": "60000000", "WATCHDOG_PID": "8"}, 7)
    """
    text, whose = environ.get("WATCHDOG_USEC", ""), environ.get("WATCHDOG_PID", "")
    if not text.isdecimal() or whose not in {"", str(pid)}:
        return None
    return int(text) / 2e6 or None


@contextlib.asynccontextmanager
async def signs_of_life(beat: Callable[[], Awaitable[None]]) -> AsyncGenerator[None]:
    """
    Tell systemd during the block that this process lives, if it has to be told.

    Args:
        beat: Returns only if what has to live does.
    """
    every = watchdog_seconds(os.environ, os.getpid())
    if every is None:
        yield
        return

    async def tell() -> None:
        while True:
            await beat()
            notify("WATCHDOG=1")
            await asyncio.sleep(every)

    task = asyncio.create_task(tell())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])
