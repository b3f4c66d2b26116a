"""Where a value came from decides about a call, and is recorded with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from caxton_host.config.narrowing import narrowings
from caxton_host.core.calls import JSON
from caxton_host.core.grants.approvals import Approve
from caxton_host.core.grants.bounds import Bound
from caxton_host.core.grants.conditions import Conditions
from caxton_host.core.grants.findings import findings
from caxton_host.core.grants.grants import Grant, Rule
from caxton_host.core.grants.journal import Journal
from caxton_host.core.log.events import (
    ApprovalRequested,
    Event,
    ToolDenied,
    ToolInvoked,
)
from caxton_host.core.provenance import Sources, checked
from caxton_host.core.text.globs import Pattern
from caxton_host.lib import codec
from caxton_host.ports.sandbox import Door, Ending, Guest
from tests.provenance.runs import completed, invoked, started
from tests.scene import Scene, ended

FROM: JSON = {"from": ["input", "demo/get_weather$.who[*]"]}


def rule(
    number: int, tool: str, approve: Approve | None = None, **params: JSON
) -> Rule:
    return Rule(
        id=f"allow[{number}]",
        tools=(Pattern.parse(tool),),
        params=Conditions.parse(params) if params else None,
        other_params=bool(params),
        approve=approve,
    )


def asking(grant: Grant, *cities: JSON, given: JSON = "Oslo, then Rome") -> Scene:
    async def script(door: Door, guest: Guest) -> Ending:
        del guest
        for fuel, city in enumerate(cities, 1):
            params: dict[str, JSON] = {"city": city}
            await door.call(b"weather", codec.encode(params), fuel)
        return ended()

    scene = Scene(script)
    scene.request = replace(scene.request, grant=grant, input=given)
    return scene


def of(events: list[Event], cls: type[Event]) -> list[Event]:
    return [event for event in events if isinstance(event, cls)]


async def test_call_records_the_sources_of_what_a_rule_looked_at() -> None:
    events = await asking(Grant(allow=(rule(1, "demo/*", city=FROM),)), "Oslo").run()

    (call,) = of(events, ToolInvoked)
    assert isinstance(call, ToolInvoked)
    assert call.rule == "allow[1]"
    assert call.sources == {"$.city": [{"call": 0, "path": "$", "source": "input"}]}


async def test_value_from_nowhere_is_denied_without_a_word_about_sources() -> None:
    # laws 4 and 8
    events = await asking(Grant(allow=(rule(1, "demo/*", city=FROM),)), "Bonn").run()

    (call,), (denied,) = of(events, ToolInvoked), of(events, ToolDenied)
    assert isinstance(call, ToolInvoked)
    assert isinstance(denied, ToolDenied)
    assert (call.rule, call.sources) == (None, {"$.city": []})
    assert denied.code == "params"
    assert denied.message == "$.city was found in no source that the grant names"


async def test_value_that_cannot_be_compared_is_denied_and_said_to_be() -> None:
    grant = Grant(allow=(rule(1, "demo/*", city=FROM),))

    events = await asking(grant, "[redacted]").run()

    (denied,) = of(events, ToolDenied)
    assert isinstance(denied, ToolDenied)
    assert denied.message == (
        "$.city cannot be compared with the sources that the grant names"
    )


async def test_run_without_such_a_rule_records_nothing_of_sources() -> None:
    events = await asking(Grant(allow=(rule(1, "demo/*"),)), "Oslo").run()

    (call,) = of(events, ToolInvoked)
    assert isinstance(call, ToolInvoked)
    assert call.sources is None


async def test_name_that_leads_nowhere_is_denied_and_has_no_sources() -> None:  # law 2
    async def script(door: Door, guest: Guest) -> Ending:
        del guest
        await door.call(b"nothing", codec.encode({"city": "Oslo"}), 1)
        return ended()

    scene = Scene(script)
    grant = Grant(allow=(rule(1, "demo/*", city=FROM),))
    scene.request = replace(scene.request, grant=grant, input="Oslo")

    events = await scene.run()

    (call,), (denied,) = of(events, ToolInvoked), of(events, ToolDenied)
    assert isinstance(call, ToolInvoked)
    assert isinstance(denied, ToolDenied)
    assert (call.sources, denied.code) == (None, "not_granted")


async def test_person_is_asked_about_a_value_from_elsewhere_and_sees_its_sources() -> (
    None
):
    when = Conditions.parse({"city": {"not_from": ["input"]}}, deny=True)
    grant = Grant(allow=(rule(1, "demo/*", Approve(when=when)),))

    events = await asking(grant, "Oslo", "Bonn").run()

    (asked,) = of(events, ApprovalRequested)
    assert isinstance(asked, ApprovalRequested)
    assert (asked.call, asked.sources) == (2, {"$.city": []})


async def test_log_gives_the_sources_that_were_recorded_live() -> None:  # law 5
    grant = Grant(allow=(rule(1, "demo/*", city=FROM),))
    events = await asking(grant, "Oslo", "Bonn", "Rome").run()
    journal = Journal(grant=grant)

    for number, event in enumerate(events, 1):
        if isinstance(event, ToolInvoked):
            params = event.params or {}
            assert journal.sources
            assert findings(grant.allow, params, journal.sources) == event.sources
        journal.apply(event, number)


def test_grant_that_binds_late_counts_with_the_sources_of_each_call() -> None:
    tight = Bound(
        name="today", grant=Grant(allow=(rule(1, "crm/*", city={"from": ["input"]}),))
    )
    past: list[Event] = [
        started("Oslo"),
        invoked(1, "crm/find", {"city": "Oslo"}),
        completed(1, {"structuredContent": {}}),
        invoked(2, "crm/find", {"city": "Bonn"}),
    ]
    early, late = Journal(bounds=[tight]), Journal()
    for number, event in enumerate(past, 1):
        early.apply(event, number)
        late.apply(event, number)

    late.bind(tight)

    assert late.tallies.others == early.tallies.others
    assert late.tallies.others["today"].used == {"allow[1]": 1}
    assert late.sources


@pytest.mark.parametrize(
    ("params", "names"),
    [
        ({"city": "Oslo"}, {"$.city"}),
        ({"city": "Bonn"}, set[str]()),
        ({"city": ["Oslo", "Bonn"]}, {"$.city[0]"}),
        ({"text": "see https://a.org"}, set[str]()),
        ({"x" * 65: "Oslo"}, set[str]()),
    ],
)
def test_parameter_is_checked_if_a_source_of_its_value_was_found(
    params: Mapping[str, JSON], names: set[str]
) -> None:
    wanted: JSON = {"from": ["input"]}
    conditions = Conditions.parse(
        {
            "city": wanted,
            "text": {"urls": wanted, "optional": True},
            "x" * 65: wanted,
        }
    )
    sources = Sources(conditions.wanted, 2**20)
    sources.apply(started("Oslo https://a.org"))

    one = Rule(id="allow[1]", tools=(), params=conditions)
    assert checked(findings([one], params, sources)) == names


async def test_narrowing_excuses_no_echo() -> None:  # law 4
    """What only a narrowing looked at is recorded, and checks no parameter."""
    scene = asking(Grant(allow=(rule(1, "demo/*"),)), "Oslo")
    terms: dict[str, JSON] = {"tools": ["demo/*"], "params": {"city": FROM}}
    (narrow,) = narrowings({"allow": [terms]})
    scene.request = replace(scene.request, bounds=(narrow,))

    events = await scene.run()

    (call,) = of(events, ToolInvoked)
    assert isinstance(call, ToolInvoked)
    place: dict[str, JSON] = {"call": 0, "path": "$", "source": "input", "narrow": True}
    assert call.sources == {"$.city": [place]}
    assert not checked(call.sources)


def test_rule_of_the_operator_checks_what_a_narrowing_looked_at_as_well() -> None:
    conditions = Conditions.parse({"city": {"from": ["input"]}})
    sources = Sources(conditions.wanted, 2**20)
    sources.apply(started("Oslo"))
    one = Rule(id="allow[1]", tools=(), params=conditions)

    both = findings([one], {"city": "Oslo"}, sources, [one])

    assert both == findings([one], {"city": "Oslo"}, sources)
    assert checked(both) == {"$.city"}


async def test_sources_that_cannot_be_noted_check_no_parameter(  # law 4
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(*_: object) -> None:
        raise RecursionError

    monkeypatch.setattr("caxton_host.gateway.judge.findings", broken)

    events = await asking(Grant(allow=(rule(1, "demo/*", city=FROM),)), "Oslo").run()

    (call,) = of(events, ToolInvoked)
    assert isinstance(call, ToolInvoked)
    assert (call.rule, call.sources) == ("allow[1]", None)
