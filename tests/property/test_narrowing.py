"""A narrowing never widens: what it allows, the grant allows by itself."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from caxton_host.core.calls import JSON, Route
from caxton_host.core.grants.bounds import NARROW, Bound, Permitted, decide_all, reached
from caxton_host.core.grants.decisions import Attempt, Tally, may_ever
from caxton_host.core.grants.grants import Grant, Rule
from caxton_host.core.text.globs import Pattern
from caxton_host.lib.json_schema import fits
from tests.property.test_conditions import PARAMS, SPECS, parsed

SERVERS, TOOLS = ("crm", "bank"), ("find", "find_all", "pay")
PATTERNS = st.builds(
    "{}/{}".format,
    st.sampled_from([*SERVERS, "*m", "b*k"]),
    st.sampled_from([*TOOLS, "*", "find*", "*a*"]),
).map(Pattern.parse)
COUNTS, MOMENTS = st.none() | st.integers(0, 3), st.none() | st.integers(0, 4)


@st.composite
def rules(draw: st.DrawFn, kind: str) -> tuple[Rule, ...]:
    found: list[Rule] = []
    for number in range(1, draw(st.integers(0, 2)) + 1):
        params: dict[str, Any] | None = draw(st.none() | st.none() | SPECS)
        rule = Rule(
            id=f"{kind}[{number}]",
            tools=tuple(draw(st.lists(PATTERNS, min_size=1, max_size=2))),
            params=parsed(params, deny=kind == "deny") if params else None,
        )
        if kind == "allow":
            rule = Rule(
                id=rule.id,
                tools=rule.tools,
                params=rule.params,
                other_params=draw(st.booleans()),
                calls=draw(COUNTS),
                expires=draw(MOMENTS),
                only_after=tuple(draw(st.lists(PATTERNS, max_size=1))),
            )
        found.append(rule)
    return tuple(found)


GRANTS = st.builds(Grant, allow=rules("allow"), deny=rules("deny"))
TARGETS = st.tuples(st.sampled_from(SERVERS), st.sampled_from(TOOLS))
CALLS = st.lists(st.tuples(TARGETS, PARAMS, st.integers(0, 4)), max_size=5)


def decided(
    bounds: list[Bound], attempt: Attempt, tallies: dict[str, Tally]
) -> Permitted | None:
    verdict = decide_all(bounds, attempt, tallies.__getitem__, lambda _: {})
    return verdict if isinstance(verdict, Permitted) else None


@settings(max_examples=40)
@given(GRANTS, GRANTS, CALLS)
def test_narrowing_allows_nothing_that_the_grant_alone_would_not(  # law 4
    grant: Grant,
    narrow: Grant,
    calls: list[tuple[tuple[str, str], dict[str, JSON], int]],
) -> None:
    own, bound = Bound(grant=grant), Bound(name=NARROW, grant=narrow)
    tallies = {"": Tally(), NARROW: Tally()}
    for (server, tool), params, now in calls:
        route = Route(server=server, tool=tool)
        attempt = Attempt(route=route, params=params, now=now, matches=fits)

        both = decided([own, bound], attempt, tallies)

        if both is None:
            continue
        # Both say yes alone, each as it has counted.
        for one in (own, bound):
            assert decided([one], attempt, tallies) is not None
            assert may_ever(one.grant, route)
        assert reached([grant, narrow], [server]) == [server]
        for one, rule in both.by:
            tallies[one.name].used[rule.id] += 1
            tallies[one.name].called.add((server, tool))
            tallies[one.name].done.add((server, tool))
