"""``caxton server logs``: what servers write for people."""

from __future__ import annotations

import sys
import time

import pytest

from caxton_host.mcp.transport.serverlog import LogFile

from .shell import Shell, toml

SAYS = "import os, sys; print('key', os.environ['KEY'], 'and a\\tend', file=sys.stderr)"


@pytest.fixture
def talkative(shell: Shell) -> Shell:
    state = str(shell.home / "state")
    shell.set(THE_KEY="hunter2-hunter2", XDG_STATE_HOME=state)
    shell.write(
        "caxton.toml",
        toml(
            {
                "servers.x": {"command": sys.executable, "args": ["-c", SAYS]},
                "servers.x.env": {"KEY": "${env:THE_KEY}"},
                "servers.web": {"url": "https://example.com/mcp"},
            }
        ),
    )
    return shell


def test_what_a_server_wrote_is_shown_and_its_secrets_are_not(talkative: Shell) -> None:
    # law 8
    assert talkative("server", "test", "x").code == 6
    done = talkative("server", "logs", "x")
    assert [line.partition(" ")[2][:18] for line in done.out.splitlines()] == [
        "-- started: " + sys.executable[:6],
        "key [redacted] and",
    ]
    assert talkative("server", "logs", "x", "-n", "1").out.count("\n") == 1
    document = talkative("server", "logs", "x", "--json").document
    assert document["$type"] == "caxton.server-logs/v1"
    assert document["server"] == "x"
    assert document["lines"][-1].endswith("Z key [redacted] and a\\tend")


def test_what_is_not_there_is_said_with_what_to_do(talkative: Shell) -> None:
    for name, words in (("x", "not started"), ("web", "url"), ("y", "no server")):
        done = talkative("server", "logs", name)
        assert done.code == 2
        assert words in done.err
        assert done.fix


def test_whoever_follows_sees_what_comes_until_ctrl_c(
    talkative: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    talkative("server", "test", "x")
    [path] = talkative.home.rglob("x.log")
    pauses = iter(["one\n", "", "two\n"])

    def sleep(_seconds: float) -> None:
        said = next(pauses, None)
        if said is None:
            raise KeyboardInterrupt
        LogFile(path.parent, "x").append(said)

    monkeypatch.setattr(time, "sleep", sleep)
    done = talkative("server", "logs", "x", "-f", "-n", "0")
    assert (done.code, done.out) == (0, "one\ntwo\n")
