"""The demo server: offline, and the same every time."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from mcp import Client, MCPError
from mcp_types import CallToolResult, ImageContent, TextContent

from caxton_host.demo_server import demo_server


async def ask(tool: str, **arguments: Any) -> CallToolResult:  # noqa: ANN401
    async with Client(demo_server()) as client:
        return await client.call_tool(tool, arguments)


def text(result: CallToolResult) -> str:
    [block] = result.content
    assert isinstance(block, TextContent)
    return block.text


@pytest.mark.parametrize("spelt", ["Seattle", " seattle ", "SEATTLE"])
async def test_the_weather_in_seattle_is_rain(spelt: str) -> None:
    result = await ask("get_weather", location=spelt)
    assert text(result) == "Seattle: 12 °C, rain"
    assert result.structured_content == {
        "location": "Seattle",
        "temperature": 12,
        "conditions": "rain",
    }


async def test_an_unknown_place_is_an_error_of_the_tool() -> None:
    result = await ask("get_weather", location="Atlantis")
    assert (result.is_error, text(result)) == (True, "no weather for 'Atlantis'")


async def test_the_picture_is_a_png() -> None:
    [block] = (await ask("picture")).content
    assert isinstance(block, ImageContent)
    assert base64.b64decode(block.data).startswith(b"\x89PNG\r\n\x1a\n")


async def test_every_other_tool_does_as_it_is_told() -> None:
    assert text(await ask("echo", text="höhe")) == "höhe"
    assert text(await ask("slow", seconds=0.01)) == "waited 0.01 s"
    assert text(await ask("large", bytes=3000)) == "x" * 3000
    failed = await ask("fail", message="as you wish")
    assert (failed.is_error, text(failed)) == (True, "as you wish")


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("get_weather", {}),
        ("echo", {"text": 5}),
        ("slow", {"seconds": -1}),
        ("slow", {"seconds": 10_000}),
        ("large", {"bytes": -1}),
        ("large", {"bytes": 2**40}),
    ],
)
async def test_arguments_that_do_not_fit_are_an_error_of_the_tool(
    tool: str, arguments: dict[str, Any]
) -> None:
    result = await ask(tool, **arguments)
    assert (result.is_error, text(result)) == (
        True,
        f"these are no arguments of {tool}",
    )


async def test_a_tool_that_is_not_there_is_refused() -> None:
    async with Client(demo_server(), raise_exceptions=False) as client:
        with pytest.raises(MCPError, match="no tool rm"):
            await client.call_tool("rm", {})
