"""
Delivery of the log to a sink, at least once.

    tail -> lines -> batch -> sink took it -> cursor is on disk -> next batch

A cursor is saved after the sink took what is before it: a crash between the two sends a
batch again. A sink that is down holds up this follower alone.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeVar

from ..core.log.runs import ExportFilter, ExportLine, OpenCalls
from ..errors import CaxtonError, LeaseLost
from ..ports.history import History
from .export import line_of, look_up
from .sinks import Sink

#: Lines that wait, and the most of a batch.
_AHEAD, _LINES, _BYTES = 200, 500, 1024 * 1024
#: Seconds before a batch is sent again.
_FIRST_S, _LONGEST_S = 0.25, 4.0
_KNOWN = 10_000

_T = TypeVar("_T")


async def followed(
    log: History,
    wanted: ExportFilter,
    after: str | None,
    *,
    follow: bool,
    patience: float,
) -> AsyncGenerator[tuple[ExportLine | None, str]]:
    """
    Yield the wanted lines with the cursors behind them; ``None``: it is not wanted.

    See `Tails.tail` for *after*, *follow*, *patience*, and what is raised.
    """
    calls = OpenCalls()
    runs: dict[str, tuple[str | None, str | None]] = {}
    found = log.tail(after, stream=wanted.stream, follow=follow, patience=patience)
    async with aclosing(found) as events:
        async for recorded, cursor in events:
            if recorded.stream not in runs:
                if len(runs) >= _KNOWN:
                    runs.clear()
                runs[recorded.stream] = await _of(log, recorded.stream)
            if not calls.knows(recorded):
                await look_up(log, calls, recorded)
            agent, actor = runs[recorded.stream]
            line = line_of(recorded, agent, actor, calls.tool(recorded))
            late = recorded.recorded_at >= (wanted.since or 0)
            mine = wanted.agent in {None, agent}
            yield (line if late and mine and wanted.takes(line) else None), cursor


async def _of(log: History, stream: str) -> tuple[str | None, str | None]:
    """Return agent and actor of the run that a stream is of."""
    async with aclosing(log.attributed(stream)) as found:
        async for _, agent, actor in found:
            return agent, actor
    return None, None


@dataclass(slots=True, kw_only=True)
class Delivery(Generic[_T]):
    """
    Sends lines to a sink, and saves how far it came.

    Attributes:
        sink: Where they go.

        render: Returns a line as it is sent; ``None``: it is not sent.

        save: Saves a cursor durably. `LeaseLost` ends the delivery.

        failed: Called when one of the two fails after it worked; with ``None``, when
            it works again.

        most: The most lines that are sent at once.

        longest: Seconds before something is tried again, at most.
    """

    sink: Sink
    render: Callable[[_T], object | None]
    save: Callable[[str], Awaitable[None]]
    failed: Callable[[Exception | None], None]
    most: int = _LINES
    longest: float = _LONGEST_S

    async def run(self, found: AsyncGenerator[tuple[_T | None, str]]) -> int:
        """Send everything, and return how many lines that were."""
        queue = asyncio.Queue[tuple[bytes, str] | None](_AHEAD)
        reading = asyncio.create_task(self._read(found, queue))
        sent = 0
        try:
            while (first := await queue.get()) is not None:
                batch, cursor, last = [first[0]], first[1], False
                size = len(first[0])
                while not queue.empty() and len(batch) < self.most and size < _BYTES:
                    item = queue.get_nowait()
                    if last := item is None:
                        break
                    batch.append(item[0])
                    cursor, size = item[1], size + len(item[0])
                lines = [text for text in batch if text]
                if lines:
                    await self._retry(partial(self.sink.send, b"".join(lines)))
                await self._retry(partial(self.save, cursor))
                sent += len(lines)
                if last:
                    break
            await reading
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
        return sent

    async def _read(
        self,
        found: AsyncGenerator[tuple[_T | None, str]],
        queue: asyncio.Queue[tuple[bytes, str] | None],
    ) -> None:
        try:
            async with aclosing(found) as lines:
                async for line, cursor in lines:
                    shown = self.render(line) if line else None
                    text = f"{json.dumps(shown, ensure_ascii=False)}\n" if shown else ""
                    await queue.put((text.encode(), cursor))
        except Exception:
            await queue.put(None)  # What came before it is sent first.
            raise
        await queue.put(None)

    async def _retry(self, action: Callable[[], Awaitable[None]]) -> None:
        pause = _FIRST_S
        while True:
            try:
                await action()
            except LeaseLost:
                raise
            except (CaxtonError, OSError) as exc:
                if pause == _FIRST_S:
                    self.failed(exc)
                await asyncio.sleep(pause)
                pause = min(2 * pause, self.longest)
                continue
            if pause != _FIRST_S:
                self.failed(None)
            return
