"""
Budgets that answers settle: what a call took in truth, by a number of its answer.

The estimate stands where an answer has no such number. All numbers that the path finds
are added, in the structured content, or else in the texts that are JSON.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import cast

from ..calls import JSON, Completed
from ..text.answers import STRUCTURED, in_texts
from ..text.jsonpath import JsonPath, found
from .budgets import ANSWER, MOST, PERIODS, Period, Sum, rounded_up, stored_key
from .grants import Grant


@dataclass(frozen=True, slots=True, kw_only=True)
class Correction:
    """
    What a call took of a budget beyond what was reserved, or less.

    What it took beyond counts for the period of now. What it left is given back to the
    period of the reservation, if that goes on.

    Attributes:
        key: Names the budget in the store.

        amount: What to add. Negative: what is given back.

        per: As of the reservation.

        age: Microseconds since the reservation.
    """

    key: str
    amount: int
    per: Period | None
    age: int


def corrections(
    agent: str, spends: Mapping[str, int], settles: Mapping[str, int], age: int
) -> Iterator[Correction]:
    """
    Yield how the store corrects the budgets that a call took of.

    Args:
        agent: The agent of the run.

        spends: What the call reserved, by key.

        settles: What it has spent in truth.

        age: Microseconds between the two.
    """
    for key, amount in settles.items():
        stored, extra = stored_key(agent, key), amount - spends.get(key, amount)
        per = cast("Period", stored.split("/", 4)[3])
        if extra and (per in PERIODS or key.startswith("#")):
            lasting = per if per in PERIODS else None
            yield Correction(key=stored, amount=extra, per=lasting, age=age)


def settled(
    grant: Grant,
    target: tuple[str, str],
    params: Mapping[str, JSON],
    done: Completed,
    among: Collection[str],
) -> dict[str, int]:
    """
    Return what an answered call has spent in truth, by the keys of budgets.

    Args:
        grant: The grant with these budgets.

        target: Server and tool.

        params: The parameters of the call.

        done: The answer, before anything of it is masked or cut.

        among: The keys of the budgets that the call took of.
    """
    spent: dict[str, int] = {}
    for rule in grant.speaking(*target)[1] if among else ():
        for budget in rule.budgets:
            if not isinstance(budget, Sum) or budget.estimate is None:
                continue
            key = f"{rule.account}/{budget.key}"
            number = _number(done, budget.of) if key in among else None
            if number is not None:
                spent[key] = min(budget.priced(number, params) or 0, MOST)
    return spent


def _number(done: Completed, of: str) -> int | None:
    """Return the number of an answer in millionths, or ``None``."""
    if done.cached:
        return 0
    path = JsonPath.parse(of.removeprefix(ANSWER))
    try:
        numbers = [rounded_up(value) for value in _values(done.data, path)]
    except Exception:  # noqa: BLE001 -- what cannot be searched has no number
        return None
    known = [number for number in numbers if number is not None]
    return sum(known) if known and len(known) == len(numbers) else None


def _values(data: JSON, path: JsonPath) -> list[JSON]:
    if not isinstance(data, dict) or not isinstance(data.get("content"), list):
        return found(data, path)
    if structured := found(data.get(STRUCTURED), path):
        return structured
    return [value for root in in_texts(data) for value in found(root, path)]
