"""What a server says of its tools is bounded, pinned and believed only if told to."""

from __future__ import annotations

from typing import Any

import pytest

from caxton_host.core.calls import JSON, Effect
from caxton_host.core.grants.grants import Grant, Rule
from caxton_host.core.grants.tool_catalog import Offer, catalogue_for, listing
from caxton_host.core.text.globs import Pattern
from caxton_host.core.text.redact import Redactor
from caxton_host.core.tools.servers import ServerConfig, ToolOptions
from caxton_host.lib.codec import decode_trusted, sha256
from caxton_host.mcp.catalogue import offers_of

SCHEMA: dict[str, Any] = {"type": "object"}


def entry(name: object = "look_up", **rest: object) -> dict[str, Any]:
    return {"name": name, "description": "d", "inputSchema": SCHEMA} | rest


def offers(
    *entries: Any,  # noqa: ANN401
    **config: Any,  # noqa: ANN401
) -> tuple[list[Offer], list[str]]:
    found, left_out = offers_of(
        ServerConfig(name="crm", **config), entries, Redactor(["s3cret-value"])
    )
    return list(found.values()), left_out


def only(entry_: dict[str, Any], **config: Any) -> Offer:  # noqa: ANN401
    [offer], _ = offers(entry_, **config)
    return offer


def test_a_tool_is_offered_under_its_exposed_name_with_its_pin() -> None:
    offer = only(entry())
    assert offer.exposed == "mcp__crm__look_up"
    assert (offer.server, offer.tool, offer.effect) == ("crm", "look_up", "unsafe")
    assert offer.definition_sha256 == sha256(offer.definition)


@pytest.mark.parametrize(
    "change",
    [
        {"description": "e"},
        {"inputSchema": {"type": "object", "x": 1}},
        {"outputSchema": SCHEMA},
        {"annotations": {"readOnlyHint": True}},
    ],
)
def test_the_pin_changes_with_every_part_of_the_definition(
    change: dict[str, Any],
) -> None:
    # attack 27
    assert only(entry()).definition_sha256 != only(entry(**change)).definition_sha256


def test_the_pin_does_not_depend_on_order_or_on_what_is_no_definition() -> None:
    mixed = dict(reversed(entry(_meta={"x": 1}).items()))
    assert only(mixed).definition_sha256 == only(entry()).definition_sha256


@pytest.mark.parametrize(
    ("odd", "why"),
    [
        ("text", "an entry without a name"),
        ({"inputSchema": SCHEMA}, "an entry without a name"),
        (entry("a b"), "'a b': not a name for a tool"),
        (entry("look\u0456up"), "not a name"),
        (entry("look_up "), "'look_up ': not a name"),
        (entry("look\u200b_up"), "not a name"),
        (entry("look_up\0"), "not a name"),
        (entry("\uff4cook_up"), "not a name"),
        (entry("x" * 129), "not a name"),
        (entry("a\n\x1b[31m"), r"'a\n\x1b[31m': not a name"),
        (entry(description=5), "description is not text"),
        (entry(description="x" * 16_385), "over 16384 characters"),
        (entry(inputSchema=[]), "no input schema"),
        ({"name": "bare"}, "no input schema"),
        (entry(inputSchema={"x": "y" * 300_000}), "over 262144 bytes"),
        (entry(inputSchema={"x": 2**70}), "cannot be"),
    ],
)
def test_a_tool_that_cannot_be_offered_is_left_out_with_a_reason(
    odd: object, why: str
) -> None:
    # attack 22
    found, left_out = offers(odd, entry("sound"))
    assert [offer.tool for offer in found] == ["sound"]
    [reason] = left_out
    assert why in reason or "stored" in reason


def test_a_name_that_is_listed_twice_means_nothing() -> None:
    # attack 26
    found, left_out = offers(entry(), entry(description="other"), entry("sound"))
    assert [offer.tool for offer in found] == ["sound"]
    assert left_out == ["'look_up': listed 2 times"]


@pytest.mark.parametrize(
    ("annotations", "trusted", "effect"),
    [
        ({"readOnlyHint": True}, False, "unsafe"),
        ({"readOnlyHint": True}, True, "read"),
        ({"readOnlyHint": "yes"}, True, "unsafe"),
        ({"idempotentHint": True}, True, "idempotent"),
        ({"readOnlyHint": False, "idempotentHint": True}, True, "idempotent"),
        (None, True, "unsafe"),
        ("read", True, "unsafe"),
    ],
)
def test_annotations_count_only_where_the_operator_trusts_them(
    annotations: object, effect: Effect, *, trusted: bool
) -> None:
    # law 7
    offer = only(entry(annotations=annotations), trust_annotations=trusted)
    assert offer.effect == effect


def test_the_word_of_the_operator_wins() -> None:
    options = ToolOptions(expose_as="lookup", effect="keyed", description="mine")
    offer = only(
        entry(annotations={"readOnlyHint": True}),
        tools={"look_up": options},
        trust_annotations=True,
    )
    assert (offer.exposed, offer.effect, offer.description) == (
        "lookup",
        "keyed",
        "mine",
    )
    assert (
        offer.definition_sha256
        == only(entry(annotations={"readOnlyHint": True})).definition_sha256
    )


@pytest.mark.parametrize("said", [None, ""])
def test_a_tool_without_a_description_is_described_by_its_name(
    said: str | None,
) -> None:
    offer = only(entry(description=said))
    assert (offer.description, offer.overridden) == ("look_up", True)


def test_the_operators_schema_is_shown_and_the_pin_is_the_servers() -> None:
    schema: dict[str, JSON] = {"type": "object", "required": ["name"]}
    offer = only(entry(), tools={"look_up": ToolOptions(input_schema=schema)})
    assert offer.schema == schema
    assert offer.input_schema == only(entry()).input_schema
    assert offer.definition_sha256 == only(entry()).definition_sha256


def test_no_secret_gets_into_a_definition() -> None:
    # law 8
    offer = only(
        entry(description="s3cret-value", inputSchema={"default": "s3cret-value"})
    )
    assert "s3cret" not in str(offer)


def test_tool_whose_name_holds_a_secret_is_left_out() -> None:  # law 8
    name = b"s3cret-value".hex()
    found, left_out = offers(entry(), entry(f"x-{name}"))

    assert [offer.tool for offer in found] == ["look_up"]
    assert left_out == ["'x-[redacted]': its name holds a secret"]


def test_what_the_log_keeps_is_the_operators_word() -> None:
    hashed = only(entry(), tools={"look_up": ToolOptions(record="hash")})

    assert (hashed.record, only(entry()).record) == ("hash", "full")


def test_description_of_the_operator_is_what_the_agent_is_shown() -> None:
    said = ToolOptions(description="Looks up a customer.")
    options = {"tools": {"look_up": said}}
    server, own = only(entry()), only(entry(), **options)
    assert (server.overridden, own.overridden) == (False, True)
    grant = Grant(allow=(Rule(id="a", tools=(Pattern.parse("crm/*"),)),))

    for offer, told in ((server, "d"), (own, "Looks up a customer.")):
        payload = catalogue_for(grant, {}, [offer]).to_payload()
        definitions = {offer.definition_sha256: decode_trusted(offer.definition)}
        [tool] = listing(payload, definitions)
        assert isinstance(tool, dict)
        assert tool["description"] == told
