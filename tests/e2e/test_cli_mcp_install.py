"""``caxton mcp install`` and ``uninstall``: the host in the files of MCP clients."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters

from .shell import CAXTON, Done, Shell, toml

CONFIG = toml({"servers.own": {"command": "own-mcp"}, "sessions.dev": {}})
SECRETS = {"GITHUB_GITHUB_TOKEN": "ghp_0123456789", "OLD_X_KEY": "key-of-old"}
FIVE = """\
{
  "$schema": "https://example.com/mcp.json",
  "mcpServers": {
    "time": { "command": "uvx", "args": ["mcp-server-time"] },
    "git": {"command": "uvx", "args": ["mcp-server-git", "--repository", "${REPO:-.}"]},
    "github": {
      "command": "npx", "args": ["-y", "github-mcp"],
      "env": { "GITHUB_TOKEN": "ghp_0123456789", "LEVEL": "1" }
    },
    "crm": {
      "type": "http",
      "url": "https://crm.example.com/mcp",
      "headers": { "Authorization": "Bearer ${CRM_TOKEN}" }
    },
    "old": {"type": "sse", "url": "https://old.example/", "headers":
      {"X-Key": "key-of-old"}}
  },
  "threshold": 1.50
}
"""
NAMES = ["time", "git", "github", "crm", "old"]


@pytest.fixture
def project(shell: Shell) -> Shell:
    shell.write("caxton.toml", CONFIG)
    shell.write(".mcp.json", FIVE)
    return shell


def servers(shell: Shell, name: str = ".mcp.json") -> dict[str, Any]:
    found: dict[str, Any] = json.loads((shell.folder / name).read_text())["mcpServers"]
    return found


def files(shell: Shell) -> dict[str, bytes]:
    return {
        str(path.relative_to(shell.folder)): path.read_bytes()
        for path in shell.folder.rglob("*")
        if path.is_file()
    }


def test_names_of_sessions_are_completed(project: Shell) -> None:
    project.set(
        _CAXTON_COMPLETE="bash_complete",
        COMP_WORDS="caxton mcp install cursor --session d",
        COMP_CWORD="5",
    )
    assert project.typed().out == "plain,dev\n"


def connect(shell: Shell, *words: str) -> dict[str, Any]:
    config = str(shell.folder / "caxton.toml")
    return {"command": CAXTON, "args": ["--config", config, *words]}


# -- install -------------------------------------------------------------------


def test_a_client_starts_the_session_of_this_host(project: Shell) -> None:
    done = project("mcp", "install", "claude-code", "--session", "dev", "--yes")

    assert done.code == 0, done.err
    assert [*servers(project)] == [*NAMES, "caxton"]
    assert servers(project)["caxton"] == {
        "type": "stdio",
        **connect(project, "mcp", "connect", "dev"),
    }
    copy = project.folder / ".mcp.json.before-caxton"
    assert copy.read_text() == FIVE
    assert copy.stat().st_mode & 0o777 == 0o600
    assert '[[sessions.dev.allow]]\ntools = ["own/*"]' in done.err
    assert (project.folder / "caxton.toml").read_text() == CONFIG


def test_without_a_session_a_client_is_offered_the_agents(project: Shell) -> None:
    done = project("mcp", "install", "claude-code", "--yes", "--json").document

    assert servers(project)["caxton"] == {
        "type": "stdio",
        **connect(project, "serve", "--stdio"),
    }
    assert done["$type"] == "caxton.install/v1"
    assert (done["written"], done["allow"]) == (True, None)
    assert Path(done["copy"]) == project.folder / ".mcp.json.before-caxton"


def test_a_served_session_is_named_by_its_address_and_no_token(project: Shell) -> None:
    words = ["mcp", "install", "cursor", "--session", "dev", "--scope", "project"]
    done = project(*words, "--url", "http://host:8080/", "--yes")

    assert servers(project, ".cursor/mcp.json")["caxton"] == {
        "type": "http",
        "url": "http://host:8080/mcp/dev",
        "headers": {"Authorization": "Bearer ${env:CAXTON_TOKEN}"},
    }
    assert "caxton serve token create --session dev" in done.err
    assert "is not https" in done.err


def test_nothing_is_written_before_the_user_agrees(project: Shell) -> None:
    before = files(project)
    words = ["mcp", "install", "claude-code", "--session", "dev", "--take-over"]

    done = project(*words)

    assert done.code == 2
    assert done.fix == "repeat the command with --yes"
    assert '+    "caxton": {' in done.out
    assert "+[servers.github]" in done.out
    assert project(*words, "--json").document["written"] is False
    assert files(project) == before


@pytest.mark.parametrize(("answer", "code"), [("y", 0), ("n", 1)])
def test_a_person_at_a_terminal_is_asked(
    project: Shell, answer: str, code: int
) -> None:
    done = answered(project, answer, "mcp", "install", "claude-code")

    assert done.code == code, done.out
    assert "Write this?" in done.out
    assert ("caxton" in servers(project)) is (code == 0)


def answered(shell: Shell, answer: str, *words: str) -> Done:
    ours, theirs = pty.openpty()
    os.write(ours, f"{answer}\n".encode())
    screen = b""
    with subprocess.Popen(
        [CAXTON, *words],
        cwd=shell.folder,
        env=shell.environ,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    ) as child:
        os.close(theirs)
        with suppress(OSError):  # The terminal is gone with its last process.
            while data := os.read(ours, 65536):
                screen += data
    os.close(ours)
    return Done(code=child.returncode, out=screen.decode(), err="")


def test_once_is_enough(project: Shell) -> None:
    words = ["mcp", "install", "claude-code", "--session", "dev", "--yes"]
    project(*words)
    before = files(project)

    done = project(*words)

    assert (done.code, done.out) == (0, "")
    assert "nothing to change" in done.err
    assert files(project) == before


def test_what_is_only_printed_changes_nothing(project: Shell) -> None:
    before = files(project)
    for words in (["cursor", "--print", "--name", "agents"], ["generic"]):
        shown = project("mcp", "install", *words, "--session", "dev")
        (entry,) = json.loads(shown.out)["mcpServers"].values()
        assert entry == connect(project, "mcp", "connect", "dev")
    assert files(project) == before
    assert not (project.home / ".cursor").exists()


def test_the_file_can_be_chosen(project: Shell) -> None:
    for words, path in (
        ([], project.home / ".cursor" / "mcp.json"),
        (["--scope", "project"], project.folder / ".cursor" / "mcp.json"),
        (["--file", "other.json"], project.folder / "other.json"),
    ):
        done = project("mcp", "install", "cursor", *words, "--yes", "--json")
        assert done.document["file"] == str(path)
        assert [*json.loads(path.read_text())["mcpServers"]] == ["caxton"]
    refused = project("mcp", "install", "claude-desktop", "--scope", "project")
    assert (refused.code, refused.fix) == (2, "write --scope user")


def test_another_server_of_that_name_is_replaced_only_if_that_is_said(
    project: Shell,
) -> None:
    words = ["mcp", "install", "claude-code", "--name", "git", "--yes"]
    refused = project(*words)
    assert refused.code == 2
    assert "another server 'git'" in refused.err

    assert project(*words, "--force").code == 0
    assert project("mcp", "uninstall", "claude-code", "--yes").code == 0
    assert (project.folder / ".mcp.json").read_text() == FIVE


def test_the_entry_of_another_configuration_is_another_server(project: Shell) -> None:
    words = ["mcp", "install", "claude-code", "--yes"]
    project(*words)
    project.write("other.toml", CONFIG)
    assert project("--config", "other.toml", *words).code == 2
    assert project("--config", "other.toml", *words, "--force").code == 0
    assert str(project.folder / "other.toml") in servers(project)["caxton"]["args"]


@pytest.mark.parametrize("content", ['{"a": 1} // mine', "{", '{"mcpServers": []}'])
def test_a_file_that_would_lose_something_is_refused(
    project: Shell, content: str
) -> None:
    project.write(".mcp.json", content)
    before = files(project)
    for command in ("install", "uninstall"):
        done = project("mcp", command, "claude-code", "--yes")
        assert done.code == 2
        assert f"{project.folder / '.mcp.json'}: it was not changed" in done.err
        assert done.fix.startswith("correct it")
    assert files(project) == before


@pytest.mark.parametrize(
    "words",
    [
        ["--url", "https://host"],
        ["--session", "dev", "--url", "host"],
    ],
)
def test_an_address_without_its_session_is_refused(
    project: Shell, words: list[str]
) -> None:
    done = project("mcp", "install", "claude-code", *words, "--yes")
    assert done.code == 2
    assert done.fix


def test_a_session_that_is_not_configured_is_refused(project: Shell) -> None:
    words = ["mcp", "install", "claude-code", "--yes", "--session"]
    typo, other = project(*words, "dew"), project(*words, "research")
    assert (typo.code, typo.fix) == (2, "name dev")
    assert (other.code, other.fix) == (2, "add [sessions.research] to caxton.toml")
    assert "caxton" not in servers(project)
    url = ["--url", "https://host", "--name", "far"]
    assert project(*words, "research", *url).code == 0


# law 8
def test_a_password_is_not_written_into_files_of_others(project: Shell) -> None:
    store = "postgresql://ann:hunter22@localhost/log"

    done = project("--db", store, "mcp", "install", "cursor")

    assert done.code == 2
    assert "hunter22" not in done.err
    assert not (project.home / ".cursor").exists()


def test_without_a_configuration_there_is_nothing_to_offer(shell: Shell) -> None:
    done = shell("mcp", "install", "cursor")

    assert done.code == 2
    assert "caxton init" in done.fix


# -- take-over, and back -------------------------------------------------------


def test_five_servers_are_taken_over_and_given_back_by_one_command_each(
    project: Shell,
) -> None:
    took = project("mcp", "install", "claude-code", *TAKE_OVER)

    assert took.code == 0, took.err
    (entry,) = servers(project).values()
    assert entry["args"][-3:] == ["mcp", "connect", "dev"]
    assert entry["env"] == {"REPO": "${REPO:-.}", "CRM_TOKEN": "${CRM_TOKEN}"}
    assert f"tools = {json.dumps([f'{one}/*' for one in NAMES])}" in took.err
    project.set(CRM_TOKEN="x" * 9)
    listed = project("server", "list", "--json").document
    assert [one["name"] for one in listed] == sorted(["own", *NAMES])

    gave = project("mcp", "uninstall", "claude-code", "--yes")

    assert gave.code == 0, gave.err
    assert (project.folder / ".mcp.json").read_text() == FIVE
    assert not (project.folder / ".mcp.json.before-caxton").exists()
    assert "caxton.toml keeps its servers" in gave.err
    assert project("server", "list", "--json").document == listed


TAKE_OVER = ["--session", "dev", "--take-over", "--yes"]


async def test_a_client_reaches_a_taken_server_through_its_entry(
    project: Shell,
) -> None:
    demo = {"command": sys.executable, "args": ["-m", "caxton_host.demo_server"]}
    project.write(".mcp.json", json.dumps({"mcpServers": {"demo": demo}}))
    allow = project("mcp", "install", "claude-code", *TAKE_OVER, "--json").document
    config = project.folder / "caxton.toml"
    config.write_text(f"{config.read_text()}\n{allow['allow']}\n")

    entry = servers(project)["caxton"]
    server = StdioServerParameters(
        command=entry["command"],
        args=entry["args"],
        env=project.environ,
        cwd=project.home,
    )
    async with Client(server) as client:
        result = await client.call_tool("mcp__demo__echo", {"text": "hello"})

    assert not result.is_error
    assert "ToolCompleted" in project.types()


# law 8
def test_secrets_that_are_taken_over_are_in_files_for_the_user_alone(
    project: Shell,
) -> None:
    done = project("mcp", "install", "claude-code", *TAKE_OVER, "--json")

    folder = project.folder / "secrets"
    assert done.document["secrets"] == [str(folder / name) for name in SECRETS]
    assert {name: (folder / name).read_text() for name in SECRETS} == SECRETS
    assert {(folder / name).stat().st_mode & 0o777 for name in SECRETS} == {0o600}
    assert (folder / ".gitignore").read_text() == "*\n"
    undone = project("mcp", "uninstall", "claude-code", "--yes")
    for text in SECRETS.values():
        assert text not in done.out + done.err + undone.out + undone.err
        assert text not in (project.folder / "caxton.toml").read_text()


def test_it_can_be_taken_over_again(project: Shell) -> None:
    project("mcp", "install", "claude-code", *TAKE_OVER)
    before = files(project)
    project("mcp", "uninstall", "claude-code", "--yes")

    assert project("mcp", "install", "claude-code", *TAKE_OVER).code == 0

    assert files(project) == before


def test_servers_stay_with_the_host_and_later_ones_can_follow(project: Shell) -> None:
    project("mcp", "install", "claude-code", *TAKE_OVER)
    late = {**servers(project), "late": {"command": "late-mcp"}}
    project.write(".mcp.json", json.dumps({"mcpServers": late, "new": 1}))

    project("mcp", "install", "claude-code", "--session", "dev", "--yes")
    assert [*servers(project)] == ["late", "caxton"]
    project("mcp", "install", "claude-code", *TAKE_OVER)
    assert [*servers(project)] == ["caxton"]
    project("mcp", "uninstall", "claude-code", "--yes")

    assert {*servers(project)} == {*NAMES, "late"}
    assert json.loads((project.folder / ".mcp.json").read_text())["new"] == 1
    assert servers(project)["github"] == json.loads(FIVE)["mcpServers"]["github"]


def test_a_file_that_changed_keeps_its_changes(project: Shell) -> None:
    project("mcp", "install", "claude-code", *TAKE_OVER)
    changed = {"mcpServers": {**servers(project), "late": {"command": "x"}}, "a": [1]}
    project.write(".mcp.json", json.dumps(changed))

    done = project("mcp", "uninstall", "claude-code", "--yes", "--json").document

    assert done["servers"] == NAMES
    assert json.loads((project.folder / ".mcp.json").read_text()) == {
        "mcpServers": {"late": {"command": "x"}, **json.loads(FIVE)["mcpServers"]},
        "a": [1],
    }


def test_servers_are_given_back_though_the_entry_and_the_host_are_gone(
    project: Shell,
) -> None:
    project("mcp", "install", "claude-code", *TAKE_OVER)
    (project.folder / ".mcp.json").unlink()
    (project.folder / "caxton.toml").unlink()

    assert project("mcp", "uninstall", "claude-code", "--yes").code == 0

    restored = project.folder / ".mcp.json"
    assert restored.read_text() == FIVE
    assert restored.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("caxton.toml", toml({"servers.crm": {"command": "x"}}), "another server crm"),
        ("secrets/OLD_X_KEY", "another", "holds another secret"),
        (".mcp.json", '{"mcpServers": {"a": {"command": "x"}, "b": {}}}', "a url"),
    ],
)
def test_all_servers_are_taken_over_or_none(
    project: Shell, name: str, content: str, problem: str
) -> None:
    project.write(name, content)
    before = files(project)

    done = project("mcp", "install", "claude-code", "--take-over", "--yes")

    assert done.code == 2
    assert problem in done.err
    assert done.fix
    assert files(project) == before


def test_a_client_file_that_cannot_be_written_leaves_the_configuration_as_it_was(
    project: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = files(project)
    replace = Path.replace

    def refuse(self: Path, target: Path) -> Path:
        if target.name == ".mcp.json":
            raise PermissionError(13, "Permission denied", str(target))
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", refuse)
    done = project("mcp", "install", "claude-code", *TAKE_OVER)

    assert done.code == 2
    assert "Permission denied" in done.err
    assert files(project) == before


def test_a_file_that_changes_while_a_person_reads_is_left_alone(
    project: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    def late() -> bool:
        project.write(".mcp.json", '{"late": 1}')
        return True

    monkeypatch.setattr("caxton_host.cli.mcp_install._ask", late)
    done = project("mcp", "install", "claude-code", "--take-over")

    assert done.code == 2
    assert "was changed by another program" in done.err
    assert files(project) == {
        "caxton.toml": CONFIG.encode(),
        ".mcp.json": b'{"late": 1}',
    }


def test_an_imported_file_can_be_taken_over_and_given_back(project: Shell) -> None:
    project.write("caxton.toml", 'version = 1\nimport = [".mcp.json"]\n')
    project.set(CRM_TOKEN="x" * 9)
    words = ["mcp", "install", "claude-code", "--take-over", "--yes"]
    assert project(*words).code == 0
    listed = project("server", "list", "--json").document
    assert [one["name"] for one in listed] == sorted(NAMES)

    project("mcp", "uninstall", "claude-code", "--yes")

    listed = project("server", "list", "--json").document
    assert [one["name"] for one in listed] == sorted(NAMES)


def test_imported_servers_are_named_in_the_rule_too(project: Shell) -> None:
    project.write("caxton.toml", f'import = [".mcp.json"]\n{CONFIG}')
    words = ["mcp", "install", "cursor", "--session", "dev", "--yes", "--json"]
    unread = project(*words).document["allow"]
    assert unread == '[[sessions.dev.allow]]\ntools = ["own/*"]'

    project.set(CRM_TOKEN="x" * 9)
    assert (
        json.dumps([f"{one}/*" for one in ["own", *NAMES]])
        in (project(*words).document["allow"])
    )


# -- uninstall -----------------------------------------------------------------


def test_a_file_that_was_made_for_the_entry_is_removed(project: Shell) -> None:
    project("mcp", "install", "cursor", "--yes")
    assert (project.home / ".cursor" / "mcp.json").exists()

    assert project("mcp", "uninstall", "cursor", "--yes").code == 0

    assert not (project.home / ".cursor" / "mcp.json").exists()


def test_the_last_of_several_entries_gives_the_servers_back(project: Shell) -> None:
    project("mcp", "install", "claude-code", *TAKE_OVER)
    project("mcp", "install", "claude-code", "--name", "agents", "--yes")
    assert [*servers(project)] == ["caxton", "agents"]

    unclear = project("mcp", "uninstall", "claude-code", "--yes")
    assert (unclear.code, unclear.fix) == (2, "name one with --name: caxton")
    project("mcp", "uninstall", "claude-code", "--name", "caxton", "--yes")
    assert [*servers(project)] == ["agents"]
    project("mcp", "uninstall", "claude-code", "--yes")

    assert (project.folder / ".mcp.json").read_text() == FIVE


def test_a_host_that_is_not_in_the_file_cannot_be_removed(project: Shell) -> None:
    done = project("mcp", "uninstall", "claude-code", "--yes")
    assert done.code == 2
    assert "this host is not in" in done.err
    assert "--file" in done.fix
    assert project("mcp", "uninstall", "generic").code == 2


def test_a_server_that_is_nowhere_else_stays_in_the_copy(project: Shell) -> None:
    project("mcp", "install", "claude-code", *TAKE_OVER)
    project.set(CRM_TOKEN="x" * 9)
    assert project("server", "remove", "time").code == 0

    done = project("mcp", "uninstall", "claude-code", "--yes")

    assert "is kept" in done.err
    assert [*servers(project)] == NAMES[1:]
    assert (project.folder / ".mcp.json.before-caxton").read_text() == FIVE
