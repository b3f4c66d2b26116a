"""Confined servers that others wrote, which fetch what the operator lists."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from caxton_host.core.calls import Completed
from caxton_host.core.log.events import EgressAllowed, EgressRefused, Event
from caxton_host.core.text.redact import Redactor
from caxton_host.core.tools.confinement import Confine
from caxton_host.core.tools.servers import ServerConfig
from caxton_host.mcp import McpTools
from caxton_host.ports.tools import RunScope

from .conftest import request
from .test_http_servers import certificate

#: Without rules of its own.
AS_IT_IS = ("--allow-private-ips", "--ignore-robots-txt")
HEAD = b"HTTP/1.1 200 OK\r\nConnection: close\r\n"


class Site:
    """A web site on this machine, with TLS."""

    port = 0

    async def serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        path = (await reader.readuntil(b"\r\n\r\n")).split()[1]
        answers = {
            b"/page": HEAD + b"Content-Type: text/plain\r\n\r\nwhat was asked for",
            b"/away": b"HTTP/1.1 302 Found\r\nConnection: close\r\n"
            b"Location: https://169.254.169.254/latest/meta-data\r\n\r\n",
        }
        nothing = b"HTTP/1.1 404 Not Found\r\nConnection: close\r\n\r\n"
        writer.write(answers.get(path, nothing))
        await writer.drain()
        writer.close()


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    one = Site()
    server = await asyncio.start_server(
        one.serve, "127.0.0.1", 0, ssl=certificate(tmp_path)
    )
    one.port = server.sockets[0].getsockname()[1]
    yield one
    server.close()


async def test_a_server_fetches_what_is_listed_and_nothing_else(
    site: Site, tmp_path: Path, events: list[Event]
) -> None:
    authority = tmp_path / "cert.pem"
    config = ServerConfig(
        name="fetch",
        command=(sys.executable, "-m", "mcp_server_fetch", *AS_IT_IS),
        env={"SSL_CERT_FILE": str(authority)},
        confine=Confine(connect=(f"127.0.0.1:{site.port}",), read=(str(authority),)),
    )
    tools = McpTools({"fetch": config}, redact=Redactor(), on_event=events.append)

    async def fetch(url: str) -> Completed:
        wanted = request("fetch", {"url": url}, server="fetch")
        return await own.call_tool(wanted)

    async with tools, tools.open(RunScope(run_id="0198", agent="a")) as own:
        found = await fetch(f"https://127.0.0.1:{site.port}/page")
        away = await fetch(f"https://127.0.0.1:{site.port}/away")
        other = await fetch("https://example.com/")
    assert not found.is_error
    assert "what was asked for" in found.message
    assert away.is_error
    assert other.is_error
    assert "example.com:443 is not listed in [servers.fetch.confine]" in other.message
    refused = [
        (event.host, event.reason)
        for event in events
        if isinstance(event, EgressRefused)
    ]
    assert refused == [("169.254.169.254", "unlisted"), ("example.com", "unlisted")]
    allowed = [event for event in events if isinstance(event, EgressAllowed)]
    assert {(event.host, event.port) for event in allowed} == {("127.0.0.1", site.port)}
    assert "page" not in str(events)
