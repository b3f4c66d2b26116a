"""The stepper of ``caxton replay --step``: one call of a recorded run after another."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from ..core.log.events import LogWritten, ToolInvoked, event_document
from ..core.log.runs import call_of
from .output import note, plain, say, to_json
from .show import remark

if TYPE_CHECKING:
    from ..core.log.events import Recorded


HELP = """\
next [N]   go on to the next call, or N calls on; an empty line does the same
continue   go on to the end
event      print the recorded events of this call, one JSON document a line
log        print the log lines so far
quit       stop here; the end of the input does the same
help       this; n, c, e, l, q and h will do"""

_COMMANDS = ("next", "continue", "event", "log", "quit", "help")
_MAX_LINE = 4096
_MAX_DIGITS = 10


class Stepper:
    """
    Stops a replay at its calls, and does what is typed.

    Args:
        history: The events of the run, behind those that it inherited.
    """

    def __init__(self, history: Sequence[Recorded]) -> None:
        self._history = history
        self._lines = {
            e.event.n: e.event for e in history if isinstance(e.event, LogWritten)
        }
        self._next: float = 1

    async def pause(self, number: int, lines: int) -> None:
        """
        Show call *number*, and return when it is to go on.

        Args:
            number: The call; it has its answer.

            lines: How many log lines were written so far.

        Raises:
            Halt: It is to stop here.
        """
        from ..runs.replay import Halt

        if number < self._next:
            return
        events = [e for e in self._history if call_of(e) == number]
        for recorded in events:
            _show(number, recorded)
        while True:
            word, *more = _typed()
            if word == "next" and (count := _count(more)):
                self._next = number + count
                return
            if word == "continue":
                self._next = math.inf
                return
            if word == "quit":
                raise Halt
            if word == "event":
                for recorded in events:
                    click.echo(to_json(event_document(recorded)))
            elif word == "log":
                self._log(lines)
            else:
                say(HELP)

    def _log(self, lines: int) -> None:
        for n in range(1, lines + 1):
            if line := self._lines.get(n):
                say(f"{line.level}: {plain(line.text)}")
        if not lines:
            note("no log line so far")


def _show(number: int, recorded: Recorded) -> None:
    if isinstance(recorded.event, ToolInvoked):
        say(f"call {number} (event {recorded.seq})  {remark(recorded)}")
    else:
        say(f"  event {recorded.seq}  {recorded.type}  {remark(recorded)}")


def _typed() -> list[str]:
    """Return the command that is typed, in full, and what stands behind it."""
    if sys.stdin.isatty():
        click.echo("(step) ", nl=False, err=True)
    line = sys.stdin.buffer.readline(_MAX_LINE)
    if not line:
        return ["quit"]
    word, *more = line.decode(errors="replace").split() or ["next"]
    for command in _COMMANDS:
        if command.startswith(word):
            return [command, *more]
    note(f"no such command: {plain(word)}")
    return ["help"]


def _count(words: Sequence[str]) -> int:
    """Return how many calls to go on, or 0 if that is no number."""
    if not words:
        return 1
    text = words[0]
    return int(text) if text.isdecimal() and len(text) < _MAX_DIGITS else 0
