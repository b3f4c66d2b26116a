"""The stand-in for the demo server, held to what it stands in for."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from mcp import Client, MCPError, StdioServerParameters, stdio_client

from tests import standin

_DEMO = {"command": sys.executable, "args": ["-m", "caxton_host.demo_server"]}
_CALLS: tuple[tuple[str, dict[str, Any]], ...] = (
    *(("get_weather", {"location": name}) for name in (" lima", "TOKYO", "nowhere")),
    ("get_weather", {}),
    ("echo", {"text": "höhe"}),
    ("echo", {"text": 5}),
    ("slow", {"seconds": 0.01}),
    ("slow", {"seconds": -1}),
    ("fail", {"message": "as you wish"}),
    ("picture", {}),
    ("read_mail", {}),
    ("list_suppliers", {}),
    ("pay", {"to": "ada", "amount": 1.5}),
    ("large", {"bytes": 3000}),
    ("large", {"bytes": -1}),
    ("rm", {}),
)


@asynccontextmanager
async def connected(command: dict[str, Any], mode: str) -> AsyncGenerator[Client]:
    how = StdioServerParameters(**command)
    async with Client(stdio_client(how), mode=mode) as client:
        yield client


async def answers(command: dict[str, Any], mode: str) -> list[object]:
    found: list[object] = []
    async with connected(command, mode) as client:
        found += [
            client.protocol_version,
            client.server_info and client.server_info.name,
        ]
        found += [client.server_capabilities, await client.list_tools()]
        for name, arguments in _CALLS:
            try:
                found.append(await client.call_tool(name, arguments))
            except MCPError as refused:
                found.append(refused.error)
    return found


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_it_answers_as_the_demo_server_does(mode: str) -> None:
    assert await answers(standin.command(), mode) == await answers(_DEMO, mode)
