"""
Bundles: read under bounds, checked against pinned keys, and used as a store.

A bundle of another machine is not interpreted until `check_bundle` has found it intact.
"""

from __future__ import annotations

import stat
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import IO, NoReturn, cast

from ..core.calls import JSON
from ..core.log.bundle import (
    MAX_HEADER,
    MAX_LINE,
    Bundle,
    Earlier,
    Erasure,
    Part,
    Sealed,
    parse_bundle,
)
from ..core.log.chain import (
    Chains,
    Fault,
    Signer,
    Verdict,
    envelope,
    event_hash,
    payload_digest,
)
from ..core.log.checkpoint import Note, parse_note
from ..core.log.events import (
    Event,
    Recorded,
    RunErased,
    RunQueued,
    RunStarted,
)
from ..core.log.tree import inclusion, is_consistent
from ..core.names import RUN
from ..errors import BadBytes, NotFoundError, StoreError, UsageError
from ..lib.codec import decode_trusted
from ..lib.signing import judge
from ..ports.log import EventLog, Trace
from ..ports.placement import Within
from .drafts import event_in

#: Bytes of a bundle, which is kept in memory.
MAX_BUNDLE = 1 << 30


def read_bundle(path: Path) -> Bundle:
    """
    Return the bundle in a file.

    Raises:
        UsageError: It is no file, too large, or of a later version.

        BadBytes: It holds no bundle.
    """
    found = path.stat()  # first: to open a pipe is to wait for its other end
    if not stat.S_ISREG(found.st_mode) or found.st_size > MAX_BUNDLE:
        raise UsageError(
            f"{path.name} is not a file of at most {MAX_BUNDLE} bytes",
            fix="name a file that caxton audit export wrote",
        )
    with path.open("rb") as file:
        return parse_bundle(_lines(file))


def _lines(file: IO[bytes]) -> Iterator[bytes]:
    yield file.readline(MAX_HEADER + 1)
    yield from iter(partial(file.readline, MAX_LINE + 1), b"")


def check_bundle(
    bundle: Bundle, trusted: Collection[bytes], outside: Sequence[Note] = ()
) -> Verdict:
    """
    Verify a bundle, and return its faults and its signer.

    Args:
        bundle: As `read_bundle` returns it.

        trusted: Public keys that are known from elsewhere. The key in the bundle is not
            trusted.

        outside: Checkpoints that were kept elsewhere.
    """
    check = _Check(bundle)
    header = bundle.header
    note, own = check.note(header.checkpoint, trusted)
    if note is not None:
        for earlier in header.earlier:
            check.earlier(earlier, note, trusted)
        for other in outside:
            check.outside(other, note, trusted)
    for part, events in zip(header.parts, bundle.events, strict=True):
        check.part(part, events, note)
    check.erasures(note)
    if own and not check.faults and not check.chains.faults:
        check.lineage()
        check.erased()
    return Verdict(
        streams=check.chains.streams,
        events=check.chains.events,
        faults=(*check.chains.faults, *check.faults),
        checkpoint=note.checkpoint if note else None,
        signer=Signer(public_key=header.key, trusted=own),
        erased=check.chains.missing,
        erased_runs=check.chains.erased_runs,
    )


class _Check:
    def __init__(self, bundle: Bundle) -> None:
        self.bundle = bundle
        self.chains = Chains(erasable=lambda _: True)
        self.faults: list[Fault] = []

    def fault(self, kind: str, message: str, part: Part | None = None) -> None:
        """Add a fault."""
        stream, seq = (part.stream, part.events) if part else (None, None)
        self.faults.append(Fault(kind=kind, message=message, stream=stream, seq=seq))

    def note(self, data: bytes, trusted: Collection[bytes]) -> tuple[Note | None, bool]:
        """Return a checkpoint, unless it is forged, and whether it is trusted."""
        try:
            note = parse_note(data)
        except BadBytes as exc:
            self.fault("checkpoint", str(exc))
            return None, False
        own = judge(note, trusted)
        if own == "forged" or judge(note, [self.bundle.header.key]) != "trusted":
            size = note.checkpoint.size
            self.fault("checkpoint", f"the checkpoint of {size} events is forged")
            return None, False
        return note, own == "trusted"

    def earlier(self, earlier: Earlier, note: Note, trusted: Collection[bytes]) -> None:
        """Check that the log only grew since a checkpoint that is in the bundle."""
        old, _ = self.note(earlier.checkpoint, trusted)
        if old is not None and not _grew(old, note, earlier.proof):
            self.fault("rewritten", _rewritten(old))

    def outside(self, other: Note, note: Note, trusted: Collection[bytes]) -> None:
        """Compare with a checkpoint that was kept elsewhere, as far as possible."""
        size = other.checkpoint.size
        if judge(other, trusted) != "trusted":
            self.fault(
                "checkpoint", f"the checkpoint of {size} events is of no trusted key"
            )
        elif other.checkpoint.origin != note.checkpoint.origin:
            self.fault(
                "checkpoint", f"the checkpoint of {size} events is of another log"
            )
        elif other.checkpoint == note.checkpoint:
            return
        elif size == note.checkpoint.size:
            self.fault("rewritten", _rewritten(other))
        elif not any(
            earlier.checkpoint.startswith(other.signed)
            for earlier in self.bundle.header.earlier
        ):
            self.fault(
                "checkpoint",
                f"the bundle does not say how it follows the checkpoint of {size} "
                "events: have it exported with --since that file",
            )

    def part(self, part: Part, events: Sequence[Sealed], note: Note | None) -> None:
        """Check the chain of a stream, and its place in the tree."""
        before = len(self.chains.faults)
        self.chains.check([_row(part.stream, event) for event in events])
        if note is None or len(self.chains.faults) > before:
            return
        size = note.checkpoint.size
        root = inclusion(events[-1].hash, part.index, size, part.proof)
        if root != note.checkpoint.root:
            self.fault(
                "rewritten",
                f"the checkpoint of {size} events does not hold it",
                part,
            )

    def erasures(self, note: Note | None) -> None:
        """Check that missing payloads are of a stream with an erasure in the log."""
        chains, known = self.chains, dict[str, int]()
        for part, event in zip(
            self.bundle.header.parts, self.bundle.erasures, strict=True
        ):
            if part.erased is None or event is None:
                continue
            gone = chains.erased.get(part.stream)
            known[part.stream] = gone.last if gone else part.events
            if note is not None and not _holds(note, part.index, part.erased, event):
                self.fault(
                    "payload", "the log does not hold what records its erasure", part
                )
        chains.refuse_restored(known)
        chains.excuse(known)

    def erased(self) -> None:
        """Check that each erasure is of its stream, and of as many events."""
        for part, event in zip(
            self.bundle.header.parts, self.bundle.erasures, strict=True
        ):
            if event is None or event.payload is None:
                continue
            known = _payload(event.payload, {})
            total, count = self.chains.erased[part.stream].total, known.get("events")
            if (
                known.get("run") != part.stream.removeprefix(RUN)
                or type(count) is not int
                or min(count, part.events) != total
            ):
                self.fault("payload", "its erasure is of something else", part)

    def lineage(self) -> None:
        """
        Check that each stream was forked from the one before it.

        This is the first time that a payload is read: everything else was verified.
        """
        before: tuple[Part, Sealed] | None = None
        for part, events in zip(
            self.bundle.header.parts, self.bundle.events, strict=True
        ):
            wanted = before and {
                "run": before[0].stream.removeprefix(RUN),
                "seq": before[1].seq,
                "hash": before[1].hash.hex(),
            }
            if self._forked_from(part, events[0]) != wanted:
                self.fault(
                    "lineage", "it is not forked from what comes before it", part
                )
            before = part, events[-1]

    def _forked_from(self, part: Part, first: Sealed) -> object:
        if first.payload is None and part == self.bundle.header.parts[0]:
            return None  # erased: nothing says that it was forked
        if first.type == RunQueued.__name__:
            return None
        if first.type != RunStarted.__name__ or first.payload is None:
            return False
        return _payload(first.payload, {"forked_from": False}).get("forked_from")


def _payload(data: bytes, otherwise: Mapping[str, JSON]) -> Mapping[str, JSON]:
    """Return the map that a signed payload is, or *otherwise*."""
    try:
        known = decode_trusted(data)
    except (ValueError, TypeError, RecursionError):
        return otherwise
    return cast("Mapping[str, JSON]", known) if isinstance(known, dict) else otherwise


def _holds(note: Note, after: int, place: Erasure, event: Sealed) -> bool:
    """Return whether the log has *event* at that place, behind the leaf *after*."""
    try:
        head = envelope(place.stream, event.seq, *_envelope(event))
        digest = payload_digest(event.salt or b"", event.payload or b"")
    except ValueError:
        return False
    checkpoint = note.checkpoint
    return (
        event.type == RunErased.__name__
        and place.index > after
        and digest == event.digest
        and event_hash(place.previous, head, digest) == event.hash
        and inclusion(event.hash, place.index, checkpoint.size, place.proof)
        == checkpoint.root
    )


def _row(stream: str, event: Sealed) -> tuple[object, ...]:
    return (
        stream,
        event.seq,
        *_envelope(event),
        event.digest,
        event.hash,
        event.salt,
        event.payload,
    )


def _envelope(event: Sealed) -> tuple[str, int, int, str | None, str | None]:
    return (
        event.type,
        event.schema_version,
        event.recorded_at,
        event.trace_id,
        event.span_id,
    )


def _grew(old: Note, new: Note, proof: Sequence[bytes]) -> bool:
    before, after = old.checkpoint, new.checkpoint
    return before.origin == after.origin and is_consistent(
        before.size, before.root, after.size, after.root, proof
    )


def _rewritten(old: Note) -> str:
    return (
        f"the log does not begin with the {old.checkpoint.size} events that were signed"
    )


class BundleStore:
    """The run of a verified bundle, with its ancestors, as a store that is read."""

    def __init__(self, bundle: Bundle) -> None:
        self._streams: Mapping[str, tuple[Part, Sequence[Sealed]]] = {
            part.stream: (part, events)
            for part, events in zip(bundle.header.parts, bundle.events, strict=True)
        }
        self._blobs = bundle.blobs
        self._erasures = [
            _recorded(part.erased.stream, event, part.erased.index)
            for part, event in zip(bundle.header.parts, bundle.erasures, strict=True)
            if part.erased and event
        ]

    def recorded(self) -> Iterator[Recorded]:
        """Yield all events, and the erasures of those whose payloads are missing."""
        for name, (part, events) in self._streams.items():
            yield from (_recorded(name, event, part.index) for event in events)
        yield from self._erasures

    def create(self, stream: str, trace: Trace | None = None) -> EventLog:
        """Refuse: a bundle takes no events."""
        del trace
        _refuse(stream)

    async def enter(
        self,
        stream: str,
        *events: Event,
        blobs: Mapping[str, bytes] | None = None,
        within: Within | None = None,
    ) -> None:
        """Refuse: a bundle takes no events."""
        del events, blobs, within
        _refuse(stream)

    async def claim(
        self,
        stream: str,
        *events: Event,
        after: int,
        trace: Trace | None = None,
        blobs: Mapping[str, bytes] | None = None,
    ) -> EventLog:
        """Refuse: a bundle takes no events."""
        del events, after, trace, blobs
        _refuse(stream)

    async def read(self, stream: str) -> list[Recorded]:
        """
        Return the events of *stream* that are in the bundle, in order.

        Raises:
            LogBrokenError: A later version wrote one of them.
        """
        if stream not in self._streams:
            return []
        part, events = self._streams[stream]
        return [_recorded(stream, event, part.index) for event in events]

    async def blob(self, sha256: str) -> bytes:
        """
        Return the bytes with that digest.

        Raises:
            NotFoundError: They are not in the bundle.
        """
        if sha256 not in self._blobs:
            raise NotFoundError(f"the bundle has no bytes with digest {sha256}")
        return self._blobs[sha256]


def _refuse(stream: str) -> NoReturn:
    raise StoreError(f"{stream} is in a bundle, which takes no events")


def _recorded(stream: str, event: Sealed, last: int) -> Recorded:
    known = None
    if event.payload is not None:
        known = event_in(
            stream, event.seq, event.type, event.schema_version, event.payload
        )
    return Recorded(
        position=last + 1,
        stream=stream,
        seq=event.seq,
        type=event.type,
        schema_version=event.schema_version,
        recorded_at=event.recorded_at,
        trace_id=event.trace_id,
        span_id=event.span_id,
        hash=event.hash,
        event=known,
    )
