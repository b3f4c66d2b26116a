"""Budgets that runs share, spent once more in the times of the log."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from ..gateway.call_budgets import Out, wants
from ..store.ledger import Holder, Ledger, Use, settle

if TYPE_CHECKING:
    from ..core.grants.decisions import Allowed, Refusal
    from ..core.log.events import Event, ToolInvoked


class Spending:
    """
    What recorded calls would have spent.

    The rules of the store, by the times of the log; nothing is spent before it begins.
    """

    def __init__(self) -> None:
        self._now = 0
        self._uses: dict[str, Use] = {}
        self._places: set[tuple[str, Holder]] = set()

    def now(self) -> int:
        """Return when the call that is judged was made."""
        return self._now

    def use(self, key: str) -> Use:
        """Return what is spent of a budget."""
        return self._uses.get(key, Use())

    def holders(self, key: str) -> Collection[Holder]:
        """Return who has a place of a budget."""
        return [holder for known, holder in self._places if known == key]

    def reserve(
        self, agent: str, stream: str, allowed: Allowed, invoked: ToolInvoked, at: int
    ) -> Refusal | None:
        """
        Spend what a call takes, or return why its rule cannot allow it.

        Args:
            agent: Whose budgets they are.

            stream: Of the run.

            allowed: The rule.

            invoked: The call.

            at: When it was made. One that would wait for its turn is later by that.
        """
        if not allowed.rule.budgets:
            return None
        asked, _ = wants(allowed, invoked.params or {})
        out = Out()
        while True:
            self._now = at + round(out.waited_s * 1e6)
            ledger = Ledger(self)
            items = [want.reservation(agent, invoked.call) for want in asked]
            refused = ledger.reserve(items, stream)
            if refused is None:
                self._uses |= ledger.uses
                self._places |= ledger.opened.keys()
                return None
            if not out.take(asked[refused.index], refused):
                return out.recorded[allowed.rule.id]

    def settle(self, stream: str, event: Event) -> None:
        """Free what an event frees."""
        if not self._places:
            return
        ledger = Ledger(self)
        settle(ledger, stream, event)
        self._places = {
            (key, holder)
            for key, holder in self._places
            if holder not in ledger.freed and holder[0] not in ledger.ended
        }
