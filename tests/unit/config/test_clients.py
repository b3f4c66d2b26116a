"""The files in which other programs look for their servers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from caxton_host.config.clients import CLIENTS, entry, install, installed
from caxton_host.errors import UsageError

COMMAND = ("/usr/bin/caxton", "--config", "/etc/caxton.toml", "serve", "--stdio")
NEW = entry(CLIENTS["claude-desktop"], "caxton", COMMAND)
SERVER = {"command": COMMAND[0], "args": [*COMMAND[1:]]}


def test_an_entry_is_as_each_client_wants_it() -> None:
    assert NEW == {"mcpServers": {"caxton": SERVER}}
    assert entry(CLIENTS["vscode"], "agents", COMMAND) == {
        "servers": {"agents": {"type": "stdio", **SERVER}}
    }


@pytest.mark.parametrize(
    ("name", "platform", "where"),
    [
        ("claude-desktop", "linux", "home/.config/Claude/claude_desktop_config.json"),
        (
            "claude-desktop",
            "darwin",
            "home/Library/Application Support/Claude/claude_desktop_config.json",
        ),
        ("cursor", "darwin", "home/.cursor/mcp.json"),
        ("claude-code", "linux", "work/.mcp.json"),
        ("vscode", "linux", "work/.vscode/mcp.json"),
    ],
)
def test_each_client_has_its_file(name: str, platform: str, where: str) -> None:
    environ = {"HOME": "/root/home"}

    found = CLIENTS[name].path(environ, Path("/root/work"), platform)

    assert found == Path("/root") / where


def test_all_else_in_a_file_stays_in_its_order(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "mcp.json"
    file.parent.mkdir()
    before = {"theme": "dark", "mcpServers": {"git": {"command": "g"}}, "ä": [1.50]}
    file.write_text(json.dumps(before))
    file.chmod(0o600)

    backup = install(file, NEW, force=False)

    after = json.loads(file.read_text("utf-8"))
    assert after["mcpServers"].pop("caxton") == SERVER
    assert json.dumps(after) == json.dumps(before)
    assert backup is not None
    assert json.loads(backup.read_text("utf-8")) == before
    assert {file.stat().st_mode & 0o777, backup.stat().st_mode & 0o777} == {0o600}


def test_once_is_enough(tmp_path: Path) -> None:
    file = tmp_path / "new" / "mcp.json"

    assert install(file, NEW, force=False) is None
    assert install(file, NEW, force=False) is None

    assert json.loads(file.read_text("utf-8")) == NEW
    assert [one.name for one in file.parent.iterdir()] == ["mcp.json"]


@pytest.mark.parametrize(
    "before",
    [
        b"{",
        b'{"a": 1} // mine',
        b"[]",
        b'{"mcpServers": []}',
        b'{"a": 1, "a": 2}',
        b"\xff\xfe\x00",
        b"[" * 100_000,
    ],
)
def test_a_file_that_would_lose_something_is_not_touched(
    tmp_path: Path, before: bytes
) -> None:
    file = tmp_path / "mcp.json"
    file.write_bytes(before)

    with pytest.raises(UsageError, match="was not changed") as refused:
        install(file, NEW, force=True)

    assert str(file) in str(refused.value)

    assert file.read_bytes() == before


def test_another_server_of_that_name_is_replaced_only_if_that_is_said() -> None:
    before = json.dumps({"mcpServers": {"caxton": {"command": "x"}}}).encode()

    with pytest.raises(UsageError, match="another server 'caxton'"):
        installed(before, NEW, force=False)

    assert json.loads(installed(before, NEW, force=True)) == NEW


def test_the_file_with_another_server_of_that_name_is_said(tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"
    file.write_text(json.dumps({"mcpServers": {"caxton": {"command": "x"}}}))

    with pytest.raises(UsageError, match="another server 'caxton'") as refused:
        install(file, NEW, force=False)

    assert str(file) in str(refused.value)


def test_what_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(UsageError, match="cannot change"):
        install(tmp_path / "file" / "mcp.json", NEW, force=False)
