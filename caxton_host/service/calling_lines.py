"""The lines of programs that made their calls, for those who look at a run."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field

from ..core.calls import JSON
from ..core.log.runs import GOING_ON, RunRow
from ..runs.host import Host
from ..runs.replay import Options, replay

#: Seconds that a person waits for the execution of a run, and for those before it.
_PATIENCE_S, _TURN_S = 10.0, 30.0


@dataclass(slots=True, kw_only=True)
class CallingLines:
    """
    Executes runs again to learn the lines of their calls, one at a time.

    Attributes:
        host: Its sandbox executes them.
    """

    host: Host
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)
    _last: tuple[RunRow, JSON] | None = field(default=None, init=False)

    async def of(self, row: RunRow) -> JSON:
        """
        Return the lines of the calls of a program, by number; see `Replayed.lines`.

        It is ``None`` as well if that takes too long.

        Raises:
            CaxtonError: See `replay`.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(_TURN_S), self._turn:
                if self._last and self._last[0] == row:
                    return self._last[1]
                async with asyncio.timeout(_PATIENCE_S):
                    found = await replay(
                        row.run_id,
                        store=self.host.store.reader,
                        sandbox=self.host.sandbox,
                        telemetry=self.host.telemetry,
                        options=Options(lines=True),
                    )
                told = found.lines_document()
                if row.state not in GOING_ON:
                    self._last = row, told
                return told
        return None
