"""The error of a program, as its author reads it: the traceback of its own lines."""

from __future__ import annotations

import contextlib
import linecache
import os
import traceback
from collections.abc import Iterator

import caxton_agent
from caxton_agent import log

__all__ = ["PACKAGES", "explain"]

#: Folder of the file names of locked packages.
PACKAGES = "/packages"
#: Bytes of a reason: its beginning and its end.
_HEAD, _TAIL = 1_000, 3_000
_FRAMES = 40
_NOTES = 8
_HIDDEN = (
    os.path.dirname(__file__),
    os.path.dirname(caxton_agent.__file__),
    "/python/asyncio/",
    "<frozen importlib",
)
_LOST = "an exception whose text cannot be told"


def explain(error: BaseException) -> str:
    """Log the traceback of *error*, and return it in at most 4 KiB."""
    # A program can break what formats its errors, and what writes them.
    for told in (_told, _named):
        try:
            text = _cut("".join(told(error)).rstrip())
            break
        except BaseException:  # noqa: BLE001, S112 -- whatever the program broke
            continue
    else:
        return _LOST
    with contextlib.suppress(BaseException):
        for line in text.splitlines():
            log.error(line)
    return text


def _named(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


def _told(error: BaseException) -> Iterator[str]:
    if isinstance(error, SyntaxError) and error.text is None and error.filename:
        error.text = linecache.getline(error.filename, error.lineno or 0) or None
    told = traceback.TracebackException.from_exception(error, limit=-_FRAMES)
    _hide(told)
    yield from told.format()
    if isinstance(error, ModuleNotFoundError):
        yield (
            "To fix: use the pure standard library, or name the package in the file "
            "and run caxton program lock; packages with parts in C do not work"
        )


def _hide(told: traceback.TracebackException) -> None:
    """Leave out the frames of the runtime, and notes of which there are many."""
    seen: list[traceback.TracebackException] = [told]
    for each in seen:
        shown = [one for one in each.stack if not one.filename.startswith(_HIDDEN)]
        each.stack = traceback.StackSummary.from_list(shown)
        if each.__notes__ and len(each.__notes__) > _NOTES:
            each.__notes__ = [*each.__notes__[:_NOTES], "..."]
        chained = (each.__cause__, each.__context__, *(each.exceptions or ()))
        seen += [one for one in chained if one is not None]


def _cut(text: str) -> str:
    raw = text.encode(errors="backslashreplace")
    if len(raw) > _HEAD + _TAIL:
        raw = raw[:_HEAD] + b"\n  ...\n" + raw[-_TAIL:]
    return raw.decode(errors="ignore")
