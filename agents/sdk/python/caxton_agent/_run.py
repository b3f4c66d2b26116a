"""The run itself: what it was given, what it says, and how it ends."""

from __future__ import annotations

import datetime as dt
import os
import random as stdlib
import traceback
from collections.abc import Callable

from ._bridge import Level, decode, encode, host
from ._calls import JSON

__all__ = [
    "context",
    "end",
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
    """Return what the run was started with; None if with nothing."""
    return decode(host().input())


def output(value: JSON) -> None:
    """
    Set the result of the run. The last one counts.

    Raises:
        TypeError: It holds something that JSON cannot say.
    """
    host().output(encode(value, "the output"))


def context(key: str, default: JSON = None) -> JSON:
    """Return one variable of the run, or *default* if it has none of that key."""
    value = host().context(key)
    return default if value is None else decode(value)


def now() -> dt.datetime:
    """Return when the last reply was recorded, or else when the run started, in UTC."""
    return _EPOCH + dt.timedelta(microseconds=host().now())


def random_bytes(size: int) -> bytes:
    """Return *size* bytes of the run's random stream, which a replay sees again."""
    words = [host().random().to_bytes(8, "little") for _ in range(-(-size // 8))]
    return b"".join(words)[:size]


class _Random(stdlib.Random):
    """Draws from the run's random stream each time, and keeps no state of its own."""

    @property
    def gauss_next(self) -> None:
        """The half of a pair that `gauss` would keep for the next time."""

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
        """Do nothing: the run has its seed."""


#: The methods of `random.Random` on the run's random stream.
random: stdlib.Random = _Random()


class _Log:
    """Writes to the run's log. Each call is a line."""

    def debug(self, text: object) -> None:
        _log("debug", text)

    def info(self, text: object) -> None:
        _log("info", text)

    def warning(self, text: object) -> None:
        _log("warning", text)

    def error(self, text: object) -> None:
        _log("error", text)


#: The run's log: ``log.info("...")``, and ``debug``, ``warning``, ``error``.
log = _Log()


def _log(level: Level, text: object) -> None:
    host().log(level, str(text).encode(errors="replace").decode())


def end(run: Callable[[], object]) -> str | None:
    """
    Run an agent to its end, and return why it failed, or None if it has completed.

    Args:
        run: What it returns, if anything, is the output.
    """
    try:
        result = run()
        if result is not None:
            output(result)
    except SystemExit as exc:
        return None if exc.code in {None, 0} else f"SystemExit: {exc.code}"[:_REASON]
    except BaseException as exc:  # noqa: BLE001 -- a trap would say nothing
        return _explain(exc)
    return None


def _explain(exc: BaseException) -> str:
    reason = "".join(traceback.format_exception_only(exc)).strip()
    frames = traceback.extract_tb(exc.__traceback__)
    shown = [frame for frame in frames if not frame.filename.startswith(_OURS)]
    for frame in shown[-_FRAMES:]:
        name = os.path.basename(frame.filename)  # noqa: PTH119 -- each import is in every agent
        log.error(f"{name}:{frame.lineno}, in {frame.name}: {frame.line}")
    log.error(reason)
    return f"{type(exc).__name__}: {exc}".removesuffix(": ")[:_REASON]
