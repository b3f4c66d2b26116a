"""
A run's history, read forwards: which calls are already answered.

An agent under replay makes its calls in the recorded order, so the journal is
asked by number, and compares the rest: the name, and the digest of the agent's
own bytes. What differs first is the divergence.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TypeAlias

from ..errors import Divergence, LogBrokenError, NondeterminismError
from .calls import JSON, Outcome, ToolCall
from .events import Event, LogWritten, ToolInvoked, ToolRetried, outcome_of

__all__ = ["Answered", "Fresh", "InDoubt", "Journal", "Recall", "first_difference"]


@dataclass(frozen=True, slots=True)
class Fresh:
    """The log has never seen this call."""


@dataclass(frozen=True, slots=True)
class InDoubt:
    """The call was sent, and the host died before it saw the answer."""

    invoked: ToolInvoked
    attempts: int


@dataclass(frozen=True, slots=True)
class Answered:
    """The log holds the answer, and when it was recorded (microseconds)."""

    outcome: Outcome
    at: int


Recall: TypeAlias = Fresh | InDoubt | Answered


@dataclass(slots=True)
class _Entry:
    invoked: ToolInvoked
    seq: int | None
    attempts: int = 1
    answer: Answered | None = None


class Journal:
    """
    What a run's events say, folded one by one. Does no I/O.

    Args:
        compare_fuel: Whether fuel must be as recorded too. Only a replay under
            the engine of the recording can ask for that.
    """

    def __init__(self, *, compare_fuel: bool = False) -> None:
        self.used: Counter[str] = Counter()
        self.logged = 0
        self.compare_fuel = compare_fuel
        self._calls: dict[int, _Entry] = {}
        self._open: set[int] = set()

    @property
    def calls(self) -> int:
        """How many calls were attempted."""
        return len(self._calls)

    @property
    def in_doubt(self) -> int:
        """How many calls are open."""
        return len(self._open)

    def apply(self, event: Event, at: int, seq: int | None = None) -> None:
        """
        Fold *event* into the state.

        Args:
            event: Any event of the run; those that are not of a call are skipped.

            at: When it was recorded.

            seq: Its place in the stream, where it is known.

        Raises:
            LogBrokenError: It is of a call that was never made.
        """
        if isinstance(event, ToolInvoked):
            self._calls[event.call] = _Entry(event, seq)
            self._open.add(event.call)
            if event.rule is not None:
                self.used[event.rule] += 1
        elif isinstance(event, ToolRetried):
            self._entry(event.call).attempts = event.attempt
        elif isinstance(event, LogWritten):
            self.logged = event.n
        elif end := outcome_of(event):
            number, outcome = end
            self._entry(number).answer = Answered(outcome, at)
            self._open.discard(number)

    def recall(self, call: ToolCall, params: dict[str, JSON] | None = None) -> Recall:
        """
        Return what the log knows of *call*.

        Args:
            call: What the agent asks now.

            params: Its parameters as the log would hold them, to name the
                difference; by default those of *call*.

        Raises:
            NondeterminismError: The log holds another call at this position.
        """
        entry = self._calls.get(call.number)
        if entry is None:
            return Fresh()
        known = entry.invoked
        if known.name != call.name:
            raise _diverged(entry, "$.name", known.name, call.name)
        if known.params_sha256 != call.digest:
            now = call.params if params is None else params
            path, old, new = first_difference(known.params, now, "$.params") or (
                "$.params_sha256",
                known.params_sha256,
                call.digest,
            )
            raise _diverged(entry, path, old, new)
        if self.compare_fuel and known.fuel != call.fuel:
            raise _diverged(entry, "$.fuel", known.fuel, call.fuel)
        return entry.answer or InDoubt(known, entry.attempts)

    def unmade(self, made: int) -> Divergence | None:
        """Return the recorded call that follows the *made* first ones, if any."""
        entry = self._calls.get(made + 1)
        if entry is None:
            return None
        return Divergence(entry.seq, "$.name", entry.invoked.name, None)

    def _entry(self, number: int) -> _Entry:
        if entry := self._calls.get(number):
            return entry
        raise LogBrokenError(f"call {number} goes on before it was made")


def first_difference(
    old: JSON, new: JSON, path: str = "$"
) -> tuple[str, JSON, JSON] | None:
    """
    Return path and values of the first place where two values differ.

    ``True``, ``1`` and ``1.0`` are three values here.

    >>> first_difference({"a": [1, 2]}, {"a": [1, 3]})
    ('$.a[1]', 2, 3)
    >>> first_difference({"n": 1}, {"n": True})
    ('$.n', 1, True)
    """
    if isinstance(old, dict) and isinstance(new, dict):
        for key in old | new:
            at = f"{path}{key}" if key.startswith("[") else f"{path}.{key}"
            if key not in old or key not in new:
                return at, old.get(key), new.get(key)
            if found := first_difference(old[key], new[key], at):
                return found
        return None
    if isinstance(old, list) and isinstance(new, list):
        return first_difference(
            {f"[{i}]": item for i, item in enumerate(old)},
            {f"[{i}]": item for i, item in enumerate(new)},
            path,
        )
    return None if type(old) is type(new) and old == new else (path, old, new)


def _diverged(
    entry: _Entry, path: str, recorded: JSON, now: JSON
) -> NondeterminismError:
    return NondeterminismError(Divergence(entry.seq, path, recorded, now))
