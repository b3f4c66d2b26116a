"""The example agents, built from source, on real servers, with their replays."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from caxton_host.building import find_shared
from tests.shared import once

from .shell import Done, Shell

#: They are written in Rust.
pytestmark = pytest.mark.debian

_WHO = {
    "GIT_AUTHOR_NAME": "Ada",
    "GIT_AUTHOR_EMAIL": "ada@example.com",
    "GIT_AUTHOR_DATE": "2026-11-21T10:00:00Z",
    "GIT_COMMITTER_NAME": "Ada",
    "GIT_COMMITTER_EMAIL": "ada@example.com",
    "GIT_COMMITTER_DATE": "2026-11-21T10:00:00Z",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
}


def git(repository: Path, *words: str) -> None:
    subprocess.run(
        ["git", *words],
        cwd=repository,
        env={"PATH": os.environ["PATH"], "HOME": str(repository), **_WHO},
        check=True,
        capture_output=True,
        timeout=60,
    )


def commit(repository: Path, subject: str, **files: str) -> None:
    for name, text in files.items():
        (repository / name).write_text(text)
    git(repository, "add", ".")
    git(repository, "commit", "--message", subject)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "audited"
    folder.mkdir()
    git(folder, "init", "--initial-branch=main")
    commit(folder, "Begin", readme="one\ntwo\n")
    commit(folder, "Say it again", readme="one\nthree\n", more="more\n" * 600)
    commit(folder, "Commit: " + "0" * 40, settings="user = ada\npassword = 1234\n")
    return folder


@pytest.fixture
def auditor(shell: Shell, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Put the module of that agent into the working folder."""
    build(shell, "auditor", tmp_path_factory)


@pytest.fixture
def lots(shell: Shell, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Put the module that draws lots into the working folder."""
    build(shell, "no-tools", tmp_path_factory)


def build(shell: Shell, name: str, factory: pytest.TempPathFactory) -> None:
    def made(folder: Path) -> None:
        done = shell("agent", "build", str(find_shared(f"agents/{name}")))
        assert done.code == 0, done.err
        shutil.copy(shell.folder / f"{name}.wasm", folder)

    shutil.copy(once(factory, name, made) / f"{name}.wasm", shell.folder)


def audit(shell: Shell, repository: Path, *options: str) -> Done:
    return shell(
        "run",
        "auditor.wasm",
        "--server",
        f"git=python -m mcp_server_git --repository {repository}",
        *options,
        "-i",
        json.dumps({"repository": str(repository), "commits": 5}),
    )


@pytest.mark.usefixtures("auditor")
def test_auditor_reads_all_commits_at_once_and_reports(
    shell: Shell, repository: Path
) -> None:
    done = audit(shell, repository, "--allow", "git/git_log", "--allow", "git/git_show")
    assert done.code == 0, done.err
    report = done.document
    assert [one["subject"] for one in report["commits"]] == [
        "Commit: " + "0" * 40,
        "Say it again",
        "Begin",
    ]
    assert [one["files"] for one in report["commits"]] == [
        ["settings"],
        ["more", "readme"],
        ["readme"],
    ]
    assert {one["author"] for one in report["commits"]} == {"Ada <ada@example.com>"}
    assert (report["added"], report["removed"]) == (605, 1)
    assert [finding["what"] for finding in report["findings"]] == [
        "adds what looks like a password to settings",
        "adds 601 lines",
    ]
    assert report["unread"] == []
    # The log, then one batch: three intents before the first answer.
    types = [type_ for type_ in shell.types() if type_.startswith("Tool")]
    assert types[:5] == ["ToolInvoked", "ToolCompleted", *["ToolInvoked"] * 3]
    assert shell("replay", "@last").out.startswith("identical")


@pytest.mark.usefixtures("auditor")
def test_auditor_says_what_it_was_not_allowed_to_read(
    shell: Shell, repository: Path
) -> None:
    report = audit(shell, repository, "--allow", "git/git_log").document
    assert report["commits"] == []
    assert len(report["unread"]) == 3
    assert {one["why"].partition(":")[0] for one in report["unread"]} == {"denied"}
    assert shell("replay", "@last").out.startswith("identical")


@pytest.mark.usefixtures("auditor")
def test_auditor_without_the_log_has_failed_and_says_why(
    shell: Shell, repository: Path
) -> None:
    done = audit(shell, repository)
    assert done.code == 1
    logged = shell.rows("SELECT count(*) FROM events WHERE type = 'LogWritten'")
    assert logged == [(1,)]


@pytest.mark.usefixtures("auditor")
def test_auditor_wants_what_it_calls_and_no_more(shell: Shell) -> None:
    done = shell("grant", "suggest", "--manifest", "auditor.wasm", "--json")
    assert done.document["tools"] == ["git/git_log", "git/git_show"]


@pytest.mark.usefixtures("lots")
def test_lots_are_drawn_without_a_tool_and_a_replay_draws_the_same(
    shell: Shell,
) -> None:
    names = ["Ada", "Bob", "Cid", "Dee"]
    done = shell(
        "run", "no-tools.wasm", "-i", json.dumps({"names": names, "winners": 4})
    )
    assert done.code == 0, done.err
    assert sorted(done.document["winners"]) == names
    assert done.document["of"] == 4
    assert done.document["drawn_at"] > 1_700_000_000_000_000
    assert shell("replay", "@last").out.startswith("identical")


@pytest.mark.usefixtures("lots")
def test_lots_of_nobody_begin_no_run_and_too_many_fail(shell: Shell) -> None:
    assert shell("run", "no-tools.wasm", "-i", '{"names": []}').code == 2
    assert shell.runs() == []
    failed = shell("run", "no-tools.wasm", "-i", '{"names": ["Ada"], "winners": 2}')
    assert failed.code == 1
