"""
Run componentize-py with a fixed time and fixed randomness.

A program, started by `caxton_host.building.python` with ``still.c`` preloaded. It
imports nothing of this package, and prints errors for the agent's author.
"""

from __future__ import annotations

import ctypes
import re
import sys
from collections.abc import Iterator

import componentize_py

_FRAME = re.compile(r'  File "(/[^"]*)", line ')
_AUTHOR = "/0/"


def readable(error: str) -> str:
    """
    Return *error* with only the frames of the author's own files.

    Args:
        error: A traceback of the agent's Python, followed by one of the builder's.
    """
    guest, *_ = error.partition("\n\nCaused by:")
    return "".join(_authors(guest.partition("\nStack backtrace:")[0])).strip()


def _authors(traceback: str) -> Iterator[str]:
    head, shown = "", True
    for line in traceback.splitlines(keepends=True):
        if line.startswith("Traceback "):
            head, shown = line, False
        elif frame := _FRAME.match(line):
            shown = frame[1].startswith(_AUTHOR)
        elif not line.startswith("    "):
            head, shown = "", True
        if shown:
            yield head + line.replace(f'"{_AUTHOR}', '"')
            head = ""


def main() -> None:
    """Run componentize-py with the arguments of the command line."""
    if ctypes.CDLL(None).caxton_still():
        sys.exit("the system does not let a program filter its own system calls")
    try:
        sys.exit(componentize_py.script())
    except AssertionError as exc:
        sys.exit(readable(str(exc)))


if __name__ == "__main__":
    main()
