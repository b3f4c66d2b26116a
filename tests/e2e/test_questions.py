"""What a tool server asks during a call, answered by people from elsewhere."""

from __future__ import annotations

import json
import re
import shlex
import signal
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from subprocess import Popen
from typing import Any

import pytest

from .guests import call, guest
from .serving import Host, served, token
from .shell import SOON, Shell

HERE = Path(__file__).parent
SERVER = HERE / "asking_server.py"
BOTH = pytest.mark.parametrize("server", ["legacy", "2026"])
CONFIG = """\
version = 1
[servers.asking]
command = {command}
elicitation = "ask"
timeout = "{timeout}"
[agents.shop]
module = "shop.wasm"
[[agents.shop.allow]]
tools = ["asking/*"]
{more}
"""
SURE = '{"sure": true, "count": 3}'
GIVEN = [{"action": "accept", "content": {"sure": True, "count": 3}}]


def configured(
    shell: Shell,
    server: str,
    *,
    tool: str = "order",
    timeout: str = "60s",
    more: str = "",
) -> Shell:
    command = json.dumps([sys.executable, str(SERVER), "calls.txt", server])
    text = CONFIG.format(command=command, timeout=timeout, more=more)
    shell.write("caxton.toml", text)
    shell.write("shop.wasm", guest(call(f"mcp__asking__{tool}"), output="done"))
    return shell


def shown_commands() -> list[str]:
    """Return the commands of the documentation, up to the first answer."""
    page = (HERE.parents[1] / "docs/how-to/approve-calls.md").read_text("utf-8")
    *_, part = page.partition("## Answer questions of tool servers")
    found = re.findall(r"^caxton approval .*$", part, re.MULTILINE)
    assert found[-1] == "caxton approval answer @last --decline"
    return found[:-1]


def payloads(shell: Shell, type_: str) -> list[dict[str, Any]]:
    found = shell("events", "list", "@last", "--json").document
    return [one["payload"] for one in found if one["type"] == type_]


def answered(shell: Shell) -> list[dict[str, Any]]:
    """Return what the tool says that it was answered."""
    found: list[dict[str, Any]] = json.loads(
        payloads(shell, "ToolCompleted")[0]["message"]
    )
    return found


def sends(shell: Shell) -> int:
    return (shell.folder / "calls.txt").read_text().count("\n")


def waiting(shell: Shell, child: Popen[bytes]) -> dict[str, Any]:
    """Return what people are asked, once they are."""
    while (found := shell("approval", "list", "--json")).out in {"", "[]\n"}:
        assert child.poll() is None, (found, child.communicate())
    asked: dict[str, Any] = found.document[0]
    return asked


@contextmanager
def running(shell: Shell) -> Generator[tuple[Popen[bytes], dict[str, Any]]]:
    """Run the agent until it asks; yield its process, and the question."""
    with shell.started("run", "shop") as child:
        yield child, waiting(shell, child)


@BOTH
def test_a_person_answers_from_elsewhere_and_the_call_goes_on(
    shell: Shell, server: str
) -> None:  # laws 2, 3, 5 and 6
    with running(configured(shell, server)) as (child, asked):
        assert asked["message"] == "Really?"
        assert "\x1b" not in json.dumps(asked["form"])
        run = asked["run_id"]
        shown = shell("approval", "show", run)
        assert "asks   Really?" in shown.out
        assert "\x1b" not in shown.out
        assert f"caxton approval answer {run} {asked['seq']} --decline" in shown.err
        assert "question" in shell("approval", "list").out

        for data in (
            '{"sure": "perhaps"}',
            '{"sure": true, "size": "huge"}',
            "[",
            "[]",
        ):
            wrong = shell("approval", "answer", run, "--data", data)
            assert wrong.code == 2
            assert wrong.fix
        for line in shown_commands():
            done = shell(*shlex.split(line)[1:])
            assert done.code == 0, (line, done.err)
        out, err = child.communicate(timeout=SOON)
        assert child.returncode == 0, err
        assert b"caxton approval list" in err
        assert json.loads(out) == "done"
        late = shell("approval", "answer", run, str(asked["seq"]), "--data", SURE)
        assert late.code == 2
    assert answered(shell) == GIVEN
    again = () if server == "legacy" else ("ToolRetried",)
    assert shell.types() == [
        *("RunStarted", "ToolInvoked", "QuestionAsked", "QuestionAnswered"),
        *(*again, "ToolCompleted", "RunCompleted"),
    ]
    (said,) = payloads(shell, "QuestionAnswered")
    assert said["reason"] == "the customer asked"
    assert said["actor"]["kind"] == "local"
    assert sends(shell) == 1 + len(again)
    assert shell("replay", "@last").code == 0
    assert shell("audit", "verify").code == 0
    assert sends(shell) == 1 + len(again)


@BOTH
def test_no_answer_in_time_is_told_to_the_tool(shell: Shell, server: str) -> None:
    configured(shell, server, timeout="2s")
    assert shell("run", "shop").code == 0
    assert answered(shell) == [{"action": "cancel", "content": None}]
    (said,) = payloads(shell, "QuestionAnswered")
    assert said["action"] == "cancel"
    assert said["actor"] == {"kind": "service", "id": "caxton", "authenticated": True}


@BOTH
def test_a_crash_while_a_question_waits_leaves_the_call_in_doubt(
    shell: Shell, server: str
) -> None:  # laws 7 and 10
    with running(configured(shell, server)) as (child, asked):
        child.send_signal(signal.SIGKILL)
        child.wait()
    run = asked["run_id"]
    assert shell("approval", "answer", run, "--data", SURE).code != 0
    assert shell("runs", "resume", run).code == 3
    assert sends(shell) == 1
    assert shell("approval", "list", "--json").document == []
    done = shell("runs", "resolve", run, "2", "--fail", "--reason", "lost")
    assert done.code in {0, 1}, done.err
    assert sends(shell) == 1


def test_who_had_to_approve_the_call_answers_what_it_asks(
    shell: Shell,
) -> None:  # law 4
    more = 'approve = { by = ["ops"] }'
    configured(shell, "2026", more=more)
    assert shell("run", "shop").code == 3
    with shell.started("approval", "approve", "@last", "--as", "ops") as child:
        while (asked := waiting(shell, child))["$type"] != "caxton.question/v1":
            pass
        assert asked["by"] == ["ops"]
        other = shell("approval", "answer", "@last", "--data", SURE)
        assert other.code == 2
        assert "--as ops" in other.fix
        done = shell("approval", "answer", "@last", "--data", SURE, "--as", "ops")
        assert done.code == 0, done.err
        child.wait(timeout=SOON)
    assert payloads(shell, "QuestionAnswered")[0]["role"] == "ops"
    assert answered(shell) == GIVEN


def test_a_secret_of_the_host_is_no_answer(shell: Shell) -> None:  # law 8
    secret = "[servers.asking.env]\nA_TOKEN = 'hush-hush-1'"  # noqa: S105 -- made up
    configured(shell, "2026", tool="note", more=secret)
    with running(shell) as (child, asked):
        run = asked["run_id"]
        told = shell("approval", "answer", run, "--data", '{"note": "hush-hush-1"}')
        assert told.code == 2
        assert "a secret of the host" in told.err
        assert "hush" not in told.err
        assert shell("approval", "answer", run, "--data", '{"note": "x"}').code == 0
        child.wait(timeout=SOON)
    assert "hush" not in shell("events", "list", "@last", "--json").out


def asked_at(host: Host) -> dict[str, Any]:
    while not (found := host.get("/api/v1/approvals").json()["questions"]):
        pass
    return dict(found[0])


def test_a_served_host_lists_a_question_and_takes_its_answer(shell: Shell) -> None:
    configured(shell, "2026", tool="twice")
    with served(shell) as host:
        run = host.start("shop")
        first = asked_at(host)
        assert (first["run_id"], first["message"]) == (run, "No 1")
        where = f"/api/v1/approvals/{run}/{first['seq']}/answer"
        reader = token(shell, "--scope", "read")
        assert host.post(where, {}, token=reader).status_code == 403
        wrong = host.post(where, {"content": {"sure": 7}})
        assert wrong.status_code in {400, 409, 422}, wrong.text
        said = host.post(where, {"content": json.loads(SURE)})
        assert said.status_code == 200, said.text
        assert host.post(where, {}).status_code in {400, 409, 422}
        while (second := asked_at(host))["seq"] == first["seq"]:
            pass
        # From another process, and over the API by the command line.
        shell.set(CAXTON_TOKEN=host.token)
        done = shell("--host", host.url, "approval", "answer", run, "--decline")
        assert done.code == 0, done.err
        while host.get(f"/api/v1/runs/{run}").json()["state"] == "running":
            pass
    assert second["message"] == "No 2"
    assert answered(shell) == [*GIVEN, {"action": "decline", "content": None}]
    assert [one["action"] for one in payloads(shell, "QuestionAnswered")] == [
        *("accept", "decline")
    ]
