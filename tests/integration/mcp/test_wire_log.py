"""The messages of a real connection, told as they pass."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from caxton_host.core.text.redact import Redactor
from caxton_host.core.tools.servers import ServerConfig
from caxton_host.errors import ToolError
from caxton_host.mcp import McpTools

from .conftest import SECRET, Faulty, request
from .faulty_http import FaultyHttp


def messages(path: Path) -> list[tuple[str, Any]]:
    """Return which way each message went, and what it was."""
    found: list[tuple[str, Any]] = []
    for line in path.read_text().splitlines():
        _, mcp, way, server, said = line.split(" ", 4)
        assert (mcp, server) == ("MCP", "faulty")
        found.append((way, json.loads(said) if said.startswith("{") else said))
    return found


async def test_a_call_over_pipes_is_told_with_its_answer(
    faulty: Faulty, tmp_path: Path
) -> None:
    path = tmp_path / "wire.log"
    async with faulty("asks", wire_log=str(path)) as tools:
        await tools.call_tool(request("act"))
    told = messages(path)
    [asked] = [
        m for way, m in told if way == "POST" and m.get("method") == "tools/call"
    ]
    assert asked["params"]["name"] == "act"
    assert ("RESP", asked["id"]) in [(way, m.get("id")) for way, m in told]
    # What the server asked, and what it was told.
    assert "ping" in [m.get("method") for way, m in told if way == "RECV"]
    assert {"jsonrpc": "2.0", "id": 7, "result": {}} in [
        m for way, m in told if way == "POST"
    ]


@pytest.mark.parametrize("mode", ["sound", "refuses 400", "asks", "redirects 302"])
async def test_a_call_over_http_is_told_without_headers_or_addresses(
    mode: str, tmp_path: Path
) -> None:  # law 8
    path = tmp_path / "wire.log"
    async with FaultyHttp(mode, secret=SECRET) as server:
        config = ServerConfig(
            name="faulty",
            url=server.url,
            transport="http",
            headers={"authorization": SECRET},
            wire_log=str(path),
        )
        async with McpTools({"faulty": config}, redact=Redactor([SECRET])) as tools:
            try:
                await tools.call_tool(request("act"))
            except ToolError:
                assert mode != "sound"
    told = messages(path)
    methods = [m["method"] for way, m in told if way == "POST"]
    assert methods[-1] == "tools/call"
    assert {way for way, _ in told} >= {"POST", "RESP"}
    assert ("RECV" in {way for way, _ in told}) == (mode == "asks")
    if mode == "redirects 302":
        assert told[-1] == ("RESP", "HTTP 302 (Found)")
    text = path.read_text().lower()
    assert SECRET not in text
    assert "authorization" not in text
    assert str(server.port) not in text
