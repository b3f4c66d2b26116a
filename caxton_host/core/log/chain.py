"""
The hash chain of each stream, and the check of it.

    digest = SHA-256(salt || payload)
    hash   = SHA-256(previous hash || envelope || digest)

The envelope is the msgpack array ``[1, stream, seq, type, schema version,
recorded_at, trace id, span id]``. It has one fixed form, so it is encoded here byte by
byte (https://github.com/msgpack/msgpack/blob/master/spec.md). The first event of a
stream follows 32 zero bytes. Salt and payload can be deleted; digest and hash stay and
still verify.

The chain alone shows an edit, and an event that is missing, doubled or moved inside
its stream. It cannot show a chain that was computed again, a tail that was cut off, a
deleted stream, or events moved across streams. Signed checkpoints of the tree show
these if one of them is kept where the forger cannot write.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from typing import Any, Literal, NamedTuple

from ..names import run_of
from .checkpoint import Checkpoint

GENESIS = bytes(32)
SALT_SIZE = 16

_BEGIN = bytes((0x98, 1))
_NIL = b"\xc0"
_NILS = _NIL + _NIL
_LONG = struct.Struct(">BQ").pack
_LATE = 1 << 32  # numbers from here on take eight bytes: usually times


def payload_digest(salt: bytes, payload: bytes) -> bytes:
    """Return the digest of a payload, which is kept when the payload is erased."""
    return hashlib.sha256(salt + payload).digest()


def event_hash(previous: bytes, head: bytes, digest: bytes) -> bytes:
    """Return the hash of an event from the one before it."""
    return hashlib.sha256(previous + head + digest).digest()


def envelope(  # noqa: PLR0913, PLR0917 -- its fields are what it binds
    stream: str,
    seq: int,
    type_: str,
    schema_version: int,
    recorded_at: int,
    trace_id: str | None = None,
    span_id: str | None = None,
) -> bytes:
    """
    Return the bytes of an envelope.

    >>> envelope("run/1", 1, "RunStarted", 1, 0).hex()
    '9801a572756e2f3101aa52756e537461727465640100c0c0'
    """
    ids = _NILS
    if trace_id or span_id:
        ids = (_text(trace_id) if trace_id else _NIL) + (
            _text(span_id) if span_id else _NIL
        )
    at = _LONG(0xCF, recorded_at) if recorded_at >= _LATE else _number(recorded_at)
    return b"".join(
        (_begin(stream), _number(seq), _kind(type_, schema_version), at, ids)
    )


# Cached, since streams and types repeat with every event.
@lru_cache(maxsize=2048)
def _begin(stream: str) -> bytes:
    return _BEGIN + _text(stream)


# Typed: a database may return an equal value of another type, which was never written.
@lru_cache(maxsize=256, typed=True)
def _kind(type_: str, schema_version: int) -> bytes:
    return _text(type_) + _number(schema_version)


def _text(value: str) -> bytes:
    raw = value.encode()
    if len(raw) < 32:  # noqa: PLR2004 -- fixstr
        return bytes((0xA0 | len(raw),)) + raw
    if len(raw) < 256:  # noqa: PLR2004 -- str 8
        return bytes((0xD9, len(raw))) + raw
    raise ValueError("an envelope holds short names only")


def _number(value: int) -> bytes:
    if value >= _LATE:
        return _LONG(0xCF, value)
    if value < 0x80:  # noqa: PLR2004 -- positive fixint
        return bytes((value,))
    if value < 0x100:  # noqa: PLR2004 -- uint 8
        return struct.pack(">BB", 0xCC, value)
    if value < 0x10000:  # noqa: PLR2004 -- uint 16
        return struct.pack(">BH", 0xCD, value)
    return struct.pack(">BI", 0xCE, value)


#: Further faults are not reported.
MAX_FAULTS = 20


_MISSING = "its payload is missing"
_RESTORED = "its run was erased, and its payload is there"


class Gone(NamedTuple):
    """
    The missing payloads of a stream.

    Attributes:
        first: The number of the first event without a payload.

        last: The number of the last one.

        total: The number of such events.

        leading: The number of them at the beginning of the stream, without a gap.
    """

    first: int
    last: int
    total: int
    leading: int


class Stored(NamedTuple):
    """The columns of an event, unchecked."""

    stream: Any
    seq: Any
    type: Any
    schema_version: Any
    recorded_at: Any
    trace_id: Any
    span_id: Any
    digest: Any
    hash: Any
    salt: Any
    payload: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """
    A difference between the stored log and the written one.

    Attributes:
        kind: ``payload``: a payload or its salt was edited; ``envelope``: another field
            was edited; ``column``: a column has a value that is never written;
            ``missing``: an event is missing; ``rewritten``: events were rewritten with
            their chain, or a run was removed; ``moved``: events were probably moved
            across runs; ``removed``: events were removed and later ones moved up;
            ``cut``: the tail was removed; ``checkpoint``: a checkpoint is forged, or of
            another log; ``tree``: the stored tree differs; ``blob``: a blob was edited
            or removed; ``token``: the row of a caller's token is not what its events
            say; ``lineage``: a fork does not match its parent; ``form``: a file
            is not a bundle.

        stream: The stream, if the fault is in one.

        seq: The number of the event in it.
    """

    kind: str
    message: str
    stream: str | None = None
    seq: int | None = None

    def __str__(self) -> str:
        return f"{self.stream} event {self.seq}: " * bool(self.stream) + self.message


@dataclass(frozen=True, slots=True, kw_only=True)
class Signer:
    """
    The signer of the newest checkpoint.

    Attributes:
        public_key: Its key, by the log or the bundle; ``None``: unknown.

        trusted: The key is pinned.
    """

    public_key: bytes | None
    trusted: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """
    The result of a check of a log or a bundle.

    Attributes:
        streams: The number of streams that were checked.

        events: The number of events that were checked.

        faults: The faults; those in streams first.

        checkpoint: The newest valid checkpoint.

        signer: Its signer; ``None`` if there is no checkpoint.

        behind: The number of events after *checkpoint*. Only their chain covers them.

        erased: The number of events with erased payloads. The chain has their digests.

        erased_runs: The ids of their runs.

        lag: The number of events that a copy lacks of those signed elsewhere.

        before: The number of first events that were verified before, and not again.
    """

    streams: int
    events: int
    faults: tuple[Fault, ...] = ()
    checkpoint: Checkpoint | None = None
    signer: Signer | None = None
    behind: int = 0
    erased: int = 0
    erased_runs: tuple[str, ...] = ()
    lag: int = 0
    before: int = 0

    @property
    def verdict(self) -> Literal["intact", "broken", "signer_unknown"]:
        """The verdict. It is ``intact`` only with a checkpoint of a pinned key."""
        if self.faults:
            return "broken"
        trusted = self.signer is not None and self.signer.trusted
        is_empty = not self.events and not self.before
        return "intact" if trusted or is_empty else "signer_unknown"

    @property
    def first_bad(self) -> tuple[str, int, str] | None:
        """Stream, number and reason of the first bad event, if it is in a stream."""
        for fault in self.faults:
            if fault.stream is not None and fault.seq is not None:
                return fault.stream, fault.seq, fault.message
        return None


class Chains:
    """
    Checks the chains of interleaved streams, each in the order of its events.

    After a bad event the rest of its stream is counted, but not checked.

    Args:
        erasable: Whether the payloads of a stream may be erased.

    Attributes:
        events: The number of events that were checked.

        erased: The missing payloads of erasable streams, by stream.

        faults: The first fault of each bad stream.
    """

    def __init__(self, erasable: Callable[[str], bool] = lambda _: False) -> None:
        self.events = 0
        self.erased: dict[str, Gone] = {}
        self.faults: list[Fault] = []
        self._erasable = erasable
        self._heads: dict[Any, tuple[int, bytes] | None] = {}
        # The number of the last event that was checked before, by stream.
        self._before: dict[Any, int] = {}

    @property
    def streams(self) -> int:
        """The number of streams that were checked."""
        return len(self._heads)

    @property
    def missing(self) -> int:
        """The number of events with erased payloads."""
        return sum(gone.total for gone in self.erased.values())

    @property
    def erased_runs(self) -> tuple[str, ...]:
        """The ids of the runs with erased payloads, sorted."""
        return tuple(sorted(run_of(stream) for stream in self.erased))

    def go_on(self, rows: Collection[Sequence[Any]]) -> None:
        """
        Go on with streams that were checked before, in front of `check`.

        Args:
            rows: Those of `check`; the last column of each is the hash of the event
                before it in its stream, or ``None``.
        """
        for row in rows:
            stream, seq, previous = row[0], row[1], row[-1]
            if stream in self._before:
                continue
            self._before[stream] = 0
            if isinstance(seq, int) and previous:
                self._heads[stream] = seq - 1, previous
                self._before[stream] = seq - 1

    def excuse(self, known: Mapping[str, int]) -> None:
        """
        Report missing payloads that no recorded erasure explains.

        An erasure removes the payloads of a whole stream. So if only some are missing,
        they were removed or restored in another way.

        Args:
            known: The number of first events that were erased, by stream.
        """
        for stream, gone in list(self.erased.items()):
            head = self._heads[stream]
            allowed = min(known.get(stream, 0), head[0] if head else 0)
            if gone.last > allowed:
                del self.erased[stream]
                self._bad_payload(stream, max(gone.first, allowed + 1), _MISSING)
            elif gone.total < allowed - self._before.get(stream, 0):
                del self.erased[stream]
                self._bad_payload(stream, gone.leading + 1, _RESTORED)

    def refuse_restored(self, known: Collection[str]) -> None:
        """Report the streams of *known*, erased before the check, with payloads."""
        for stream in known:
            if stream not in self.erased and self._heads.get(stream):
                self._bad_payload(stream, 1, _RESTORED)

    def check(self, rows: Collection[Sequence[Any]]) -> None:
        """Check more events: rows with the fields of `Stored`, and any others after."""
        self.events += len(rows)
        heads, beginning = self._heads, (0, GENESIS)
        for row in rows:
            stream, seq, type_, version, at, trace, span = row[:7]
            digest, hash_, salt, payload = row[7:11]
            head = heads.get(stream, beginning)
            if head is None:
                continue
            # Inline, since this runs for each of millions of events.
            try:
                head_ = envelope(stream, seq, type_, version, at, trace, span)
                sound = (
                    sha256(salt + payload).digest() == digest
                    and sha256(head[1] + head_ + digest).digest() == hash_
                    and seq == head[0] + 1
                    # A longer salt could take its last bytes from the payload.
                    and len(salt) == SALT_SIZE
                )
            except (TypeError, ValueError, AttributeError, struct.error):
                sound = False
            if sound:
                heads[stream] = seq, hash_
            else:
                heads[stream] = self._look(Stored(*row[:11]), head)

    def _look(self, row: Stored, head: tuple[int, bytes]) -> tuple[int, bytes] | None:
        """Return the new head of the stream if the event was erased, else report it."""
        fault = self._fault(row, head[0] + 1, head[1])
        if fault is None:
            first, _, count, leading = self.erased.get(
                row.stream, Gone(row.seq, 0, 0, self._before.get(row.stream, 0))
            )
            leading += row.seq == leading + 1
            self.erased[row.stream] = Gone(first, row.seq, count + 1, leading)
            return row.seq, row.hash
        self._bad(fault)
        return None

    def _bad_payload(self, stream: str, seq: int, message: str) -> None:
        if self._heads[stream] is not None:
            self._heads[stream] = None
            self._bad(Fault(kind="payload", message=message, stream=stream, seq=seq))

    def _bad(self, fault: Fault) -> None:
        if len(self.faults) < MAX_FAULTS:
            self.faults.append(fault)

    def _fault(self, row: Stored, seq: int, previous: bytes) -> Fault | None:
        stream = str(row.stream)
        if row.salt is None and row.payload is None and self._erasable(stream):
            kind, text = _reason(row, seq, previous, row.digest)
        else:
            kind, text = _reason(row, seq, previous, None)
        return Fault(kind=kind, message=text, stream=stream, seq=seq) if kind else None


def _reason(
    row: Stored, seq: int, previous: bytes, digest: bytes | None
) -> tuple[str, str]:
    """Return the kind and the text of the fault, or two empty texts."""
    if row.seq != seq:
        return "missing", f"event {seq} is missing: the next is {row.seq}"
    try:
        if digest is None:
            if row.payload is None:
                return "payload", _MISSING
            digest = payload_digest(row.salt, row.payload)
            if digest != row.digest or len(row.salt) != SALT_SIZE:
                return "payload", "its payload is not what was written"
        if event_hash(previous, envelope(*row[:7]), digest) != row.hash:
            return "envelope", "it is not what was written, or not where"
    except (TypeError, ValueError, AttributeError, struct.error):
        return "column", "a column holds what is never written there"
    return "", ""
