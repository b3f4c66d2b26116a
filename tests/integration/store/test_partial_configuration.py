"""Whoever looks at a log resolves the sections that this takes, and no other."""

from __future__ import annotations

import io
import json
import shlex
import sqlite3
from contextlib import closing
from pathlib import Path

import anyio
import pytest

from caxton_host.cli import execute

from .test_commands import fill

#: Neither the server nor the rule can be resolved, nor is the import there.
BROKEN = """\
import = ["none.json"]
[servers.x]
command = "x"
env = { A = "${env:UNSET}", B = "${env:SET_SECRET}" }
[[agents.a.allow]]
tools = ["x/y"]
redact_result = ["no-path"]
"""
CANARY = "canary-4711-canary"

READING = [
    "events list a",
    "events export --all",
    "events tail a",
    "runs list",
    "runs show a",
    "runs diff a a",
    "approval list",
    "audit checkpoint",
    "audit verify",
    "audit verify --copy",
    "audit export a -o a.caxton",
    "audit key rotate",
    "db status",
    "db migrate",
    "db backup copy.db",
    "db backup copies --keep 2",
    "db archive --before 1d --to old",
    "db recount",
    "db accept-copy",
    "serve token create --scope run --name t",
    "serve token list",
    "serve token revoke t",
    "runs cancel b",
    "audit erase a --reason done",
]


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the address of a log in the working folder, beside what is broken."""
    monkeypatch.chdir(tmp_path)
    for name in ("HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.delenv("UNSET", raising=False)
    monkeypatch.setenv("SET_SECRET", CANARY)
    url = f"sqlite:///{tmp_path}/caxton.db"
    anyio.run(fill, url)
    Path("caxton.toml").write_text(BROKEN)
    return url


@pytest.mark.parametrize("given", [False, True], ids=["configured", "--db"])
def test_commands_on_a_log_need_no_other_section(
    log: str, capsys: pytest.CaptureFixture[str], *, given: bool
) -> None:
    options = ["--db", log] if given else []
    for line in READING:
        code = execute([*options, *shlex.split(line)])
        told = capsys.readouterr()
        assert code == 0, (line, told.err)
        assert "caxton.toml" not in told.err, line


@pytest.mark.parametrize(
    "text", ["[broken", "nonsense = 1", "[store]\nurl = '${env:UNSET}'"]
)
def test_a_token_is_revoked_with_nothing_but_the_address_of_the_store(
    log: str, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert execute(["--db", log, "serve", "token", "create", "--scope", "run"]) == 0
    capsys.readouterr()
    Path("caxton.toml").write_text(text)

    assert execute(["--db", log, "serve", "token", "list", "--json"]) == 0
    [token] = json.loads(capsys.readouterr().out)
    assert execute(["--db", log, "serve", "token", "revoke", token["id"]]) == 0
    assert execute(["--db", log, "runs", "list"]) == 0


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("[audit]\ntrusted_keys = ['x']", "audit verify"),
        ("[audit]\nanchor = '${env:UNSET}'", "audit checkpoint"),
        ("[store]\nurl = '${env:UNSET}'", "runs list"),
        ("[stor]\nurl = 'x'", "runs list"),
        ("[[agents.a.allow]]\ncalls = 1", "grant budgets"),
        ("[[agents.a.allow]]\ncalls = 1", "serve token create --scope run --agent a"),
    ],
)
@pytest.mark.usefixtures("log")
def test_what_is_wrong_with_a_section_that_is_used_is_told(
    text: str, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("caxton.toml").write_text(text)

    assert execute(shlex.split(line)) == 2
    assert "caxton.toml: " in capsys.readouterr().err


def test_a_reason_is_recorded_without_the_secrets_of_sections_that_are_broken(
    log: str, capsys: pytest.CaptureFixture[str]
) -> None:
    # law 8
    assert execute(["runs", "cancel", "b", "--reason", f"it said {CANARY}"]) == 0
    assert execute(["audit", "erase", "a", "--reason", f"it said {CANARY}"]) == 0
    words = ["serve", "token", "create", "--scope", "run", "--name", CANARY]
    assert execute(words) == 0

    assert execute(["events", "export", "--all"]) == 0
    told = capsys.readouterr().out
    assert "it said" in told
    assert CANARY not in told
    dump = io.StringIO()
    with closing(sqlite3.connect(log.removeprefix("sqlite:///"))) as database:
        dump.writelines(database.iterdump())
    assert CANARY not in dump.getvalue()
    assert CANARY.encode().hex() not in dump.getvalue().lower()


def test_words_are_completed_from_a_configuration_that_cannot_be_resolved(
    log: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    del log
    Path("caxton.toml").write_text(BROKEN.partition("[[")[0])
    monkeypatch.setenv("_CAXTON_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", "caxton server test ")
    monkeypatch.setenv("COMP_CWORD", "3")

    with pytest.raises(SystemExit):
        execute([])
    assert capsys.readouterr().out.split() == ["plain,x"]
