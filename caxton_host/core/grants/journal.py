"""
A run's history, read forwards: which calls are already answered.

An agent under replay makes its calls in the recorded order, so a call is looked up by
number, and compared by name and by the digest of the agent's own bytes. The first
difference is the divergence.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias, cast

from ...errors import Divergence, LogBrokenError, NondeterminismError, NotKeptError
from ..calls import JSON, Completed, Outcome, Route, ToolCall
from ..log.diff import first_difference
from ..log.events import (
    ApprovalDecided,
    ApprovalRequested,
    CallResolved,
    Event,
    LogWritten,
    ToolInvoked,
    ToolRetried,
    outcome_of,
)
from ..text.redact import same_but_masked
from .approvals import Asked
from .conditions import no_engine
from .constraints import Matcher
from .decisions import Allowed, Attempt, Tally, decide
from .grants import Grant, Rule


@dataclass(frozen=True, slots=True)
class Fresh:
    """The log has no intent of this call; at most it has a decision of a person."""


@dataclass(frozen=True, slots=True)
class InDoubt:
    """
    The call was sent, and the host died before it saw the answer.

    Attributes:
        attempts: How often it may have been sent.

        resolved: A person decided that it is sent again, which has not happened yet.

        seq: The place of its intent in the stream, where it is known.
    """

    invoked: ToolInvoked
    attempts: int
    resolved: bool = False
    seq: int | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class _Line:
    written: LogWritten
    seq: int | None
    origin: Origin | None


@dataclass(frozen=True, slots=True)
class Answered:
    """The log holds the answer, and when it was recorded (microseconds)."""

    outcome: Outcome
    at: int


Recall: TypeAlias = Fresh | InDoubt | Answered


@dataclass(frozen=True, slots=True)
class Origin:
    """
    The run that an inherited event comes from.

    Attributes:
        run: Its id.

        exact: It ran the same module under the same engine, so its fuel holds.
    """

    run: str
    exact: bool


@dataclass(slots=True)
class _Entry:
    invoked: ToolInvoked
    seq: int | None
    origin: Origin | None
    attempts: int = 1
    resolved: bool = False
    answer: Answered | None = None


@dataclass(frozen=True, slots=True)
class Tallies:
    """
    What a run did so far.

    Attributes:
        recorded: As the recorded rules of the run count it.

        today: As the rules of today count it, if the run was resumed.
    """

    recorded: Tally = field(default_factory=Tally)
    today: Tally = field(default_factory=Tally)

    def copy(self) -> Tallies:
        """Return a copy that counts on its own."""
        return Tallies(self.recorded.copy(), self.today.copy())


class Journal:
    """
    What a run's events say, folded one by one. Does no I/O.

    Args:
        compare_fuel: Whether fuel must be as recorded too. Only a replay under
            the engine of the recording can ask for that.

        today: The grants that a resumed run needs beside its recorded ones.

        matches: Compares a text with a regular expression, for rules that need it.

    Attributes:
        tallies: What the run did so far, as its rules count it.

        today: As above. A call needs the permission of these grants as well.

        compare_fuel: As above.

        logged: The number of the newest log line.
    """

    def __init__(
        self,
        *,
        compare_fuel: bool = False,
        today: Grant | None = None,
        matches: Matcher = no_engine,
    ) -> None:
        self.tallies = Tallies()
        self.today = today
        self.matches = matches
        self.logged = 0
        self.compare_fuel = compare_fuel
        self._calls: dict[int, _Entry] = {}
        self._asked: dict[int, Asked] = {}
        self._lines: dict[int, _Line] = {}
        self._open: set[int] = set()

    @property
    def calls(self) -> int:
        """How many calls were attempted."""
        return len(self._calls)

    @property
    def asked(self) -> dict[int, Asked]:
        """The calls that people were asked about and that are not made yet."""
        return {n: one for n, one in self._asked.items() if n not in self._calls}

    @property
    def waiting(self) -> list[Asked]:
        """Those of them that nobody has decided about, in order."""
        return [one for _, one in sorted(self.asked.items()) if one.waits]

    @property
    def reached(self) -> int:
        """The number of the last call in the log."""
        return max(self.calls, *self._asked, 0)

    @property
    def in_doubt(self) -> list[InDoubt]:
        """The calls that are open, in order."""
        return [_doubt(self._calls[number]) for number in self.open_calls]

    @property
    def open_calls(self) -> list[int]:
        """The numbers of the calls that are open, in order."""
        return sorted(self._open)

    def answers(self, number: int) -> bool:
        """Return whether the log holds the answer of call *number*."""
        return number in self._calls and number not in self._open

    def apply(
        self,
        event: Event,
        at: int,
        seq: int | None = None,
        origin: Origin | None = None,
    ) -> None:
        """
        Fold *event* into the state.

        Args:
            event: Any event of the run; events that are not about a call are ignored.

            at: When it was recorded.

            seq: Its place in the stream, where it is known.

            origin: The run it comes from, if that is another.

        Raises:
            LogBrokenError: It is about a call that was never made.
        """
        if isinstance(event, ToolInvoked):
            self._calls[event.call] = _Entry(event, seq, origin)
            self._open.add(event.call)
            self.count(event, at, self.tallies)
        elif isinstance(event, ToolRetried):
            entry = self._entry(event.call)
            entry.attempts, entry.resolved = event.attempt, False
        elif isinstance(event, CallResolved):
            self._entry(event.call).resolved = event.verdict == "retry"
        elif isinstance(event, ApprovalRequested):
            before = self._asked.get(event.call, Asked(event))
            self._asked[event.call] = before.again(event, seq)
        elif isinstance(event, ApprovalDecided):
            self._asked[event.call] = self._question(event.call).after(event)
        elif isinstance(event, LogWritten):
            self.logged = event.n
            self._lines[event.n] = _Line(event, seq, origin)
        elif end := outcome_of(event):
            number, outcome = end
            entry = self._entry(number)
            entry.answer = Answered(outcome, at)
            self._open.discard(number)
            self._note_answer(entry.invoked, outcome)

    def question(self, number: int) -> Asked | None:
        """Return what people were asked about call *number*, if they were."""
        return self._asked.get(number)

    def hold(self, number: int, answer: Answered) -> None:
        """Answer call *number* in full, where the log keeps only a digest."""
        self._entry(number).answer = answer

    @property
    def not_kept(self) -> NotKeptError | None:
        """The first answer that the log does not hold, as an error to raise."""
        for entry in self._calls.values():
            if error := _not_kept(entry):
                return error
        return None

    def recall(self, call: ToolCall, params: dict[str, JSON] | None = None) -> Recall:
        """
        Look up *call*.

        Args:
            call: What the agent asks now.

            params: Its parameters as the log would hold them, to name the
                difference; by default those of *call*.

        Raises:
            NondeterminismError: The log holds another call at this position.

            NotKeptError: It holds no more than a digest of the answer.
        """
        entry = self._calls.get(call.number)
        if entry is None:
            if asked := self._asked.get(call.number):
                self._compare(asked, asked.requested, call, params)
            return Fresh()
        self._compare(entry, entry.invoked, call, params)
        if error := _not_kept(entry):
            raise error
        return entry.answer or _doubt(entry)

    def _compare(
        self,
        entry: _Entry | Asked,
        known: ToolInvoked | ApprovalRequested,
        call: ToolCall,
        params: dict[str, JSON] | None,
    ) -> None:
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
        origin = _origin(entry)
        exact = self.compare_fuel and (origin is None or origin.exact)
        if exact and known.fuel != call.fuel:
            raise _diverged(entry, "$.fuel", known.fuel, call.fuel)

    def recall_line(self, n: int, level: str, text: str) -> None:
        """
        Compare a log line with the recorded one.

        A redacted part of the recorded line matches anything, and so does what may
        have followed the end of a line that was cut.

        Raises:
            NondeterminismError: The log holds another line there.
        """
        line = self._lines[n]
        known = line.written
        if known.level != level:
            raise _diverged(line, "$.level", known.level, level)
        after = self._lines.get(n + 1)
        cut = after is not None and after.written.level == "truncated"
        if not same_but_masked(known.text, text, cut=cut):
            raise _diverged(line, "$.text", known.text, text)

    def unmade(self, made: int, lines: int) -> Divergence | None:
        """
        Return the first recorded call or line that the guest did not make, if any.

        Args:
            made: How many calls were made.

            lines: How many log lines were written.
        """
        if entry := self._calls.get(made + 1):
            return _divergence(entry, "$.name", entry.invoked.name, None)
        if later := [n for n in self.asked if n > made]:
            asked = self._asked[min(later)]
            return _divergence(asked, "$.name", asked.requested.name, None)
        if line := self._lines.get(lines + 1):
            return _divergence(line, "$.text", line.written.text, None)
        return None

    def count(self, invoked: ToolInvoked, at: int, tallies: Tallies) -> None:
        """
        Count a call in *tallies*, if a rule allowed it.

        Args:
            invoked: Its intent.

            at: When that was recorded.

            tallies: Those of the journal; or a copy, to count a call ahead of its
                record.
        """
        if invoked.rule is None:
            return
        if self.today is not None:
            attempt = attempt_of(invoked, at, self.matches)
            verdict = decide(self.today, attempt, tallies.today)
            spent: dict[str, int] = {}
            if isinstance(verdict, Allowed):
                tallies.today.used[verdict.rule.id] += 1
                spent = spends_of(verdict.rule, attempt.params)
            tallies.today.spent.update(spent | _spends(invoked))
        tallies.recorded.used[invoked.rule] += 1
        if invoked.spends:
            tallies.recorded.spent.update(_spends(invoked))
        for tally in (tallies.recorded, tallies.today):
            tally.called.add(_target(invoked))

    def _note_answer(self, invoked: ToolInvoked, outcome: Outcome) -> None:
        if isinstance(outcome, Completed) and not outcome.is_error:
            for tally in (self.tallies.recorded, self.tallies.today):
                tally.done.add(_target(invoked))

    def _entry(self, number: int) -> _Entry:
        if entry := self._calls.get(number):
            return entry
        raise LogBrokenError(f"call {number} has an event before its intent")

    def _question(self, number: int) -> Asked:
        if asked := self._asked.get(number):
            return asked
        raise LogBrokenError(f"call {number} has a decision, and no question before it")


def spends_of(rule: Rule, params: Mapping[str, JSON]) -> dict[str, int]:
    """Return what a call that *rule* allows takes of budgets, by key."""
    taken = ((cost.key, cost.amount) for cost in rule.costs(params))
    return {key: amount for key, amount in taken if amount is not None}


def _spends(invoked: ToolInvoked) -> dict[str, int]:
    return cast("dict[str, int]", invoked.spends or {})


def attempt_of(invoked: ToolInvoked, at: int, matches: Matcher = no_engine) -> Attempt:
    """
    Return a recorded call in the form that grants decide about.

    Args:
        invoked: Its intent.

        at: When that was recorded.

        matches: Compares a text with a regular expression.
    """
    server, tool = _target(invoked)
    return Attempt(
        route=Route(server=server, tool=tool),
        params=invoked.params or {},
        now=at,
        matches=matches,
    )


def _target(invoked: ToolInvoked) -> tuple[str, str]:
    return invoked.server or "", invoked.tool or ""


def _not_kept(entry: _Entry) -> NotKeptError | None:
    outcome = entry.answer.outcome if entry.answer else None
    if not isinstance(outcome, Completed) or not outcome.cut:
        return None
    call, at = entry.invoked, f" (event {entry.seq})" if entry.seq else ""
    return NotKeptError(
        f"of call {call.call}{at}, {call.server}/{call.tool}, the log keeps a digest "
        "and not the answer",
        call=call.call,
        fix='its tool has record = "hash"; of later runs, record = "full" keeps it',
    )


def _doubt(entry: _Entry) -> InDoubt:
    return InDoubt(entry.invoked, entry.attempts, entry.resolved, entry.seq)


def _diverged(
    place: _Entry | _Line | Asked, path: str, recorded: JSON, now: JSON
) -> NondeterminismError:
    return NondeterminismError(_divergence(place, path, recorded, now))


def _divergence(
    place: _Entry | _Line | Asked, path: str, recorded: JSON, now: JSON
) -> Divergence:
    origin = _origin(place)
    return Divergence(place.seq, path, recorded, now, origin.run if origin else None)


def _origin(place: _Entry | _Line | Asked) -> Origin | None:
    # A fork asks again: a decision about a call of its parent does not count for it.
    return None if isinstance(place, Asked) else place.origin
