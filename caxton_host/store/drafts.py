"""
What all stores have in common: stamp events, salt payloads, list runs, and refuse.

This module knows no database, so the store in memory cannot drift from the one in SQL.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import repeat
from typing import NamedTuple, TypeAlias

from ..core.log.chain import SALT_SIZE, envelope, event_hash, payload_digest
from ..core.log.events import (
    Event,
    RunHeld,
    RunReleased,
    RunStarted,
    from_payload,
    to_payload,
)
from ..core.names import run_of
from ..errors import (
    BadBytes,
    BusyError,
    LogBrokenError,
    NotFoundError,
    NotKeptError,
    StoreError,
    UsageError,
)
from ..lib.codec import decode_trusted, encode
from ..ports.log import Trace
from ..ports.watch import Clock

#: Gives that many random bytes: `os.urandom`.
Entropy: TypeAlias = Callable[[int], bytes]

LOOK = "run `caxton audit verify`"
CONFLICT = "another host drives this run now"
CONFLICT_FIX = "see what it does with `caxton events tail RUN`"

_AT_ONCE = 256
_UNTRACED = (None, None)
_LONGEST_NAME = 255
_SHOWN = 5


class Draft(NamedTuple):
    """An event that is stamped and salted, but has no number in its stream yet."""

    type: str
    schema_version: int
    recorded_at: int
    trace_id: str | None
    span_id: str | None
    digest: bytes
    salt: bytes
    payload: bytes
    event: Event

    def hash(self, previous: bytes, stream: str, seq: int) -> bytes:
        """Return its hash as number *seq*, after the hash *previous*."""
        return event_hash(previous, envelope(stream, seq, *self[:5]), self.digest)


class Drafter:
    """
    Stamps and salts the events of one stream.

    Attributes:
        stream: Its name.

        recorded_at: The newest time stamp; it never decreases.

        seq: The number of the newest event, once all drafts are stored.
    """

    def __init__(
        self, stream: str, clock: Clock, salts: Iterator[bytes], trace: Trace | None
    ) -> None:
        if not 0 < len(stream.encode()) <= _LONGEST_NAME:
            raise StoreError("the name of a stream has 1 to 255 bytes")
        self.stream = stream
        self.recorded_at = 0
        self.seq = 0
        self._clock = clock
        self._salts = salts
        self._trace = trace

    def draft(self, events: Sequence[Event]) -> list[Draft]:
        """
        Return *events* as they will be stored.

        Raises:
            StoreError: One of them has no stored form; none was stamped.
        """
        if not events:
            return []
        try:
            payloads = [encode(to_payload(event)) for event in events]
        except BadBytes as exc:
            raise StoreError(f"an event cannot be stored: {exc}") from None
        at = self.recorded_at = max(self._clock.now(), self.recorded_at)
        traced = self._trace(self.seq + 1, events) if self._trace else repeat(_UNTRACED)
        self.seq += len(events)
        drafts: list[Draft] = []
        for event, payload, (trace_id, span_id) in zip(
            events, payloads, traced, strict=False
        ):
            salt = next(self._salts)
            digest = payload_digest(salt, payload)
            name, version = type(event).__name__, event.schema
            drafts.append(
                Draft(
                    name, version, at, trace_id, span_id, digest, salt, payload, event
                )
            )
        return drafts


def salts(entropy: Entropy) -> Iterator[bytes]:
    """
    Yield an endless sequence of salts, each used once.

    They are drawn many at a time: one system call for each would add a twentieth to the
    cost of an event.
    """
    while True:
        drawn = entropy(SALT_SIZE * _AT_ONCE)
        for start in range(0, len(drawn), SALT_SIZE):
            yield drawn[start : start + SALT_SIZE]


def chosen(name: str, matches: Sequence[str]) -> str:
    """
    Return the run that *name* identifies.

    Args:
        name: As the operator wrote it.

        matches: Run ids with that prefix; a few are enough.

    Raises:
        NotFoundError: It matches no run, or more than one.
    """
    if name in matches or len(matches) == 1:
        return name if name in matches else matches[0]
    see = "list the runs with `caxton runs list`"
    if not matches:
        raise NotFoundError(f"there is no run {name!r}", fix=see)
    shown = ", ".join(matches[:_SHOWN])
    more = ", ..." if len(matches) > _SHOWN else ""
    raise NotFoundError(
        f"{name!r} is a prefix of more than one run: {shown}{more}",
        fix="write more of the run id",
    )


def parent_of(started: Event | None) -> str | None:
    """Return the run that a run was forked from, by its first event."""
    fork = started.forked_from if isinstance(started, RunStarted) else None
    return str(fork["run"]) if fork else None


def event_in(stream: str, seq: int, type_: str, version: int, payload: bytes) -> Event:
    """
    Return an event from stored columns.

    Raises:
        LogBrokenError: It was changed, or a later version wrote it.
    """
    try:
        return from_payload(type_, version, decode_trusted(payload))
    except (ValueError, TypeError, AttributeError, LogBrokenError) as exc:
        raise LogBrokenError(
            f"event {seq} of {stream} cannot be read: {exc}",
            fix=getattr(exc, "fix", "") or LOOK,
        ) from None


def parent_in(type_: str, version: int, payload: bytes) -> str | None:
    """Return the same from stored columns; ``None`` if the first event is damaged."""
    try:
        return parent_of(from_payload(type_, version, decode_trusted(payload)))
    except (LogBrokenError, ValueError, TypeError, KeyError, AttributeError):
        return None


def heir_of(
    run_id: str, going_on: Iterable[str], parent: Callable[[str], str | None]
) -> str | None:
    """
    Return the first of the runs *going_on* that descends from a run.

    Args:
        run_id: The run.

        going_on: Their ids.

        parent: Returns the run that a run was forked from.
    """
    return next((one for one in going_on if run_id in lineage(one, parent)), None)


def lineage(run_id: str, parent: Callable[[str], str | None]) -> Sequence[str]:
    """Return the ancestors of a run, its parent first."""
    found: list[str] = []
    one = parent(run_id)
    while one is not None and one not in found:
        found.append(one)
        one = parent(one)
    return found


def no_run(run_id: str) -> NotFoundError:
    """Return the error for a run that does not exist."""
    return NotFoundError(f"there is no run {run_id!r}", fix="caxton runs list")


def still_going(run_id: str, state: str) -> UsageError:
    """Return the error for the erasure of a run that has not ended."""
    return UsageError(
        f"run {run_id} is {state}, and needs its log to go on",
        fix="wait for its end, or end it; then erase it",
    )


def still_needed(run_id: str, fork: str) -> UsageError:
    """Return the error for the erasure of a run that a fork needs."""
    return UsageError(
        f"run {fork} was forked from run {run_id}, and needs its log to go on",
        fix="wait for the end of the fork, or end it; then erase",
    )


def is_held(run_id: str, held: str) -> UsageError:
    """Return the error for the erasure of a run that is on hold, or a fork of it."""
    which = f"run {held}" if held == run_id else f"run {held}, a fork of run {run_id},"
    return UsageError(
        f"{which} is on hold, and nothing of it may be erased",
        fix=f"caxton runs show {held} says why; caxton runs release {held}",
    )


def check_hold(event: RunHeld | RunReleased, *, held: bool, kept: bool) -> None:
    """
    Return if a run can be held, or released.

    Args:
        event: What is to be recorded.

        held: Whether the run is on hold.

        kept: Whether it still has its payloads.

    Raises:
        UsageError: It is on hold already, or is not.

        NotKeptError: It was erased.
    """
    if held is isinstance(event, RunHeld):
        raise UsageError(
            f"run {event.run} is {'' if held else 'not '}on hold",
            fix=f"caxton runs show {event.run}",
        )
    if not kept:
        raise erased_before(event.run)


def erased_before(run_id: str) -> NotKeptError:
    """Return the error for a second erasure of a run."""
    return NotKeptError(
        f"run {run_id} was erased before", fix="caxton audit verify shows what is left"
    )


def payload_missing(stream: str) -> LogBrokenError:
    """Return the error for a payload that is missing without an erasure."""
    return LogBrokenError(
        f"a payload of {stream} is missing, and no event says that it was erased",
        fix="caxton audit verify",
    )


def driven(run_id: str, owner: str) -> BusyError:
    """Return the error for a takeover from a host that is alive."""
    return BusyError(
        f"{owner} drives run {run_id}",
        fix=f"wait for it, or stop it with `caxton runs cancel {run_id}`",
    )


def grown(stream: str) -> BusyError:
    """Return the error for a stream that has grown since it was read."""
    return BusyError(
        f"run {run_of(stream)} has grown since it was read",
        fix=f"caxton runs show {run_of(stream)}; then repeat the command",
    )


def no_token(token_id: str) -> NotFoundError:
    """Return the error for the revocation of a token that is not valid."""
    return NotFoundError(
        f"there is no token {token_id!r} that could be revoked",
        fix="caxton serve token list",
    )


def taken(name: str, token_id: str) -> UsageError:
    """Return the error for a token with the name of a valid one."""
    return UsageError(
        f"the valid token {token_id} has the name {name!r} already",
        fix=f"choose another name, or type caxton serve token revoke {token_id}",
    )
