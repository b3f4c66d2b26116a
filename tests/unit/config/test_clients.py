"""The clients that are known: where their files are, and what an entry looks like."""

from __future__ import annotations

from pathlib import Path

import pytest

from caxton_host.config.clients import (
    CLIENTS,
    command_entry,
    is_host,
    session_entry,
    usual,
)
from caxton_host.errors import UsageError

CONNECT = ("/usr/bin/caxton", "--config", "/etc/c.toml", "mcp", "connect", "dev")


def test_an_entry_is_as_each_client_wants_it() -> None:
    server = {"command": CONNECT[0], "args": [*CONNECT[1:]]}
    assert command_entry(CLIENTS["cursor"], CONNECT, {}) == server
    assert command_entry(CLIENTS["vscode"], CONNECT, {"A": "${env:A}"}) == {
        "type": "stdio",
        **server,
        "env": {"A": "${env:A}"},
    }


# law 8
@pytest.mark.parametrize(
    ("client", "token"),
    [
        ("claude-code", "Bearer ${CAXTON_TOKEN}"),
        ("cursor", "Bearer ${env:CAXTON_TOKEN}"),
        ("vscode", "Bearer ${env:CAXTON_TOKEN}"),
    ],
)
@pytest.mark.parametrize("path", ["", "/", "/mcp", "/mcp/dev"])
def test_a_token_is_named_as_each_client_names_variables(
    client: str, token: str, path: str
) -> None:
    assert session_entry(CLIENTS[client], f"https://host:8080{path}", "dev") == {
        "type": "http",
        "url": "https://host:8080/mcp/dev",
        "headers": {"Authorization": token},
    }


@pytest.mark.parametrize(
    ("client", "url"),
    [
        ("claude-desktop", "https://host:8080"),
        ("cursor", "host:8080"),
        ("cursor", "https://"),
        ("cursor", "https://ann:hunter22@host"),
        ("cursor", "https://:hunter22@host"),
        ("cursor", "https://[::1"),
        ("cursor", "https://host:99999"),
        ("cursor", "https://host name"),
        ("cursor", "https://host\n"),
        ("cursor", "https://host?token=hunter22"),
    ],
)
def test_an_address_that_no_entry_can_have_is_refused(client: str, url: str) -> None:
    with pytest.raises(UsageError) as refused:
        session_entry(CLIENTS[client], url, "dev")
    assert refused.value.fix
    assert "hunter22" not in str(refused.value)


@pytest.mark.parametrize(
    ("name", "platform", "where"),
    [
        ("claude-desktop", "linux", ["home/.config/Claude/claude_desktop_config.json"]),
        (
            "claude-desktop",
            "darwin",
            ["home/Library/Application Support/Claude/claude_desktop_config.json"],
        ),
        ("cursor", "darwin", ["work/.cursor/mcp.json", "home/.cursor/mcp.json"]),
        ("claude-code", "linux", ["work/.mcp.json", "home/.claude.json"]),
        (
            "vscode",
            "linux",
            ["work/.vscode/mcp.json", "home/.config/Code/User/mcp.json"],
        ),
        ("generic", "linux", []),
    ],
)
def test_each_client_has_its_files(name: str, platform: str, where: list[str]) -> None:
    environ = {"HOME": "/root/home"}

    found = CLIENTS[name].places(environ, Path("/root/work"), platform)

    assert [*found.values()] == [Path("/root") / path for path in where]


def test_the_file_of_a_project_is_meant_where_its_folder_is(tmp_path: Path) -> None:
    places = CLIENTS["cursor"].places({"HOME": str(tmp_path / "home")}, tmp_path)
    assert usual(places) == tmp_path / "home" / ".cursor" / "mcp.json"

    (tmp_path / ".cursor").mkdir()

    assert usual(places) == tmp_path / ".cursor" / "mcp.json"
    places = CLIENTS["claude-code"].places({"HOME": str(tmp_path / "home")}, tmp_path)
    assert usual(places) == tmp_path / ".mcp.json"


def test_only_entries_of_a_host_are_recognised(tmp_path: Path) -> None:
    config = tmp_path / "caxton.toml"
    words = ["caxton", "--config", str(config)]
    here = [
        command_entry(CLIENTS["cursor"], [*words, "mcp", "connect", "dev"], {}),
        command_entry(CLIENTS["claude-code"], [*words, "serve", "--stdio"], {}),
        session_entry(CLIENTS["cursor"], "https://host", "dev"),
    ]
    assert all(is_host(one, config) and is_host(one) for one in here)
    assert not is_host(here[0], tmp_path / "other.toml")
    assert not any(
        map(
            is_host,
            [
                None,
                {"command": "caxton", "args": ["mcp", "connect", "dev"]},
                {"command": "x", "args": "serve --stdio"},
                {"url": "https://host/mcp", "headers": {"Authorization": "Bearer x"}},
                {"url": "https://host/mcp", "headers": []},
            ],
        )
    )
