"""What is told of a call before its answer: by its server, or because it is slow."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from ...core.calls import JSON
from ...core.text.redact import Redactor, plain
from ...core.tools.servers import ToolOptions
from ...ports import Progress

_LONGEST = 500

#: Seconds between two reports. What a server says faster is dropped.
_SOONEST = 0.1


class Heard:
    """Makes reports of what a server says of one call."""

    def __init__(self, tell: Callable[[Progress], None], redact: Redactor) -> None:
        self._tell = tell
        self._redact = redact
        self._clock = asyncio.get_running_loop().time
        self._not_before = 0.0

    def __call__(self, params: Mapping[str, JSON]) -> None:
        """Take the parameters of a ``notifications/progress``, of any quality."""
        progress, total = _number(params.get("progress")), _number(params.get("total"))
        if progress is None or self._clock() < self._not_before:
            return
        self._not_before = self._clock() + _SOONEST
        said = params.get("message")
        text = plain(said, self._redact, _LONGEST) if isinstance(said, str) else None
        self._tell(Progress(progress=progress, total=total, message=text))


def _number(value: JSON) -> float | None:
    return float(value) if type(value) in {int, float} else None  # type: ignore[arg-type]  # no bool


def tokened(params: Mapping[str, Any] | None, number: int) -> dict[str, Any]:
    """Return the parameters of a request that asks for progress, by its number."""
    known = dict(params or {})
    return {**known, "_meta": {**known.get("_meta", {}), "progressToken": number}}


def progress_of(message: Mapping[str, JSON]) -> tuple[int, Mapping[str, JSON]] | None:
    """Return the request that a message tells the progress of, and what it tells."""
    params = message.get("params")
    if message["method"] != "notifications/progress" or not isinstance(params, dict):
        return None
    token = params.get("progressToken")
    return (token, params) if type(token) is int else None


def slow(options: ToolOptions, tool: str, tell: Callable[[Progress], None]) -> None:
    """Tell that a call is slow."""
    text = (options.slow_response_message or "").replace("{tool}", tool)
    tell(Progress(message=text))
