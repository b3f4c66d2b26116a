"""
Anchors: places outside the database that checkpoints are sent to.

Each checkpoint covers all before it, so only the newest is sent. No run waits for it. A
failure is logged once, and the send is repeated, later each time.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from ..core.log.checkpoint import Note
from ..errors import CaxtonError
from .sinks import FileSink, HttpSink
from .sinks import Sink as ByteSink

_log = logging.getLogger(__name__)

_FILE = "file:"
_LONGEST_PAUSE = 60.0
_GRACE = 2.0


class Sink(Protocol):
    """A place that takes checkpoints."""

    async def send(self, note: Note) -> None:
        """
        Take a checkpoint.

        Raises:
            CaxtonError, OSError: It is to be sent again.
        """
        ...

    async def aclose(self) -> None:
        """Close its connections."""
        ...


class PlainAnchor:
    """
    Keeps the text of each checkpoint in a file, or behind a URL.

    Args:
        sink: The file or URL.

        end: What follows each.
    """

    def __init__(self, sink: ByteSink, end: bytes = b"") -> None:
        self._sink, self._end = sink, end

    async def send(self, note: Note) -> None:
        """Send *note*; see `Sink`."""
        await self._sink.send(note.text().encode() + self._end)

    async def aclose(self) -> None:
        """Close its connections."""
        await self._sink.aclose()


def anchor(
    target: str, on_failure: Callable[[bool], None], *, proxy: str | None = None
) -> Anchor:
    """Return the anchor for a configured target."""
    if target.startswith(_FILE):
        file = FileSink(Path(target.removeprefix(_FILE)))
        return Anchor(PlainAnchor(file, b"\n"), on_failure)
    return Anchor(PlainAnchor(HttpSink(target, proxy)), on_failure)


class Anchor:
    """
    Sends the newest checkpoint until it is accepted, or a newer one exists.

    Args:
        place: The file or URL.

        on_failure: Called after each failed attempt; with true once in an outage,
            when it has lasted.

        pause: Seconds before the second attempt; doubled before each further one.

        rest: Seconds after each success.

        done: What a checkpoint is then.
    """

    def __init__(
        self,
        place: Sink,
        on_failure: Callable[[bool], None],
        *,
        pause: float = 1.0,
        rest: float = 0.0,
        done: str = "anchored",
    ) -> None:
        self._place = place
        self._on_failure = on_failure
        self._pause = pause
        self._rest = rest
        self._done = done
        self._closing = asyncio.Event()
        self._newest: Note | None = None
        self._since: float | None = None
        self._changed = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._task: asyncio.Task[None] | None = None

    @property
    def behind_s(self) -> float:
        """For how long a checkpoint has waited. May be called from another thread."""
        since = self._since
        return 0.0 if since is None else time.monotonic() - since

    def tell(self, note: Note) -> None:
        """Send *note* instead of those that were not sent yet."""
        self._newest = note
        if self._since is None:
            self._since = time.monotonic()
        self._idle.clear()
        self._changed.set()

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        """Wait a moment for the last send, and end."""
        self._closing.set()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._idle.wait(), _GRACE)
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._newest is not None:
            _log.warning(
                "the newest checkpoint was not %s; the next one holds it", self._done
            )
        await self._place.aclose()

    async def _run(self) -> None:
        pause = self._pause
        while True:
            await self._changed.wait()
            self._changed.clear()
            while (note := self._newest) is not None:
                try:
                    await self._place.send(note)
                except (CaxtonError, OSError) as exc:
                    if pause == self._pause:
                        _log.warning(
                            "a checkpoint is not %s: %s", self._done, _why(exc)
                        )
                    self._on_failure(pause < _LONGEST_PAUSE <= 2 * pause)
                    await asyncio.sleep(pause)
                    pause = min(2 * pause, _LONGEST_PAUSE)
                    continue
                pause = self._pause
                self._since = time.monotonic()
                if self._newest is note:
                    self._newest = self._since = None
            self._idle.set()
            with contextlib.suppress(TimeoutError):
                # wait_for of Python 3.11 may lose a cancellation that comes with it.
                async with asyncio.timeout(self._rest):
                    await self._closing.wait()


def _why(exc: CaxtonError | OSError) -> str:
    fix = exc.fix if isinstance(exc, CaxtonError) else ""
    return f"{exc}. To fix: {fix}" if fix else str(exc)
