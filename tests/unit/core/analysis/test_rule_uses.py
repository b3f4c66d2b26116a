"""How often rules decided, and what their budgets have left."""

from __future__ import annotations

from dataclasses import replace

import pytest

from caxton_host.core.analysis.rule_uses import RuleUses, Spent, budget_documents
from caxton_host.core.calls import JSON
from caxton_host.core.grants.budgets import (
    Budget,
    CallCount,
    Concurrency,
    Pace,
    Sum,
    Use,
)
from caxton_host.core.grants.grants import Grant, Rule
from caxton_host.core.log.events import (
    ApprovalRequested,
    Event,
    Recorded,
    ToolDenied,
    ToolInvoked,
)
from caxton_host.core.text.globs import Pattern
from tests.unit.store.fakes import run_started


def rule(tools: str, id_: str, **more: object) -> Rule:
    made = Rule(id=id_, tools=(Pattern.parse(tools),), source="a.toml:1")
    return replace(made, **more)  # type: ignore[arg-type]


def recorded(event: Event, stream: str = "run/a") -> Recorded:
    return Recorded(
        position=1,
        stream=stream,
        seq=1,
        type=type(event).__name__,
        schema_version=1,
        recorded_at=0,
        trace_id=None,
        span_id=None,
        hash=b"",
        event=event,
    )


def invoked(rule_: str | None) -> ToolInvoked:
    return ToolInvoked(
        call=1,
        name="x",
        server="crm",
        tool="x",
        params={},
        params_sha256="",
        effect="read",
        rule=rule_,
        idempotency_key="",
        fuel=0,
    )


def denied(rule_: str | None) -> ToolDenied:
    return ToolDenied(call=1, code="params", rule=rule_, message="")


ASKED = ApprovalRequested(
    call=1,
    name="x",
    server="crm",
    tool="b",
    params={},
    params_sha256="",
    rule="allow[2]",
    fuel=0,
    by=(),
    until=None,
)


def test_a_rule_is_found_again_wherever_it_is_now() -> None:
    then = Grant(
        allow=(rule("crm/a", "allow[1]"), rule("crm/b", "allow[2]")),
        deny=(rule("crm/b", "deny[1]"),),
    )
    now = Grant(
        allow=(rule("crm/b", "allow[1]", source="b.toml:9"),),
        deny=(rule("crm/b", "deny[1]"),),
    )
    uses = RuleUses(now)
    started = replace(run_started("weather"), grants=then.to_payload())
    for event in (
        *(started, invoked("allow[2]"), invoked("allow[2]"), invoked("allow[1]")),
        *(invoked(None), denied("deny[1]"), invoked(None), denied(None)),
        *(denied("narrow.allow[1]"), ASKED),
    ):
        uses.take(recorded(event))
    # A run whose beginning was not read.
    uses.take(recorded(invoked("allow[1]"), "run/b"))

    assert uses.document() == {
        "allow[1]": {"allowed": 2, "denied": 0, "asked": 1},
        "deny[1]": {"allowed": 0, "denied": 1, "asked": 0},
        "none": {"allowed": 0, "denied": 1, "asked": 0},
        "others": {"allowed": 2, "denied": 1, "asked": 0},
    }


HOUR = 3_600_000_000
SUM = Sum(of="amount", limit=10_500_000, per="day")


@pytest.mark.parametrize(
    ("budget", "use", "shown"),
    [
        (CallCount(limit=5, per="day"), Use(3, 0), ("calls per day", "3", "5")),
        (SUM, Use(1_500_000, 0), ("sum of amount per day", "1.5", "10.5")),
        (SUM, Use(2_000_000, 0), ("sum of amount per day", "2", "10.5")),
        (Pace(limit=30, every=60_000_000), Use(), ("rate in 60 s", "0", "30")),
        (Concurrency(limit=2), Use(), ("calls under way", "1", "2")),
    ],
)
def test_a_budget_is_shown_with_what_is_spent(
    budget: Budget, use: Use, shown: tuple[str, str, str]
) -> None:
    own = CallCount(limit=9, per="run")
    grant = Grant(allow=(rule("crm/a", "allow[1]", budgets=(own, budget), name="p"),))
    key = f"p/{budget.key}"
    spent = Spent(now=HOUR, uses={key: use}, places={key: [("run/a", 2)]})

    (found,) = budget_documents("weather", grant, spent)

    assert (found["budget"], found["spent"], found["limit"]) == shown
    holders: JSON = [{"run": "a", "call": 2}]
    assert found["calls"] == holders
    assert (found["rule"], found["account"]) == ("allow[1]", "p")
