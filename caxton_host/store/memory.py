"""
A store in lists, for tests and for runs whose log is not kept.

It has the parts of a store in SQL. It imports no database and uses no thread, so tests
of agents start fast, and time can be simulated.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import (
    AsyncGenerator,
    Callable,
    Collection,
    Iterable,
    Mapping,
    Sequence,
)
from dataclasses import replace

from ..core.analysis.rule_uses import Spent
from ..core.calls import JSON
from ..core.grants.budgets import Use
from ..core.grants.settlement import Correction
from ..core.log.chain import GENESIS
from ..core.log.events import (
    Event,
    Recorded,
    RunErased,
    RunHeld,
    RunReleased,
    RunStarted,
)
from ..core.log.holds import HOLDS
from ..core.log.projection import FORGOTTEN, Projection
from ..core.log.requests import Request
from ..core.log.runs import CHILD, EVERY, UNDER_WAY, Mark, RunFilter, RunRow
from ..core.log.tree import Frontier
from ..core.names import RUN, is_called, run_of, stream_of
from ..errors import CursorError, LeaseLost, NotFoundError
from ..gateway.ledger import Holder, Ledger, settle, shared_by
from ..lib.codec import sha256
from ..ports.log import Refused, Reservation, ServerProtocol, Trace
from ..ports.placement import Within
from ..ports.serving import TokenRow
from ..ports.watch import Clock
from .drafts import (
    CONFLICT,
    CONFLICT_FIX,
    Draft,
    Drafter,
    Entropy,
    check_hold,
    chosen,
    driven,
    erased_before,
    grown,
    heir_of,
    is_held,
    lineage,
    no_run,
    no_token,
    parent_of,
    salts,
    still_going,
    still_needed,
    taken,
)

_CURSOR = re.compile(r"([np])-([0-9]{1,18})", re.ASCII)
#: Between two looks for more events.
_POLL_S = 0.005


class MemoryLog:
    """
    See `caxton_host.ports.log.EventLog`. Queued events are stored at once.

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
        """Return whether the owner of this log may still send for the stream."""
        return not self._failed and self._store.holds(self._drafter.stream, self._seq)

    def leave(self) -> None:
        """Take no more events."""
        self._failed = True
        self._store.leases.left.add((run_of(self._drafter.stream), self._seq))

    def queue(
        self,
        *events: Event,
        blobs: Mapping[str, bytes] | None = None,
        correct: Sequence[Correction] = (),
    ) -> None:
        """Add *events* to the stream."""
        self._check()
        self._add(self._drafter.draft(events), blobs, (), correct)

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
        correct: Sequence[Correction] = (),
    ) -> Refused | None:
        store, stream = self._store, self._drafter.stream
        ledger = Ledger(store)
        if refused := ledger.reserve(reserve, stream):
            self._drafter.seq -= len(drafts)
            store.spend(ledger)
            return refused
        if reserve and not drafts and len(store.streams.get(stream, ())) > self._seq:
            raise LeaseLost(CONFLICT, fix=CONFLICT_FIX)
        if drafts and not store.put(stream, self._seq, drafts):
            self._failed = True
            return None
        store.blobs |= blobs or {}
        for draft in drafts:
            settle(ledger, stream, draft.event)
        ledger.correct(correct)
        store.spend(ledger)
        self._seq += len(drafts)
        self.events += [draft.event for draft in drafts]
        return None


class MemoryStore:
    """
    See `caxton_host.ports.serving.ServingStore`, and `SqlStore` for its parts.

    Attributes:
        events: Of all streams, in the order of their positions.

        streams: The same by stream.

        rows: Runs by id.

        folded: What they are made from.

        blobs: Kept bytes by digest.

        budgets: What is spent under each key.

        slots: The places that calls have, by key and holder.

        commits: Number of the last event of each transaction, by stream: where a crash
            can cut it.
    """

    def __init__(self, *, clock: Clock, entropy: Entropy) -> None:
        self.events: list[Recorded] = []
        self.streams: dict[str, list[Recorded]] = {}
        self.rows: dict[str, RunRow] = {}
        self.folded: dict[str, Projection] = {}
        self.blobs: dict[str, bytes] = {}
        self.budgets: dict[str, Use] = {}
        self.slots: dict[tuple[str, Holder], None] = {}
        self.commits: dict[str, list[int]] = {}
        self.reader = MemoryReader(self)
        self.leases = MemoryLeases(self)
        self.requests = MemoryRequests(self)
        self.definitions = MemoryDefinitions(self)
        self.server_protocols = MemoryProtocols()
        self.erasure = MemoryErasures(self)
        self.projections = MemoryProjections()
        self.holding = MemoryHolds(self)
        self.tokens = MemoryTokens(self)
        self.submissions = MemorySubmissions()
        self.health = MemoryHealth()
        self._clock = clock
        self._salts = salts(entropy)

    def create(self, stream: str, trace: Trace | None = None) -> MemoryLog:
        """Return the log of a stream that has no events yet."""
        drafter = Drafter(stream, self._clock, self._salts, trace)
        return MemoryLog(self, drafter, 0)

    async def resume_log(self, stream: str, trace: Trace | None = None) -> MemoryLog:
        """
        Return the log of a stream, to append to its end.

        Raises:
            NotFoundError: It has no events.
        """
        if stream not in self.streams:
            raise NotFoundError(f"there is no stream {stream!r}")
        last = self.streams[stream][-1]
        drafter = Drafter(stream, self._clock, self._salts, trace)
        drafter.recorded_at, drafter.seq = last.recorded_at, last.seq
        return MemoryLog(self, drafter, last.seq)

    async def enter(
        self,
        stream: str,
        *events: Event,
        blobs: Mapping[str, bytes] | None = None,
        within: Within | None = None,
    ) -> None:
        """Begin a stream that nobody drives yet."""
        if within:
            within(None)
        await self.create(stream).append(*events, blobs=blobs)

    async def claim(
        self,
        stream: str,
        *events: Event,
        after: int,
        trace: Trace | None = None,
        blobs: Mapping[str, bytes] | None = None,
    ) -> MemoryLog:
        """
        Add *events* to a stream that no living host drives, and return its log.

        Raises:
            BusyError: A living host drives it, or it has grown since it was read.

            NotFoundError: It has no events.
        """
        log = await self.resume_log(stream, trace)
        run_id = run_of(stream)
        if owner := await self.leases.owner(run_id):
            raise driven(run_id, owner)
        if len(self.streams[stream]) != after:
            raise grown(stream)
        await log.append(*events, blobs=blobs)
        return log

    def load(self, events: Iterable[Recorded], blobs: Mapping[str, bytes]) -> None:
        """Take what was recorded elsewhere, each stream in order, to be read here."""
        for one in events:
            mine = replace(one, position=len(self.events) + 1)
            self.events.append(mine)
            self.streams.setdefault(one.stream, []).append(mine)
            if run_id := run_of(one.stream):
                self._project(run_id, mine)
        self.blobs |= blobs

    async def record(self, stream: str, events: Sequence[Event]) -> None:
        """Add *events* to the end of a stream."""
        known = stream in self.streams
        log = await self.resume_log(stream) if known else self.create(stream)
        await log.append(*events)

    async def aclose(self) -> None:
        """Do nothing: it ends with the process."""

    def head(self, stream: str) -> tuple[int, bytes]:
        """Return number and hash of the last event of *stream*."""
        line = self.streams.get(stream)
        return (line[-1].seq, line[-1].hash) if line else (0, GENESIS)

    def holds(self, stream: str, seq: int) -> bool:
        """Return whether the writer of *seq* events of *stream* may send for it."""
        row = self.rows.get(run_of(stream))
        is_dead = row is not None and self.leases.is_dead(row.owner)
        return not is_dead and len(self.streams.get(stream, ())) == seq

    def put(self, stream: str, seq: int, drafts: Sequence[Draft]) -> bool:
        """Add *drafts* to a stream of *seq* events, unless it has others."""
        line = self.streams.get(stream, [])
        starts = sum(isinstance(draft.event, RunStarted) for draft in drafts)
        run_id = run_of(stream)
        row = self.rows.get(run_id)
        begun = row is not None and row.epoch > 0
        if len(line) != seq or (run_id and starts > (not begun)):
            return False
        self.streams[stream] = line
        for draft in drafts:
            previous, number = line[-1].hash if line else GENESIS, len(line) + 1
            recorded = Recorded(
                position=len(self.events) + 1,
                stream=stream,
                seq=number,
                type=draft.type,
                schema_version=draft.schema_version,
                recorded_at=draft.recorded_at,
                trace_id=draft.trace_id,
                span_id=draft.span_id,
                hash=draft.hash(previous, stream, number),
                event=draft.event,
            )
            line.append(recorded)
            self.events.append(recorded)
            if run_id:
                self._project(run_id, draft)
        self.commits.setdefault(stream, []).append(len(line))
        return True

    def _project(self, run_id: str, draft: Draft | Recorded) -> None:
        known = self.folded.setdefault(run_id, Projection(run_id))
        known.apply(draft.type, draft.event, draft.recorded_at, draft.trace_id)
        if known.row:
            self.rows[run_id] = known.row

    def now(self) -> int:
        """See `Books`."""
        return self._clock.now()

    def use(self, key: str) -> Use:
        """See `Books`."""
        return self.budgets.get(key, Use())

    def holders(self, key: str) -> list[Holder]:
        """See `Books`."""
        return [holder for known, holder in self.slots if known == key]

    async def spent(self, agent: str) -> Spent:
        """See `ServingStore.spent`."""
        first = f"{agent}/"
        uses: dict[str, Use] = {}
        places: dict[str, list[Holder]] = {}
        for key, use in self.budgets.items():
            if key.startswith(first):
                uses[key.removeprefix(first)] = use
        for key, holder in self.slots:
            if key.startswith(first):
                places.setdefault(key.removeprefix(first), []).append(holder)
        return Spent(now=self._clock.now(), uses=uses, places=places)

    async def reserve(self, items: Sequence[Reservation]) -> Refused | None:
        """See `ServingStore.reserve`."""
        ledger = Ledger(self)
        refused = ledger.reserve(items, "")
        self.spend(ledger)
        return refused

    def spend(self, ledger: Ledger) -> None:
        """Keep the outcome of a ledger."""
        self.budgets |= ledger.uses
        shared = tuple(map(shared_by, ledger.ended))
        for key in [key for key in self.budgets if key.startswith(shared)]:
            del self.budgets[key]
        for slot in [*self.slots]:
            stream, _ = holder = slot[1]
            if holder in ledger.freed or stream in ledger.ended:
                del self.slots[slot]
        self.slots |= ledger.opened


class MemoryReader:
    """
    See `caxton_host.ports.history.LogReader`.

    Attributes:
        notes: Those of checkpoints, by the size of the log.
    """

    def __init__(self, store: MemoryStore) -> None:
        self.notes: dict[int, str] = {}
        self._store = store

    async def read(self, stream: str) -> list[Recorded]:
        """Return all events of *stream*, in order; an empty list if it has none."""
        return list(self._store.streams.get(stream, ()))

    async def stream_events(
        self, stream: str | None = None, *, after: int = 0
    ) -> AsyncGenerator[Recorded]:
        """Yield events in the order of their positions."""
        store = self._store
        found = store.events if stream is None else store.streams.get(stream, ())
        for event in [event for event in found if event.position > after]:
            yield event

    async def newest(
        self, prefix: str, types: Collection[str], limit: int
    ) -> list[Recorded]:
        """Return events of *types*: newest stream first, from its end."""
        found = [
            event
            for event in self._store.events
            if event.stream.startswith(prefix) and event.type in types
        ]
        return sorted(found, key=lambda e: (e.stream, e.seq), reverse=True)[:limit]

    async def of_runs(
        self,
        types: Collection[str],
        only: RunFilter = EVERY,
        broken: Callable[[str, Exception], None] | None = None,
    ) -> AsyncGenerator[Recorded]:
        """Yield events of runs, in the order of positions. None is ever broken."""
        del broken
        for event in list(self._store.events):
            row = self._store.rows.get(run_of(event.stream))
            if event.type in types and row is not None and only.takes(row):
                yield event

    async def tail(
        self,
        after: str | None = None,
        *,
        stream: str | None = None,
        tenant: str | None = None,
        follow: bool,
        patience: float = 0.0,
    ) -> AsyncGenerator[tuple[Recorded, str]]:
        """Yield each event once, with the cursor behind it."""
        del patience
        kind = "p" if stream is None else "n"
        if after == "end":
            after = await self.end(stream)
        place = _number(after, kind, stream)
        while True:
            for event in list(self._store.events):
                number = event.position if stream is None else event.seq
                if stream in {None, event.stream} and number > place:
                    place = number
                    row = self._store.rows.get(run_of(event.stream))
                    if tenant is not None and (row is None or row.tenant != tenant):
                        continue
                    yield event, f"{kind}-{number}"
            if not follow:
                return
            await asyncio.sleep(_POLL_S)

    async def end(self, stream: str | None = None) -> str:
        """Return the cursor behind all events."""
        if stream is None:
            return f"p-{len(self._store.events)}"
        return f"n-{len(self._store.streams.get(stream, ()))}"

    async def blob(self, sha256: str) -> bytes:
        """
        Return the bytes with that digest.

        Raises:
            NotFoundError: They were never kept.
        """
        if sha256 not in self._store.blobs:
            raise NotFoundError(f"the log keeps no bytes with digest {sha256}")
        return self._store.blobs[sha256]

    async def runs(
        self,
        limit: int,
        only: RunFilter = EVERY,
        *,
        before: tuple[int, str] | None = None,
    ) -> list[RunRow]:
        """Return at most *limit* runs, newest first."""
        rows = [
            row
            for row in self._store.rows.values()
            if only.takes(row) and (before is None or _place(row) < before)
        ]
        return sorted(rows, key=_place, reverse=True)[:limit]

    async def row(self, run_id: str) -> RunRow | None:
        """Return the run with that id, or ``None``."""
        return self._store.rows.get(run_id)

    async def waiting(
        self, limit: int, only: RunFilter = EVERY, *, after: Mark | None = None
    ) -> list[tuple[Mark, RunRow]]:
        """Return places of what people are asked, and the runs."""
        found = [
            ((wait.asked_at, run_id, wait.seq), self._store.rows[run_id])
            for run_id, known in self._store.folded.items()
            for wait in known.waits
            if wait.kind != "in_doubt" and only.takes(self._store.rows[run_id])
        ]
        behind = [one for one in found if after is None or one[0] > after]
        return sorted(behind, key=lambda one: one[0])[:limit]

    async def due(self, now: int) -> dict[str, int]:
        """Return the suspended runs that may go on, and their epochs."""
        rows = self._store.rows
        stopped = [row for row in rows.values() if row.state == "suspended"]
        parents = {row.parent for row in stopped}
        return {
            row.run_id: row.epoch
            for row in stopped
            if (row.due is not None and row.due <= now)
            or (row.parent in rows and rows[row.parent].ended_at is not None)
            or (row.reason == CHILD and row.run_id not in parents)
        }

    async def next_due(self, now: int) -> int | None:
        """Return when the next suspended run is due after *now*, if one is."""
        times = [row.due or 0 for row in self._store.rows.values()]
        return min((due for due in times if due > now), default=None)

    async def going_on(self, only: RunFilter) -> int:
        """Return how many runs are queued or running; see `LogReader`."""
        rows = [row for row in self._store.rows.values() if row.state in UNDER_WAY]
        counted = (row for row in rows if row.kind != "session" and only.takes(row))
        return sum(not is_called(row.run_id) for row in counted)

    async def find_run(self, name: str) -> str:
        """
        Return the id of the run that *name* identifies.

        Raises:
            NotFoundError: It matches no run, or more than one.
        """
        if name == "@last":
            newest = await self.runs(1, RunFilter(top=True))
            return chosen(name, [row.run_id for row in newest])
        name = name.removeprefix(RUN)
        return chosen(name, sorted(r for r in self._store.rows if r.startswith(name)))

    async def streams(self) -> list[str]:
        """Return the names of all streams."""
        return sorted(self._store.streams)

    async def erased(self) -> dict[str, RunErased]:
        """Return what was erased, by the stream of the run."""
        known = [recorded.event for recorded in self._store.events]
        return {stream_of(e.run): e for e in known if isinstance(e, RunErased)}

    async def checkpoint(self, size: int | None = None) -> str | None:
        """Return the note of a checkpoint, or ``None`` if there is none."""
        if size is None:
            return self.notes[max(self.notes)] if self.notes else None
        covering = [known for known in self.notes if known >= size]
        return self.notes[min(covering)] if covering else None

    async def tree(self) -> tuple[int, bytes]:
        """Return how many events there are, and the root of the tree over them."""
        grown = Frontier()
        grown.extend(event.hash for event in self._store.events)
        return grown.size, grown.root()

    async def leaf(self, stream: str, seq: int) -> int | None:
        """Return the index of an event in the tree."""
        places = ((one.stream, one.seq) for one in self._store.events)
        return next((n for n, at in enumerate(places) if at == (stream, seq)), None)


class MemoryProjections:
    """See `caxton_host.ports.serving.Projections`."""

    async def fill(self) -> int:
        """Do nothing: no other release wrote them."""
        return 0


class MemoryLeases:
    """
    See `caxton_host.ports.log.Leases`.

    Attributes:
        joined: Hosts that are alive. Remove one, and it is dead.

        left: Runs that their host has left, and how many events they had then.
    """

    def __init__(self, store: MemoryStore) -> None:
        self.joined: set[str] = set()
        self.left: set[tuple[str, int]] = set()
        self._known: set[str] = set()
        self._store = store

    async def join(self, host: str) -> None:
        """Take the lease of *host*."""
        self.joined.add(host)
        self._known.add(host)

    def is_dead(self, host: str | None) -> bool:
        """Return whether *host* has joined, and is not alive any more."""
        return host in self._known and host not in self.joined

    async def owner(self, run_id: str) -> str | None:
        """Return the stream of the living host that drives a run, or ``None``."""
        row = self._store.rows.get(run_id)
        return row.owner if row and self._is_seen_to(row) else None

    async def hosts(self) -> list[str]:
        """Return the streams of the hosts that are alive, oldest first."""
        return sorted(self.joined)

    async def idle(self) -> list[RunRow]:
        """Return the runs under way that no living host drives, oldest first."""
        rows = await self._store.reader.runs(len(self._store.rows))
        return [
            row
            for row in reversed(rows)
            if row.state in UNDER_WAY and not self._is_seen_to(row)
        ]

    def _is_seen_to(self, row: RunRow) -> bool:
        head = row.run_id, self._store.head(stream_of(row.run_id))[0]
        return (row.owner or row.host) in self.joined and head not in self.left


class MemoryRequests:
    """See `caxton_host.ports.log.Requests`."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self._requests: dict[int, tuple[str | None, Request]] = {}
        self._outcomes: dict[int, str] = {}

    async def ask_run(
        self,
        run_id: str,
        kind: str,
        actor: dict[str, JSON],
        reason: str,
        subject: str | None = None,
    ) -> int:
        """
        Send a request to the host that drives a run, and return its number.

        Raises:
            NotFoundError: There is no such run.
        """
        if run_id not in self._store.rows:
            raise NotFoundError(f"there is no run {run_id!r}")
        return self._add(
            None,
            Request(
                id=self._next,
                run_id=run_id,
                kind=kind,
                actor=actor,
                reason=reason,
                subject=subject,
            ),
        )

    async def ask_host(
        self,
        host: str,
        kind: str,
        actor: dict[str, JSON],
        reason: str,
        subject: str | None = None,
    ) -> int:
        """Send a request to a host, and return its number."""
        return self._add(
            host,
            Request(
                id=self._next,
                run_id=None,
                kind=kind,
                actor=actor,
                reason=reason,
                subject=subject,
            ),
        )

    @property
    def _next(self) -> int:
        return len(self._requests) + 1

    def _add(self, host: str | None, request: Request) -> int:
        self._requests[request.id] = host, request
        return request.id

    async def waiting(self, host: str) -> list[Request]:
        """Return the requests to *host* without an outcome, oldest first."""
        return [
            request
            for number, (asked, request) in self._requests.items()
            if number not in self._outcomes
            and host == (asked or self._store.rows[str(request.run_id)].owner)
        ]

    async def answer(self, request_id: int, outcome: str) -> None:
        """Store the outcome of a request, unless it has one."""
        self._outcomes.setdefault(request_id, outcome)

    async def outcome(self, request_id: int) -> str | None:
        """Return the outcome of a request, or ``None`` while it has none."""
        return self._outcomes.get(request_id)

    def forget(self, run_id: str) -> None:
        """Delete what requests say of an erased run."""
        for number, (host, request) in self._requests.items():
            if request.run_id == run_id:
                bare = replace(request, actor={}, reason="", subject=None)
                self._requests[number] = host, bare


class MemoryDefinitions:
    """See `caxton_host.ports.log.Definitions`."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self._accepted: dict[tuple[str, str], str] = {}

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
        self._store.blobs |= {digests[key]: data for key, data in definitions.items()}
        self._accepted = self._accepted | digests if anew else digests | self._accepted


class MemoryProtocols:
    """See `caxton_host.ports.log.ServerProtocols`."""

    def __init__(self) -> None:
        self._protocols: dict[str, ServerProtocol] = {}

    async def protocol_of(self, key: str) -> ServerProtocol | None:
        """Return what the server with that *key* spoke, if it was met."""
        return self._protocols.get(key)

    async def learn_protocol(self, key: str, protocol: ServerProtocol) -> None:
        """Remember what a server speaks."""
        self._protocols[key] = protocol


class MemoryErasures:
    """See `Erasures`."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store

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

            UsageError: It goes on or is on hold, or a fork of it is.
        """
        store, row = self._store, self._store.rows.get(run_id)
        if row is None:
            raise no_run(run_id)
        if row.ended_at is None:
            raise still_going(run_id, row.state)
        line = store.streams[stream_of(run_id)]
        if line[0].event is None:
            raise erased_before(run_id)
        going_on = [row.run_id for row in store.rows.values() if row.ended_at is None]
        if fork := heir_of(run_id, going_on, self._parent):
            raise still_needed(run_id, fork)
        for held in store.holding.held():
            if run_id in {held, *lineage(held, self._parent)}:
                raise is_held(run_id, held)
        erased = RunErased(
            run=run_id,
            actor=actor,
            reason=reason,
            agent=row.agent,
            events=len(line),
            bundle=bundle,
        )
        await store.record(stream, [*before, erased])
        line[:] = [replace(recorded, event=None) for recorded in line]
        for recorded in line:
            store.events[recorded.position - 1] = recorded
        store.rows[run_id] = replace(row, **FORGOTTEN)
        store.requests.forget(run_id)
        store.submissions.forget(run_id)
        return erased

    def _parent(self, run_id: str) -> str | None:
        line = self._store.streams.get(stream_of(run_id))
        return parent_of(line[0].event) if line else None

    async def scrub(self) -> bool:
        """Do nothing: the data is gone."""
        return True


class MemoryHolds:
    """See `caxton_host.ports.serving.Holds`."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store

    async def record(self, event: RunHeld | RunReleased) -> None:
        """
        Put a run on hold, or release it.

        Raises:
            NotFoundError: There is no such run.

            UsageError: It is on hold already, or is not.

            NotKeptError: It was erased.
        """
        if event.run not in self._store.rows:
            raise no_run(event.run)
        first = self._store.streams[stream_of(event.run)][0]
        check_hold(event, held=event.run in self.held(), kept=first.event is not None)
        await self._store.record(HOLDS + event.run, [event])

    def held(self) -> list[str]:
        """Return the runs that are on hold."""
        return sorted(
            name.removeprefix(HOLDS)
            for name, line in self._store.streams.items()
            if name.startswith(HOLDS) and isinstance(line[-1].event, RunHeld)
        )


class MemoryTokens:
    """See `caxton_host.ports.serving.Tokens`."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self._tokens: dict[str, TokenRow] = {}

    async def find(self, token_id: str) -> TokenRow | None:
        """Return the token with that id, or ``None``."""
        return self._tokens.get(token_id)

    async def all(self) -> list[TokenRow]:
        """Return all tokens, oldest first."""
        return sorted(self._tokens.values(), key=lambda row: (row.created_at, row.id))

    async def add(self, row: TokenRow, stream: str, *events: Event) -> None:
        """
        Add a token, and *events* to a stream.

        Raises:
            UsageError: A token that is good has its name.
        """
        for one in self._tokens.values():
            if row.name == one.name != "" and one.is_good(row.created_at):
                raise taken(row.name, one.id)
        await self._store.record(stream, events)
        self._tokens[row.id] = row

    async def revoke(self, token_id: str, at: int, stream: str, *events: Event) -> None:
        """
        Note that a token is not good any more; see `add`.

        Raises:
            NotFoundError: There is none, or it is revoked already.
        """
        row = self._tokens.get(token_id)
        if row is None or row.revoked_at is not None:
            raise no_token(token_id)
        await self._store.record(stream, events)
        self._tokens[token_id] = replace(row, revoked_at=at)


class MemorySubmissions:
    """See `caxton_host.ports.serving.Submissions`."""

    def __init__(self) -> None:
        self._submissions: dict[tuple[str, str], tuple[str, str]] = {}

    async def register(
        self, principal: str, key: str, digest: str, run_id: str
    ) -> tuple[str, str]:
        """Assign *run_id* to *key*, unless it has another run already."""
        return self._submissions.setdefault((principal, key), (digest, run_id))

    def forget(self, run_id: str) -> None:
        """Delete the keys of an erased run."""
        for key in [k for k, (_, run) in self._submissions.items() if run == run_id]:
            del self._submissions[key]


class MemoryHealth:
    """See `caxton_host.ports.serving.Health`."""

    async def check(self) -> None:
        """Return: nothing can be wrong."""


def _place(row: RunRow) -> tuple[int, str]:
    return row.started_at, row.run_id


def _number(after: str | None, kind: str, stream: str | None) -> int:
    if after is None:
        return 0
    match = _CURSOR.fullmatch(after)
    if match is None or match[1] != kind:
        raise CursorError(
            f"{after!r} is not a cursor of {stream or 'all streams'}",
            fix="give one that was printed, or none",
        )
    return int(match[2])
