"""Headers that a run fills in, and connections that only such runs share."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import pytest

from caxton_host.core.calls import JSON
from caxton_host.core.log.events import Event
from caxton_host.core.text.redact import Redactor
from caxton_host.core.tools.servers import ServerConfig
from caxton_host.demo_server import demo_server
from caxton_host.errors import ServerUnavailable, ToolError
from caxton_host.mcp import McpTools, pool
from caxton_host.ports.tools import RunScope, ToolClient

from .authority import served
from .conftest import request, until


class Scene(NamedTuple):
    tools: McpTools
    seen: list[dict[str, str]]
    events: list[Event]
    redact: Redactor

    def tenants(self) -> set[str | None]:
        return {headers.get("x-tenant") for headers in self.seen}

    def connections(self) -> int:
        return [type(event).__name__ for event in self.events].count("ServerConnected")


@asynccontextmanager
async def scene(**options: Any) -> AsyncGenerator[Scene]:  # noqa: ANN401
    app = demo_server().streamable_http_app()
    seen: list[dict[str, str]] = []

    async def noting(scope: Any, receive: Any, send: Any) -> None:  # noqa: ANN401
        if scope["type"] == "http":
            pairs = scope["headers"]
            seen.append({name.decode(): value.decode() for name, value in pairs})
        await app(scope, receive, send)

    events: list[Event] = []
    redact = Redactor()
    given = {"headers": {"X-Tenant": "${context.tenant}"}, **options}
    async with served(noting) as origin:
        url = f"{origin}/mcp"
        servers = {
            "crm": ServerConfig(name="crm", url=url, transport="http", **given),
            "open": ServerConfig(name="open", url=url, transport="http"),
        }
        async with McpTools(servers, redact=redact, on_event=events.append) as tools:
            yield Scene(tools, seen, events, redact)


def run(context: Mapping[str, JSON], run_id: str = "run") -> RunScope:
    return RunScope(run_id=run_id, agent="a", context=context)


async def said(tools: ToolClient, server: str = "crm", text: str = "hello") -> str:
    call = request("echo", {"text": text}, server=server)
    return (await tools.call_tool(call)).message


async def test_a_run_is_known_to_the_server_by_what_it_was_given() -> None:
    async with scene() as at:
        async with at.tools.open(run({"tenant": "acme"})) as tools:
            offered = await tools.offered(["crm"])
            assert len(offered.offers) == 9
            assert offered.servers["crm"]["name"] == "caxton-demo"
            assert await said(tools) == "hello"
        assert at.tenants() == {"acme"}


async def test_servers_without_such_a_header_are_shared_by_all_runs() -> None:
    async with scene() as at:
        for tenant in ("acme", "evil"):
            async with at.tools.open(run({"tenant": tenant})) as tools:
                assert await said(tools, "open") == "hello"
        assert at.tenants() == {None}
        assert at.connections() == 1


async def test_runs_share_a_connection_only_if_they_fill_in_the_same() -> None:
    async with scene() as at:
        async with (
            at.tools.open(run({"tenant": "acme"}, "1")) as one,
            at.tools.open(run({"tenant": "acme"}, "2")) as two,
            at.tools.open(run({"tenant": "evil"}, "3")) as three,
        ):
            await asyncio.gather(*map(said, (one, two, three)))
        assert at.tenants() == {"acme", "evil"}
        assert at.connections() == 2
        for headers in at.seen:
            assert headers.get("x-tenant") in {"acme", "evil"}


async def test_a_connection_is_kept_for_the_next_run_and_ends_with_the_host() -> None:
    before = asyncio.all_tasks()
    async with scene() as at:
        for number in range(3):
            scope = run({"tenant": "acme"}, str(number))
            async with at.tools.open(scope) as tools:
                await said(tools)
        assert at.connections() == 1
    await until(lambda: asyncio.all_tasks() <= before)


async def test_what_is_kept_is_bounded_in_number_and_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pool, "_IDLE", 2)
    async with scene() as at:
        for tenant in ("a", "b", "c"):
            async with at.tools.open(run({"tenant": tenant})) as tools:
                await said(tools)
        shared = at.tools._shared
        await until(lambda: not shared._ending)
        assert len(shared._idle) == 2
        monkeypatch.setattr(pool, "_LINGER_S", 0.01)
        async with at.tools.open(run({"tenant": "c"})) as tools:
            await said(tools)
        assert at.connections() == 3
        await until(lambda: len(shared._idle) == 1)
        await until(lambda: not shared._ending)
        async with at.tools.open(run({"tenant": "c"})) as tools:
            await said(tools)
        assert at.connections() == 4


@pytest.mark.parametrize(
    ("context", "why"),
    [
        ({}, "no text or number tenant for its header X-Tenant"),
        ({"tenant": None}, "no text or number"),
        ({"tenant": ["acme"]}, "no text or number"),
        ({"tenant": "canary\r\nx-admin: 1"}, "cannot be sent"),
        ({"tenant": "canary-é"}, "cannot be sent"),
        ({"tenant": "canary" * 1000}, "cannot be sent"),
    ],
)
async def test_a_server_that_a_run_cannot_be_known_to_is_not_asked(
    context: dict[str, JSON], why: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with scene() as at, at.tools.open(run(context)) as tools:
        offered = await tools.offered(["crm", "open"])
        assert {offer.server for offer in offered.offers} == {"open"}
        assert offered.unlisted == ("crm",)
        assert why in caplog.text
        with pytest.raises(ToolError, match=why) as caught:
            await said(tools)
        assert (caught.value.kind, caught.value.sent) == ("transport", "no")
        assert "canary" not in caplog.text + str(caught.value)  # law 8
        assert at.tenants() == {None}


async def test_a_required_server_that_a_run_cannot_be_known_to_ends_it() -> None:
    async with scene(required=True, eager=True) as at:
        async with at.tools.open(run({})) as tools:
            with pytest.raises(ServerUnavailable, match="crm cannot be asked") as it:
                await tools.offered(["crm"])
            assert "--var" in it.value.fix
        with pytest.raises(ServerUnavailable, match="the context of a run"):
            await at.tools.offered(["crm"])
        assert at.seen == []


async def test_outside_of_a_run_the_server_is_not_asked() -> None:
    async with scene() as at:
        assert (await at.tools.offered(["crm"])).offers == ()
        assert "context of a run" in str(at.tools.problem("crm"))
        with pytest.raises(ToolError):
            await said(at.tools)
        assert at.seen == []


async def test_parts_of_tables_numbers_and_several_variables_are_filled_in() -> None:
    headers = {
        "X-Tenant": "${context.org.id}/${context.org.on}/${context.a.b}",
        "X-Plain": "plain",
    }
    context: dict[str, JSON] = {"org": {"id": 7, "on": True}, "a.b": "dotted"}
    async with scene(headers=headers) as at:
        async with at.tools.open(run(context)) as tools:
            await said(tools)
        assert at.tenants() == {"7/true/dotted"}
        assert {headers["x-plain"] for headers in at.seen} == {"plain"}


async def test_a_value_put_together_is_a_secret_while_the_run_lasts() -> None:
    headers = {"Authorization": "Token ${context.key}"}
    async with scene(headers=headers) as at:
        async with at.tools.open(run({"key": "canary-4711"})) as tools:
            # law 8
            assert await said(tools, text="Token canary-4711") == "[redacted]"
        assert at.redact.text("Token canary-4711") == "Token canary-4711"
        assert "canary" not in json.dumps([repr(event) for event in at.events])
