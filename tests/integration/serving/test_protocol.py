"""What goes over the wire, as a client without an SDK sees it."""

from __future__ import annotations

from pathlib import Path

import httpx2
import pytest

from caxton_host import __version__
from caxton_host.core.calls import JSON
from tests.integration.serving.clients import serving
from tests.office import Office

HEADERS = {"accept": "application/json", "content-type": "application/json"}


def message(method: str, number: JSON = None, **params: JSON) -> JSON:
    said: dict[str, JSON] = {"jsonrpc": "2.0", "method": method, "params": params}
    return said if number is None else {**said, "id": number}


async def test_a_first_message_may_say_nothing(tmp_path: Path) -> None:
    async with (
        serving(Office(tmp_path).service) as url,
        httpx2.AsyncClient(headers=HEADERS) as http,
    ):
        bare: JSON = {"jsonrpc": "2.0", "id": 1, "method": "initialize"}
        answers = [
            await http.post(url, json=said) for said in (message("initialize", 1), bare)
        ]

    for answer in answers:
        result = answer.json()["result"]
        assert result["protocolVersion"] == "2025-03-26"
        about = {"name": "caxton", "title": "Caxton", "version": __version__}
        assert result["serverInfo"] == about
        assert "each call of one is a run" in result["instructions"]
        assert result["capabilities"] == {
            "logging": {},
            "resources": {"listChanged": True, "subscribe": False},
            "tools": {"listChanged": True},
        }


async def test_a_call_needs_no_first_message_and_any_host_answers(
    tmp_path: Path,
) -> None:
    office = Office(tmp_path)
    call = message("tools/call", 7, name="sky", arguments={})
    async with (
        serving(office.service) as one,
        serving(office.service) as other,
        httpx2.AsyncClient(headers=HEADERS) as http,
    ):
        hello = await http.post(one, json=message("initialize", 1))
        session = {"mcp-session-id": hello.headers["mcp-session-id"]}
        answers = [
            await http.post(one, json=call),
            await http.post(other, json=call, headers=session),
        ]

    for answer in answers:
        assert answer.json()["result"]["structuredContent"] == {"sky": "clear"}


@pytest.mark.parametrize("number", [7, "seven"])
async def test_an_answer_has_the_id_of_its_request(
    tmp_path: Path, number: JSON
) -> None:
    async with (
        serving(Office(tmp_path).service) as url,
        httpx2.AsyncClient(headers=HEADERS) as http,
    ):
        good = await http.post(url, json=message("tools/list", number))
        bad = await http.post(url, json=message("nothing", number))

    assert good.json()["id"] == bad.json()["id"] == number
    assert bad.json()["error"]["code"] == -32601


async def test_a_notification_has_no_answer(tmp_path: Path) -> None:
    async with (
        serving(Office(tmp_path).service) as url,
        httpx2.AsyncClient(headers=HEADERS) as http,
    ):
        answer = await http.post(url, json=message("notifications/initialized"))

    assert (answer.status_code, answer.content) == (202, b"")


async def test_a_version_that_nobody_speaks_is_refused(tmp_path: Path) -> None:
    async with (
        serving(Office(tmp_path).service) as url,
        httpx2.AsyncClient(headers=HEADERS) as http,
    ):
        answer = await http.post(
            url,
            json=message("tools/list", 1),
            headers={"mcp-protocol-version": "1999-12-31"},
        )

    assert answer.status_code == 400
    assert "error" in answer.json()


OLDER = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")


@pytest.mark.parametrize("version", OLDER)
async def test_a_version_that_is_agreed_on_is_a_header_of_what_follows(
    tmp_path: Path, version: str
) -> None:
    hello: dict[str, JSON] = {
        "protocolVersion": version,
        "capabilities": {},
        "clientInfo": {"name": "curl", "version": "8"},
    }
    async with (
        serving(Office(tmp_path).service) as url,
        httpx2.AsyncClient(headers=HEADERS) as http,
    ):
        begun = await http.post(url, json=message("initialize", 1, **hello))
        http.headers["mcp-protocol-version"] = version
        ready = await http.post(url, json=message("notifications/initialized"))
        listed = await http.post(url, json=message("tools/list", 3))
        call = message("tools/call", 4, name="sky", arguments={})
        called = await http.post(url, json=call)

    assert begun.json()["result"]["protocolVersion"] == version
    assert ready.status_code == 202
    (tool,) = listed.json()["result"]["tools"]
    assert tool["name"] == "sky"
    result = called.json()["result"]
    assert result["content"] == [{"type": "text", "text": '{"sky": "clear"}'}]
    assert result["isError"] is False


async def test_a_call_is_streamed_only_to_who_takes_a_stream(tmp_path: Path) -> None:
    call = message("tools/call", 7, name="sky", arguments={})
    both = {"accept": "application/json, text/event-stream"}
    async with (
        serving(Office(tmp_path).service) as url,
        httpx2.AsyncClient(headers=HEADERS) as http,
    ):
        types = [
            (await http.post(url, json=said, headers=headers)).headers["content-type"]
            for said, headers in (
                (call, HEADERS),
                (call, both),
                (message("tools/list", 1), both),
            )
        ]

    assert types[0] == types[2] == "application/json"
    assert types[1].startswith("text/event-stream")
