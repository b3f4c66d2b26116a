"""``caxton mcp install``: the host in the files of other programs."""

from __future__ import annotations

import json
from pathlib import Path

from .shell import CAXTON, Shell, toml

CONFIG = toml({"agents.weather": {"module": "weather.wasm"}})


def test_a_client_starts_this_host_with_this_configuration(shell: Shell) -> None:
    shell.write("caxton.toml", CONFIG)
    shell.write(".mcp.json", '{"mcpServers": {"git": {"command": "git-mcp"}}}')

    done = shell("mcp", "install", "claude-code", "--json").document

    (file,) = [Path(done["file"])]
    written = json.loads(file.read_text())["mcpServers"]
    assert list(written) == ["git", "caxton"]
    assert written["caxton"] == {
        "type": "stdio",
        "command": str(CAXTON),
        "args": [
            *("--config", str(shell.folder / "caxton.toml")),
            *("serve", "--stdio"),
        ],
    }
    assert Path(done["backup"]) == shell.folder / ".mcp.json.bak"


def test_what_is_only_printed_changes_nothing(shell: Shell) -> None:
    shell.write("caxton.toml", CONFIG)

    shown = shell("mcp", "install", "cursor", "--print", "--name", "agents")

    assert list(json.loads(shown.out)["mcpServers"]) == ["agents"]
    assert not (shell.home / ".cursor").exists()


def test_a_password_is_not_written_into_files_of_others(shell: Shell) -> None:
    shell.write("caxton.toml", CONFIG)
    store = "postgresql://ann:hunter22@localhost/log"

    done = shell("--db", store, "mcp", "install", "cursor")

    assert done.code == 2
    assert "hunter22" not in done.err
    assert not (shell.home / ".cursor").exists()


def test_without_a_configuration_there_is_nothing_to_serve(shell: Shell) -> None:
    done = shell("mcp", "install", "cursor")

    assert done.code == 2
    assert "caxton init" in done.fix
