"""
Exporting runs: as a bundle with its proof, or as lines with their context.

For bundles see `core.log.bundle`. Lines are exported in constant memory.
"""

from __future__ import annotations

import asyncio
import json
from bisect import bisect_right
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import cast

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError

from ..core.calls import JSON
from ..core.grants.forks import MAX_LINEAGE
from ..core.log.bundle import Earlier, Erasure, Header, Part, Sealed, write_bundle
from ..core.log.checkpoint import Note
from ..core.log.events import (
    Recorded,
    ToolInvoked,
    blobs_of,
    code_of,
    from_payload,
    outcome_of,
)
from ..core.log.runs import (
    NAMING,
    ExportFilter,
    ExportLine,
    OpenCalls,
    call_of,
    outcome_word,
)
from ..core.log.tree import PART, inclusion, part_root, prove_growth, prove_in_parts
from ..core.names import run_of, stream_of
from ..errors import LogBrokenError, NotFoundError
from ..lib.codec import decode_trusted
from ..ports.history import History
from .database import Columns, Query, rows
from .diagnosis import unreadable
from .drafts import payload_missing
from .erasure import RecordedErasure, erasures
from .places import Place, key_of, order_of, place_columns
from .reader import Reader
from .schema import ENVELOPE, blobs, events, payloads

_FIELDS = tuple(Sealed.__dataclass_fields__)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stream:
    """
    The beginning of a stream.

    Attributes:
        place: The sort key of its last event in the log.

        started: The payload of its first event.

        erased: The erasure of its payloads, if they were erased.
    """

    name: str
    events: Sequence[Sealed]
    place: tuple[int, ...]
    started: Mapping[str, JSON]
    erased: RecordedErasure | None


async def export(
    reader: Reader,
    run_id: str,
    note: Note,
    public_key: bytes,
    *,
    since: Sequence[Note] = (),
) -> bytes:
    """
    Return the bundle of a run.

    Args:
        reader: Of its database.

        run_id: The run.

        note: A checkpoint that covers it.

        public_key: Of the signer of the checkpoint.

        since: Older checkpoints of the same log, to prove that the log only grew.

    Raises:
        NotFoundError: There is no such run.

        LogBrokenError: The log is not what was signed.
    """
    return await Exporter(reader).bundle(run_id, note, public_key, since=since)


class Exporter:
    """
    Exports runs, one at a time.

    The hashes of the log are read once: of the next runs, those that came since.

    Args:
        reader: Of their database.
    """

    def __init__(self, reader: Reader) -> None:
        self._engine = reader.engine
        self._tree = _Tree(reader.engine)

    async def bundle(
        self,
        run_id: str,
        note: Note,
        public_key: bytes,
        *,
        since: Sequence[Note] = (),
        code: bool = True,
    ) -> bytes:
        """Return the bundle of a run; see `export`. *code*: with what it executed."""
        work = _Export(self._engine, note, self._tree, code=code)
        try:
            return await asyncio.to_thread(work.bundle, run_id, public_key, since)
        except DBAPIError as exc:
            raise unreadable(exc) from None

    async def growth(self, old: int, new: int) -> tuple[bytes, ...]:
        """
        Return the proof that the first *new* events begin with the first *old*.

        Raises:
            LogBrokenError: The log has fewer.
        """
        try:
            return await asyncio.to_thread(self._tree.growth, old, new)
        except DBAPIError as exc:
            raise unreadable(exc) from None


class _Tree:
    """
    The tree over the log, as the roots of its parts.

    To prove an event, only its own part is read.

    Args:
        engine: Of the database.
    """

    def __init__(self, engine: sa.Engine) -> None:
        self._engine = engine
        self._size = self._held = 0
        self._roots: list[bytes] = []
        self._first: list[Place] = []

    def grow(self, size: int) -> None:
        """Read what came since, up to *size* events."""
        if size == self._size:
            return
        if size < self._size:
            del self._first[size // PART + 1 :], self._roots[size // PART + 1 :]
        start = self._first[-1] if self._first else (0,) * len(order_of(self._engine))
        # The last one may not have been whole.
        del self._first[-1:], self._roots[-1:]
        self._size = size
        while (done := PART * len(self._roots)) < size:
            if not (page := self._read(start, min(PART, size - done))):
                return
            self._held = done + len(page)
            self._first.append(page[0][1])
            self._roots.append(part_root(hash_ for hash_, _ in page))
            *before, position = page[-1][1]
            start = (*before, position + 1)

    def growth(self, old: int, new: int) -> tuple[bytes, ...]:
        """Return the proof of `tree.prove_growth`."""
        self.grow(new)
        if self._held < new:
            raise _strange()

        def part(number: int) -> list[bytes]:
            count = min(PART, new - PART * number)
            return [hash_ for hash_, _ in self._read(self._first[number], count)]

        return tuple(prove_growth(self._roots, part, old, new))

    def prove(self, place: Place) -> tuple[int, tuple[bytes, ...]]:
        """
        Return the number and the proof of the event at a place.

        Raises:
            LogBrokenError: It is not one of these events.
        """
        part = bisect_right(self._first, place) - 1
        if part >= 0:
            behind = self._size - PART * part
            page = self._read(self._first[part], min(PART, behind))
            for at, (_, one) in enumerate(page, PART * part):
                if one == place:
                    hashes = (hash_ for hash_, _ in page)
                    return at, tuple(prove_in_parts(self._roots, hashes, at))
        raise _strange()

    def _read(self, start: Place, limit: int) -> list[tuple[bytes, Place]]:
        """Return hash and place of at most *limit* events from a place on."""
        columns = order_of(self._engine)
        query = sa.select(events.c.hash, *place_columns(self._engine))
        query = query.where(sa.tuple_(*columns) >= key_of(start)).order_by(*columns)
        with self._engine.connect() as connection:
            found = rows(connection, query.limit(limit))
            return [(hash_, tuple(map(int, place))) for hash_, *place in found]


def _strange() -> LogBrokenError:
    return LogBrokenError(
        "the log is not the one that was signed",
        fix="caxton audit verify says where",
    )


class _Export:
    def __init__(
        self, engine: sa.Engine, note: Note, tree: _Tree, *, code: bool
    ) -> None:
        self._engine = engine
        self._note = note
        self._code = code
        self._tree = tree

    def bundle(self, run_id: str, public_key: bytes, since: Sequence[Note]) -> bytes:
        streams = self._lineage(run_id)
        kept = self._blobs(streams)
        parts = self._parts(streams)
        self._check(streams, parts)
        header = Header(
            run=run_id,
            checkpoint=self._note.text().encode(),
            key=public_key,
            parts=parts,
            earlier=tuple(self._earlier(old) for old in since),
            blobs=len(kept),
        )
        every = (event for stream in streams for event in _lines(stream))
        return b"".join(write_bundle(header, every, kept))

    def _parts(self, streams: Sequence[_Stream]) -> tuple[Part, ...]:
        places = [stream.place for stream in streams]
        places += [_place(stream.erased) for stream in streams if stream.erased]
        self._tree.grow(self._note.checkpoint.size)
        found = [self._tree.prove(place) for place in places]
        recorded = iter(found[len(streams) :])
        return tuple(
            Part(
                stream=stream.name,
                events=len(stream.events),
                index=index,
                proof=proof,
                erased=_erasure(stream.erased, *next(recorded))
                if stream.erased
                else None,
            )
            for stream, (index, proof) in zip(streams, found, strict=False)
        )

    def _lineage(self, run_id: str) -> list[_Stream]:
        """Return the streams that the run needs, its own last."""
        found = [self._stream(run_id, None)]
        while isinstance(origin := found[0].started.get("forked_from"), dict):
            if len(found) > MAX_LINEAGE:
                raise LogBrokenError(f"run {run_id} is forked from itself")
            parent = self._stream(str(origin["run"]), cast("int", origin["seq"]))
            found.insert(0, parent)
        return found

    def _stream(self, run_id: str, last: int | None) -> _Stream:
        name = stream_of(run_id)
        query = (
            sa.select(
                *ENVELOPE[1:],
                events.c.hash,
                payloads.c.salt,
                payloads.c.payload,
                events.c.digest,
                *place_columns(self._engine),
            )
            .join_from(events, payloads, isouter=True)
            .where(events.c.stream == name)
            .order_by(events.c.seq)
        )
        if last is not None:
            query = query.where(events.c.seq <= last)
        found = self._rows(query)
        if not found:
            raise NotFoundError(f"no run {run_id}", fix="caxton runs list shows them")
        sealed = [Sealed(**dict(zip(_FIELDS, row, strict=False))) for row in found]
        first = sealed[0].payload
        return _Stream(
            name=name,
            events=sealed,
            place=tuple(map(int, found[-1][len(_FIELDS) :])),
            started=decode_trusted(first) if first is not None else {},
            erased=self._erased(name, sealed),
        )

    def _erased(self, name: str, sealed: Sequence[Sealed]) -> RecordedErasure | None:
        with self._engine.connect() as connection:
            found = erasures(connection, *place_columns(self._engine)).get(name)
        if found is None:
            if any(event.payload is None for event in sealed):
                raise payload_missing(name)
        elif any(event.payload is not None for event in sealed[: found.event.events]):
            raise LogBrokenError(
                f"{name} was erased, but has a payload",
                fix="caxton audit verify",
            )
        return found

    def _check(self, streams: Sequence[_Stream], parts: Sequence[Part]) -> None:
        """Check every proof before it is exported."""
        signed = self._note.checkpoint
        for stream, part in zip(streams, parts, strict=True):
            said = [(stream.events[-1].hash, part.index, part.proof)]
            if stream.erased and part.erased:
                event = _sealed(stream.erased)
                said.append((event.hash, part.erased.index, part.erased.proof))
            for last, index, proof in said:
                if inclusion(last, index, signed.size, proof) != signed.root:
                    raise _strange()

    def _earlier(self, old: Note) -> Earlier:
        size = old.checkpoint.size
        if not 0 < size <= self._note.checkpoint.size:
            raise LogBrokenError(
                f"the older checkpoint is of {size} events, the log has "
                f"{self._note.checkpoint.size}",
                fix="caxton audit verify --checkpoint",
            )
        return Earlier(
            checkpoint=old.text().encode(),
            proof=self._tree.growth(size, self._note.checkpoint.size),
        )

    def _blobs(self, streams: Sequence[_Stream]) -> list[bytes]:
        """Return the blobs that the events name, as far as they are kept."""
        every = {
            digest for s in streams for digest in _digests(s.events, code=self._code)
        }
        found: list[bytes] = []
        for digest in sorted(every):
            query = sa.select(blobs.c.bytes).where(blobs.c.sha256 == digest)
            found += [data for (data,) in self._rows(query)]
        return found

    def _rows(self, query: Query) -> list[Columns]:
        with self._engine.connect() as connection:
            return list(rows(connection, query))


def _lines(stream: _Stream) -> Iterator[Sealed]:
    yield from stream.events
    if stream.erased:
        yield _sealed(stream.erased)


def _sealed(erased: RecordedErasure) -> Sealed:
    return Sealed(**dict(zip(_FIELDS, erased.columns[1:], strict=False)))


def _place(erased: RecordedErasure) -> tuple[int, ...]:
    return tuple(map(int, erased.columns[1 + len(_FIELDS) :]))


def _erasure(erased: RecordedErasure, index: int, proof: tuple[bytes, ...]) -> Erasure:
    return Erasure(
        stream=erased.columns[0], previous=erased.previous, index=index, proof=proof
    )


#: Types of events that name blobs.
_NAMING = frozenset({"RunQueued", "RunStarted", "ToolCompleted"})


def _digests(events: Sequence[Sealed], *, code: bool) -> Iterator[str]:
    for sealed in events:
        if sealed.payload is not None and sealed.type in _NAMING:
            payload = decode_trusted(sealed.payload)
            event = from_payload(sealed.type, sealed.schema_version, payload)
            yield from blobs_of(event) - (set() if code else code_of(event))


async def lines(log: History, wanted: ExportFilter) -> AsyncGenerator[ExportLine]:
    """
    Yield the wanted lines, in the order of positions; calls in doubt at the end.

    Memory holds only open calls: their tools, and the lines that are wanted if the
    calls stay open.

    Raises:
        LogBrokenError: An event was changed.
    """
    calls, waiting = OpenCalls(), dict[tuple[str, int | None], ExportLine]()
    doubts = "in_doubt" in wanted.outcomes
    found = log.attributed(
        wanted.stream,
        since=wanted.since,
        # What ended later than that is not in doubt.
        until=None if doubts else wanted.until,
        agent=wanted.agent,
    )
    async with aclosing(found) as events:
        async for recorded, agent, actor in events:
            if not calls.knows(recorded):
                await look_up(log, calls, recorded)
            line = line_of(recorded, agent, actor, calls.tool(recorded))
            if wanted.takes(line):
                yield line
            key = recorded.stream, call_of(recorded)
            if line.outcome is not None:
                waiting.pop(key, None)
            elif doubts and isinstance(recorded.event, ToolInvoked):
                waiting[key] = line
    for line in waiting.values():
        if wanted.concerns(line):
            yield line


def line_of(
    recorded: Recorded, agent: str | None, actor: str | None, tool: str | None
) -> ExportLine:
    """Return an event with what its run and its call say; *actor* is JSON."""
    end = outcome_of(recorded.event) if recorded.event else None
    who = cast("dict[str, JSON]", json.loads(actor)) if actor else None
    return ExportLine(
        recorded=recorded,
        run=run_of(recorded.stream) or None,
        agent=agent,
        actor=who or None,
        tool=tool,
        outcome=outcome_word(end[1]) if end else None,
    )


async def look_up(log: History, calls: OpenCalls, wanted: Recorded) -> None:
    """Find the tool of a call that began before the first line."""
    number = call_of(wanted)
    async with aclosing(log.stream_events(wanted.stream)) as events:
        async for recorded in events:
            event = recorded.event
            if isinstance(event, NAMING) and event.call == number:
                calls.learn(wanted.stream, event)
                return
