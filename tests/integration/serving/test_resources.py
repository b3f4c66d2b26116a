"""Clients read what agents are, and what became of the runs that they may see."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote

import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError
from mcp_types import BlobResourceContents, ResourceLink, TextResourceContents

from caxton_host.core.calls import JSON, Completed
from caxton_host.ports.sandbox import Door, Ending, Guest
from caxton_host.ports.tools import Progress, ToolRequest
from caxton_host.testing import FakeTools
from caxton_host.web.mcp import agents
from caxton_host.web.mcp.agents import RUN_ID
from tests.integration.serving.clients import Mode, serving
from tests.office import ANN, BOB, Office
from tests.scene import ANSWERS, ended, pack


async def read(served: Client, uri: str) -> dict[str, JSON]:
    (content,) = (await served.read_resource(uri)).contents
    assert isinstance(content, TextResourceContents)
    assert content.mime_type == "application/json"
    found: dict[str, JSON] = json.loads(content.text)
    return found


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_agents_and_runs_are_read(tmp_path: Path, mode: Mode) -> None:
    office = Office(tmp_path)
    run_id = await office.start(ANN)
    await office.done(run_id)
    async with serving(office.service) as url, Client(url, mode=mode) as served:
        (listed,) = (await served.list_resources()).resources
        templates = (await served.list_resource_templates()).resource_templates
        agent = await read(served, listed.uri)
        run = await read(served, f"caxton://runs/{run_id}")
        events = await read(served, f"caxton://runs/{run_id}/events")
        capabilities = served.server_capabilities

    assert (agent["name"], agent["tool"]) == ("weather", "sky")
    assert (run["$type"], run["state"]) == ("caxton.run/v1", "completed")
    assert isinstance(events["events"], list)
    types = [event["type"] for event in events["events"] if isinstance(event, dict)]
    assert types == await office.types(run_id)
    assert {template.uri_template for template in templates} == {
        "caxton://agents/{name}",
        "caxton://runs/{run}",
        "caxton://runs/{run}/events{?after}",
    }
    assert capabilities.resources is not None
    assert not capabilities.resources.subscribe
    assert capabilities.prompts is None
    assert capabilities.logging is not None


class Telling(FakeTools):
    """Tools that say once how far they are."""

    async def call_tool(self, request: ToolRequest) -> Completed:
        request.on_progress(Progress(message="looking"))
        return await super().call_tool(request)


async def test_what_is_said_in_a_run_has_a_type_and_names_its_call(
    tmp_path: Path,
) -> None:
    async def asks_twice(door: Door, guest: Guest) -> Ending:
        del guest
        door.log(1, b"thinking")
        for fuel in (1, 2):
            await door.call(b"mcp__demo__get_weather", pack(city="Oslo"), fuel)
        return ended("done")

    office = Office(tmp_path, script=asks_twice, tools=Telling(ANSWERS))
    run_id = await office.start(ANN)
    await office.done(run_id)
    async with serving(office.service) as url, Client(url) as served:
        page = await read(served, f"caxton://runs/{run_id}/events")

    events = cast("list[dict[str, Any]]", page["events"])
    of_calls = ["ToolInvoked", "ToolProgress", "ToolCompleted"]
    assert [one["type"] for one in events] == [
        *("RunStarted", "LogWritten"),
        *of_calls * 2,
        "RunCompleted",
    ]
    calls = [one["payload"]["call"] for one in events if one["type"] in of_calls]
    assert calls == [1, 1, 1, 2, 2, 2]


async def test_events_come_in_pages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agents, "_EVENTS", 3)
    office = Office(tmp_path)
    run_id = await office.start(ANN)
    await office.done(run_id)
    found: list[JSON] = []
    uri, more = f"caxton://runs/{run_id}/events", True
    async with serving(office.service) as url, Client(url) as served:
        while more:
            page = await read(served, uri)
            assert isinstance(page["events"], list)
            found += page["events"]
            more = page["more"] is True
            cursor = quote(str(page["cursor"]), safe="")
            uri = f"caxton://runs/{run_id}/events?after={cursor}"

    assert len(found) == len(await office.types(run_id)) > 3


async def test_what_others_did_and_what_is_not_there_look_alike(
    tmp_path: Path,
) -> None:
    office = Office(tmp_path)
    foreign = await office.start(BOB)
    async with serving(office.service) as url, Client(url) as served:
        for uri in (
            f"caxton://runs/{foreign}",
            f"caxton://runs/{foreign}/events",
            "caxton://runs/nothing/events?after=x",
            "caxton://agents/nothing",
            "caxton://agents/broken",
            "caxton://tools/x",
            "file:///etc/passwd",
        ):
            with pytest.raises(MCPError, match="no ") as caught:
                await served.read_resource(uri)
            assert caught.value.error.code == -32602
            assert caught.value.error.data == {"uri": uri}


async def test_large_events_come_on_many_pages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agents, "_BYTES", 1)
    office = Office(tmp_path)
    run_id = await office.start(ANN)
    await office.done(run_id)
    async with serving(office.service) as url, Client(url) as served:
        page = await read(served, f"caxton://runs/{run_id}/events")

    assert isinstance(page["events"], list)
    assert (len(page["events"]), page["more"]) == (1, True)


async def test_where_the_modules_of_a_host_are_is_told_to_nobody(
    tmp_path: Path,
) -> None:
    # law 9
    office = Office(tmp_path)
    (tmp_path / "weather.wasm").unlink()
    async with serving(office.service) as url, Client(url) as served:
        with pytest.raises(MCPError) as caught:
            await served.read_resource("caxton://agents/weather")

    assert "no module" in str(caught.value)
    assert str(tmp_path) not in str(caught.value)


BIG = base64.b64encode(bytes(300_000)).decode()


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_large_block_of_an_output_is_read_by_a_link(
    tmp_path: Path, mode: Mode
) -> None:
    blob: JSON = {"uri": "x://y", "blob": BIG, "mimeType": "a/b"}
    blocks: list[JSON] = [
        {"type": "image", "data": "aGk=", "mimeType": "image/png"},
        {"type": "image", "data": BIG, "mimeType": "image/png"},
        {"type": "resource", "resource": blob},
    ]

    async def draws(door: Door, guest: Guest) -> Ending:
        del door, guest
        return ended({"$content": blocks})

    office = Office(tmp_path, script=draws)
    async with serving(office.service) as url, Client(url, mode=mode) as served:
        result = await served.call_tool("sky", {})
        assert result.meta is not None
        inline, *links = result.content
        assert inline.type == "image"
        for link, kind in zip(links, ("image/png", "a/b"), strict=True):
            assert isinstance(link, ResourceLink)
            assert (link.mime_type, link.size) == (kind, 300_000)
            (found,) = (await served.read_resource(link.uri)).contents
            assert isinstance(found, BlobResourceContents)
            assert (found.mime_type, found.blob) == (kind, BIG)
        whole = f"caxton://runs/{result.meta[RUN_ID]}/content/"
        for place in ("3", "-1", "x", "99999", "999999"):
            with pytest.raises(MCPError, match="no such resource"):
                await served.read_resource(whole + place)
    async with (
        serving(office.service, BOB) as url,
        Client(url, mode=mode) as stranger,
    ):
        with pytest.raises(MCPError, match="no run"):
            await stranger.read_resource(whole + "1")
