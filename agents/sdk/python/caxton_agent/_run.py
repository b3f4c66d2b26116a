"""The run: its input, output, clock, randomness and log, and its end."""

from __future__ import annotations

import base64
import datetime as dt
import os
import random as stdlib
import traceback
import types
from collections.abc import Callable

from ._bridge import Level, decode, encode, host
from ._calls import JSON

__all__ = [
    "context",
    "end",
    "image",
    "input",
    "log",
    "now",
    "output",
    "random",
    "random_bytes",
]

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_FRAMES = 10
_REASON = 1_000
_OURS = os.path.dirname(__file__)  # noqa: PTH120 -- as traceback has it


def input() -> JSON:  # noqa: A001 -- the host's word
    """Return the input of the run; None by default."""
    return decode(host().input())


def output(value: JSON) -> None:
    """
    Set the output of the run. The last value counts.

    Raises:
        TypeError: It holds a value that JSON does not have.
    """
    host().output(encode(value, "the output"))


def image(data: bytes, mime_type: str = "image/png") -> dict[str, JSON]:
    """
    Return a content block with an image.

    ``output({"$content": [image(png)], "structured": {...}})`` gives it to a caller.
    """
    text = base64.b64encode(data).decode()
    return {"type": "image", "data": text, "mimeType": mime_type}


def context(key: str, default: JSON = None) -> JSON:
    """Return a variable of the run, or *default* if the run has no such variable."""
    value = host().context(key)
    return default if value is None else decode(value)


def now() -> dt.datetime:
    """Return the time of the last recorded reply, or else of the start, in UTC."""
    return _EPOCH + dt.timedelta(microseconds=host().now())


def random_bytes(size: int) -> bytes:
    """Return *size* bytes of the run's random stream; a replay returns the same."""
    words = [host().random().to_bytes(8, "little") for _ in range(-(-size // 8))]
    return b"".join(words)[:size]


class _Random(stdlib.Random):
    """A generator without state that draws from the run's random stream."""

    @property
    def gauss_next(self) -> None:
        """The second number of a pair, which `gauss` would keep for its next call."""

    @gauss_next.setter
    def gauss_next(self, _: object) -> None: ...

    def random(self) -> float:
        return (host().random() >> 11) * 2.0**-53

    def getrandbits(self, k: int, /) -> int:
        if k < 0:
            raise ValueError("number of bits must be non-negative")
        size = (k + 7) // 8
        return int.from_bytes(random_bytes(size), "little") >> (size * 8 - k)

    def seed(self, *_: object, **__: object) -> None:
        """Do nothing: the seed of the run is fixed."""


#: The methods of `random.Random` on the run's random stream.
random: stdlib.Random = _Random()


class _Log:
    """Writes to the run's log, one line per call."""

    def debug(self, text: object) -> None:
        _log("debug", text)

    def info(self, text: object) -> None:
        _log("info", text)

    def warning(self, text: object) -> None:
        _log("warning", text)

    def error(self, text: object) -> None:
        _log("error", text)


#: The run's log: ``log.info("...")``; also ``debug``, ``warning`` and ``error``.
log = _Log()


def _log(level: Level, text: object) -> None:
    host().log(level, str(text).encode(errors="replace").decode())


def explain(exc: BaseException) -> str:
    """Log the way of *exc* through the agent, and return its type and message."""
    try:
        reason = "".join(traceback.format_exception_only(exc)).strip()
        frames = traceback.extract_tb(exc.__traceback__)
        shown = [frame for frame in frames if not frame.filename.startswith(_OURS)]
        for frame in shown[-_FRAMES:]:
            name = os.path.basename(frame.filename)  # noqa: PTH119 -- each import is in every agent
            log.error(f"{name}:{frame.lineno}, in {frame.name}: {frame.line}")
        log.error(reason)
        return f"{type(exc).__name__}: {exc}".removesuffix(": ")[:_REASON]
    except BaseException:  # noqa: BLE001 -- the exception's own methods may raise
        return type(exc).__name__[:_REASON]


def end(
    run: Callable[[], object], explain: Callable[[BaseException], str] = explain
) -> str | None:
    """
    Run an agent to its end, and return the reason of its failure, if any.

    Args:
        run: The agent. Its return value, unless None, is the output.

        explain: Returns the reason that an exception is.
    """
    try:
        result = run()
        if isinstance(result, types.CoroutineType):
            from ._loop import finish  # noqa: PLC0415 -- most agents need no loop

            result = finish(result)
        if result is not None:
            output(result)
    except SystemExit as exc:
        if exc.code is None or exc.code == 0:
            return None
        return f"SystemExit: {exc.code}"[:_REASON]
    except BaseException as exc:  # noqa: BLE001 -- a trap would give no reason
        return explain(exc)
    return None
