"""
What callers may have on all hosts: runs in a minute, and runs under way.

Only limits that are configured are counted over all hosts. A rate is exact: it is a
row that all hosts change in turn. Runs under way are counted in the table of runs, and
what hosts admit at the same moment is not in it yet.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from typing import NamedTuple

from ..config.model import Serve
from ..core.grants.budgets import Pace
from ..core.grants.principals import Principal
from ..core.log.runs import RunFilter
from ..errors import OverloadedError
from ..ports.log import Reservation
from ..ports.serving import ServingStore

_MINUTE_US = 60_000_000
_RETRY_AFTER_S = 1.0


class _Share(NamedTuple):
    """The limits of a principal or a tenant, how it is called, and its runs."""

    key: str
    who: str
    rate: int | None
    most: int | None
    runs: RunFilter

    @property
    def pace(self) -> Pace:
        return Pace(limit=self.rate or 0, every=_MINUTE_US)

    @property
    def reservation(self) -> Reservation:
        # An erasure does not find this row, so it must not name anybody.
        name = sha256(self.key.encode()).hexdigest()[:32]
        pace = self.pace
        key = f"!caller/{name}/{pace.key}"
        return Reservation(
            key=key, amount=1, limit=pace.limit, rule="", every=pace.every
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Quotas:
    """
    The limits of callers over all hosts of a log.

    Attributes:
        store: Where they are counted.

        serve: What is configured.
    """

    store: ServingStore
    serve: Serve

    async def check(self, who: Principal) -> None:
        """
        Return if *who* may start one more run, and count it.

        Raises:
            OverloadedError: It may not now, or its tenant has too many.

            StoreError: They cannot be counted.
        """
        shares = [*self._shares(who)]
        for share in shares:
            if share.most is None:
                continue
            there = await self.store.reader.going_on(share.runs)
            if there >= share.most:
                raise OverloadedError(
                    f"{share.who} {there} runs under way, which is the most",
                    retry_after=_RETRY_AFTER_S,
                    whose="principal",
                    fix="wait for one of them",
                )
        rated = [share for share in shares if share.rate is not None]
        items = [share.reservation for share in rated]
        refused = await self.store.reserve(items) if items else None
        if refused:
            share = rated[refused.index]
            raise OverloadedError(
                f"{share.who} started {share.rate} runs in a minute, which is the most",
                retry_after=refused.retry_after or _RETRY_AFTER_S,
                whose="principal",
                fix="try again later",
            )

    def _shares(self, who: Principal) -> Iterator[_Share]:
        serve, tenant = self.serve, who.tenant
        own = RunFilter(actor=who.id, tenant=tenant)
        yield _Share(who.key, "you have", serve.rate, serve.concurrency, own)
        if tenant is not None:
            most, runs = serve.tenant_concurrency, RunFilter(tenant=tenant)
            key, called = f"@{tenant}", "your tenant has"
            yield _Share(key, called, serve.tenant_rate, most, runs)
