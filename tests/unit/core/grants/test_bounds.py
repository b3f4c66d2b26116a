"""A call needs the permission of every grant that binds its run."""

import pytest

from caxton_host.core.calls import Completed, Denied, Route
from caxton_host.core.grants.bounds import (
    NARROW,
    TODAY,
    Bound,
    Permitted,
    bounds_of,
    decide_all,
)
from caxton_host.core.grants.budgets import Sum
from caxton_host.core.grants.decisions import Attempt, Tally
from caxton_host.core.grants.grants import Grant, Rule
from caxton_host.core.grants.journal import Journal
from caxton_host.core.log.events import ToolInvoked, settled
from caxton_host.core.text.globs import Pattern
from caxton_host.errors import UsageError

PAY = Route(server="bank", tool="pay")


def granted(*tools: str, **terms: object) -> Grant:
    patterns = tuple(map(Pattern.parse, tools))
    return Grant(allow=(Rule(id="allow[1]", tools=patterns, **terms),))  # type: ignore[arg-type]


def decided(*bounds: Bound) -> Permitted | Denied:
    return decide_all(bounds, Attempt(route=PAY), lambda _: Tally(), lambda _: {})


def paid(call: int, spends: dict[str, int] | None = None) -> ToolInvoked:
    return ToolInvoked(
        call=call,
        name="pay",
        server="bank",
        tool="pay",
        params={"amount": 1},
        params_sha256="",
        effect="unsafe",
        rule="allow[1]",
        idempotency_key="",
        fuel=0,
        spends={**spends} if spends else None,
    )


def test_a_call_that_all_grants_allow_is_permitted_by_a_rule_of_each() -> None:
    own, narrow = (
        Bound(grant=granted("bank/*")),
        Bound(name=NARROW, grant=granted("bank/pay")),
    )

    verdict = decided(own, narrow)

    assert isinstance(verdict, Permitted)
    assert [bound.rule(rule.id) for bound, rule in verdict.by] == [
        "allow[1]",
        "narrow.allow[1]",
    ]


@pytest.mark.parametrize(
    ("name", "says"),
    [
        (NARROW, "as the run was narrowed"),
        (TODAY, "in the grants of today"),
        ("parent", "in the grants of the agent that called this one"),
        ("parent.narrow", "as the run was narrowed"),
    ],
)
def test_the_first_grant_that_does_not_allow_a_call_names_itself(  # law 4
    name: str, says: str
) -> None:
    verdict = decided(
        Bound(grant=granted("bank/*")),
        Bound(name=name, grant=granted("bank/*", calls=0)),
    )

    assert isinstance(verdict, Denied)
    assert (verdict.rule, verdict.code) == (f"{name}.allow[1]", "budget")
    assert verdict.message.endswith(f", {says}")


def test_a_grant_that_binds_as_well_never_widens_the_recorded_one() -> None:  # law 4
    wide = Bound(name=NARROW, grant=granted("bank/*"))

    verdict = decided(Bound(grant=granted("files/*")), wide)

    assert isinstance(verdict, Denied)
    assert verdict.code == "not_granted"


def test_bounds_are_read_back_as_they_were_recorded() -> None:
    bounds = (
        Bound(name=NARROW, grant=granted("bank/*", calls=3)),
        Bound(name="parent", grant=granted("bank/*"), owner="boss"),
    )

    assert bounds_of([bound.to_payload() for bound in bounds]) == bounds


def test_a_bound_with_a_key_of_a_later_version_is_refused() -> None:  # law 4
    with pytest.raises(UsageError, match="unknown form"):
        bounds_of([{**Bound(grant=Grant()).to_payload(), "until": 3}])


def test_a_grant_that_binds_later_counts_what_the_run_did_before() -> None:
    limit = Sum(of="amount", limit=2_000_000, per="run")
    today = Bound(name=TODAY, grant=granted("bank/*", name="pay", budgets=(limit,)))
    early, late = Journal(bounds=[today]), Journal()
    for journal in (early, late):
        journal.apply(paid(1), 7)
        journal.apply(settled(1, Completed()), 8)
        journal.apply(paid(2, {"pay/sum/run/amount": 1_000_000}), 9)

    late.bind(today)

    assert late.tallies == early.tallies
    assert late.tallies.of(TODAY).spent == {"pay/sum/run/amount": 2_000_000}
    assert late.tallies.of(TODAY).done == {("bank", "pay")}


def test_a_grant_counts_the_budgets_of_its_owner_alone() -> None:
    parent = Bound(name="parent", grant=granted("bank/*"), owner="boss")

    assert parent.share({"@boss/a/open": 1, "a/open": 2, "@bo/a": 3}) == {"a/open": 1}
    assert Bound(grant=Grant()).share({"@boss/a": 1, "b": 2}) == {"b": 2}
