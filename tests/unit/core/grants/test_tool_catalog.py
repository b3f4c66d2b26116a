"""What a run may see, by which name."""

from __future__ import annotations

from dataclasses import replace

import pytest

from caxton_host.core.calls import JSON, Retry, Route
from caxton_host.core.grants.grants import Grant
from caxton_host.core.grants.tool_catalog import (
    Catalogue,
    Offered,
    catalogue_for,
    definitions,
    listing,
    pinned,
    reaching,
    routes_from_payload,
)
from caxton_host.core.names import READ, exposed_name
from caxton_host.core.tools.servers import ToolOptions
from caxton_host.errors import ConfigError
from caxton_host.lib import codec
from caxton_host.testing import offer
from tests.scene import rule

WEATHER = offer("demo", "get_weather", "Tells the weather.")
ECHO = offer("demo", "echo")
ALL = Grant(allow=(rule("demo/*"),))
OWN = {"weather": ("demo", "get_weather")}


def route(tool: str, digest: str | None = None) -> Route:
    return Route(server="demo", tool=tool, definition_sha256=digest)


def test_granted_tool_is_visible_by_its_exposed_name() -> None:
    catalogue = catalogue_for(ALL, {}, [WEATHER])

    assert catalogue.visible == {"mcp__demo__get_weather": WEATHER}
    assert catalogue.routes == {
        "mcp__demo__get_weather": route("get_weather", WEATHER.definition_sha256)
    }


def test_own_name_is_the_one_that_is_visible() -> None:
    catalogue = catalogue_for(ALL, OWN, [WEATHER])

    assert list(catalogue.visible) == ["weather"]
    assert sorted(catalogue.routes) == ["mcp__demo__get_weather", "weather"]


def test_two_own_names_for_one_tool_both_lead_there() -> None:
    names = OWN | {"sky": ("demo", "get_weather")}

    catalogue = catalogue_for(ALL, names, [WEATHER])

    assert sorted(catalogue.visible) == ["sky", "weather"]
    assert catalogue.routes["sky"] == catalogue.routes["weather"]


def test_own_name_grants_nothing() -> None:
    catalogue = catalogue_for(Grant(), OWN, [WEATHER])

    assert catalogue.visible == {}
    assert "weather" in catalogue.routes


def test_tool_without_a_grant_keeps_its_route_to_name_what_was_denied() -> None:
    catalogue = catalogue_for(Grant(allow=(rule("demo/echo"),)), {}, [WEATHER, ECHO])

    assert list(catalogue.visible) == ["mcp__demo__echo"]
    assert catalogue.routes["mcp__demo__get_weather"].tool == "get_weather"


def test_denied_tool_is_not_visible() -> None:
    grant = replace(ALL, deny=(rule("demo/echo", name="deny[1]"),))

    assert list(catalogue_for(grant, {}, [ECHO]).visible) == []


def test_tool_named_in_full_keeps_its_names_while_its_server_is_down() -> None:
    grant = Grant(allow=(rule("demo/get_weather", "demo/glob_*"),))

    catalogue = catalogue_for(grant, OWN, [])

    assert catalogue.visible == {}
    assert catalogue.routes == {
        "mcp__demo__get_weather": route("get_weather"),
        "weather": route("get_weather"),
    }


def test_effect_is_what_was_offered() -> None:
    catalogue = catalogue_for(ALL, {}, [replace(ECHO, effect="read")])

    assert catalogue.routes["mcp__demo__echo"].effect == "read"


@pytest.mark.parametrize(
    ("names", "offers"),
    [
        ({"mcp__demo__echo": ("demo", "get_weather")}, [WEATHER, ECHO]),
        (OWN, [WEATHER, replace(ECHO, exposed="weather")]),
        ({}, [WEATHER, replace(ECHO, exposed=WEATHER.exposed)]),
    ],
)
def test_two_tools_of_one_name_are_a_configuration_error(
    names: dict[str, tuple[str, str]], offers: list[object]
) -> None:
    # attack 26
    with pytest.raises(ConfigError, match="two tools would be called") as caught:
        catalogue_for(ALL, names, offers)  # type: ignore[arg-type]
    assert "demo/echo" in str(caught.value)
    assert "demo/get_weather" in str(caught.value)
    assert caught.value.fix


def test_same_offer_twice_is_one_tool() -> None:
    assert len(catalogue_for(ALL, {}, [ECHO, ECHO]).routes) == 1


def test_routes_are_read_back_as_they_were_recorded() -> None:
    catalogue = catalogue_for(
        ALL,
        OWN,
        [
            replace(
                WEATHER, retry=Retry(attempts=4), over_limit="cut", reply="message"
            ),
            replace(ECHO, effect="keyed"),
        ],
    )
    stored = codec.decode_trusted(codec.encode(catalogue.to_payload()))

    assert routes_from_payload(stored) == catalogue.routes
    assert routes_from_payload({"odd": 1}) == {}


def test_run_that_goes_on_sends_a_call_no_more_often_than_both_allow() -> None:
    often, once = replace(ECHO, retry=Retry(attempts=4)), ECHO
    for recorded, now in [(often, once), (once, often)]:
        payload = catalogue_for(ALL, {}, [recorded]).to_payload()
        [route] = pinned(payload, Offered(offers=(now,))).values()
        assert route.retry == Retry()


def test_run_that_goes_on_is_shown_no_more_of_an_answer_than_both_allow() -> None:
    whole, terse = ECHO, replace(ECHO, reply="message")
    for recorded, now in [(whole, terse), (terse, whole)]:
        payload = catalogue_for(ALL, {}, [recorded]).to_payload()
        [route] = pinned(payload, Offered(offers=(now,))).values()
        assert route.reply == "message"
    said = {("demo", "echo"): ToolOptions(reply="message")}
    payload = catalogue_for(ALL, {}, [whole]).to_payload()
    [route] = pinned(payload, Offered(options=said)).values()
    assert route.reply == "message"


def test_listing_shows_what_is_visible_and_nothing_else() -> None:
    grant = Grant(allow=(rule("demo/get_weather"),))
    payload = catalogue_for(grant, OWN, [WEATHER, ECHO]).to_payload()
    kept = {WEATHER.definition_sha256: codec.decode_trusted(WEATHER.definition)}

    assert listing(payload | {"odd": 1}, kept) == [
        {
            "name": "weather",
            "description": "Tells the weather.",
            "input_schema": {"type": "object"},
        }
    ]


def test_description_of_the_operator_is_recorded_and_shown() -> None:
    mine = replace(ECHO, description="Says it again.", overridden=True)
    payload = catalogue_for(ALL, {}, [mine]).to_payload()
    kept = {ECHO.definition_sha256: codec.decode_trusted(ECHO.definition)}

    assert [tool["description"] for tool in listing(payload, kept)] == [  # type: ignore[index, call-overload]
        "Says it again."
    ]


def test_schema_of_the_operator_is_recorded_and_shown_and_the_pin_is_the_servers() -> (
    None
):
    schema: dict[str, JSON] = {"type": "object", "required": ["text"]}
    mine = replace(ECHO, schema=schema)
    payload = catalogue_for(ALL, {}, [mine]).to_payload()
    kept = {ECHO.definition_sha256: codec.decode_trusted(ECHO.definition)}

    assert listing(payload, kept) == [
        {"name": ECHO.exposed, "description": "", "input_schema": schema}
    ]
    assert routes_from_payload(payload)[ECHO.exposed].definition_sha256 == (
        ECHO.definition_sha256
    )


def test_tool_whose_server_is_down_is_pinned_to_what_was_accepted() -> None:  # law 9
    grant = Grant(allow=(rule("demo/echo", "demo/other"),))
    accepted = {("demo", "echo"): "ab"}
    routes = catalogue_for(grant, {}, [], accepted=accepted).routes
    digests = {route.tool: route.definition_sha256 for route in routes.values()}
    assert digests == {"echo": "ab", "other": None}


def test_empty_catalogue_is_empty() -> None:
    assert Catalogue().to_payload() == {}
    assert listing({}, {}) == []


def test_operators_word_about_a_tool_holds_while_its_server_is_down() -> None:
    granted = Grant(allow=(rule("demo/pay"),))
    said = {("demo", "pay"): ToolOptions(expose_as="pay", effect="keyed")}

    catalogue = catalogue_for(granted, {}, [], said)

    assert catalogue.routes == {
        "pay": Route(
            server="demo", tool="pay", effect="keyed", retry=Retry(attempts=3)
        ),
    }
    assert catalogue.visible == {}


# -- what nobody could list ----------------------------------------------------


def gone(**said: ToolOptions) -> Offered:
    """A server that is down, and what the operator says of its tools."""
    return Offered(
        servers={"gone": {"protocol": None, "problem": "no such program"}},
        options={
            ("demo", "x"): ToolOptions(expose_as="other"),
            **{("gone", tool): options for tool, options in said.items()},
        },
        accepted={("gone", "a.b"): "ab"},
    )


def test_a_name_of_a_server_that_could_not_list_its_tools_leads_to_that_tool() -> None:
    offered = gone(x=ToolOptions(effect="read"), y=ToolOptions(expose_as="why"))
    known = {"mcp__gone__z": route("z")}

    routes = reaching(known, offered.unlisted, offered)

    x, w = routes["mcp__gone__x"], routes["mcp__gone__w"]
    assert (x.server, x.tool, x.effect, x.guessed) == ("gone", "x", "read", False)
    assert (w.server, w.tool, w.effect, w.guessed) == ("gone", "w", "unsafe", True)
    assert routes["why"].tool == "y"  # as the operator calls it, and no otherwise
    assert "mcp__gone__y" not in routes
    dotted = routes[exposed_name("gone", "a.b")]
    assert (dotted.tool, dotted.definition_sha256) == ("a.b", "ab")  # law 9
    assert routes["mcp__gone__z"] == route("z")  # the catalogue comes first
    assert dict(routes) == known
    assert len(routes) == 1


@pytest.mark.parametrize(
    "name", ["mcp__demo__x", "mcp__gone__", "mcp__gone__a/b", "other"]
)
def test_any_other_name_leads_nowhere(name: str) -> None:
    # attack 23
    assert reaching({}, ["gone"], gone()).get(name) is None
    assert reaching({}, [], Offered()) == {}


def test_a_name_that_could_mean_two_tools_leads_nowhere() -> None:
    # attack 23
    plain = exposed_name("go.ne", "x")
    assert reaching({}, ["go.ne"], Offered())[plain].tool == "x"
    assert plain not in reaching({}, ["go.ne", "go_ne"], Offered())
    twice = gone(x=ToolOptions(expose_as="one"), y=ToolOptions(expose_as="one"))
    assert "one" not in reaching({}, ["gone"], twice)


def shown_to_clients(**options: object) -> dict[str, JSON]:
    known = {
        "name": "echo",
        "title": "Echo",
        "description": "Theirs.",
        "inputSchema": {"type": "object"},
        "outputSchema": {"type": "object"},
        "annotations": {"readOnlyHint": True},
    }
    entry: dict[str, JSON] = {
        "server": "demo",
        "tool": "echo",
        "definition_sha256": "d",
        "visible": True,
    }
    entry |= options  # type: ignore[arg-type]  # JSON
    hidden: dict[str, JSON] = {"server": "demo", "tool": "rm"}
    (tool,) = definitions({"echo_": entry, "rm": hidden}, {"d": known})  # type: ignore[dict-item]
    return tool


def test_a_client_is_shown_the_definition_of_the_server() -> None:
    tool = shown_to_clients()
    assert (tool["name"], tool["title"]) == ("echo_", "Echo")
    assert tool["annotations"] == {"readOnlyHint": True}
    assert "outputSchema" in tool


def test_a_client_is_shown_what_the_operator_says_of_a_tool() -> None:
    own = {"type": "object", "required": ["text"]}
    tool = shown_to_clients(description="Ours.", input_schema=own)
    assert (tool["description"], tool["inputSchema"]) == ("Ours.", own)


@pytest.mark.parametrize("option", [{"reply": "message"}, {"over_limit": "cut"}])
def test_no_schema_promises_what_is_withheld(option: dict[str, object]) -> None:
    assert "outputSchema" not in shown_to_clients(**option)


def test_a_method_that_a_rule_names_is_routed_reads_and_is_not_shown() -> None:
    grant = Grant(allow=(rule("demo/*"), rule(f"demo/{READ}")))
    name = exposed_name("demo", READ)
    catalogue = catalogue_for(grant, {}, [ECHO])
    assert [*catalogue.visible] == ["mcp__demo__echo"]
    read = catalogue.routes[name]
    assert (read.tool, read.effect) == (READ, "read")
    assert pinned(catalogue.to_payload(), Offered())[name].effect == "read"
