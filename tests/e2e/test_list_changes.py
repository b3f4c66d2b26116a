"""What the official client of an older protocol hears of a host that serves."""

from __future__ import annotations

import asyncio
from itertools import count
from typing import Any

import anyio
import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from tests import standin

from .guests import guest
from .serving import served, token
from .shell import SOON, Shell

CONFIG = """\
version = 1
[servers.demo]
{demo}
[agents.quick]
module = "quick.wasm"
description = "Number {number}."
expose = {{ mcp = true }}
[sessions.dev]
names = {{ echo_{number} = "demo/echo" }}
[[sessions.dev.allow]]
tools = ["demo/echo"]
"""


def configure(shell: Shell, number: int) -> None:
    demo = standin.toml(f"of={shell.folder}")
    shell.write("caxton.toml", CONFIG.format(demo=demo, number=number))


@pytest.mark.parametrize(
    ("path", "scope"), [("", ("--scope", "run")), ("/dev", ("--session", "dev"))]
)
def test_an_older_client_is_told_to_list_its_tools_again(
    shell: Shell, path: str, scope: tuple[str, str]
) -> None:
    shell.write("quick.wasm", guest(output=1))
    configure(shell, 0)
    own = token(shell, *scope, "--name", "mine")

    async def told(url: str) -> tuple[str, str, str]:
        heard = asyncio.Queue[str]()

        async def hear(message: Any) -> None:  # noqa: ANN401 -- whatever comes
            heard.put_nowait(message.method)

        async def shown(client: Client) -> str:
            (tool,) = (await client.list_tools()).tools
            return f"{tool.name}: {tool.description}"

        async with (
            httpx2.AsyncClient(
                headers={"authorization": f"Bearer {own}"}, timeout=SOON
            ) as http,
            Client(
                streamable_http_client(url, http_client=http),
                mode="legacy",
                message_handler=hear,
            ) as client,
        ):
            said = client.server_capabilities.tools
            assert said
            assert said.list_changed
            before = await shown(client)
            # It does not say when it begins to listen.
            for number in count(1):
                configure(shell, number)
                await anyio.to_thread.run_sync(shell, "config", "reload")
                if not heard.empty():
                    break
            return before, await shown(client), await heard.get()

    with served(shell, good=own) as host:
        before, after, method = anyio.run(told, f"{host.said['mcp']}{path}")
    assert method == "notifications/tools/list_changed"
    assert after != before
