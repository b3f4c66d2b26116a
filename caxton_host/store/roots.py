"""
Compares the tree over the log with every root that somebody said it had.

A claim is the tree that the writer left, a checkpoint of the database, or one that was
kept elsewhere. They come in the order of their sizes, as the events come.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ..core.log.chain import MAX_FAULTS, Chains, Fault, Signer, Verdict
from ..core.log.checkpoint import Checkpoint, Note, origin_of, parse_note
from ..core.log.tree import Frontier
from ..errors import BadBytes
from ..lib.signing import Judged, judge
from .merkle_process import Apart


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """
    Somebody's word of what the first *size* events of the log are.

    Attributes:
        note: A checkpoint; without, the writer's own tree.

        root: Of the tree.

        public_key: The key that a checkpoint of the database names.

        judged: Whose it is.

        fault: Why it is none.
    """

    size: int
    note: Note | None = None
    root: bytes = b""
    public_key: bytes | None = None
    judged: Judged = "unknown"
    fault: str = ""

    @property
    def is_outside(self) -> bool:
        """Whether it was not kept in the database."""
        return self.note is not None and self.public_key is None

    @classmethod
    def of_tree(cls, size: object, frontier: object) -> Claim:
        """Return that of the row in which the writer keeps its tree."""
        if isinstance(size, int) and isinstance(frontier, bytes):
            try:
                return cls(size=size, root=Frontier.parse(size, frontier).root())
            except ValueError:
                pass
        return cls(size=0, fault="the tree that is kept beside the log is none")

    @classmethod
    def of_row(cls, size: object, data: object, key: object) -> Claim:
        """Return that of a row of checkpoints."""
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
    Grows the tree, and asks each claim when its size is reached.

    Args:
        claims: In the order of their sizes.

        tree: What grows.

        numbered: The positions of the log have no gaps.

        copy: The log is a copy: what was signed elsewhere may be ahead of it.
    """

    def __init__(
        self,
        claims: Iterator[Claim],
        tree: Frontier | Apart,
        *,
        numbered: bool,
        copy: bool = False,
    ) -> None:
        self._claims = claims
        self._next = next(claims, None)
        self._numbered = numbered
        self._copy = copy
        self._tree = tree
        self._origin: str | None = None
        self._last = self._time = 0
        self._backwards = 0
        self._true = 0
        self._false: tuple[int, int, int] | None = None
        self._faults: list[Fault] = []
        self._newest: Checkpoint | None = None
        self._unknown: Claim | None = None
        self._asked: tuple[Claim, int, Callable[[], bytes]] | None = None

    def add(
        self, hashes: Sequence[Any], times: Sequence[Any], positions: Sequence[int]
    ) -> None:
        """Add events, in the order of the log: whatever their columns hold."""
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
            self._ask(self._next)
            self._next = next(self._claims, None)
        self._grow(hashes[at:])

    def verdict(self, chains: Chains, faults: Sequence[Fault]) -> Verdict:
        """Return what all of it comes to, once there are no more events."""
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
        )

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
        self._numbered = False  # one is told; what follows is moved
        for position in positions:
            before += 1
            if position != before:
                self._tell(
                    "missing", f"the event at position {before} of the log is missing"
                )
                return

    def _watch(self, times: Sequence[Any]) -> None:
        """Note where times go back: events that were moved show so, as a rule."""
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
            # Called for with the next claim: it need not be waited for.
            self._asked = claim, self._backwards, self._tree.ask()
        else:
            self._judge(claim, self._backwards, self._tree.root())

    def _settle(self) -> None:
        if self._asked is not None:
            claim, backwards, answer = self._asked
            self._asked = None
            self._judge(claim, backwards, answer())

    def _judge(self, claim: Claim, backwards: int, root: bytes) -> None:
        if claim.size == 0 or claim.root == root:
            if claim.note:
                self._true = claim.size
            if claim.note and claim.judged == "trusted":
                self._newest = claim.note.checkpoint
        elif claim.note is None:
            self._tell("tree", "the tree that is kept beside the log is not that of it")
        elif self._false is None:
            self._false = self._true, claim.size, backwards

    def _note(self, claim: Claim) -> bool:
        """Look at a claim itself, and return whether it says anything."""
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
                    f"cut off, or events behind the first {self._true} were removed",
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
    "removed": "events were removed, and those behind them renumbered, between {first} "
    "and {last}: the log has {count} events of {lacking}",
}
