"""A store in lists, for tests and for runs nobody needs to keep."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace

from ..core.calls import JSON
from ..core.chain import GENESIS
from ..core.events import ENDS, Event, Recorded, RunErased, RunStarted
from ..errors import NotFoundError, StoreError
from ..ports import Clock, Refused, Reservation, Trace
from .entries import (
    CONFLICT,
    RUN,
    Draft,
    Drafter,
    Entropy,
    RunRow,
    chosen,
    ended_at,
    run_of,
    salts,
    spend,
    started,
)
from .erasure import erased_before, no_run, still_going

__all__ = ["MemoryLog", "MemoryStore"]


class MemoryLog:
    """
    See `caxton_host.ports.EventLog`. What is queued is there at once.

    Attributes:
        events: All events of this log, queued or appended.

        durable: How many of them an append has waited for.
    """

    def __init__(self, store: MemoryStore, drafter: Drafter, seq: int) -> None:
        self.events: list[Event] = []
        self.durable = 0
        self._store = store
        self._drafter = drafter
        self._seq = seq
        self._failed = False

    @property
    def recorded_at(self) -> int:
        """When the newest event was recorded."""
        return self._drafter.recorded_at

    def queue(self, *events: Event, blobs: Mapping[str, bytes] | None = None) -> None:
        """Add *events* to the stream."""
        self._check()
        self._add(self._drafter.draft(events), blobs, ())

    async def append(
        self,
        *events: Event,
        blobs: Mapping[str, bytes] | None = None,
        reserve: Sequence[Reservation] = (),
    ) -> Refused | None:
        """Add *events* to the stream, unless a reservation is refused."""
        self._check()
        refused = self._add(self._drafter.draft(events), blobs, reserve)
        self._check()
        self.durable = len(self.events)
        return refused

    def _check(self) -> None:
        if self._failed:
            raise StoreError(CONFLICT)

    def _add(
        self,
        drafts: Sequence[Draft],
        blobs: Mapping[str, bytes] | None,
        reserve: Sequence[Reservation],
    ) -> Refused | None:
        store = self._store
        after = spend(reserve, lambda key: store.budgets.get(key, 0))
        if isinstance(after, Refused):
            return after
        if drafts and not store.put(self._drafter.stream, self._seq, drafts):
            self._failed = True
            return None
        store.blobs |= blobs or {}
        store.budgets |= after
        self._seq += len(drafts)
        self.events += [draft.event for draft in drafts]
        return None


class MemoryStore:
    """
    See `caxton_host.ports.Store`.

    Attributes:
        blobs: Kept bytes by digest.

        budgets: What is spent under each key.
    """

    def __init__(self, *, clock: Clock, entropy: Entropy) -> None:
        self.blobs: dict[str, bytes] = {}
        self.budgets: dict[str, int] = {}
        self._clock = clock
        self._salts = salts(entropy)
        self._events: list[Recorded] = []
        self._streams: dict[str, list[Recorded]] = {}
        self._runs: dict[str, RunRow] = {}

    def create(self, stream: str, trace: Trace | None = None) -> MemoryLog:
        """Return the log of a stream that has no events yet."""
        drafter = Drafter(stream, self._clock, self._salts, trace)
        return MemoryLog(self, drafter, 0)

    async def resume_log(self, stream: str, trace: Trace | None = None) -> MemoryLog:
        """
        Return the log of a stream that goes on where it ends now.

        Raises:
            NotFoundError: It has no events.
        """
        if stream not in self._streams:
            raise NotFoundError(f"there is no stream {stream!r}")
        last = self._streams[stream][-1]
        drafter = Drafter(stream, self._clock, self._salts, trace)
        drafter.recorded_at = last.recorded_at
        return MemoryLog(self, drafter, last.seq)

    async def claim(
        self, stream: str, *events: Event, after: int, trace: Trace | None = None
    ) -> MemoryLog:
        """Add *events* to a stream that no living host drives."""
        log = await self.resume_log(stream, trace)
        del after
        await log.append(*events)
        return log

    async def erase(
        self,
        run_id: str,
        stream: str,
        *before: Event,
        actor: dict[str, JSON],
        reason: str,
        bundle: dict[str, JSON] | None = None,
    ) -> RunErased:
        """
        Forget the payloads of a run that has ended, and record it.

        Raises:
            NotFoundError: There is no such run.

            NotKeptError: It was erased before.

            UsageError: It goes on.
        """
        row = self._runs.get(run_id)
        if row is None:
            raise no_run(run_id)
        if row.ended_at is None:
            raise still_going(run_id, row.state)
        line = self._streams[RUN + run_id]
        if line[0].event is None:
            raise erased_before(run_id)
        erased = RunErased(
            run=run_id,
            actor=actor,
            reason=reason,
            agent=row.agent,
            events=len(line),
            bundle=bundle,
        )
        known = stream in self._streams
        log = await self.resume_log(stream) if known else self.create(stream)
        await log.append(*before, erased)
        line[:] = [replace(recorded, event=None) for recorded in line]
        gone = {recorded.position: recorded for recorded in line}
        self._events = [gone.get(event.position, event) for event in self._events]
        self._runs[run_id] = replace(row, actor="{}")
        return erased

    async def scrub(self) -> bool:
        """Do nothing: it is gone."""
        return True

    async def erased(self) -> dict[str, RunErased]:
        """Return what was erased, by the stream of the run."""
        known = [recorded.event for recorded in self._events]
        return {RUN + e.run: e for e in known if isinstance(e, RunErased)}

    def put(self, stream: str, seq: int, drafts: Sequence[Draft]) -> bool:
        """Add *drafts* to a stream of *seq* events, unless it has others."""
        line = self._streams.get(stream, [])
        starts = sum(isinstance(draft.event, RunStarted) for draft in drafts)
        run_id = run_of(stream)
        if len(line) != seq or (run_id and starts > (run_id not in self._runs)):
            return False
        self._streams[stream] = line
        for draft in drafts:
            recorded = Recorded(
                position=len(self._events) + 1,
                stream=stream,
                seq=len(line) + 1,
                type=draft.type,
                schema_version=draft.schema_version,
                recorded_at=draft.recorded_at,
                trace_id=draft.trace_id,
                span_id=draft.span_id,
                hash=draft.hash(
                    line[-1].hash if line else GENESIS, stream, len(line) + 1
                ),
                event=draft.event,
            )
            line.append(recorded)
            self._events.append(recorded)
            self._project(stream, draft)
        return True

    def _project(self, stream: str, draft: Draft) -> None:
        run_id = run_of(stream)
        if run_id is None or draft.type not in ENDS:
            return
        if isinstance(draft.event, RunStarted):
            self._runs[run_id] = started(run_id, draft, draft.event)
        elif run_id in self._runs:
            self._runs[run_id] = replace(
                self._runs[run_id], state=ENDS[draft.type], ended_at=ended_at(draft)
            )

    async def read(self, stream: str) -> list[Recorded]:
        """Return all events of *stream*, in order; none if there is no such."""
        return list(self._streams.get(stream, ()))

    async def stream_events(
        self, stream: str | None = None, *, after: int = 0
    ) -> AsyncIterator[Recorded]:
        """Yield events in the order of their positions."""
        for event in self._events[after:]:
            if stream in {None, event.stream}:
                yield event

    async def blob(self, sha256: str) -> bytes:
        """
        Return the bytes with that digest.

        Raises:
            NotFoundError: They were never kept.
        """
        if sha256 not in self.blobs:
            raise NotFoundError(f"the log keeps no bytes with digest {sha256}")
        return self.blobs[sha256]

    async def runs(
        self, limit: int, agent: str | None = None, state: str | None = None
    ) -> list[RunRow]:
        """Return at most *limit* runs, newest first."""
        rows = [
            row
            for row in self._runs.values()
            if agent in {None, row.agent} and state in {None, row.state}
        ]
        rows.sort(key=lambda row: (row.started_at, row.run_id), reverse=True)
        return rows[:limit]

    async def find_run(self, name: str) -> str:
        """
        Return the id of the run that *name* means.

        Raises:
            NotFoundError: It means none, or more than one.
        """
        if name == "@last":
            return chosen(name, [row.run_id for row in await self.runs(1)])
        name = name.removeprefix(RUN)
        return chosen(name, sorted(r for r in self._runs if r.startswith(name)))

    async def streams(self) -> list[str]:
        """Return the names of all streams."""
        return sorted(self._streams)

    async def aclose(self) -> None:
        """Do nothing: it goes with the process."""
