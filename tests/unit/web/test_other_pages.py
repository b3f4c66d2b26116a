"""Pages of other origins, in a browser on a machine whose users need no token."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from caxton_host.config import Serve
from caxton_host.web.api.openapi import OPERATIONS
from caxton_host.web.api.operations import IN_PATH, PREFIX, Operation
from caxton_host.web.app import application
from caxton_host.web.edge.authentication import LocalIdentity
from tests.office import JSON_SENT, Names, Office

PATHS = {
    **dict.fromkeys(IN_PATH, "1"),
    "name": "demo",
    "sha256": "0" * 64,
}
CHANGES = [one for one in OPERATIONS if one.method != "GET"]


def named(one: Operation) -> str:
    return one.id


@dataclass
class Agents:
    """Stands for the agents: remembers what came through."""

    came: list[str] = field(default_factory=list)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.came.append(scope["method"])
        await Response(status_code=202)(scope, receive, send)


def asking(
    folder: Path, headers: Mapping[str, str], agents: Agents | None = None
) -> httpx.AsyncClient:
    """Return who asks without a token, with these headers and no others."""
    office = Office(folder)
    local = LocalIdentity(Names())
    serve = Serve(edit=True, allowed_origins=("https://ui.example",))
    app = application(office.service, local, serve, mcp=agents)
    return httpx.AsyncClient(
        transport=httpx.ASGITransport(app),
        base_url="http://127.0.0.1:8080",
        headers=headers,
    )


async def refused(one: Operation, client: httpx.AsyncClient) -> httpx.Response:
    return await client.request(one.method, PREFIX + one.path.format(**PATHS))


@pytest.mark.parametrize("one", CHANGES, ids=named)
@pytest.mark.parametrize(
    "media", [{}, {"content-type": "text/plain"}], ids=["none", "text"]
)
async def test_nothing_is_changed_by_what_a_page_can_send_unasked(
    tmp_path: Path, one: Operation, media: dict[str, str]
) -> None:
    # a form, or fetch() without a body: the browser asks nobody before
    page = {"origin": "http://127.0.0.1:8080", **media}
    async with asking(tmp_path, page) as client:
        answer = await refused(one, client)

    assert answer.status_code == 415
    assert "application/json" in answer.json()["fix"]


@pytest.mark.parametrize("one", OPERATIONS, ids=named)
@pytest.mark.parametrize("origin", ["http://localhost:3000", "https://127.0.0.1:8080"])
async def test_no_operation_is_for_pages_of_another_port_or_scheme(
    tmp_path: Path, one: Operation, origin: str
) -> None:
    async with asking(tmp_path, JSON_SENT | {"origin": origin}) as client:
        answer = await refused(one, client)

    assert answer.status_code == 403
    assert answer.json()["type"] == "/problems/bad-origin"
    assert "allowed_origins" in answer.json()["fix"]


@pytest.mark.parametrize("one", OPERATIONS, ids=named)
@pytest.mark.parametrize("site", ["cross-site", "same-site", "Same-Origin", ""])
async def test_no_operation_is_for_pages_of_other_origins(
    tmp_path: Path, one: Operation, site: str
) -> None:
    # attack 41
    # a link or a picture is enough for what starts servers, as the list of tools
    async with asking(tmp_path, JSON_SENT | {"sec-fetch-site": site}) as client:
        answer = await refused(one, client)

    assert answer.status_code == 403
    assert answer.json()["type"] == "/problems/bad-origin"


@pytest.mark.parametrize(
    "page",
    [
        {},
        {"sec-fetch-site": "same-origin", "origin": "http://127.0.0.1:8080"},
        {"sec-fetch-site": "none"},
        {"sec-fetch-site": "cross-site", "origin": "https://ui.example"},
    ],
    ids=["no page", "the page of the host", "typed", "configured"],
)
async def test_own_clients_and_configured_pages_are_answered(
    tmp_path: Path, page: dict[str, str]
) -> None:
    async with asking(tmp_path, JSON_SENT | page) as client:
        read = await client.get(f"{PREFIX}/me")
        changed = await client.post(f"{PREFIX}/config/reload")

    assert (read.status_code, changed.status_code) == (200, 200)


async def test_agents_are_not_called_by_other_pages_either(tmp_path: Path) -> None:
    agents = Agents()
    calls = '{"jsonrpc": "2.0", "method": "notifications/cancelled"}'
    async with asking(tmp_path, {}, agents) as client:
        for headers, status in (
            ({}, 415),
            ({"content-type": "text/plain"}, 415),
            (JSON_SENT | {"sec-fetch-site": "same-site"}, 403),
        ):
            answer = await client.post("/mcp", content=calls, headers=headers)
            assert answer.status_code == status
        assert agents.came == []
        await client.post("/mcp", content=calls, headers=JSON_SENT)
        await client.delete("/mcp")  # The SDK sends it without a type.

    assert agents.came == ["POST", "DELETE"]
