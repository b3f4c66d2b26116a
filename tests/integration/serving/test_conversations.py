"""A call with the id of a completed run continues what that said to its model."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolResult, TextContent

from caxton_host.core.calls import JSON
from caxton_host.core.grants.principals import Principal
from caxton_host.core.log.events import RunStarted
from caxton_host.lib import codec
from caxton_host.ports.sandbox import Door, Ending, Guest
from caxton_host.testing import FakeTools
from caxton_host.web.mcp.agents import IDEMPOTENCY_KEY, RUN_ID
from tests.integration.serving.clients import Mode, meta, serving
from tests.office import ANN, BOB, EVE, Office, asking_once
from tests.scene import ended, pack

pytestmark = pytest.mark.parametrize("mode", ["auto", "legacy"])

SAID: JSON = {"content": "it is noon"}


async def chatting(door: Door, guest: Guest) -> Ending:
    """Chat once, after what the run continues."""
    packed = guest.context.get("conversation")
    before = codec.decode_trusted(packed) if packed else {"messages": []}
    asked = codec.decode_trusted(guest.input)
    messages = [*before["messages"], *([before["answer"]] if packed else []), asked]
    await door.call(b"chat", pack(messages=messages), 1)
    return ended({"turns": len(messages)})


def chats(folder: Path, chat: str | None = "chat") -> Office:
    answers = FakeTools({("demo", "get_weather"): {"structuredContent": SAID}})
    office = Office(folder, script=chatting, tools=answers)
    agent = office.config.agents["weather"]
    agent = replace(
        agent,
        names={"chat": ("demo", "get_weather")},
        expose=replace(agent.expose, chat=chat),
    )
    office.config = replace(office.config, agents={"weather": agent})
    return office


@asynccontextmanager
async def client(
    office: Office, mode: Mode, by: Principal = ANN
) -> AsyncGenerator[Client]:
    async with serving(office.service, by) as url, Client(url, mode=mode) as found:
        yield found


def run_of(result: CallToolResult) -> str:
    assert result.meta is not None, result
    return str(result.meta[RUN_ID])


def text(result: CallToolResult) -> str:
    (block,) = result.content
    assert isinstance(block, TextContent)
    return block.text


async def test_new_arguments_continue_a_conversation(
    tmp_path: Path, mode: Mode
) -> None:
    office = chats(tmp_path)
    async with client(office, mode) as served:
        first = await served.call_tool("sky", {"q": 1})
        known = meta(**{RUN_ID: run_of(first)})
        second = await served.call_tool("sky", {"q": 2}, meta=known)
        again = await served.call_tool("sky", {"q": 2}, meta=known)
        known = meta(**{RUN_ID: run_of(second)})
        third = await served.call_tool("sky", {"q": 3}, meta=known)

    turns = [one.structured_content for one in (first, second, third)]
    assert turns == [{"turns": 1}, {"turns": 3}, {"turns": 5}]
    # A client that repeats a call gets the run that the first one began.
    assert run_of(again) == run_of(second) != run_of(first)
    events = await office.scene.store.reader.read(f"run/{run_of(second)}")
    started = events[0].event
    assert isinstance(started, RunStarted)
    assert started.actor == ANN.actor
    conversation = started.context["conversation"]
    assert isinstance(conversation, dict)
    assert conversation["run"] == run_of(first)
    assert conversation["messages"] == [{"q": 1}]
    # What a model and tools have said is no source of values.
    assert started.vouched == {"input": ["$"], "context": []}


async def test_the_same_arguments_get_the_same_answer(
    tmp_path: Path, mode: Mode
) -> None:
    office = chats(tmp_path, chat=None)
    async with client(office, mode) as served:
        first = await served.call_tool("sky", {"q": 1})
        known = meta(**{RUN_ID: run_of(first)})
        for given in ({"q": 1}, {}):
            again = await served.call_tool("sky", given, meta=known)
            assert again == first

    assert len(await office.scene.store.reader.runs(9)) == 1


async def test_an_agent_that_does_not_chat_is_not_continued(
    tmp_path: Path, mode: Mode
) -> None:
    office = chats(tmp_path, chat=None)
    async with client(office, mode) as served:
        first = await served.call_tool("sky", {"q": 1})
        known = meta(**{RUN_ID: run_of(first)})
        result = await served.call_tool("sky", {"q": True}, meta=known)

    assert result.is_error
    assert "weather does not chat" in text(result)


@pytest.mark.parametrize("why", ["no chat", "too long", "erased"])
async def test_a_conversation_that_is_not_there_is_not_continued(
    tmp_path: Path, mode: Mode, why: str
) -> None:
    office = chats(tmp_path)
    if why == "no chat":
        office.scene.sandbox.script = asking_once
    async with client(office, mode) as served:
        first = await served.call_tool("sky", {"q": 1})
        if why == "too long":
            agent = office.config.agents["weather"]
            small = replace(agent, limits=replace(agent.limits, input=20))
            office.config = replace(office.config, agents={"weather": small})
        if why == "erased":
            stream = office.scene.store.streams[f"run/{run_of(first)}"]
            stream[:] = [replace(one, event=None) for one in stream]
        known = meta(**{RUN_ID: run_of(first)})
        result = await served.call_tool("sky", {"q": 2}, meta=known)

    assert result.is_error
    assert ("was erased" if why == "erased" else "no conversation") in text(result)
    assert len(await office.scene.store.reader.runs(9)) == 1


async def test_nobody_continues_a_run_of_another(tmp_path: Path, mode: Mode) -> None:
    # law 9
    office = chats(tmp_path)
    async with client(office, mode) as served:
        known = meta(**{RUN_ID: run_of(await served.call_tool("sky", {"q": 1}))})
    async with client(office, mode, BOB) as served:
        with pytest.raises(MCPError, match="no run"):
            await served.call_tool("sky", {"q": 2}, meta=known)
    # A principal that may see it may not continue it.
    sees = replace(EVE, scopes=frozenset({"read", "run"}))
    async with client(office, mode, sees) as served:
        result = await served.call_tool("sky", {"q": 2}, meta=known)

    assert "another principal started this run" in text(result)
    assert len(await office.scene.store.reader.runs(9)) == 1


async def test_a_key_of_the_client_tells_continuations_apart(
    tmp_path: Path, mode: Mode
) -> None:
    office = chats(tmp_path)
    async with client(office, mode) as served:
        run_id = run_of(await served.call_tool("sky", {"q": 1}))
        found = {
            run_of(
                await served.call_tool(
                    "sky", {"q": 2}, meta=meta(**{RUN_ID: run_id, IDEMPOTENCY_KEY: key})
                )
            )
            for key in ("a", "b", "a")
        }

    assert len(found) == 2
