"""What an intent records of the sources of a call's values."""

from __future__ import annotations

from caxton_host.core.calls import JSON
from caxton_host.core.grants.conditions import Conditions
from caxton_host.core.grants.findings import findings
from caxton_host.core.grants.grants import Rule
from caxton_host.core.log.events import Payload
from caxton_host.core.provenance import MAX_VALUES, Sources
from tests.provenance.runs import started

FROM: JSON = {"from": ["input"]}


def found(conditions: JSON, params: dict[str, JSON]) -> Payload:
    parsed = Conditions.parse({"to": conditions})
    sources = Sources(parsed.wanted, 2**20)
    sources.apply(started("bob https://a.org"))
    return findings([Rule(id="", tools=(), params=parsed)], params, sources) or {}


def test_parts_of_a_value_are_recorded_where_they_stand() -> None:
    people: JSON = [{"id": "bob"}, {"id": "eve"}]

    assert {
        path: bool(places)
        for path, places in found(
            {"each": {"has": {"id": FROM}}}, {"to": people}
        ).items()
    } == {"$.to[0].id": True, "$.to[1].id": False}
    assert [*found({"keys": {"values": FROM}}, {"to": {"a": "bob"}})] == ["$.to.a"]


def test_call_records_the_sources_of_a_limited_number_of_values() -> None:
    many: list[JSON] = ["bob"] * (MAX_VALUES + 1)

    assert len(found(FROM, {"to": [*many]})) == MAX_VALUES


def test_value_that_is_no_text_has_no_urls_to_record() -> None:
    assert found({"urls": FROM}, {"to": 1}) == {}
