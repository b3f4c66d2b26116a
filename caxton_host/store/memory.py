"""A store in lists, for tests and for runs nobody needs to keep."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import replace

from ..core.calls import JSON
from ..core.log.chain import GENESIS
from ..core.log.events import Event, Recorded, RunErased, RunStarted
from ..core.log.runs import ENDS, RunRow
from ..core.names import RUN, run_of, stream_of
from ..errors import LeaseLost, NotFoundError
from ..lib.codec import sha256
from ..ports import Clock, Era, Refused, Reservation, Trace
from .drafts import (
    CONFLICT,
    CONFLICT_FIX,
    Draft,
    Drafter,
    Entropy,
    change,
    chosen,
    salts,
    started,
)
from .erasure import erased_before, no_run, still_going, still_needed
from .ledger import Holder, Ledger, Use, settle
from .lineage import heir_of, parent_of
from .memory_hosts import MemoryHosts
from .memory_serving import MemoryServing
from .takeover import driven, grown


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

    @property
    def head(self) -> tuple[int, bytes]:
        """Number and hash of the newest event."""
        return self._store.head(self._drafter.stream)

    def holds(self) -> bool:
        """Return whether who has this log may still send for the stream."""
        return not self._failed and self._store.holds(self._drafter.stream, self._seq)

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
            raise LeaseLost(CONFLICT, fix=CONFLICT_FIX)

    def _add(
        self,
        drafts: Sequence[Draft],
        blobs: Mapping[str, bytes] | None,
        reserve: Sequence[Reservation],
    ) -> Refused | None:
        store, stream = self._store, self._drafter.stream
        ledger = Ledger(store)
        if refused := ledger.reserve(reserve, stream):
            self._drafter.seq -= len(drafts)
            return refused
        if drafts and not store.put(stream, self._seq, drafts):
            self._failed = True
            return None
        store.blobs |= blobs or {}
        for draft in drafts:
            settle(ledger, stream, draft.event)
        store.spend(ledger)
        self._seq += len(drafts)
        self.events += [draft.event for draft in drafts]
        return None


class MemoryStore(MemoryHosts, MemoryServing):
    """
    See `caxton_host.ports.Store`.

    Attributes:
        blobs: Kept bytes by digest.

        budgets: What is spent under each key.

        slots: The places that calls have, by key and holder.

        commits: Number of the last event of each transaction, by stream: where a
            crash can leave it.
    """

    def __init__(self, *, clock: Clock, entropy: Entropy) -> None:
        super().__init__()
        self.blobs: dict[str, bytes] = {}
        self.budgets: dict[str, Use] = {}
        self.slots: dict[tuple[str, Holder], None] = {}
        self.commits: dict[str, list[int]] = {}
        self._clock = clock
        self._salts = salts(entropy)
        self._streams: dict[str, list[Recorded]] = {}
        self._accepted: dict[tuple[str, str], str] = {}
        self._eras: dict[str, Era] = {}

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
        drafter.recorded_at, drafter.seq = last.recorded_at, last.seq
        return MemoryLog(self, drafter, last.seq)

    def head(self, stream: str) -> tuple[int, bytes]:
        """Return number and hash of the last event of *stream*."""
        line = self._streams.get(stream)
        return (line[-1].seq, line[-1].hash) if line else (0, GENESIS)

    def holds(self, stream: str, seq: int) -> bool:
        """Return whether who has written *seq* events of *stream* may send for it."""
        row = self._runs.get(run_of(stream))
        owner = row.owner if row else None
        is_dead = owner in self._known and owner not in self.joined
        return not is_dead and len(self._streams.get(stream, ())) == seq

    async def claim(
        self, stream: str, *events: Event, after: int, trace: Trace | None = None
    ) -> MemoryLog:
        """
        Add *events* to a stream that no living host drives, and return its log.

        Raises:
            BusyError: A living host drives it, or it has grown meanwhile.

            NotFoundError: It has no events.
        """
        log = await self.resume_log(stream, trace)
        run_id = run_of(stream)
        if owner := await self.owner(run_id):
            raise driven(run_id, owner)
        if len(self._streams[stream]) != after:
            raise grown(stream)
        await log.append(*events)
        return log

    async def accepted(self, servers: Collection[str]) -> dict[tuple[str, str], str]:
        """Return the digests of accepted definitions, by ``(server, tool)``."""
        return {
            key: value for key, value in self._accepted.items() if key[0] in servers
        }

    async def accept(
        self,
        definitions: Mapping[tuple[str, str], bytes],
        actor: dict[str, JSON],
        *,
        anew: bool = False,
    ) -> None:
        """Accept *definitions* of tools, and keep them by digest."""
        del actor
        digests = {key: sha256(data) for key, data in definitions.items()}
        self.blobs |= {digests[key]: data for key, data in definitions.items()}
        old = {} if anew else self._accepted
        self._accepted |= {**digests, **{k: v for k, v in old.items() if k in digests}}

    async def era(self, key: str) -> Era | None:
        """Return what the server with that *key* spoke, if it was met."""
        return self._eras.get(key)

    async def learn_era(self, key: str, era: Era) -> None:
        """Remember what a server speaks."""
        self._eras[key] = era

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

            UsageError: It goes on, or a fork of it does.
        """
        row = self._runs.get(run_id)
        if row is None:
            raise no_run(run_id)
        if row.ended_at is None:
            raise still_going(run_id, row.state)
        line = self._streams[stream_of(run_id)]
        if line[0].event is None:
            raise erased_before(run_id)
        going_on = [row.run_id for row in self._runs.values() if row.ended_at is None]
        if fork := heir_of(run_id, going_on, self._parent):
            raise still_needed(run_id, fork)
        erased = RunErased(
            run=run_id,
            actor=actor,
            reason=reason,
            agent=row.agent,
            events=len(line),
            bundle=bundle,
        )
        await self._record(stream, [*before, erased])
        line[:] = [replace(recorded, event=None) for recorded in line]
        gone = {recorded.position: recorded for recorded in line}
        self._events = [gone.get(event.position, event) for event in self._events]
        self._runs[run_id] = replace(row, actor="{}")
        for number, asked in self._requests.items():
            if asked.run_id == run_id:
                self._requests[number] = replace(asked, actor={}, reason="")
        self._forget(run_id)
        return erased

    async def _record(self, stream: str, events: Sequence[Event]) -> None:
        known = stream in self._streams
        log = await self.resume_log(stream) if known else self.create(stream)
        await log.append(*events)

    def _parent(self, run_id: str) -> str | None:
        line = self._streams.get(stream_of(run_id))
        return parent_of(line[0].event) if line else None

    async def scrub(self) -> bool:
        """Do nothing: it is gone."""
        return True

    async def erased(self) -> dict[str, RunErased]:
        """Return what was erased, by the stream of the run."""
        known = [recorded.event for recorded in self._events]
        return {stream_of(e.run): e for e in known if isinstance(e, RunErased)}

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
        self.commits.setdefault(stream, []).append(len(line))
        return True

    def now(self) -> int:
        """Return the time, by the clock of the budgets."""
        return self._clock.now()

    def use(self, key: str) -> Use:
        """Return what is spent of a budget."""
        return self.budgets.get(key, Use())

    def holders(self, key: str) -> list[Holder]:
        """Return who has a place of a budget."""
        return [holder for known, holder in self.slots if known == key]

    def spend(self, ledger: Ledger) -> None:
        """Keep what a ledger says."""
        self.budgets |= ledger.uses
        for slot in [*self.slots]:
            stream, _ = holder = slot[1]
            if holder in ledger.freed or stream in ledger.ended:
                del self.slots[slot]
        self.slots |= ledger.opened

    def _project(self, stream: str, draft: Draft) -> None:
        run_id = run_of(stream)
        if not run_id or draft.type not in ENDS:
            return
        if isinstance(draft.event, RunStarted):
            self._runs[run_id] = started(run_id, draft, draft.event)
        elif run_id in self._runs:
            self._runs[run_id] = change(draft).of(self._runs[run_id])

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

    async def row(self, run_id: str) -> RunRow | None:
        """Return the run with that id, or ``None``."""
        return self._runs.get(run_id)

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
