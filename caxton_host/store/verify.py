"""
Verifying a log in one pass: every hash from the stored columns, and the tree over them.

The tree is compared with every root that the log is claimed to have had: the one that
the writer stored, the checkpoints of the database, and those that were kept elsewhere.
Claims come in the order of their sizes, as the events do. Only the end of each stream
and the frontier of the tree are held in memory. Nothing is written and no key is made;
a read-only copy is enough.
"""

from __future__ import annotations

import asyncio
import hashlib
import heapq
import sqlite3
from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from contextlib import (
    AbstractContextManager,
    closing,
    contextmanager,
    nullcontext,
)
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Any, TypeAlias, TypeVar

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError, OperationalError

from ..core.log.chain import MAX_FAULTS, Chains, Fault, Signer, Stored, Verdict
from ..core.log.checkpoint import Checkpoint, Note, origin_of, parse_note
from ..core.log.tree import Frontier
from ..core.names import RUN
from ..errors import BadBytes
from ..lib.signing import Judged, judge
from .database import Columns, Query, rows
from .diagnosis import unreadable
from .erasure import erased_runs
from .merkle_process import Apart
from .reader import Reader
from .schema import blobs, checkpoints, events, payloads, tree, xid
from .token_rows import token_faults

_T = TypeVar("_T")
Told: TypeAlias = Callable[[int], None]

_AT_ONCE = 1000
#: Events whose check takes longer than the start of a process.
LARGE = 50_000
_WIDTH = len(Stored._fields)
_HASH, _TIME = 8, 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """
    A place up to which a log was verified.

    Attributes:
        tree: Over the events up to there.

        origin: Of the log.

        position: Of the last of these events; on PostgreSQL with its transaction.
    """

    tree: Frontier
    origin: str
    position: int
    xid: str = ""


def untold(_events: int) -> None:
    """Tell nobody."""


async def verify(
    reader: Reader,
    stream: str | None = None,
    *,
    trusted: Collection[bytes] = (),
    outside: Sequence[Note] = (),
    copy: bool = False,
) -> Verdict:
    """
    Check the whole log, or one stream and its place in the log.

    Args:
        reader: Of the database.

        stream: Only its events are checked; of all others, only the hashes are read.

        trusted: Public keys that are known from elsewhere.

        outside: Checkpoints that were kept elsewhere.

        copy: The log is a copy, which may lag behind these.

    Raises:
        LogBrokenError: The database itself is damaged.

        StoreError: Its server cannot be reached.
    """
    found = verify_since(
        reader, None, stream, trusted=trusted, outside=outside, copy=copy
    )
    return (await found)[0]


async def verify_since(  # noqa: PLR0913 -- what `verify` is given
    reader: Reader,
    since: Place | None,
    stream: str | None = None,
    *,
    trusted: Collection[bytes] = (),
    outside: Sequence[Note] = (),
    copy: bool = False,
    told: Told = untold,
) -> tuple[Verdict, Place | None]:
    """
    Check what comes behind a place, and return where a trusted checkpoint ends now.

    The events of that part, their chains, and the tree that grows from the known one
    are checked as by `verify`. Payloads, envelopes and blobs from before are not read
    again: who changes them in place is not noticed.

    Args:
        reader: See `verify`.

        since: Where the log was verified before; ``None``: nowhere.

        stream: See `verify`; not with *since*.

        trusted: See `verify`.

        outside: The same; of sizes before that place, they were compared then.

        copy: See `verify`.

        told: Called in a thread with how many events are verified by then. What it
            raises ends the verification.
    """
    least = since.tree.size if since else 0
    outside = [note for note in outside if note.checkpoint.size >= least]
    look = partial(_look, reader.engine, stream, trusted, outside, since, copy=copy)
    look = partial(look, told=lambda events: told(least + events))
    return await asyncio.to_thread(_verify, look)


def _verify(look: Callable[..., _T]) -> _T:
    try:
        try:
            return look(lenient=False)
        except (sqlite3.OperationalError, OperationalError) as exc:
            cause = exc.orig if isinstance(exc, OperationalError) else exc
            if not isinstance(cause, sqlite3.Error) or hasattr(
                cause, "sqlite_errorcode"
            ):
                raise
            # The driver's own error for text that is not UTF-8. Lenient reading is
            # slower.
            return look(lenient=True)
    except (DBAPIError, sqlite3.Error) as exc:
        raise unreadable(exc) from None


def _look(  # noqa: PLR0913 -- what `verify` was given
    engine: sa.Engine,
    stream: str | None,
    trusted: Collection[bytes],
    outside: Sequence[Note],
    since: Place | None,
    *,
    copy: bool,
    told: Told,
    lenient: bool,
) -> tuple[Verdict, Place | None]:
    shared = engine.dialect.name == "postgresql"
    order = [xid, events.c.position] if shared else [events.c.position]
    behind = [_behind(order, since)] if since else []
    chains = Chains(erasable=_is_run)
    with (
        _connected(engine, lenient=lenient) as before,
        # Read first: a checkpoint that is signed meanwhile would look like a cut log.
        closing(_claims(before, since)) as said,
        _connected(engine, lenient=lenient) as connection,
        _tree(connection, since) as grown,
    ):
        ordered = claims(said, outside, trusted)
        roots = Roots(ordered, grown, numbered=not shared, copy=copy, since=since)
        # A run may be erased during the scan: only runs that were erased before it may
        # have no payload, and only after it all erasures are known.
        restorable = erased_runs(connection, *behind)
        if stream is None:
            _whole(connection, order, chains, roots, behind, told)
        else:
            _one(connection, stream, order, chains, roots)
        if chains.erased:
            known = erased_runs(connection, *behind)
            chains.excuse({name: one.events for name, one in known.items()})
        chains.refuse_restored(restorable)
        faults = [*chains.faults, *([] if since else _blobs(connection))]
        if stream is None:
            with closing(token_faults(connection)) as found:
                faults += islice(found, MAX_FAULTS)
        verdict = roots.verdict(chains, faults)
        return verdict, _placed(connection, roots.place, shared=shared)


def _behind(
    order: Sequence[sa.ColumnElement[Any]], place: Place
) -> sa.ColumnElement[bool]:
    first = [sa.cast(place.xid, xid.type)] if place.xid else []
    return sa.tuple_(*order) > sa.tuple_(*first, sa.literal(place.position))


def _placed(
    connection: sa.Connection, place: Place | None, *, shared: bool
) -> Place | None:
    """Return a place with its transaction."""
    if place is None or not shared:
        return place
    query = sa.select(sa.cast(xid, sa.Text)).select_from(events)
    (row,) = rows(connection, query.where(events.c.position == place.position))
    return replace(place, xid=row[0])


def _tree(
    connection: sa.Connection, since: Place | None
) -> AbstractContextManager[Frontier | Apart]:
    """Return the tree to grow, in this process for few events."""
    (last,) = next(rows(connection, sa.select(sa.func.max(events.c.position))))
    start, position = (since.tree, since.position) if since else (Frontier(), 0)
    large = isinstance(last, int) and last - position > LARGE
    return Apart(start) if large else nullcontext(start.copy())


def _is_run(stream: str) -> bool:
    return stream.startswith(RUN)


def _whole(  # noqa: PLR0913, PLR0917 -- the parts of one pass
    connection: sa.Connection,
    order: Sequence[sa.ColumnElement[Any]],
    chains: Chains,
    roots: Roots,
    behind: Sequence[sa.ColumnElement[bool]],
    told: Told,
) -> None:
    query = _stored().add_columns(events.c.position).order_by(*order)
    if behind:
        one = events.alias()
        previous = (
            sa.select(one.c.hash)
            .where(one.c.stream == events.c.stream, one.c.seq == events.c.seq - 1)
            .scalar_subquery()
        )
        query = query.where(*behind).add_columns(previous)
    for page in _pages(connection, query):
        if behind:
            chains.go_on(page)
        chains.check(page)
        roots.add(
            [row[_HASH] for row in page],
            [row[_TIME] for row in page],
            [row[_WIDTH] for row in page],
        )
        told(chains.events)


def _one(
    connection: sa.Connection,
    stream: str,
    order: Sequence[sa.ColumnElement[Any]],
    chains: Chains,
    roots: Roots,
) -> None:
    query = _stored().where(events.c.stream == stream)
    for page in _pages(connection, query.order_by(events.c.seq, events.c.position)):
        chains.check(page)
    every = sa.select(events.c.hash, events.c.recorded_at, events.c.position)
    for page in _pages(connection, every.order_by(*order)):
        hashes, times, positions = zip(*page, strict=True)
        roots.add(hashes, times, positions)


def _stored() -> Query:
    source = events.outerjoin(payloads)
    columns = (source.c[_name(field)] for field in Stored._fields)
    return sa.select(*columns).select_from(source)


def _pages(connection: sa.Connection, query: Query) -> Iterator[list[Columns]]:
    driver = connection.connection.driver_connection
    if not isinstance(driver, sqlite3.Connection):
        with closing(rows(connection, query)) as found:
            while page := list(islice(found, _AT_ONCE)):
                yield page
        return
    # Through SQLAlchemy each row costs a third of its check.
    compiled = query.compile(dialect=connection.dialect)
    values = [compiled.params[name] for name in compiled.positiontup or ()]
    with closing(driver.execute(str(compiled), values)) as cursor:
        while page := cursor.fetchmany(_AT_ONCE):
            yield page


def _claims(connection: sa.Connection, since: Place | None) -> Generator[Claim]:
    """Return the roots that the database claims, in the order of sizes."""
    least = since.tree.size if since else 0
    grown = sa.select(tree.c.size, tree.c.frontier)
    (size, frontier) = next(rows(connection, grown), (0, b""))
    signed = sa.select(
        checkpoints.c.size, checkpoints.c.note, checkpoints.c.public_key
    ).where(checkpoints.c.size >= least)
    signed = signed.order_by(checkpoints.c.size, checkpoints.c.id)
    found = rows(connection, signed)
    first = next(found, None)
    return _merged(Claim.of_tree(size, frontier), first, found)


def _merged(
    own: Claim, first: Columns | None, found: Iterator[Columns]
) -> Generator[Claim]:
    waiting: Claim | None = own
    for columns in ([] if first is None else [first]), found:
        for size, note, key in columns:
            claim = Claim.of_row(size, note, key)
            if waiting is not None and waiting.size <= claim.size:
                yield waiting
                waiting = None
            yield claim
    if waiting is not None:
        yield waiting


def _blobs(connection: sa.Connection) -> list[Fault]:
    bad: list[str] = []
    for digest, data in rows(connection, sa.select(blobs.c.sha256, blobs.c.bytes)):
        if not isinstance(data, bytes) or hashlib.sha256(data).hexdigest() != digest:
            bad = bad or [str(digest)]
    text = "the bytes kept as {} were changed"
    return [Fault(kind="blob", message=text.format(digest)) for digest in bad]


@contextmanager
def _connected(engine: sa.Engine, *, lenient: bool) -> Generator[sa.Connection]:
    """Return a connection; *lenient*, it reads text that is not UTF-8, as if forged."""
    with engine.connect() as connection:
        driver = connection.connection.driver_connection
        if lenient and isinstance(driver, sqlite3.Connection):
            driver.text_factory = _decoded
        try:
            yield connection
        finally:
            connection.invalidate()


def _name(field: str) -> str:
    return f"payloads_{field}" if field in payloads.c else f"events_{field}"


def _decoded(raw: bytes) -> str:
    return raw.decode(errors="surrogateescape")


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """
    A claim of the root over the first *size* events of the log.

    Attributes:
        note: A checkpoint; without, the writer's own tree.

        root: Of the tree.

        public_key: The key that a checkpoint of the database names.

        judged: Whether its signer is trusted.

        fault: Why it is not valid.
    """

    size: int
    note: Note | None = None
    root: bytes = b""
    public_key: bytes | None = None
    judged: Judged = "unknown"
    fault: str = ""

    @property
    def is_outside(self) -> bool:
        """Whether it was kept outside the database."""
        return self.note is not None and self.public_key is None

    @classmethod
    def of_tree(cls, size: object, frontier: object) -> Claim:
        """Return the claim of the tree that the writer stored."""
        if isinstance(size, int) and isinstance(frontier, bytes):
            try:
                return cls(size=size, root=Frontier.parse(size, frontier).root())
            except ValueError:
                pass
        return cls(size=0, fault="the stored tree of the log is not valid")

    @classmethod
    def of_row(cls, size: object, data: object, key: object) -> Claim:
        """Return the claim of a row of checkpoints."""
        known = size if isinstance(size, int) else 0
        try:
            note = parse_note(data if isinstance(data, bytes) else b"")
        except BadBytes as exc:
            return cls(size=known, fault=f"a checkpoint of {known} events: {exc}")
        owner = key if isinstance(key, bytes) else b""
        if note.checkpoint.size != size or judge(note, [owner]) != "trusted":
            return cls(size=known, fault=f"the checkpoint of {known} events is forged")
        return cls(size=known, note=note, root=note.checkpoint.root, public_key=owner)


def claims(
    found: Iterator[Claim], outside: Sequence[Note], trusted: Collection[bytes]
) -> Iterator[Claim]:
    """Yield all claims in the order of their sizes, judged."""
    kept = [
        Claim(size=note.checkpoint.size, note=note, root=note.checkpoint.root)
        for note in outside
    ]
    kept.sort(key=lambda claim: claim.size)
    for claim in heapq.merge(found, kept, key=lambda claim: claim.size):
        if claim.note is None:
            yield claim
            continue
        yield Claim(
            size=claim.size,
            note=claim.note,
            root=claim.root,
            public_key=claim.public_key,
            judged=judge(claim.note, trusted),
        )


class Roots:
    """
    Grows the tree, and checks each claim when its size is reached.

    Args:
        claims: In the order of their sizes.

        tree: The tree to grow.

        numbered: The positions of the log have no gaps.

        copy: The log is a copy: checkpoints that were kept elsewhere may be ahead of
            it.

        since: Where *tree* begins.
    """

    def __init__(
        self,
        claims: Iterator[Claim],
        tree: Frontier | Apart,
        *,
        numbered: bool,
        copy: bool = False,
        since: Place | None = None,
    ) -> None:
        self._claims = claims
        self._next = next(claims, None)
        self._numbered = numbered
        self._copy = copy
        self._tree = tree
        self._origin = since.origin if since else None
        self._last = self._at = since.position if since else 0
        self._time = 0
        self._backwards = 0
        self._true = self._before = tree.size
        self._false: tuple[int, int, int] | None = None
        self._faults: list[Fault] = []
        self._newest: Checkpoint | None = None
        self._unknown: Claim | None = None
        self._newest_at: tuple[Frontier, int] | None = None
        self._asked: tuple[Claim, int, int, Callable[[], Frontier]] | None = None

    def add(
        self, hashes: Sequence[Any], times: Sequence[Any], positions: Sequence[int]
    ) -> None:
        """Add events, in the order of the log; their columns may hold any type."""
        if self._origin is None:
            first = hashes[0]
            self._origin = origin_of(first if isinstance(first, bytes) else b"")
        if self._numbered:
            self._number(positions)
        self._watch(times)
        at = 0
        end = self._tree.size + len(hashes)
        while self._next is not None and self._next.size <= end:
            until = self._next.size - (end - len(hashes))
            self._grow(hashes[at : max(at, until)])
            at = max(at, until)
            self._at = positions[at - 1] if at else self._at
            self._ask(self._next)
            self._next = next(self._claims, None)
        self._grow(hashes[at:])
        self._at = positions[-1]

    def verdict(self, chains: Chains, faults: Sequence[Fault]) -> Verdict:
        """Return the verdict, once all events were added."""
        count = self._tree.size
        lacking = lag = 0
        while self._next is not None:
            if self._next.size > count:
                if self._copy and self._next.is_outside:
                    lag = max(lag, self._next.size - count)
                else:
                    lacking = max(lacking, self._next.size)
                self._note(self._next)
            else:
                self._ask(self._next)
            self._next = next(self._claims, None)
        self._settle()
        return Verdict(
            streams=chains.streams,
            events=chains.events,
            faults=(*faults, *self._told(lacking), *self._faults),
            checkpoint=self._newest,
            signer=self._signer(),
            behind=count - (self._newest.size if self._newest else 0),
            erased=chains.missing,
            erased_runs=chains.erased_runs,
            lag=lag,
            before=self._before,
        )

    @property
    def place(self) -> Place | None:
        """Where the newest trusted checkpoint ends, once there is a verdict."""
        if self._newest_at is None or self._origin is None:
            return None
        tree, position = self._newest_at
        return Place(tree=tree, origin=self._origin, position=position)

    def _grow(self, hashes: Sequence[Any]) -> None:
        try:
            self._tree.extend(hashes)
        except TypeError:
            whole = [one if isinstance(one, bytes) else b"" for one in hashes]
            self._tree.extend(whole)

    def _number(self, positions: Sequence[int]) -> None:
        before, self._last = self._last, positions[-1]
        if positions[0] == before + 1 and self._last - before == len(positions):
            return
        self._numbered = False  # one is reported; what follows is shifted
        for position in positions:
            before += 1
            if position != before:
                self._tell(
                    "missing", f"the event at position {before} of the log is missing"
                )
                return

    def _watch(self, times: Sequence[Any]) -> None:
        """Note where times decrease, as they usually do if events were moved."""
        try:
            if list(times) != sorted(times) or times[0] < self._time:
                self._backwards = self._tree.size + len(times)
            self._time = times[-1]
        except TypeError:
            self._time = 0

    def _ask(self, claim: Claim) -> None:
        self._settle()
        if not self._note(claim):
            return
        if isinstance(self._tree, Apart):
            # Fetched with the next claim, so that nothing waits for it.
            self._asked = claim, self._backwards, self._at, self._tree.ask()
        else:
            self._judge(claim, self._backwards, self._at, self._tree.copy())

    def _settle(self) -> None:
        if self._asked is not None:
            claim, backwards, position, answer = self._asked
            self._asked = None
            self._judge(claim, backwards, position, answer())

    def _judge(
        self, claim: Claim, backwards: int, position: int, tree: Frontier
    ) -> None:
        if claim.size == 0 or claim.root == tree.root():
            if claim.note:
                self._true = claim.size
            if claim.note and claim.judged == "trusted":
                self._newest = claim.note.checkpoint
                self._newest_at = tree, position
        elif claim.note is None:
            self._tell("tree", "the stored tree is not that of the log")
        elif self._false is None:
            self._false = self._true, claim.size, backwards

    def _note(self, claim: Claim) -> bool:
        """Check a claim itself, and return whether it is valid."""
        text = claim.fault
        if claim.judged == "forged":
            text = f"the checkpoint of {claim.size} events is forged"
        elif claim.note and self._origin not in {None, claim.note.checkpoint.origin}:
            text = f"the checkpoint of {claim.size} events is of another log"
        if text:
            self._tell("checkpoint", text)
            return False
        if claim.note and claim.judged == "unknown":
            self._unknown = claim
        return True

    def _tell(self, kind: str, text: str) -> None:
        if len(self._faults) < MAX_FAULTS:
            self._faults.append(Fault(kind=kind, message=text))

    def _told(self, lacking: int) -> Iterator[Fault]:
        count = self._tree.size
        if self._false is None:
            if lacking:
                yield Fault(
                    kind="cut",
                    message=f"the log has {count} events of {lacking}: its tail was "
                    f"cut off, or events after the first {self._true} were removed",
                )
            return
        true, false, backwards = self._false
        if lacking:
            kind = "removed"
        elif true < backwards:
            kind = "moved"
        else:
            kind = "rewritten"
        yield Fault(
            kind=kind,
            message=_KINDS[kind].format(
                first=true + 1, last=false, count=count, lacking=lacking
            ),
        )

    def _signer(self) -> Signer | None:
        newest = self._newest.size if self._newest else 0
        if self._unknown is not None and self._unknown.size > newest:
            return Signer(public_key=self._unknown.public_key, trusted=False)
        return Signer(public_key=None, trusted=True) if self._newest else None


_KINDS = {
    "rewritten": "events {first} to {last} of the log are not those that were signed: "
    "they were rewritten with their chain, or some were removed",
    "moved": "events {first} to {last} of the log are not those that were signed: "
    "their times go back, so they were moved, across runs",
    "removed": "events were removed, and those after them renumbered, between {first} "
    "and {last}: the log has {count} events of {lacking}",
}
