"""
Budgets of rules, what a call takes of them, and the periods that they count.

The journal of a run counts the budgets of that run. All others are shared by the runs
of an agent on all hosts. The store counts them by its own clock, when the intent of a
call is stored.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from decimal import Decimal
from typing import Literal, NamedTuple, TypeAlias, assert_never

from ...errors import UsageError
from ..calls import JSON

#: Sums are counted in millionths, so that nothing is rounded.
UNIT = 1_000_000
#: The largest sum. What is counted in 64 bits has room for it.
MOST = 9 * 10**12 * UNIT
#: What one of a price is in the units of prices.
PRICE_UNIT = 10**12
#: How the source of a sum begins if it is a part of the answer.
ANSWER = "result"

Period: TypeAlias = Literal["hour", "day", "week", "month"]

PERIODS: tuple[Period, ...] = ("hour", "day", "week", "month")

_SECOND = 1_000_000  # microseconds
_HOUR = 3600 * _SECOND
_DAY = 24 * _HOUR
_WEEK = 7 * _DAY
_LENGTHS = {"hour": _HOUR, "day": _DAY, "week": _WEEK}
#: 1970 began on a Thursday, a week begins on Monday.
_SHIFTS = {"hour": 0, "day": 0, "week": 3 * _DAY}


@dataclass(frozen=True, slots=True, kw_only=True)
class CallCount:
    """A number of calls a period; of a run, if it shares them with runs it calls."""

    limit: int
    per: Period | Literal["run"]

    @property
    def key(self) -> str:
        """Its key among the budgets of its rule."""
        return f"calls/{self.per}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sum:
    """
    A sum over the values of a parameter, or over numbers of answers.

    Attributes:
        of: The name of the parameter, where dots lead into maps; or ``result`` and a
            JSONPath of the answer.

        limit: In millionths.

        per: A period, or ``run``.

        estimate: What a call reserves until its answer says what it took, in
            millionths; ``None``: the sum is one of a parameter.

        price: The price of one, in `PRICE_UNIT`; ``None``: the number itself counts.
            With *by*, the price of what *prices* lacks; ``None``: such a call is
            denied.

        by: The parameter that selects the price, or ``""``.

        prices: By the values of that parameter.
    """

    of: str
    limit: int
    per: Period | Literal["run"]
    estimate: int | None = None
    price: int | None = None
    by: str = ""
    prices: Mapping[str, int] = field(default_factory=dict[str, int], hash=False)

    @property
    def key(self) -> str:
        """See `CallCount.key`. A sum of money is not one of numbers."""
        kind = "sum" if self.price is None and not self.by else "cost"
        return f"{kind}/{self.per}/{self.of}"

    def priced(self, number: int, params: Mapping[str, JSON]) -> int | None:
        """
        Return what a number of a call counts; ``None``: it has no price.

        A price is rounded up to a millionth.

        >>> tokens = Sum(of="n", limit=1, per="day", price=1_500_000)
        >>> tokens.priced(1000 * UNIT, {})
        1500
        """
        price = PRICE_UNIT if self.price is None and not self.by else self.price
        if self.by and isinstance(value := _value(params, self.by), str):
            price = self.prices.get(value, price)
        return None if price is None else -(-number * price // PRICE_UNIT)

    def reserved(self, params: Mapping[str, JSON]) -> int | None:
        """Return what a call reserves; ``None``: it cannot be counted."""
        number = self.estimate
        if number is None:
            number = exact(_value(params, self.of))
        return None if number is None else self.priced(number, params)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """
    A rate: a number of calls at once, refilled evenly over a time.

    Attributes:
        limit: The number of calls.

        every: The time, in microseconds.

        wait: Most microseconds that a call waits for its turn.
    """

    limit: int
    every: int
    wait: int = 0

    @property
    def key(self) -> str:
        """See `CallCount.key`. A changed rate is a new budget."""
        return f"rate/{self.limit}/{self.every}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Concurrency:
    """A number of calls in progress or in doubt."""

    limit: int

    @property
    def key(self) -> str:
        """See `CallCount.key`."""
        return "open"


Budget: TypeAlias = CallCount | Sum | Pace | Concurrency

_KINDS: Mapping[str, type[Budget]] = {
    "calls": CallCount,
    "sum": Sum,
    "rate": Pace,
    "concurrency": Concurrency,
}
_NAMES = {kind: name for name, kind in _KINDS.items()}
#: Keys that are omitted from a payload if they are empty.
_RARE = frozenset({"estimate", "price", "by", "prices"})


@dataclass(frozen=True, slots=True)
class Cost:
    """
    What a call takes of one budget.

    Attributes:
        key: The key of the budget among those of its agent.

        amount: The amount; ``None``: the parameter is not an amount, or has no price.
    """

    budget: Budget
    key: str
    amount: int | None

    @property
    def is_of_run(self) -> bool:
        """Whether the budget is counted for each run."""
        return getattr(self.budget, "per", None) == "run"


def costs(
    budgets: Iterable[Budget], name: str, params: Mapping[str, JSON]
) -> Iterator[Cost]:
    """
    Yield what a call takes of each budget.

    Args:
        budgets: The budgets of the rule that allows it.

        name: The account of the rule.

        params: The parameters of the call.
    """
    for budget in budgets:
        amount = budget.reserved(params) if isinstance(budget, Sum) else 1
        yield Cost(budget, f"{name}/{budget.key}", amount)


def cannot_bear(cost: Cost, spent: Mapping[str, int]) -> str:
    """
    Return why a call exceeds a budget, by what its run knows, or ``""``.

    Args:
        cost: What it takes of a budget.

        spent: The amounts that the run has taken so far, by key.
    """
    budget = cost.budget
    if not isinstance(budget, Sum):
        return ""
    if cost.amount is None:
        if budget.estimate is not None:
            return f"that grant has no price for this {budget.by!r}"
        return f"the parameter {budget.of!r} is no amount that can be counted"
    before = spent.get(cost.key, 0) if cost.is_of_run else 0
    if before + cost.amount <= budget.limit:
        return ""
    return f"that grant has no room for so much of {budget.of!r} per {budget.per}"


def exact(value: JSON) -> int | None:
    """
    Return a number in millionths; ``None``: it is finer than that, or negative.

    A float counts as the decimal that it is written as.

    >>> exact(3), exact(0.1), exact(True), exact("3"), exact(0.1 + 0.2)
    (3000000, 100000, None, None, None)
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    if isinstance(value, int):
        return value * UNIT if value >= 0 else None
    if not math.isfinite(value):
        return None
    scaled = Decimal(repr(value)).scaleb(6)
    whole = int(scaled)
    return whole if scaled == whole and whole >= 0 else None


def rounded_up(value: JSON) -> int | None:
    """
    Return a number in millionths, rounded up; ``None``: it is none, or negative.

    >>> rounded_up(0.1 + 0.2), rounded_up(3), rounded_up(-1), rounded_up("3")
    (300001, 3000000, None, None)
    """
    if isinstance(value, float) and math.isfinite(value) and value >= 0:
        return math.ceil(Decimal(repr(value)).scaleb(6))
    return exact(value)


def apart(limit: int, every: int) -> int:
    """
    Return the microseconds between calls of a rate that is spent.

    >>> apart(30, 60_000_000)
    2000000
    """
    return -(-every // max(limit, 1))


class Use(NamedTuple):
    """
    What is spent of a budget.

    Attributes:
        used: The amount spent in the period.

        since: When the period began, or when a rate is fully available again:
            microseconds since 1970.
    """

    used: int = 0
    since: int = 0


def standing(budget: Budget, use: Use, now: int) -> tuple[int, int | None]:
    """
    Return how much of a budget is spent, and when it is full again.

    Args:
        budget: A budget that the store counts.

        use: What the store keeps.

        now: The time of the store, in microseconds.
    """
    used, since = use
    match budget:
        case CallCount() | Sum():
            if budget.per == "run":
                return 0, None
            start, end = period_of(budget.per, max(now, since))
            return (used if since == start else 0), end
        case Pace():
            missing = max(since - now, 0)
            spent = -(-missing // apart(budget.limit, budget.every))
            return min(spent, budget.limit), since if missing else None
        case Concurrency():
            return 0, None
        case _:
            assert_never(budget)


def stored_key(agent: str, key: str) -> str:
    """
    Return how the store names a budget that an event names.

    >>> stored_key("weather", "pay/calls/day"), stored_key("child", "@a/pay/open")
    ('weather/pay/calls/day', 'a/pay/open')
    """
    if key.startswith("#"):  # Runs share it: see `Want.key`.
        return key
    return key[1:] if key.startswith("@") else f"{agent}/{key}"


def budget_to_payload(budget: Budget) -> dict[str, JSON]:
    """
    Return a budget as ``RunStarted.grants`` holds it.

    >>> budget_to_payload(CallCount(limit=20, per="day"))
    {'kind': 'calls', 'limit': 20, 'per': 'day'}
    """
    given = asdict(budget)
    for key in _RARE.intersection(given):
        if given[key] in (None, "", {}):
            del given[key]
    return {"kind": _NAMES[type(budget)], **given}


def budget_from_payload(payload: Mapping[str, JSON]) -> Budget:
    """
    Parse a budget that a ``RunStarted`` holds.

    Raises:
        UsageError: This version does not know it.
    """
    given = dict(payload)
    kind = _KINDS.get(str(given.pop("kind", "")))
    # law 4: a budget that is not understood must not widen the grant
    if kind is None or not given.keys() <= {one.name for one in fields(kind)}:
        raise UsageError(
            "the recorded grant has a budget of an unknown kind",
            fix="use the version that recorded it, or a newer one",
        )
    return kind(**given)  # type: ignore[arg-type]  # read from our own log


def _value(params: Mapping[str, JSON], of: str) -> JSON:
    value: JSON = dict(params)
    for name in of.split("."):
        if not isinstance(value, dict):
            return None
        value = value.get(name)
    return value


def period_of(period: Period, now: int) -> tuple[int, int]:
    """
    Return the start and the end of the period of *now*, in UTC.

    All times are microseconds since 1970.

    >>> noon = 20_000 * 86_400_000_000 + 43_200_000_000
    >>> [(edge - noon) // 3_600_000_000 for edge in period_of("day", noon)]
    [-12, 12]
    """
    if period == "month":
        return _month(now)
    length, shift = _LENGTHS[period], _SHIFTS[period]
    start = now - (now + shift) % length
    return start, start + length


def _month(now: int) -> tuple[int, int]:
    at = datetime.fromtimestamp(now // _SECOND, UTC)
    first = datetime(at.year, at.month, 1, tzinfo=UTC)
    following = datetime(at.year + at.month // 12, at.month % 12 + 1, 1, tzinfo=UTC)
    return _micros(first), _micros(following)


def _micros(at: datetime) -> int:
    return int(at.timestamp()) * _SECOND
