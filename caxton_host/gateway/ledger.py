"""
The arithmetic of budgets within a transaction.

This module knows no database, so the store in memory cannot drift from the one in SQL.
A budget of calls or of a sum is a number and its period. A budget of a rate is the time
at which its limit is fully available again. A budget of concurrent calls is a place for
each of them, which is freed when the call is closed. If calls wait for places, their
budget is also the time when one of them was refused last: one that comes later lets
them go first, so no host keeps its places to itself.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, TypeAlias

from ..core.grants.budgets import MOST, Period, Use, apart, period_of
from ..core.grants.settlement import Correction
from ..core.log.events import (
    Event,
    RunCancelled,
    RunCompleted,
    RunFailed,
    ToolCompleted,
    ToolDenied,
    ToolFailed,
)
from ..core.names import run_of
from ..ports.log import Refused, Reservation

#: Microseconds for which those that were refused a place go first. They ask more often.
_FIRST_US = 150_000

#: A stream, and the number of a call.
Holder: TypeAlias = tuple[str, int]


class Later(NamedTuple):
    """A refusal, for so many seconds, or for an unknown time."""

    seconds: float | None


class Books(Protocol):
    """The stored budgets, read in the transaction that changes them."""

    def now(self) -> int:
        """Return microseconds since 1970, by the clock of the database."""
        ...

    def use(self, key: str) -> Use:
        """Return what is spent of a budget."""
        ...

    def holders(self, key: str) -> Collection[Holder]:
        """Return the calls that hold a place of a budget."""
        ...


@dataclass(slots=True)
class Page(Books):
    """Budgets that were read at once, when they were locked."""

    time: int = 0
    uses: dict[str, Use] = field(default_factory=dict[str, Use])
    places: dict[str, list[Holder]] = field(default_factory=dict[str, list[Holder]])

    def now(self) -> int:
        """See `Books`."""
        return self.time

    def use(self, key: str) -> Use:
        """See `Books`."""
        return self.uses[key]

    def holders(self, key: str) -> list[Holder]:
        """See `Books`."""
        return self.places.get(key, [])


class Ledger:
    """
    The changes of budgets by one transaction.

    Attributes:
        uses: What is spent afterwards, of the budgets that change.

        opened: Places that are taken: key and holder.

        freed: Calls whose places are freed, unless they are new ones.

        ended: Streams whose places are all freed, and whose family budgets are deleted:
            those that a run shares with the runs below it.
    """

    def __init__(self, books: Books) -> None:
        self.uses: dict[str, Use] = {}
        self.opened: dict[tuple[str, Holder], None] = {}
        self.freed: set[Holder] = set()
        self.ended: set[str] = set()
        self._books = books
        self._holders: dict[str, set[Holder]] = {}

    def reserve(self, items: Sequence[Reservation], stream: str) -> Refused | None:
        """Reserve all *items*, or nothing, and return the first refusal."""
        uses: dict[str, Use] = {}
        places: dict[tuple[str, Holder], None] = {}
        # In the order of the keys: a database locks them so.
        for index in sorted(range(len(items)), key=lambda i: items[i].key):
            item = items[index]
            if item.call is not None:
                holder = stream, item.call
                if holder in self._taken(item.key):
                    continue
                places[item.key, holder] = None
                taken = sum(key == item.key for key, _ in places)
                if not self._has_place(item, taken):
                    return Refused(index, item.rule)
                continue
            before = uses.get(item.key) or self._use(item.key)
            after = spent(item, before, self._books.now())
            if not isinstance(after, Use):
                return Refused(index, item.rule, after.seconds)
            uses[item.key] = after
        self.uses |= uses
        for key, holder in places:
            self._taken(key).add(holder)
        self.opened |= places
        return None

    def _has_place(self, item: Reservation, count: int) -> bool:
        if len(self._taken(item.key)) + count > item.limit:
            if item.tries is not None:
                self.uses[item.key] = Use(0, self._books.now())
            return False
        if item.tries != 0:
            return True
        return self._books.now() - self._use(item.key).since > _FIRST_US

    def correct(self, items: Sequence[Correction]) -> None:
        """Correct what was reserved by what was taken in truth."""
        for item in items:
            before = self._use(item.key)
            self.uses[item.key] = corrected(item, before, self._books.now())

    def close(self, stream: str, call: int) -> None:
        """Free the places of a call."""
        holder = stream, call
        self._forget({holder})
        self.freed.add(holder)

    def end(self, stream: str) -> None:
        """Free the places of all calls of a run, and forget the budgets it shared."""
        shared = shared_by(stream)
        self.uses = {k: use for k, use in self.uses.items() if not k.startswith(shared)}
        self._forget({holder for _, holder in self.opened if holder[0] == stream})
        for taken in self._holders.values():
            taken -= {holder for holder in taken if holder[0] == stream}
        self.ended.add(stream)

    def _forget(self, holders: Collection[Holder]) -> None:
        for slot in [slot for slot in self.opened if slot[1] in holders]:
            del self.opened[slot]
        for taken in self._holders.values():
            taken.difference_update(holders)

    def _use(self, key: str) -> Use:
        return self.uses.get(key) or self._books.use(key)

    def _taken(self, key: str) -> set[Holder]:
        if key not in self._holders:
            self._holders[key] = {
                holder
                for holder in self._books.holders(key)
                if holder not in self.freed and holder[0] not in self.ended
            }
        return self._holders[key]


def shared_by(stream: str) -> str:
    """Return how the keys of budgets begin that a run shares with those below it."""
    return f"#{run_of(stream)}/"


def settle(ledger: Ledger, stream: str, event: Event) -> None:
    """Free the places that end with *event*."""
    if isinstance(event, (ToolCompleted, ToolFailed, ToolDenied)):
        ledger.close(stream, event.call)
    elif isinstance(event, (RunCompleted, RunFailed, RunCancelled)):
        ledger.end(stream)


def spent(item: Reservation, before: Use, now: int) -> Use | Later:
    """Return what is spent of a budget after *item*, or how long it is refused."""
    if item.every is not None:
        return _paced(item, item.every, before.since, now)
    start, end = _period(item.per, before, now)
    used = item.amount + (before.used if before.since == start else 0)
    if used <= item.limit:
        return Use(used, start)
    may_fit = item.per and item.amount <= item.limit
    return Later((end - now) / 1e6 if may_fit else None)


def corrected(item: Correction, before: Use, now: int) -> Use:
    """Return what is spent of a budget after a correction. It may exceed the limit."""
    start, _ = _period(item.per, before, now)
    if item.amount < 0 and now - item.age < start:
        return before
    used = item.amount + (before.used if before.since == start else 0)
    return Use(min(max(used, 0), MOST), start)


def _period(per: Period | None, before: Use, now: int) -> tuple[int, int]:
    if per is None:
        return 0, now
    start, end = period_of(per, now)
    # A clock that is set back reopens no period.
    return period_of(per, before.since) if before.since > start else (start, end)


def _paced(item: Reservation, every: int, since: int, now: int) -> Use | Later:
    each = apart(item.limit, every)
    whole = each * item.limit
    # If the clock was set back, at most the whole limit counts as spent.
    since = min(max(since, now), now + whole) + each * item.amount
    if since - now <= whole:
        return Use(0, since)
    may_fit = item.amount <= item.limit
    return Later((since - whole - now) / 1e6 if may_fit else None)
