"""``caxton grant budgets``: what agents have spent, and when there is more."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, assert_never

import click

from ..core.calls import JSON
from ..core.grants.budgets import UNIT, Budget, Calls, Concurrency, Pace, Sum, standing
from ..core.names import run_of
from .context import HostApi, as_json, wait
from .judgement import agent_of
from .output import note, show, table
from .run_text import moment

if TYPE_CHECKING:
    from ..core.grants.grants import Rule
    from ..store.budget_reads import Spent


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """A budget of a rule, as it stands."""

    agent: str
    rule: Rule
    budget: Budget
    spent: int
    until: int | None
    holders: Sequence[tuple[str, int]] = ()

    def amount(self, number: int) -> str:
        """Return a number as people write it."""
        if not isinstance(self.budget, Sum):
            return str(number)
        whole, rest = divmod(number, UNIT)
        return f"{whole}.{rest:06}".rstrip("0").rstrip(".") if rest else str(whole)

    def to_document(self) -> dict[str, JSON]:
        """Return an entry of the ``caxton.budgets/v1`` document."""
        return {
            "agent": self.agent,
            "rule": self.rule.id,
            "source": self.rule.source,
            "account": self.rule.account,
            "budget": _named(self.budget),
            "spent": self.amount(self.spent),
            "limit": self.amount(self.budget.limit),
            "until": self.until,
            "calls": [
                {"run": run_of(stream), "call": call} for stream, call in self.holders
            ],
        }


@click.command("budgets")
@click.argument("agent", required=False)
@as_json
@click.pass_obj
def budgets(frame: HostApi, agent: str | None, as_json: bool) -> None:
    """
    Show what is spent of the budgets that the runs of an agent share.

    Without AGENT, of all agents. What counts a run is not among them: see
    caxton runs show. Times are of the store's clock, in UTC.

    \b
    Examples:
      caxton grant budgets
      caxton grant budgets payer --json
    """
    rows = wait(_read(frame, agent))
    if as_json:
        show(
            {
                "$type": "caxton.budgets/v1",
                "budgets": [row.to_document() for row in rows],
            }
        )
        return
    if not rows:
        note("no rule has a budget that runs share")
        return
    table(
        ("agent", "rule", "account", "budget", "spent", "limit", "until"),
        [
            (
                row.agent,
                row.rule.id,
                row.rule.account,
                _named(row.budget),
                row.amount(row.spent),
                row.amount(row.budget.limit),
                _when(row),
            )
            for row in rows
        ],
    )


async def _read(frame: HostApi, agent: str | None) -> list[_Row]:
    from ..app.bootstrap import open_store

    config = frame.look("agents")
    agents = config.agents if agent is None else {agent: agent_of(config, agent)}
    rows: list[_Row] = []
    async with open_store(config, write=False) as store:
        for name, one in sorted(agents.items()):
            spent = await store.spent(name)
            for rule in one.grant.allow:
                rows += _rows(name, rule, spent)
    return rows


def _rows(agent: str, rule: Rule, spent: Spent) -> Iterable[_Row]:
    for cost in rule.costs({}):
        if cost.is_of_run:
            continue
        use = spent.uses.get(cost.key)
        holders = spent.places.get(cost.key, [])
        number, until = standing(cost.budget, use or (0, 0), spent.now)
        yield _Row(
            agent=agent,
            rule=rule,
            budget=cost.budget,
            spent=len(holders) if isinstance(cost.budget, Concurrency) else number,
            until=until,
            holders=holders,
        )


def _named(budget: Budget) -> str:
    match budget:
        case Calls():
            return f"calls per {budget.per}"
        case Sum():
            return f"sum of {budget.of} per {budget.per}"
        case Pace():
            return f"rate in {budget.every / 1e6:g} s"
        case Concurrency():
            return "calls under way"
        case _:
            assert_never(budget)


def _when(row: _Row) -> str:
    if row.holders:
        named = [f"{run_of(stream)} call {call}" for stream, call in row.holders]
        return ", ".join(named)
    return moment(row.until).removesuffix(".000") if row.until else "-"
