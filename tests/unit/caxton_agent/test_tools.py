"""Granted tools as functions that are made from their schemas."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

import caxton_agent as ca
import pytest
from caxton_agent import aio, tools
from caxton_agent.testing import FakeHost

TIME = ca.Tool(
    "mcp__time__get_current_time",
    "The time now.",
    {
        "type": "object",
        "properties": {
            "format": {"type": ["string", "null"], "default": "iso"},
            "timezone": {"type": "string", "description": "A name such as UTC."},
            "round-to": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
            "from": {"enum": [1, 2]},
        },
        "required": ["timezone"],
    },
)
OPEN = ca.Tool("lookup", "", {"type": "object", "additionalProperties": True})


def host(*others: ca.Tool, **answers: ca.Reply) -> FakeHost:
    granted = {
        TIME.name: ca.Reply("noon", {"structuredContent": {"result": "12:00"}}),
        OPEN.name: ca.Reply("a text"),
    }
    return FakeHost({**granted, **answers}, tools=[TIME, OPEN, *others])


def test_a_tool_is_a_function_of_its_server() -> None:
    with host() as seen:
        assert tools.time.get_current_time(timezone="UTC", round_to=1) == "12:00"
        assert tools.time.get_current_time(timezone="UTC", from_=None) == "12:00"
    assert [params for _, params in seen.calls] == [
        {"timezone": "UTC", "round-to": 1},
        {"timezone": "UTC", "from": None},
    ]


@pytest.mark.parametrize(
    ("structured", "value"),
    [
        (None, "text"),
        ({"result": [1]}, [1]),
        ({"result": 1, "unit": "s"}, {"result": 1, "unit": "s"}),
        ({}, {}),
        ([], []),
    ],
)
def test_the_structured_content_comes_back_as_a_value(
    structured: ca.JSON, value: ca.JSON
) -> None:
    data = {"content": [], "structuredContent": structured}
    with FakeHost({"x": ca.Reply("text", data)}):
        assert tools.x() == value


def test_a_name_of_the_configuration_has_no_server() -> None:
    with host() as seen:
        assert tools.lookup(anything=1) == "a text"
        assert tools["lookup"](more=2) == "a text"
    assert seen.calls == [("lookup", {"anything": 1}), ("lookup", {"more": 2})]


def test_a_function_has_the_signature_and_the_text_of_its_schema() -> None:
    with host():
        function = tools.time.get_current_time
        assert str(inspect.signature(function)) == (
            "(*, timezone: str, format: str | None = 'iso',"
            " round_to: int | None = Ellipsis, from_: Any = Ellipsis)"
        )
        assert function.__doc__ == (
            "The time now.\n\nArgs:\n    timezone: A name such as UTC."
        )
        assert function.__name__ == "tools.time.get_current_time"
        assert repr(function).startswith("<tool tools.time.get_current_time(*, ")


def test_dir_shows_what_is_granted() -> None:
    with host():
        assert dir(tools) == ["lookup", "search", "time"]
        assert dir(tools.time) == ["get_current_time"]
        assert repr(tools.time) == "<tools of tools.time: get_current_time>"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"timezon": "UTC"},
            r"time\(\) has no argument 'timezon'; did you mean 'timezone'\?",
        ),
        ({}, r"get_current_time\(\) needs the argument 'timezone'"),
        ({"timezone": "UTC", "zzz": 1}, r"has no argument 'zzz'$"),
    ],
)
def test_a_wrong_argument_is_named_and_nothing_is_sent(
    arguments: dict[str, Any], message: str
) -> None:
    with host() as seen, pytest.raises(TypeError, match=message):
        tools.time.get_current_time(**arguments)
    assert seen.calls == []


def test_an_argument_without_its_name_is_an_error() -> None:
    with host(), pytest.raises(TypeError, match="by name only: format, timezone"):
        tools.time.get_current_time("UTC")


def test_a_wrong_name_comes_with_the_nearest_and_the_granted() -> None:
    with host():
        with pytest.raises(AttributeError, match=r"did you mean 'time'.*lookup, time"):
            tools.tme  # noqa: B018 -- it raises
        with pytest.raises(AttributeError, match="mean 'get_current_time'"):
            tools.time.get_time  # noqa: B018
        with pytest.raises(KeyError, match="did you mean 'lookup'"):
            tools["lokup"]


def test_names_become_identifiers() -> None:
    names = ["mcp__my-server__read.file", "mcp__x__7zip", "class", "mcp__only"]
    with FakeHost({name: name for name in names}):
        assert tools.my_server.read_file() == names[0]
        assert tools.x._7zip() == names[1]
        assert tools.class_() == names[2]
        assert tools.mcp__only() == names[3]


def test_two_tools_with_one_name_have_their_exact_names_only() -> None:
    with FakeHost({"mcp__x__a-b": "dash", "mcp__x__a_b": "line", "mcp__x__c": "c"}):
        assert dir(tools.x) == ["c"]
        assert tools["mcp__x__a-b"]() == "dash"
        assert tools["mcp__x__a_b"]() == "line"
        with pytest.raises(TypeError, match=r"tools\['mcp__x__a-b'\]\(\) takes"):
            tools["mcp__x__a-b"](1)


def test_a_search_finds_tools_by_their_words() -> None:
    rates = ca.Tool("mcp__bank__rates", "Rates of a currency.", {"type": "object"})
    currency = ca.Tool("mcp__bank__currency", "", {"type": "object"})
    with host(rates, currency):
        found = tools.search("which Currency")
        assert [each.tool.name for each in found] == [currency.name, rates.name]
        assert tools.search("timezone", limit=1)[0].tool == TIME
        assert tools.search("nothing") == []


def test_a_tool_that_is_named_search_comes_first() -> None:
    with FakeHost({"search": "found"}):
        assert tools.search(q="x") == "found"


def test_the_tools_are_those_of_the_host_of_the_moment() -> None:
    with FakeHost({"a": "one"}):
        assert tools.a() == "one"
    with FakeHost({"a": "two"}):
        assert tools.a() == "two"
        assert tools() == [ca.Tool("a", "", {"type": "object"})]
    with pytest.raises(ca.NoHostError):
        tools.a()
    assert not hasattr(tools, "__wrapped__")


def test_a_failure_is_that_of_the_call() -> None:
    with FakeHost({"a": ca.ToolError("tool_error", "no")}):
        with pytest.raises(ca.ToolError):
            tools.a()
        with pytest.raises(ca.ToolError):
            asyncio.run(_called())


async def _called() -> object:
    return await aio.tools.a()


def test_tools_that_are_awaited_give_the_same_values() -> None:
    async def run() -> object:
        now, text = await asyncio.gather(
            aio.tools.time.get_current_time(timezone="UTC"), aio.tools.lookup()
        )
        return [now, text, [each.name for each in aio.tools()]]

    seen = host()
    assert seen.run(run) is None
    assert seen.output == ["12:00", "a text", [TIME.name, OPEN.name]]


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"properties": 7, "required": "x"},
        {"properties": {"a": True, "b": {"type": 3}, "c": {"type": ["odd"]}}},
        {"properties": {"": {}, "é": {"type": []}, "None": {"type": "null"}}},
    ],
)
def test_an_odd_schema_makes_a_function_all_the_same(schema: dict[str, Any]) -> None:
    with FakeHost({"x": "ok"}, tools=[ca.Tool("x", "", schema)]):
        assert tools.x() == "ok"
        assert tools.x.__doc__ == ""
        assert repr(tools.x)
