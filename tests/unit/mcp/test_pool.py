"""What two runs must have in common to share a connection."""

from __future__ import annotations

from typing import Any

import pytest

from caxton_host.core.redact import Redactor
from caxton_host.core.servers import ServerConfig
from caxton_host.mcp.pool import McpTools, _key

STDIO: dict[str, Any] = {"name": "a", "command": ("serve", "--token", "one")}
HTTP: dict[str, Any] = {"name": "a", "url": "https://me:one@h/", "transport": "http"}


def test_key_is_of_the_trust_domain_the_server_and_its_credentials() -> None:
    here = _key(ServerConfig(**STDIO))
    assert here == _key(ServerConfig(**STDIO, timeout=99.0))
    assert (here.trust_domain, here.server) == ("default", "a")
    assert len(here.credentials) == 64


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (STDIO, STDIO | {"name": "b"}),
        (STDIO, STDIO | {"env": {"TOKEN": "two"}}),
        (STDIO, STDIO | {"command": ("serve", "--token", "two")}),
        (HTTP, HTTP | {"headers": {"authorization": "two"}}),
        (HTTP, HTTP | {"url": "https://me:two@h/"}),
    ],
)
def test_other_credentials_are_another_connection(
    one: dict[str, Any], other: dict[str, Any]
) -> None:
    # law 8
    first, second = _key(ServerConfig(**one)), _key(ServerConfig(**other))
    assert first != second
    assert "one" not in first.credentials


def test_servers_of_one_host_never_share_a_connection() -> None:
    configs = {name: ServerConfig(**STDIO | {"name": name}) for name in ("a", "b")}
    tools = McpTools(configs, redact=Redactor([]))
    assert len(tools._pool) == 2
