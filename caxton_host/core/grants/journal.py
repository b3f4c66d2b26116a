"""
A run's history, read forwards: which calls are already answered.

An agent under replay makes its calls in the recorded order, so a call is looked up by
number, and compared by name and by the digest of the agent's own bytes. The first
difference is the divergence.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias, cast

from ...errors import Divergence, LogBrokenError, NondeterminismError, NotKeptError
from ..calls import JSON, Completed, Outcome, Route, ToolCall
from ..limits import Limits
from ..log.asked import Asked
from ..log.diff import first_difference
from ..log.events import (
    ApprovalDecided,
    ApprovalRequested,
    CallResolved,
    Event,
    LogWritten,
    Payload,
    RunStarted,
    RunSuspended,
    ToolCompleted,
    ToolFailed,
    ToolInvoked,
    ToolRetried,
    outcome_of,
)
from ..names import AGENTS
from ..provenance import Sources
from ..text.redact import same_but_masked
from .bounds import Bound, targets
from .conditions import no_engine
from .constraints import Matcher
from .decisions import Allowed, Attempt, Tally, decide
from .grants import Grant, Rule
from .settlement import settled

_Past: TypeAlias = RunStarted | ToolInvoked | ToolCompleted | ToolFailed


@dataclass(frozen=True, slots=True)
class Fresh:
    """The log has no intent of this call; at most it has a decision of a person."""


@dataclass(frozen=True, slots=True)
class InDoubt:
    """
    The call was sent, and the host died before it saw the answer.

    Attributes:
        attempts: How often it may have been sent.

        resolved: It may be sent: a person decided so, or it was certainly not sent.

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
    at: int
    seq: int | None
    origin: Origin | None
    attempts: int = 1
    resolved: bool = False
    answer: Answered | None = None
    #: What it was counted to take of budgets, by the name of the grant.
    taken: dict[str, Mapping[str, int]] = field(
        default_factory=dict[str, "Mapping[str, int]"]
    )


@dataclass(frozen=True, slots=True)
class Tallies:
    """
    What a run did so far.

    Attributes:
        recorded: As the recorded grant of the run counts it.

        others: As each other grant that binds it counts it, by its name.
    """

    recorded: Tally = field(default_factory=Tally)
    others: dict[str, Tally] = field(default_factory=dict[str, Tally])

    def of(self, name: str) -> Tally:
        """Return what the grant of that name counts."""
        return self.others[name] if name else self.recorded

    def each(self) -> Iterator[Tally]:
        """Yield what each grant counts."""
        yield self.recorded
        yield from self.others.values()

    def copy(self) -> Tallies:
        """Return a copy that counts on its own."""
        others = {name: tally.copy() for name, tally in self.others.items()}
        return Tallies(self.recorded.copy(), others)


class Journal:
    """
    What a run's events say, folded one by one. Does no I/O.

    Args:
        compare_fuel: Whether fuel must be as recorded too. Only a replay under
            the engine of the recording can ask for that.

        bounds: The grants that bind the run beside its recorded one.

        matches: Compares a text with a regular expression, for rules that need it.

        grant: The recorded grant, if calls are judged: its rules may ask where values
            came from.

    Attributes:
        tallies: What the run did so far, as its rules count it.

        bounds: As above. A call needs the permission of each.

        compare_fuel: As above.

        logged: The number of the newest log line.

        requester: The actor who started the run; empty until its start is applied.
        sources: What the run knows about the sources of values; ``None``: no grant
            asks for them.
    """

    def __init__(
        self,
        *,
        compare_fuel: bool = False,
        bounds: Sequence[Bound] = (),
        matches: Matcher = no_engine,
        grant: Grant | None = None,
    ) -> None:
        self.tallies = Tallies(others={bound.name: bound.tally for bound in bounds})
        self.bounds = tuple(bounds)
        self.matches = matches
        self.sources: Sources | None = None
        self._grant = grant
        #: The events that sources are made of, and when they were recorded.
        self._past: list[tuple[_Past, int]] = []
        self.logged = 0
        self.requester: Payload = {}
        self._carried: Payload | None = None
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
        return max(*self._calls, *self._asked, 0, 0)

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
            taken = self.count(event, at, self.tallies)
            self._calls[event.call] = _Entry(event, at, seq, origin, taken=taken)
            self._open.add(event.call)
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
        elif isinstance(event, (RunStarted, RunSuspended)):
            self._apply_of_run(event, origin)
        elif end := outcome_of(event):
            number, outcome = end
            entry = self._entry(number)
            entry.answer = Answered(outcome, at)
            self._open.discard(number)
            self._note_answer(entry, outcome, self.tallies)
        self._note_past(event, at)

    def _note_past(self, event: Event, at: int) -> None:
        if isinstance(event, _Past):
            self._past.append((event, at))
            self._note_sources(event)

    def _note_sources(self, event: _Past) -> None:
        if isinstance(event, RunStarted):
            self.sources = self.sources or self._new_sources(event)
        if self.sources:
            self.sources.apply(event)

    def _new_sources(self, started: RunStarted) -> Sources | None:
        grants = [bound.grant for bound in self.bounds]
        grants += [self._grant] if self._grant else []
        wanted = [one for grant in grants for one in grant.wanted]
        limits = Limits.from_payload(started.limits)
        return Sources(wanted, limits.sources) if wanted else None

    def _apply_of_run(
        self, event: RunStarted | RunSuspended, origin: Origin | None
    ) -> None:
        if isinstance(event, RunSuspended):
            for number in event.unsent:
                self._entry(cast("int", number)).resolved = True
            return
        if origin is None:
            self.requester = event.actor
        if event.carried:
            self._carried = event.carried
            for tally in self.tallies.each():
                tally.carry(event.carried)

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

    def intent(self, number: int) -> tuple[ToolInvoked, int]:
        """Return the intent of call *number*, and when it was recorded."""
        entry = self._entry(number)
        return entry.invoked, entry.at

    def count(
        self, invoked: ToolInvoked, at: int, tallies: Tallies
    ) -> dict[str, Mapping[str, int]]:
        """
        Count a call in *tallies*, if a rule allowed it.

        Args:
            invoked: Its intent.

            at: When that was recorded.

            tallies: Those of the journal; or a copy, to count a call ahead of its
                record.

        Returns:
            What it takes of budgets, by the name of the grant.
        """
        if invoked.rule is None:
            return {}
        taken: dict[str, Mapping[str, int]] = {
            bound.name: self._count_for(bound, invoked, at, tallies.others[bound.name])
            for bound in self.bounds
        }
        if invoked.rule:
            tallies.recorded.used[invoked.rule] += 1
        tallies.recorded.agents += invoked.server == AGENTS
        if invoked.spends:
            tallies.recorded.spent.update(_spends(invoked))
        for tally in tallies.each():
            tally.called.add(_target(invoked))
        return taken

    def recount(self, event: Event, at: int, tallies: Tallies) -> None:
        """Count an event that was applied, in *tallies* as they were before it."""
        if isinstance(event, ToolInvoked):
            self.count(event, at, tallies)
        elif end := outcome_of(event):
            self._note_answer(self._entry(end[0]), end[1], tallies)

    def bind(self, bound: Bound) -> None:
        """
        Let another grant bind the run from now on, or replace the one of that name.

        It counts what the run did before as if it had bound the run from its start.
        """
        tally = self.tallies.others[bound.name] = bound.tally
        if self._carried:
            tally.carry(self._carried)
        others = (one for one in self.bounds if one.name != bound.name)
        self.bounds = (*others, bound)
        self.sources = None
        for event, at in self._past:
            if isinstance(event, ToolInvoked) and event.rule is not None:
                taken = self._count_for(bound, event, at, tally)
                self._calls[event.call].taken[bound.name] = taken
                tally.called.add(_target(event))
            elif isinstance(event, ToolCompleted):
                entry = self._calls[event.call]
                tally.called.update(targets(event.reached))
                self._settle_for(bound, entry, tally)
                if not event.is_error:
                    tally.done.add(_target(entry.invoked))
            self._note_sources(event)

    def _count_for(
        self, bound: Bound, invoked: ToolInvoked, at: int, tally: Tally
    ) -> Mapping[str, int]:
        attempt = attempt_of(invoked, at, self.matches, self.sources)
        verdict = decide(bound.grant, attempt, tally)
        spent: dict[str, int] = {}
        if isinstance(verdict, Allowed):
            tally.used[verdict.rule.id] += 1
            spent = spends_of(verdict.rule, attempt.params)
        spent |= bound.share(_spends(invoked))
        tally.spent.update(spent)
        return spent

    def _settle_for(self, bound: Bound, entry: _Entry, tally: Tally) -> None:
        """Count what an answered call took in truth, for another grant."""
        invoked, taken = entry.invoked, entry.taken.get(bound.name)
        outcome = entry.answer.outcome if entry.answer else None
        if not taken or not isinstance(outcome, Completed):
            return
        # Of budgets that the call did not spend then, its answer in the log says it.
        since = taken.keys() - bound.share(_spends(invoked)).keys()
        params = invoked.params or {}
        truth = settled(bound.grant, _target(invoked), params, outcome, since)
        truth |= bound.share(_settles(entry))
        tally.settle(taken, truth)

    def _note_answer(self, entry: _Entry, outcome: Outcome, tallies: Tallies) -> None:
        if isinstance(outcome, Completed) and outcome.reached:
            # What another run did for this one was done by this one.
            for tally in tallies.each():
                tally.called.update(targets(outcome.reached))
        if _is_success(outcome):
            for tally in tallies.each():
                tally.done.add(_target(entry.invoked))
        tallies.recorded.settle(_spends(entry.invoked), _settles(entry))
        for bound in self.bounds:
            self._settle_for(bound, entry, tallies.others[bound.name])

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


def _is_success(outcome: Outcome) -> bool:
    return isinstance(outcome, Completed) and not outcome.is_error


def _spends(invoked: ToolInvoked) -> dict[str, int]:
    return cast("dict[str, int]", invoked.spends or {})


def _settles(entry: _Entry) -> Mapping[str, int]:
    outcome = entry.answer.outcome if entry.answer else None
    return (outcome.settles or {}) if isinstance(outcome, Completed) else {}


def attempt_of(
    invoked: ToolInvoked,
    at: int,
    matches: Matcher = no_engine,
    sources: Sources | None = None,
) -> Attempt:
    """
    Return a recorded call in the form that grants decide about.

    Args:
        invoked: Its intent.

        at: When that was recorded.

        matches: Compares a text with a regular expression.

        sources: What the run knew about the sources of values.
    """
    server, tool = _target(invoked)
    return Attempt(
        route=Route(server=server, tool=tool),
        params=invoked.params or {},
        now=at,
        matches=matches,
        sources=sources,
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
