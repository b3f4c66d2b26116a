"""
What is spent of budgets: read without spending, and counted again from the log.

They are counted again when their tables are lost. An event has the time of the host
that wrote it, and not that of the database, so at the edge of a period a count may
differ from the lost one by what was on its way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

import sqlalchemy as sa

from ..core.analysis.rule_uses import Spent
from ..core.grants.budgets import ANSWER, Period, Use, stored_key
from ..core.grants.settlement import corrections
from ..core.names import stream_of
from ..gateway.ledger import Holder, corrected, spent
from ..lib.codec import decode_trusted
from ..ports.log import Reservation
from .commit import Driver, Group, Line, ask
from .database import Database
from .schema import budgets, slots

_PAGE = 500
#: More than the longest period.
_HORIZON = 32 * 86_400_000_000
_ENDLESS = 2**62

_SPENT = """\
SELECT events.position, events.recorded_at, runs.agent, events.stream, payloads.payload
FROM events JOIN payloads ON payloads.position = events.position
JOIN runs ON runs.run_id = substr(events.stream, 5)
WHERE events.position > ? AND (events.type = 'ToolInvoked'
  OR events.type = 'ToolCompleted' AND {settles}) AND events.recorded_at >= ?
ORDER BY events.position LIMIT ?"""
#: Whether an answer may settle budgets, without its data, which may be large. By
#: whether the database is a server.
_SETTLES = {
    False: "instr(payloads.payload, CAST('settles' AS blob)) > 0",
    True: "position('settles'::bytea IN payloads.payload) > 0",
}
_OPEN = """\
SELECT events.position, runs.run_id, runs.agent, events.type, payloads.payload
FROM runs JOIN events ON events.stream = 'run/' || runs.run_id
JOIN payloads ON payloads.position = events.position
WHERE events.position > ? AND runs.ended_at IS NULL AND events.type IN
  ('ToolInvoked', 'ToolCompleted', 'ToolFailed', 'ToolDenied')
ORDER BY events.position LIMIT ?"""
_LOCK = "LOCK TABLE budgets, slots IN EXCLUSIVE MODE"
_WIPE = (
    "DELETE FROM budgets WHERE key >= '#' AND key < '$'",
    # What servers and callers may do in all is in no event, so it stays as it is.
    "UPDATE budgets SET used = 0, since = 0 WHERE NOT (key >= '!' AND key < '\"')",
    "DELETE FROM slots WHERE NOT (key >= '!' AND key < '\"')",
)
_ENDED = "SELECT run_id FROM runs WHERE ended_at IS NOT NULL AND run_id IN ({})"
_KEEP = """\
INSERT INTO budgets (key, used, since) VALUES (?, ?, ?)
ON CONFLICT (key) DO UPDATE SET used = excluded.used, since = excluded.since"""
_PLACE = "INSERT INTO slots (key, stream, call) VALUES (?, ?, ?)"


class Budgets:
    """The budgets of a database: read, and counted again."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def spent(self, agent: str) -> Spent:
        """
        Return what is spent of the budgets of *agent*.

        Raises:
            StoreError: They cannot be read.
        """
        return await asyncio.to_thread(self.look, agent)

    def look(self, agent: str) -> Spent:
        """Return what `spent` returns, in this thread."""
        return self._database.look(lambda found: self._spent(found, agent))

    def _spent(self, connection: sa.Connection, agent: str) -> Spent:
        # By code point, "0" comes right behind "/".
        first, behind = f"{agent}/", f"{agent}0"
        uses = connection.execute(
            sa.select(budgets.c.key, budgets.c.used, budgets.c.since).where(
                budgets.c.key >= first, budgets.c.key < behind
            )
        ).all()
        places: dict[str, list[Holder]] = {}
        for key, stream, call in connection.execute(
            sa.select(slots.c.key, slots.c.stream, slots.c.call)
            .where(slots.c.key >= first, slots.c.key < behind)
            .order_by(slots.c.stream, slots.c.call)
        ):
            places.setdefault(key.removeprefix(first), []).append((stream, call))
        return Spent(
            now=self._now(connection),
            uses={key.removeprefix(first): Use(*use) for key, *use in uses},
            places=places,
        )

    def _now(self, connection: sa.Connection) -> int:
        if self._database.is_file:
            return self._database.clock.now()
        clock = sa.func.extract("epoch", sa.func.clock_timestamp()) * 1_000_000
        return connection.execute(sa.select(sa.cast(clock, sa.BigInteger))).scalar_one()

    async def recount(self) -> tuple[int, int]:
        """
        Count all budgets again from the log; hosts wait meanwhile.

        Returns:
            How many budgets there are, and how many calls hold a place of one.

        Raises:
            StoreError: It could not be done, and nothing was.
        """
        recount = _Recount(
            now=self._database.clock.now(), shared=not self._database.is_file
        )
        await self._database.commit(Group(Line(""), (), {}, guard=recount))
        return recount.budgets, recount.places


@dataclass(slots=True)
class _Recount:
    """
    The guard of the transaction that counts all budgets again.

    Attributes:
        now: Microseconds since 1970.

        shared: Whether the tables have to be locked against other hosts.

        budgets: How many were found.

        places: How many calls hold a place of one.
    """

    now: int
    shared: bool
    budgets: int = 0
    places: int = 0

    def __call__(self, driver: Driver) -> None:
        """Count, in the transaction of *driver*."""
        if self.shared:
            ask(driver, _LOCK)
        uses = _unended(driver, self._uses(driver))
        places = _places(driver)
        for statement in _WIPE:
            ask(driver, statement)
        for key, use in sorted(uses.items()):
            ask(driver, _KEEP, key, *use)
        for place in places:
            ask(driver, _PLACE, *place)
        self.budgets, self.places = len(uses), len(places)

    def _uses(self, driver: Driver) -> dict[str, Use]:
        uses: dict[str, Use] = {}
        #: When a call reserved, and what.
        reserved: dict[Holder, tuple[int, dict[str, int]]] = {}
        query = _SPENT.format(settles=_SETTLES[self.shared])
        for at, agent, stream, payload in _pages(driver, query, self.now - _HORIZON):
            event = decode_trusted(bytes(payload))
            call = stream, event["call"]
            if settles := event.get("settles"):
                began, spends = reserved.pop(call, (at, {}))
                for change in corrections(agent, spends, settles, at - began):
                    before = uses.get(change.key, Use())
                    uses[change.key] = corrected(change, before, at)
                continue
            spends = _spends(event)
            if any(f"/{ANSWER}$" in key for key in spends):
                reserved[call] = at, spends
            for key, amount in spends.items():
                item = _reservation(stored_key(agent, key), amount)
                if item is None:
                    continue
                after = spent(item, uses.get(item.key, Use()), at)
                # A rate that was full by the other clock is full.
                full = Use(0, at + (item.every or 0))
                uses[item.key] = after if isinstance(after, Use) else full
        return uses


def _unended(driver: Driver, uses: dict[str, Use]) -> dict[str, Use]:
    """Return *uses* without the budgets that runs shared which have ended."""
    runs = {key: key[1:].partition("/")[0] for key in uses if key.startswith("#")}
    named = [*dict.fromkeys(runs.values())]
    ended: set[str] = set()
    for some in (named[at : at + _PAGE] for at in range(0, len(named), _PAGE)):
        query = _ENDED.format(", ".join("?" * len(some)))
        ended |= {run_id for (run_id,) in ask(driver, query, *some).fetchall()}
    return {key: use for key, use in uses.items() if runs.get(key) not in ended}


def _places(driver: Driver) -> list[tuple[str, str, int]]:
    """Return key, stream and call of each place that a call holds."""
    places: dict[Holder, list[str]] = {}
    for run_id, agent, type_, payload in _pages(driver, _OPEN):
        event = decode_trusted(bytes(payload))
        holder = stream_of(run_id), event["call"]
        if type_ == "ToolInvoked":
            places[holder] = [
                stored_key(agent, key)
                for key in _spends(event)
                if key.endswith("/open")
            ]
        else:
            places.pop(holder, None)
    return [(key, *holder) for holder, keys in places.items() for key in keys]


def _pages(driver: Driver, query: str, *params: object) -> Iterator[tuple[Any, ...]]:
    """Yield rows without their first column, the position."""
    last = 0
    while rows := ask(driver, query, last, *params, _PAGE).fetchall():
        yield from (row[1:] for row in rows)
        last = rows[-1][0]


def _spends(event: dict[str, Any]) -> dict[str, int]:
    return event.get("spends") or {}


def _reservation(key: str, amount: int) -> Reservation | None:
    """Return what a call took of a budget that runs share, by its key."""
    _agent, _account, kind, *rest = key.split("/")
    if kind == "rate":
        limit, every = map(int, rest)
        return Reservation(key=key, amount=amount, limit=limit, rule="", every=every)
    if kind == "open":
        return None
    if rest[0] == "run":
        is_shared = key.startswith("#")
        shared = Reservation(key=key, amount=amount, limit=_ENDLESS, rule="")
        return shared if is_shared else None
    per = cast("Period", rest[0])
    return Reservation(key=key, amount=amount, limit=_ENDLESS, rule="", per=per)
