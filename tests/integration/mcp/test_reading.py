"""Resources of real servers, over each transport."""

from __future__ import annotations

import logging
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from caxton_host.core.text.redact import Redactor
from caxton_host.core.tools.servers import Resources, ServerConfig
from caxton_host.errors import ServerUnavailable
from caxton_host.lib.codec import sha256
from caxton_host.mcp import McpTools
from caxton_host.ports import RunScope

from . import library_server
from .conftest import SECRET, Faulty
from .faulty_http import FaultyHttp
from .test_http_servers import sdk_server

LIBRARY = ServerConfig(
    name="crm",
    command=(sys.executable, str(Path(library_server.__file__))),
    resources=Resources(),
    resource_vars={"customer_id": "${context.customer_id}"},
)
SCOPE = RunScope(run_id="0198", agent="support", context={"customer_id": "a/7"})
LOGO = {"media_type": "image/png", "sha256": sha256(b"\x89PNG"), "bytes": 4}
READ = {
    "crm://company": {"name": "Analytical Engines"},
    "crm://motto": "[redacted] is our motto",
    "crm://logo": LOGO,
    "crm://customers/a%2F7": {"id": "a/7"},
}


def tools_of(config: ServerConfig) -> McpTools:
    return McpTools({config.name: config}, redact=Redactor([SECRET]))


async def test_resources_are_read_over_stdio(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with tools_of(LIBRARY) as tools:
        with caplog.at_level(logging.WARNING):
            found = await tools.resources(["crm", "another"], SCOPE)
    assert {one.uri: one.value for one in found if one.error is None} == READ
    [broken] = [one for one in found if one.error is not None]
    assert broken.uri == "crm://broken"
    assert "resource crm://broken left out" in caplog.text


@pytest.mark.parametrize("legacy", [False, True])
async def test_resources_are_read_over_http(*, legacy: bool) -> None:
    async with sdk_server(
        legacy=legacy,
        stateless=False,
        as_json=legacy,
        mcp=library_server.library(),
    ) as url:
        config = replace(LIBRARY, command=(), url=url, transport="http")
        async with tools_of(config) as tools:
            found = await tools.resources(["crm"], SCOPE)
    assert {one.uri: one.value for one in found if one.error is None} == READ


async def test_a_server_that_is_not_to_be_read_is_not_asked() -> None:
    config = replace(LIBRARY, command=("no such program",), resources=None)
    async with tools_of(config) as tools:
        assert await tools.resources(["crm"], SCOPE) == []


async def test_a_server_without_resources_is_told_of_and_stops_nothing(
    faulty: Faulty, caplog: pytest.LogCaptureFixture
) -> None:
    async with faulty("sound", resources=Resources()) as tools:
        [one] = await tools.resources(["faulty"], SCOPE)
    assert one.error == "protocol: the server has no resources"
    assert "faulty: resource list left out" in caplog.text


@pytest.mark.parametrize(("ttl", "asked"), [(60_000, 1), (0, 2), (None, 2)])
async def test_what_a_server_promises_is_not_asked_for_twice(
    ttl: int | None, asked: int
) -> None:
    promise = {} if ttl is None else {"ttlMs": ttl}

    class Library(FaultyHttp):
        async def _serve(self, asked: Any, to: Any) -> None:  # noqa: ANN401
            answers: dict[str, dict[str, object]] = {
                "resources/list": {"resources": [{"uri": "a:b", "name": "b"}]},
                "resources/templates/list": {"resourceTemplates": []},
                "resources/read": {"contents": [{"uri": "a:b", "text": "hello"}]},
            }
            if said := answers.get(asked.message.get("method")):
                await to.result(asked.message["id"], said | promise)
            else:
                await super()._serve(asked, to)

    async with Library() as server:
        server.capabilities = {"resources": {}}
        config = ServerConfig(
            name="crm", url=server.url, transport="http", resources=Resources()
        )
        async with tools_of(config) as tools:
            for _ in range(2):
                [one] = await tools.resources(["crm"], SCOPE)
                assert one.value == "hello"
        for method in ("resources/list", "resources/read"):
            assert len(server.told(method)) == asked


async def test_nothing_runs_without_required_resources(faulty: Faulty) -> None:
    async with faulty("sound", resources=Resources(required=True)) as tools:
        with pytest.raises(ServerUnavailable):
            await tools.resources(["faulty"], SCOPE)
