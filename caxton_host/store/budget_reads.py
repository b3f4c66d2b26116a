"""What is spent of budgets, for those who ask and spend nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from .ledger import Holder, Use
from .schema import budgets, slots
from .server_protocols import Eras


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """
    The budgets of an agent at one moment.

    Attributes:
        now: The moment, by the clock of the database.

        uses: By key, without the agent.

        places: Who has a place, by the same.
    """

    now: int
    uses: dict[str, Use]
    places: dict[str, list[Holder]]


class Accounts(Eras):
    """A reader that knows budgets."""

    async def spent(self, agent: str) -> Spent:
        """
        Return what is spent of the budgets of *agent*.

        Raises:
            StoreError: That cannot be read.
        """
        return await asyncio.to_thread(self._spent, agent)

    def _spent(self, agent: str) -> Spent:
        # By code point, "0" comes right behind "/".
        first, behind = f"{agent}/", f"{agent}0"
        uses = self._rows(
            sa.select(budgets.c.key, budgets.c.used, budgets.c.since).where(
                budgets.c.key >= first, budgets.c.key < behind
            )
        )
        places: dict[str, list[Holder]] = {}
        for key, stream, call in self._rows(
            sa.select(slots.c.key, slots.c.stream, slots.c.call)
            .where(slots.c.key >= first, slots.c.key < behind)
            .order_by(slots.c.stream, slots.c.call)
        ):
            places.setdefault(key.removeprefix(first), []).append((stream, call))
        return Spent(
            now=self._now(),
            uses={key.removeprefix(first): Use(*use) for key, *use in uses},
            places=places,
        )

    def _now(self) -> int:
        if self.engine.dialect.name == "sqlite":
            return self._clock.now()
        clock = sa.func.extract("epoch", sa.func.clock_timestamp()) * 1_000_000
        rows: Sequence[sa.Row[int]] = self._rows(
            sa.select(sa.cast(clock, sa.BigInteger))
        )
        return rows[0][0]
