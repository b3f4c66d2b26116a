"""What two runs must have in common to share a connection."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from caxton_host.core.text.redact import Redactor
from caxton_host.core.tools.servers import OAuth, ServerConfig
from caxton_host.mcp.pool import McpTools, Pool, _key

STDIO: dict[str, Any] = {"name": "a", "command": ("serve", "--token", "one")}
HTTP: dict[str, Any] = {"name": "a", "url": "https://me:one@h/", "transport": "http"}

CLIENT = OAuth(client_id="a", client_secret="one", issuer="https://i")  # noqa: S106


def test_key_is_of_the_trust_domain_the_server_and_its_credentials() -> None:
    here = _key(ServerConfig(**STDIO))
    assert here == _key(ServerConfig(**STDIO, timeout=99.0))
    assert (here.domain, here.server) == (None, "a")
    assert len(here.credentials) == 64


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (STDIO, STDIO | {"name": "b"}),
        (STDIO, STDIO | {"env": {"TOKEN": "two"}}),
        (STDIO, STDIO | {"command": ("serve", "--token", "two")}),
        (HTTP, HTTP | {"headers": {"authorization": "two"}}),
        (HTTP, HTTP | {"url": "https://me:two@h/"}),
        (HTTP | {"oauth": CLIENT}, HTTP | {"oauth": replace(CLIENT, scope="two")}),
        (HTTP | {"oauth": CLIENT}, HTTP),
    ],
)
def test_other_credentials_are_another_connection(
    one: dict[str, Any], other: dict[str, Any]
) -> None:
    # law 8
    first, second = _key(ServerConfig(**one)), _key(ServerConfig(**other))
    assert first != second
    assert "one" not in first.credentials


async def test_tokens_are_shared_by_all_that_ask_for_them_alike() -> None:
    pool, redact = Pool(), Redactor()

    def access(**options: Any) -> object:  # noqa: ANN401 -- of a server
        return pool.access(ServerConfig(**HTTP | options), redact, None)

    first = access(oauth=CLIENT)
    assert first is access(oauth=CLIENT, timeout=99.0)
    assert first is not access(oauth=replace(CLIENT, client_id="b"))
    assert first is not access(oauth=CLIENT, name="b")
    assert access() is None


async def test_clients_of_one_pool_share_servers_that_are_configured_alike() -> None:
    pool, redact = Pool(), Redactor()

    def client(**options: Any) -> McpTools:  # noqa: ANN401 -- of a server
        return McpTools(
            {"a": ServerConfig(**STDIO | options)}, redact=redact, pool=pool
        )

    one, same, other = client(), client(eager=True), client(timeout=99.0)
    (first,), (second,), (third,) = [it._pool.values() for it in (one, same, other)]
    assert first is second
    assert first is not third

    await one.__aexit__(None, None, None)
    assert not first._disabled
    await same.__aexit__(None, None, None)
    assert first._disabled
    assert not third._disabled
    await other.__aexit__(None, None, None)
    assert third._disabled
    assert pool._holders == {}


def test_servers_of_one_host_never_share_a_connection() -> None:
    configs = {name: ServerConfig(**STDIO | {"name": name}) for name in ("a", "b")}
    tools = McpTools(configs, redact=Redactor([]))
    assert len(tools._pool) == 2
