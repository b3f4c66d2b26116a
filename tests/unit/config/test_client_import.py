"""Servers of a client's file become tables of ``caxton.toml``."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from caxton_host.config.client_import import Taken, take_over
from caxton_host.core.calls import JSON
from caxton_host.errors import ConfigError

from .conftest import Folder


def taken(folder: Folder, servers: dict[str, JSON], below: str = ".") -> Taken:
    if not (folder.path / "caxton.toml").exists():
        folder.write("version = 1\n")
    return take_over(
        servers,
        shown=".mcp.json",
        folder=folder.path / below,
        config=folder.path / "caxton.toml",
        environ=folder.environ,
    )


def table(folder: Folder, server: JSON, below: str = ".") -> Any:  # noqa: ANN401
    found = taken(folder, {"a": server}, below)
    return tomllib.loads(found.content.decode())["servers"]["a"]


@pytest.mark.parametrize(
    ("server", "lines"),
    [
        (
            {"type": "stdio", "command": "uvx", "args": ["x", "${A}", "${env:B:-1}"]},
            {"command": "uvx", "args": ["x", "${env:A}", "${env:B:-1}"]},
        ),
        ({"command": ["uvx", "x"]}, {"command": "uvx", "args": ["x"]}),
        (
            {"type": "http", "url": "https://h/mcp", "headers": {"Accept": "a"}},
            {"url": "https://h/mcp", "headers": {"Accept": "a"}},
        ),
        ({"serverUrl": "https://h/mcp"}, {"url": "https://h/mcp"}),
        (
            {"transport": {"type": "sse", "url": "https://h/sse"}},
            {"url": "https://h/sse", "transport": "sse"},
        ),
        (
            {
                "transport": {"command": "x", "env": {"A": "1", "B": "1"}},
                "env": {"B": "2"},
            },
            {"command": "x", "env": {"A": "1", "B": "2"}},
        ),
        ({"command": "x", "disabled": True}, {"command": "x", "enabled": False}),
        ({"command": "x", "timeout": "3s"}, {"command": "x", "timeout": "3s"}),
        ({"command": "x", "env": {"K": ""}}, {"command": "x", "env": {"K": ""}}),
    ],
)
def test_a_server_says_the_same_here(folder: Folder, server: JSON, lines: JSON) -> None:
    assert table(folder, server) == lines


def test_paths_start_from_the_folder_of_the_client(folder: Folder) -> None:
    (folder.path / "project").mkdir()
    server: JSON = {"command": "./bin/x", "args": ["${workspaceFolder}/y"]}
    here = folder.path / "project"
    assert table(folder, server, "project") == {
        "command": str(here / "bin" / "x"),
        "args": [f"{here}/y"],
        "cwd": str(here),
    }
    assert table(folder, {"command": "x", "cwd": "sub"})["cwd"] == str(
        folder.path / "sub"
    )
    assert table(folder, {"command": "~/x"})["command"] == "~/x"


# law 8
def test_a_literal_secret_becomes_the_content_of_a_file(folder: Folder) -> None:
    found = taken(
        folder,
        {
            "a-b": {"command": "x", "env": {"TOKEN": "first-secret"}},
            "a_b": {"command": "x", "env": {"TOKEN": "other-secret", "LEVEL": "1"}},
            "c": {"url": "https://h", "headers": {"Authorization": "Bearer third"}},
            "d": {"url": "https://h/mcp?token=fourth"},
        },
    )

    assert found.secrets == {
        "A_B_TOKEN": "first-secret",
        "A_B_TOKEN_": "other-secret",
        "C_AUTHORIZATION": "Bearer third",
        "D_URL": "https://h/mcp?token=fourth",
    }
    assert b"secret" not in found.content.replace(b"file:secrets/", b"")
    assert b"fourth" not in found.content
    assert "secret" not in repr(found).replace("file:secrets/", "")
    for name, text in found.secrets.items():
        folder.write(text, f"secrets/{name}")
    loaded = folder.load(found.content).servers
    assert loaded["a_b"].env == {"TOKEN": "other-secret", "LEVEL": "1"}
    assert loaded["c"].headers == {"Authorization": "Bearer third"}


def test_variables_are_kept_as_the_client_spells_them(folder: Folder) -> None:
    found = taken(
        folder,
        {"a": {"command": "x", "args": ["${A}${env:B:-2}", "${input:api-key}"]}},
    )
    assert found.variables == {
        "A": "${A}",
        "B": "${env:B:-2}",
        "CAXTON_INPUT_API_KEY": "${input:api-key}",
    }
    assert found.needed == ["A", "CAXTON_INPUT_API_KEY"]


def test_what_is_not_known_here_is_noted(folder: Folder) -> None:
    found = taken(folder, {"my server": {"command": "x", "autoApprove": ["y"]}})
    assert found.names == ["my-server"]
    assert found.notes == [
        '.mcp.json: "my server".autoApprove is not known and left out',
        '.mcp.json: "my server": is named my-server here',
    ]


def test_what_is_there_already_is_not_added_again(folder: Folder) -> None:
    servers: dict[str, JSON] = {"a": {"command": "x"}, "b": {"command": "y"}}
    folder.write('version = 1\n[servers.a]\ncommand = "x"\ntimeout = "3s"\n')
    found = taken(folder, servers)
    assert found.content.count(b"[servers.a]") == 1
    folder.write(found.content)
    assert taken(folder, servers).content == found.content


@pytest.mark.parametrize(
    ("servers", "problem"),
    [
        ({"a": {"command": "other"}}, "has another server a"),
        ({"b": {"command": "x", "args": ["${unknown:x}"]}}, "has no counterpart"),
        ({"b": {"command": "x", "args": ["${A"]}}, "has no counterpart"),
        ({"b": {"command": "x", "url": "https://h"}}, "a command or a url"),
        ({"b": {}}, "a command or a url"),
        ({"b": {"command": 1}}, "found a number"),
        ({"b": []}, "found a list"),
        ({"b": {"command": "x", "timeout": True}}, "timeout"),
        ({"b c": {"command": "x"}, "b-c": {"command": "x"}}, "two servers"),
        ({"//": {"command": "x"}}, "not a valid server name"),
    ],
)
def test_all_is_refused_if_one_cannot_be_taken(
    folder: Folder, servers: dict[str, JSON], problem: str
) -> None:
    folder.write('version = 1\n[servers.a]\ncommand = "x"\n')
    with pytest.raises(ConfigError, match=problem) as refused:
        taken(folder, servers)
    assert refused.value.fix


def test_the_own_host_is_not_imported_from_the_file_of_its_client(
    folder: Folder,
) -> None:
    config: Path = folder.path / "caxton.toml"
    folder.write(
        f"""{{"mcpServers": {{
            "one": {{"command": "caxton", "args": ["--config", "{config}",
                "mcp", "connect", "dev"], "env": {{"NOT_SET": "${{NOT_SET}}"}}}},
            "two": {{"type": "http", "url": "https://h/mcp/dev",
                "headers": {{"Authorization": "Bearer ${{CAXTON_TOKEN}}"}}}},
            "git": {{"command": "git-mcp"}}}}}}""",
        ".mcp.json",
    )
    assert [*folder.load('version = 1\nimport = [".mcp.json"]\n').servers] == ["git"]


def test_paths_in_a_file_of_cursor_start_from_the_project(folder: Folder) -> None:
    folder.write('{"mcpServers": {"a": {"command": "./x"}}}', ".cursor/mcp.json")
    loaded = folder.load('version = 1\nimport = [".cursor/mcp.json"]\n')
    assert loaded.servers["a"].command == (str(folder.path / "x"),)
