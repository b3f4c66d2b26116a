"""
The recording of a run: its log, read back, as far as an execution needs it.

Replay, resume and fork begin here, so a guest is given the same in all (law 5).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

from ..core import clients
from ..core.analysis.tracing import TracedRun
from ..core.calls import JSON
from ..core.commands import Command
from ..core.grants.bounds import Bound, bounds_of
from ..core.grants.forks import MAX_LINEAGE, Inherited, prefix
from ..core.grants.grants import Grant
from ..core.grants.journal import Journal
from ..core.grants.tool_catalog import listing
from ..core.limits import Limits
from ..core.log.events import (
    ApprovalDecided,
    CallResolved,
    LogWritten,
    Recorded,
    RunCancelled,
    RunFailed,
    RunQueued,
    RunResumed,
    RunStarted,
    RunSuspended,
)
from ..core.log.runs import (
    CHILD,
    ENDS,
    GOING_ON,
    RESTORED,
    RunRow,
    RunSummary,
)
from ..core.names import AGENTS, called_run, run_of, stream_of
from ..core.programs import Program, digests_of
from ..errors import (
    CaxtonError,
    LogBrokenError,
    NotFoundError,
    NotKeptError,
    NotStartedError,
    UsageError,
)
from ..lib import codec, json_schema
from ..ports.history import Streams
from ..ports.sandbox import Guest
from .past import Past

#: Events that are recorded while no host drives the run. The time before them does
#: not count towards the limit ``wall``.
_FROM_OUTSIDE = (RunResumed, ApprovalDecided, CallResolved)

#: Events that end a run that was queued, before it starts.
_UNSTARTED = frozenset(one.__name__ for one in (RunCancelled, RunFailed))


@dataclass(frozen=True, kw_only=True)
class Recording:
    """
    A run, as its log holds it.

    Attributes:
        history: Its events, in order, behind those that it inherited. None of them
            was erased.

        own: Those of its own stream, from its start on.

        started: The first of these.

        lineage: The runs that it was forked from, the oldest first.

        limits: The bounds that it was started with.
    """

    run_id: str
    history: Sequence[Recorded]
    own: Sequence[Recorded]
    started: RunStarted
    lineage: Sequence[Inherited] = ()
    limits: Limits

    @classmethod
    async def load(cls, run_id: str, store: Streams) -> Recording:
        """
        Return the recording of a run.

        Raises:
            NotFoundError: There is no such run.

            NotKeptError: It was erased.

            NotStartedError: It is queued.

            UsageError: It ended before it started.

            LogBrokenError: Its log lacks what an execution needs.
        """
        first, *heirs = await _chain(run_id, store)
        recording = cls._of(first)
        for heir in heirs:
            fork = recording.forked(heir.run_id, heir.started, heir.forked_at)
            recording = replace(
                fork, history=[*fork.history, *heir.events], own=heir.events
            )
        for recorded in recording.history:
            if recorded.event is None:
                raise _erased(recorded)
        return recording

    @classmethod
    def _of(cls, stream: _Stream) -> Recording:
        return cls(
            run_id=stream.run_id,
            history=stream.events,
            own=stream.events,
            started=stream.started,
            limits=Limits.from_payload(stream.started.limits),
        )

    def forked(self, run_id: str, started: RunStarted, seq: int) -> Recording:
        """
        Return a fork of the run, as it is before it has events of its own.

        Args:
            run_id: The id of the fork.

            started: The event that it begins with.

            seq: The last event of this run that it inherits.
        """
        inherited, calls = prefix(self.history, seq)
        own = [e for e in inherited if e.stream == stream_of(self.run_id)]
        parent = Inherited(
            run_id=self.run_id, started=self.started, events=own, calls=calls
        )
        return Recording(
            run_id=run_id,
            history=inherited,
            own=(),
            started=started,
            lineage=(*self.lineage, parent),
            limits=Limits.from_payload(started.limits),
        )

    @property
    def latest(self) -> Recorded:
        """The event that its state comes from."""
        return next(item for item in reversed(self.own) if item.type in ENDS)

    @property
    def state(self) -> str:
        """``running``, ``suspended``, or how it ended."""
        return ENDS[self.latest.type]

    @property
    def end(self) -> Recorded | None:
        """The event that ended the run, if it has ended."""
        return None if self.state in GOING_ON else self.latest

    @property
    def is_session(self) -> bool:
        """Whether a client made its calls, and nothing can be executed again."""
        return self.started.abi == clients.ABI

    @property
    def table(self) -> str:
        """The table of a configuration that describes what made its calls."""
        return clients.table_of(self.started.agent, session=self.is_session)

    @property
    def is_restored(self) -> bool:
        """Whether it waits for a person because its log is a restored copy."""
        last = self.latest.event
        return isinstance(last, RunSuspended) and last.reason == RESTORED

    @property
    def waits_for(self) -> str | None:
        """The run that it waits for, if it is suspended since that is."""
        last = self.latest.event
        if not isinstance(last, RunSuspended) or last.reason != CHILD:
            return None
        return self.callees.get(last.call or 0)

    @property
    def callees(self) -> dict[int, str]:
        """The runs that answer the open calls of agents, by number of the call."""
        open_calls = (doubt.invoked for doubt in self.journal().in_doubt)
        return {
            invoked.call: called_run(self.run_id, invoked.idempotency_key)
            for invoked in open_calls
            if invoked.server == AGENTS
        }

    def check_unended(self) -> None:
        """
        Return if the run may go on.

        Raises:
            UsageError: It has ended.
        """
        if self.end is None:
            return
        state = "been cancelled" if self.state == "cancelled" else self.state
        raise UsageError(
            f"run {self.run_id} has {state} already",
            fix=f"caxton runs show {self.run_id}",
        )

    def check_executable(self) -> None:
        """
        Return if the run can be executed again.

        Raises:
            UsageError: It is a session.
        """
        if self.is_session:
            raise UsageError(
                f"run {self.run_id} is a session: a client made its calls, and what "
                "that did between them is not in the log",
                fix=f"caxton runs explain {self.run_id}; or, to judge its calls by "
                "other grants, caxton grant what-if",
            )

    def check_forkable(self) -> None:
        """
        Return if the run may be forked.

        Raises:
            UsageError: It is a session, or has too many ancestors.
        """
        self.check_executable()
        if len(self.lineage) >= MAX_LINEAGE:
            raise UsageError(
                f"run {self.run_id} has {MAX_LINEAGE} ancestors, which is the most",
                fix="fork one of those",
            )

    @property
    def epoch(self) -> int:
        """How many hosts have driven the run."""
        return 1 + sum(isinstance(item.event, RunResumed) for item in self.own)

    @property
    def driven(self) -> float:
        """Seconds for which hosts drove the run, without those of a suspension."""
        total = sum(
            after.recorded_at - before.recorded_at
            for before, after in pairwise(self.own)
            if not isinstance(after.event, _FROM_OUTSIDE)
        )
        return total / 1e6

    def journal(
        self,
        *,
        compare_fuel: bool = False,
        today: Sequence[Bound] = (),
        lines: bool = True,
        judging: bool = False,
    ) -> Journal:
        """
        Return the journal of what is recorded; see `Journal`.

        Args:
            compare_fuel: As there.

            today: The grant of today that binds a resumed run, if any.

            lines: Include the log lines, which another module may write otherwise.

            judging: Calls are judged by the recorded grant.
        """
        now = {bound.name for bound in today}
        journal = Journal(
            compare_fuel=compare_fuel,
            bounds=(
                *(one for one in bounds_of(self.started.bounds) if one.name not in now),
                *today,
            ),
            matches=json_schema.fits,
            grant=Grant.from_payload(self.started.grants) if judging else None,
        )
        for inherited in self.lineage:
            inherited.told(journal, self.started, lines=lines)
        for recorded in self.own:
            if not lines and isinstance(recorded.event, LogWritten):
                continue
            assert recorded.event is not None  # noqa: S101 -- see `load`
            journal.apply(recorded.event, recorded.recorded_at, recorded.seq)
        return journal

    @cached_property
    def past(self) -> Past:
        """What it did before each event, as its grants count that."""
        first, *events = self.own
        return Past(events, self.until(first.seq).journal(judging=True))

    @cached_property
    def traced(self) -> TracedRun:
        """It, to trace its values."""
        return TracedRun(self.run_id, self.history, self.started.called_by)

    async def guest(
        self, domain: str, store: Streams, program: Program | None = None
    ) -> Guest:
        """
        Return what the guest is given again.

        Args:
            domain: The trust domain.

            store: Where its blobs are.

            program: Executed instead of the recorded one.

        Raises:
            NotFoundError: A definition or a file that it saw was not kept.
        """
        definitions = {
            digest: await store.blob(digest)
            for entry in self.started.catalogue.values()
            if isinstance(entry, dict) and entry.get("visible")
            for digest in [str(entry["definition_sha256"])]
        }
        command = Command.from_payload(self.started.command)
        files = {digest: await store.blob(digest) for digest in command.files.values()}
        guest = guest_for(
            domain,
            self.started,
            definitions,
            self.history[0].recorded_at,
            program=program or await self.program(store),
            files=files,
        )
        if not self.lineage:
            return guest
        runs = [*(inherited.started for inherited in self.lineage), self.started]
        seeds = {0: runs[0].seed}
        for inherited, after in zip(self.lineage, runs[1:], strict=True):
            seeds[inherited.calls] = after.seed
        known = {number: bytes.fromhex(seed) for number, seed in seeds.items()}
        return replace(guest, seed=known.pop(0), seeds=known)

    async def program(self, store: Streams) -> Program | None:
        """
        Return the program that the run executed, if it is one.

        Raises:
            NotFoundError: It was not kept.
        """
        named = self.started.program
        if named is None:
            return None
        blobs = {digest: await store.blob(digest) for digest in digests_of(named)}
        return Program.from_payload(named, blobs)

    def until(self, seq: int) -> Recording:
        """
        Return the recording as it was when event *seq* was the last.

        Raises:
            UsageError: There is no such event.
        """
        # A run that was queued has an event before its start.
        first, last = self.own[0].seq, self.own[-1].seq
        if not first <= seq <= last:
            raise UsageError(
                f"run {self.run_id} has no event {seq}",
                fix=f"name one of {first} to {last}",
            )
        behind = last - seq
        return replace(
            self,
            own=self.own[: len(self.own) - behind],
            history=self.history[: len(self.history) - behind],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stream:
    run_id: str
    events: Sequence[Recorded]
    started: RunStarted

    @property
    def forked_at(self) -> int:
        assert self.started.forked_from is not None  # noqa: S101 -- it has a parent
        return int(str(self.started.forked_from["seq"]))


async def _chain(run_id: str, store: Streams) -> list[_Stream]:
    """Return the run and those that it was forked from, the oldest first."""
    last = await _stream(run_id, store)
    if last is None:
        raise NotFoundError(f"no run {run_id}", fix="caxton runs list shows them")
    chain = [last]
    while fork := chain[0].started.forked_from:
        child, parent_id = chain[0].run_id, str(fork["run"])
        if len(chain) > MAX_LINEAGE or parent_id in {one.run_id for one in chain}:
            raise LogBrokenError(f"run {run_id} has no end of runs that it comes from")
        parent = await _stream(parent_id, store)
        if parent is None:
            raise LogBrokenError(
                f"run {child} was forked from run {parent_id}, and that is not here",
                fix="use the database that has both",
            )
        if str(fork["hash"]) not in {
            e.hash.hex() for e in parent.events if e.seq == fork["seq"]
        }:
            raise LogBrokenError(
                f"event {fork['seq']} of run {parent_id} is not the one that run "
                f"{child} was forked at"
            )
        chain.insert(0, parent)
    return chain


async def _stream(run_id: str, store: Streams) -> _Stream | None:
    events = await store.read(stream_of(run_id))
    if not events:
        return None
    if events[0].type == RunQueued.__name__:
        queued, *events = events
        if not events:
            raise NotStartedError(run_id)
        if events[0].type in _UNSTARTED:
            raise _unstarted(queued, ENDS[events[0].type])
    started = events[0].event
    if events[0].type == RunStarted.__name__ and started is None:
        raise _erased(events[0])
    if not isinstance(started, RunStarted):
        raise LogBrokenError(f"run {run_id} does not begin with RunStarted")
    return _Stream(run_id=run_id, events=events, started=started)


def _unstarted(queued: Recorded, state: str) -> CaxtonError:
    if queued.event is None:
        return _erased(queued)
    run_id = run_of(queued.stream)
    return UsageError(
        f"run {run_id} is {state}, and had not started",
        fix=f"caxton runs show {run_id}",
    )


def _erased(recorded: Recorded) -> NotKeptError:
    run_id = run_of(recorded.stream)
    return NotKeptError(
        f"event {recorded.seq} of run {run_id} was erased",
        fix="an erased run can be verified, not executed again",
    )


async def lacking(run_id: str, store: Streams) -> NotKeptError | None:
    """
    Return why a run cannot be executed again to its end, if answers were not kept.

    Raises:
        NotFoundError: There is no such run.

        LogBrokenError: Its log lacks what had to be kept.
    """
    try:
        return (await Recording.load(run_id, store)).journal().not_kept
    except NotKeptError as exc:
        return exc


def schemas_of(guest: Guest) -> dict[str, dict[str, JSON]]:
    """Return the schema of the parameters of each tool that a guest may see."""
    listed = codec.decode_trusted(guest.tools)
    return {tool["name"]: tool["input_schema"] or {} for tool in listed}


def guest_for(  # noqa: PLR0913 -- by name
    domain: str,
    started: RunStarted,
    definitions: Mapping[str, bytes],
    at: int,
    *,
    program: Program | None = None,
    files: Mapping[str, bytes] | None = None,
) -> Guest:
    """
    Return what the guest of a run is given: what its log holds, and nothing else.

    Args:
        domain: The trust domain.

        started: The first event of the run.

        definitions: Digest to the bytes of every definition that the run may see.

        at: When *started* was recorded.

        program: What *started* names.

        files: Digest to the bytes of every file that the run may read.
    """
    command: dict[str, object] | None = None
    if started.command is not None:
        found = Command.from_payload(started.command)
        kept = files or {}
        content = {path: kept[digest] for path, digest in found.files.items()}
        command = {"args": found.args, "env": found.env, "files": content}
    known = {key: codec.decode_trusted(data) for key, data in definitions.items()}
    return Guest(
        domain=domain,
        entry=started.entry,
        limits=Limits.from_payload(started.limits),
        input=codec.encode(started.input),
        context={key: codec.encode(value) for key, value in started.context.items()},
        tools=codec.encode(listing(started.catalogue, known)),
        program=codec.encode(program.to_guest() if program else None),
        command=codec.encode(command),
        seed=bytes.fromhex(started.seed),
        now=at,
        level=len(started.callers),
    )


#: The state of a run whose events are not what was written.
BROKEN = "broken"


def broken_summary(row: RunRow, exc: LogBrokenError) -> RunSummary:
    """Return what is known of a run whose log is damaged."""
    return RunSummary(
        run_id=row.run_id,
        agent=row.agent,
        state=BROKEN,
        error={"kind": "log", "message": str(exc)},
        started_at=row.started_at,
    )


async def events_of(store: Streams, run_id: str) -> list[Recorded]:
    """
    Return the events of a run that *store* lists.

    Raises:
        LogBrokenError: No event exists, or one lacks its payload.
    """
    stream = stream_of(run_id)
    history = await store.read(stream)
    if not history:
        raise LogBrokenError(f"{stream} is listed, and its events are gone")
    _refuse_gaps(history)
    return history


def _refuse_gaps(history: Sequence[Recorded]) -> None:
    """
    Check that all payloads of a stream exist, or none: an erasure removes all.

    Raises:
        LogBrokenError: Only some exist.
    """
    if 0 < sum(recorded.event is None for recorded in history) < len(history):
        raise LogBrokenError(
            f"a payload of {history[0].stream} is missing, and was not erased",
            fix="caxton audit verify",
        )
