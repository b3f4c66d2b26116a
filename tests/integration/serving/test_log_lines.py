"""The log lines of a run, as far as its client asks for them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import cast

import httpx2
import pytest
from mcp import Client
from mcp_types import (
    LOG_LEVEL_META_KEY,
    EmptyResult,
    LoggingLevel,
    LoggingMessageNotificationParams,
    SetLevelRequest,
    SetLevelRequestParams,
)

from caxton_host.core.calls import JSON
from caxton_host.core.grants.approvals import Approve
from caxton_host.core.grants.grants import Grant
from caxton_host.ports.sandbox import Door, Ending, Guest
from caxton_host.web.mcp import server
from caxton_host.web.mcp.agents import RUN_ID
from tests.integration.serving.clients import ACCEPT, Mode, meta, serving
from tests.office import ANN, BOSS, Office
from tests.scene import ended, pack, rule

LINES = ("d", "i", "w", "e")


async def chatty(door: Door, guest: Guest) -> Ending:
    del guest
    for level, text in enumerate(LINES):
        door.log(level, text.encode())
    await door.call(b"mcp__demo__get_weather", pack(city="Oslo"), 1)
    door.log(3, b"after")
    return ended({"sky": "clear"})


@pytest.mark.parametrize(
    ("level", "lines"),
    [
        (None, ()),
        ("debug", ("d", "i", "w", "e", "after")),
        ("warning", ("w", "e", "after")),
        ("emergency", ()),
    ],
)
@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_client_gets_the_lines_of_the_level_that_it_asks_for(
    tmp_path: Path, mode: Mode, level: str | None, lines: Iterable[str]
) -> None:
    office = Office(tmp_path, script=chatty)
    heard: list[LoggingMessageNotificationParams] = []

    async def hear(params: LoggingMessageNotificationParams) -> None:
        heard.append(params)

    async with (
        serving(office.service) as url,
        Client(url, mode=mode, logging_callback=hear) as served,
    ):
        assert served.server_capabilities.logging is not None
        said = meta()
        if level and mode == "legacy":
            asked = SetLevelRequestParams(level=cast("LoggingLevel", level))
            await served.session.send_request(
                SetLevelRequest(params=asked), EmptyResult
            )
        elif level:
            said = meta(**{LOG_LEVEL_META_KEY: level})
        result = await served.call_tool("sky", {}, meta=said)

    assert result.structured_content == {"sky": "clear"}
    assert [one.data for one in heard] == [*lines]
    assert {one.logger for one in heard} <= {"sky"}


def rpc(method: str, **params: JSON) -> JSON:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


async def told(http: httpx2.AsyncClient, url: str, session: str | None) -> str:
    head = {**ACCEPT, **({"mcp-session-id": session} if session else {})}
    call = rpc("tools/call", name="sky", arguments={})
    return (await http.post(url, json=call, headers=head)).text


async def test_a_level_is_that_of_one_client(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # law 9: and of so many clients at the most
    monkeypatch.setattr(server, "_CLIENTS", 2)
    office = Office(tmp_path, script=chatty)
    level = rpc("logging/setLevel", level="debug")
    async with serving(office.service) as url, httpx2.AsyncClient() as http:
        for session in ("a", "b", "c"):
            head = {**ACCEPT, **({"mcp-session-id": session} if session else {})}
            found = await http.post(url, json=level, headers=head)
            assert found.json()["result"] == {}
        wrong = await http.post(url, json=rpc("logging/setLevel", level=7))

        hears = {one: await told(http, url, one) for one in (None, "a", "b", "c", "d")}

    assert "error" in wrong.text
    assert {one: "notifications/message" in said for one, said in hears.items()} == {
        None: False,
        "a": False,
        "b": True,
        "c": True,
        "d": False,
    }


async def test_a_call_that_continues_a_run_gets_its_lines(
    tmp_path: Path,
) -> None:
    asks = Grant(allow=(replace(rule("demo/*"), approve=Approve()),))
    office = Office(tmp_path, script=chatty, grant=asks)
    heard: list[str] = []

    async def hear(params: LoggingMessageNotificationParams) -> None:
        heard.append(cast("str", params.data))

    asked = {LOG_LEVEL_META_KEY: "error"}
    async with (
        serving(office.service, ANN) as url,
        Client(url, logging_callback=hear) as served,
    ):
        first = await served.call_tool("sky", {}, meta=meta(**asked))
        assert first.meta is not None
        run_id = str(first.meta[RUN_ID])
        assert heard == ["e"]
        await office.service.decide(BOSS, run_id, None, "approve", "")
        asked |= {RUN_ID: run_id}
        second = await served.call_tool("sky", {}, meta=meta(**asked))

    assert not second.is_error
    # A call that continues a run gets all of its lines.
    assert heard == ["e", "e", "after"]
