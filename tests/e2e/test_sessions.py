"""``caxton mcp connect``: a client whose calls are granted, recorded and counted."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from mcp import Client, MCPError, StdioServerParameters
from mcp_types import TextContent

from caxton_host.testing import Harness
from caxton_host.testing.golden import GoldenRuns
from tests import standin

from .shell import CAXTON, Shell

CONFIG = """\
version = 1
[servers.demo]
{demo}
[sessions.dev]
[[sessions.dev.allow]]
tools = ["demo/echo"]
calls = "3/run"
[[sessions.dev.allow]]
tools = ["demo/get_weather"]
approve = {{}}
"""


@pytest.fixture
def desk(shell: Shell) -> Shell:
    shell.write("caxton.toml", CONFIG.format(demo=standin.toml(f"of={shell.folder}")))
    return shell


@asynccontextmanager
async def connected(shell: Shell) -> AsyncIterator[Client]:
    server = StdioServerParameters(
        command=CAXTON,
        args=["mcp", "connect", "dev"],
        env=shell.environ,
        cwd=shell.folder,
    )
    async with Client(server) as client:
        yield client


async def said(client: Client, name: str, **params: object) -> tuple[bool, str]:
    result = await client.call_tool(name, params)
    return result.is_error, result.content[0].text  # type: ignore[union-attr]


async def echoes(client: Client, *texts: str) -> list[tuple[bool, str]]:
    return [await said(client, "mcp__demo__echo", text=text) for text in texts]


SPENT = True, "denied (budget): all 3 calls of that grant are spent"


async def test_a_client_sees_and_calls_what_it_is_granted(desk: Shell) -> None:
    async with connected(desk) as client:
        tools = (await client.list_tools()).tools
        assert await echoes(client, "hello") == [(False, "hello")]
        denied, text = await said(client, "mcp__demo__slow", seconds=0)

    assert [tool.name for tool in tools] == [
        "mcp__demo__echo",
        "mcp__demo__get_weather",
    ]
    assert (denied, text.partition(":")[0]) == (True, "denied (not_granted)")
    assert desk.types() == [
        *("RunStarted", "ToolInvoked", "ToolCompleted"),
        *("ToolInvoked", "ToolDenied", "RunCompleted"),
    ]


@pytest.mark.long
async def test_reconnecting_does_not_reset_a_limit(desk: Shell) -> None:  # law 4
    async with connected(desk) as client:
        assert (await echoes(client, "1", "2"))[1] == (False, "2")
    async with connected(desk) as client:
        assert await echoes(client, "3", "4") == [(False, "3"), SPENT]
    assert len(desk.runs()) == 2


async def test_a_client_of_many_tools_searches_and_calls_by_name(desk: Shell) -> None:
    config = (desk.folder / "caxton.toml").read_text()
    desk.write(
        "caxton.toml",
        config.replace("[sessions.dev]", "[sessions.dev]\nsearch_above = 1"),
    )
    async with connected(desk) as client:
        tools = (await client.list_tools()).tools
        found = await client.call_tool("search_tools", {"query": "echo text"})
        wrong, why = await said(client, "search_tools", words="echo")
        named = await client.call_tool(
            "call_tool", {"name": "mcp__demo__echo", "arguments": {"text": "hello"}}
        )
        direct = await said(client, "mcp__demo__echo", text="again")
        denied = await client.call_tool("call_tool", {"name": "mcp__demo__slow"})

    assert [tool.name for tool in tools] == ["call_tool", "search_tools"]
    assert found.structured_content is not None
    (tool,) = found.structured_content["tools"]
    assert (tool["name"], found.structured_content["of"]) == ("mcp__demo__echo", 2)
    assert (wrong, why.partition(":")[0]) == (True, "failed (bad_request)")
    assert direct == (False, "again")
    assert named.content == [TextContent(type="text", text="hello")]
    assert "denied (not_granted)" in str(denied.content)
    # A search reaches no server, so it is no call.
    assert desk.types().count("ToolInvoked") == 3


@pytest.mark.long
def test_another_grant_judges_the_streams_of_a_session_as_one(desk: Shell) -> None:
    async def work() -> None:
        for texts in (("1", "2"), ("3", "4")):
            async with connected(desk) as client:
                await echoes(client, *texts)

    anyio.run(work)
    config = (desk.folder / "caxton.toml").read_text()
    for calls, changed in ((3, 0), (4, 1), (2, 1)):
        desk.write("new.toml", config.replace("3/run", f"{calls}/run"))
        told = desk("grant", "what-if", "new.toml", "--json").out.splitlines()
        assert json.loads(told[-1])["changed"] == changed
    proposed = desk("grant", "suggest", "dev")
    assert 'calls = "3/run"' in proposed.out
    assert "0 decisions would change" in proposed.err
    bundle = desk("audit", "export", "@last", "-o", "dev.caxton")
    key = bundle.err.split()[-1]
    bundled = ("--bundle", "dev.caxton", "--key", key)
    assert desk("audit", "verify", *bundled).code == 0, bundle.err
    judged = desk("replay", *bundled)
    assert judged.out == "identical: 2 calls judged again\n", judged.err
    golden = GoldenRuns.of(None, [key], os.environ, desk.folder)
    assert golden.name(desk.folder / "dev.caxton").endswith("-demo.echo-demo.echo")
    with Harness() as harness:
        harness.check(golden, desk.folder / "dev.caxton")


async def test_only_an_operator_resets_a_limit(desk: Shell) -> None:
    async with connected(desk) as client:
        await echoes(client, "1", "2", "3")
        assert await echoes(client, "4") == [SPENT]
        run = desk.runs()[0].removeprefix("run/")
        assert (
            await anyio.to_thread.run_sync(desk.typed, "runs", "cancel", run)
        ).code == 0
        assert await echoes(client, "5") == [(False, "5")]


async def test_a_call_that_was_approved_is_made_again(desk: Shell) -> None:  # law 8
    weather: dict[str, Any] = {"name": "mcp__demo__get_weather", "location": "Seattle"}
    async with connected(desk) as client:
        waits, text = await said(client, **weather)
        assert waits
        assert text.startswith("waits (approval): the call needs the approval")
        assert await echoes(client, "others go on") == [(False, "others go on")]
        # The host drives the session still, for a moment.
        while (approving := await _approve(desk)).code == 5:
            pass
        assert approving.code == 0, approving.err
        answered, text = await said(client, **weather)
        assert not answered, text
        assert (await said(client, **weather))[0] is True
    assert desk.types().count("ToolCompleted") == 2


@pytest.mark.long
async def test_a_session_of_a_restored_log_is_ended_by_an_operator(desk: Shell) -> None:
    # law 2
    async with connected(desk) as client:
        await said(client, "mcp__demo__get_weather", location="Seattle")
    desk.set(XDG_STATE_HOME=str(desk.folder / "another machine"))
    async with connected(desk) as client:
        with pytest.raises(MCPError, match="restored from a copy"):
            await echoes(client, "1")
    shown = desk.typed("runs", "show", "@last")
    assert "runs resume" not in shown.err
    words = shown.err.rpartition("caxton ")[2].split()
    assert desk.typed(*words).code == 0
    async with connected(desk) as client:
        assert await echoes(client, "2") == [(False, "2")]


async def _approve(desk: Shell) -> Any:  # noqa: ANN401 -- as `Shell.typed`
    run = desk.runs()[0].removeprefix("run/")
    return await anyio.to_thread.run_sync(
        desk.typed, "approval", "approve", run, "--reason", "fine"
    )


def test_a_session_cannot_be_executed_again(desk: Shell) -> None:  # law 5
    async def greet() -> None:
        async with connected(desk) as client:
            await echoes(client, "hello")

    anyio.run(greet)
    for words in (
        ("replay", "@last", "--step"),
        ("replay", "@last", "--to-otlp", "http://127.0.0.1:9"),
        ("runs", "resume", "@last"),
        ("runs", "fork", "@last", "2"),
    ):
        refused = desk(*words)
        assert refused.code == 2, refused.err
    judged = desk("replay", "@last", "--json")
    assert judged.code == 0, judged.err
    document = json.loads(judged.out)
    assert document["verdict"] == "identical"
    assert (document["calls"], document["executed"]) == (1, False)
    assert "a client made its calls" in desk("replay", "@last").err
    assert desk("runs", "explain", "@last", "2").code == 0
    assert desk("audit", "verify").code == 0
    judged = desk("grant", "what-if", "caxton.toml", "--json")
    assert judged.code == 0, judged.err


async def test_a_session_that_is_not_configured_names_what_is_missing(
    desk: Shell,
) -> None:
    refused = desk.typed("mcp", "connect", "nobody")
    assert refused.code == 2
    assert refused.fix == "add [sessions.nobody] to caxton.toml"


def test_what_a_client_needs_is_observed_for_a_while_and_granted(desk: Shell) -> None:
    config = (desk.folder / "caxton.toml").read_text()
    table = '[sessions.dev]\nobserve = { until = "2099-12-31", servers = ["demo"] }\n'
    deny = '[[sessions.dev.deny]]\ntools = ["demo/slow"]\n'
    desk.write("caxton.toml", config.replace("[sessions.dev]\n", table) + deny)

    async def work() -> None:
        async with connected(desk) as client:
            found = [
                await said(client, "mcp__demo__pay", to="DE02", amount=3),
                await said(client, "mcp__demo__slow", seconds=0),
                await said(client, "mcp__demo__get_weather", location="Seattle"),
            ]
        assert [text.partition(":")[0] for _, text in found] == [
            "paid 3 to DE02",
            "denied (denied)",
            "waits (approval)",
        ]

    anyio.run(work)
    assert "observe" in desk("runs", "explain", "@last", "2").out
    proposed = desk("grant", "suggest", "dev")
    assert '[[sessions.dev.allow]]\ntools = ["demo/pay"]' in proposed.out, proposed.err


def test_the_configuration_shows_sessions_apart_from_agents(desk: Shell) -> None:
    shown = json.loads(desk("config", "show", "--json").out)
    assert (shown["agents"], [*shown["sessions"]]) == ({}, ["dev"])
