"""Sessions at ``/mcp/NAME`` of a served host: who may open them, and what they keep."""

from __future__ import annotations

import contextlib
import json
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Literal

import anyio
import httpx
import pytest
from mcp import Client

from tests import standin

from .serving import Host, client, served, token
from .shell import Shell
from .test_cli_process import until
from .test_sessions import SPENT, echoes

COUNTING = Path(__file__).parents[1] / "chaos" / "server.py"
CONFIG = """\
version = 1
[servers.demo]
{demo}
[servers.counting]
command = {python}
args = ["-IS", {counting}, "effects.txt"]
[sessions.dev]
[[sessions.dev.allow]]
tools = ["demo/echo"]
calls = "3/run"
[[sessions.dev.allow]]
tools = ["demo/slow", "counting/send"]
[sessions.ops]
[[sessions.ops.allow]]
tools = ["demo/echo"]
"""
OK, UNAUTHORIZED, FORBIDDEN, NOT_FOUND = 200, 401, 403, 404
LIST = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}


@pytest.fixture
def desk(shell: Shell) -> Shell:
    shell.write(
        "caxton.toml",
        CONFIG.format(
            demo=standin.toml(f"of={shell.folder}"),
            python=json.dumps(sys.executable),
            counting=json.dumps(str(COUNTING)),
        ),
    )
    return shell


def opening(shell: Shell, name: str, session: str = "dev", *words: str) -> str:
    return token(shell, "--session", session, "--name", name, *words)


def as_client(
    host: Host, own: str, do: Callable[[Client], Awaitable[Any]], session: str = "dev"
) -> Any:  # noqa: ANN401 -- whatever it does
    """Do something as the client of a session, and return what came of it."""

    async def connected() -> Any:  # noqa: ANN401
        async with client(host, session=session, token=own) as one:
            return await do(one)

    return anyio.run(connected)


def said(*texts: str) -> Callable[[Client], Awaitable[list[tuple[bool, str]]]]:
    return lambda one: echoes(one, *texts)


def events(shell: Shell) -> list[dict[str, Any]]:
    """Return the events of all runs."""
    lines = shell("events", "export", "--all").out.splitlines()
    return [one for one in map(json.loads, lines) if one["stream"].startswith("run/")]


def asked(host: Host, own: str, path: str = "/mcp/dev") -> httpx.Response:
    return host.post(path, LIST, token=own)


@pytest.mark.parametrize("mode", ["auto", "legacy"])
@pytest.mark.long
def test_a_client_of_any_revision_calls_what_its_session_grants(
    desk: Shell, mode: Literal["auto", "legacy"]
) -> None:
    mine = opening(desk, "mine")

    async def call(host: Host) -> list[str]:
        async with client(host, session="dev", mode=mode) as one:
            assert await echoes(one, "hello") == [(False, "hello")]
            return [tool.name for tool in (await one.list_tools()).tools]

    with served(desk, good=mine) as host:
        found = anyio.run(call, host)
        assert host.said["sessions"] == ["dev", "ops"]
        host.stop(signal.SIGTERM)

    assert found == ["mcp__counting__send", "mcp__demo__echo", "mcp__demo__slow"]
    started = events(desk)[0]
    assert started["payload"]["input"]["client"]["name"] == "mcp"
    # Nobody waits for the stream of a session: it goes on with the next call.
    assert desk.types()[-1] == "RunSuspended"


def test_a_token_is_good_for_its_session_alone(desk: Shell) -> None:  # law 4
    mine, ops = opening(desk, "mine"), opening(desk, "ops", "ops")
    boss, worker = token(desk), token(desk, "--scope", "run")
    old = opening(desk, "old", "dev", "--expires", "1s")
    gone = opening(desk, "gone")
    with served(desk, good=mine) as host:
        assert asked(host, mine).status_code == OK
        for own, path in (
            (mine, "/mcp/ops"),
            (ops, "/mcp/dev"),
            (boss, "/mcp/dev"),
            (worker, "/mcp/dev"),
        ):
            hidden = asked(host, own, path)
            unknown = asked(host, own, "/mcp/abc")
            assert hidden.status_code == unknown.status_code == NOT_FOUND
            told = hidden.text.replace(path, "/mcp/abc")
            assert told == unknown.text
            assert hidden.headers.keys() == unknown.headers.keys()
        for path in ("/mcp", "/api/v1/runs", "/api/v1/agents", "/metrics"):
            assert host.ask("GET", path, mine).status_code == FORBIDDEN
        assert asked(host, mine, "/mcp").status_code == FORBIDDEN
        while (expired := asked(host, old).status_code) == OK:
            pass
        assert (expired, asked(host, gone).status_code) == (UNAUTHORIZED, OK)
        assert desk("serve", "token", "revoke", "gone").code == 0
        assert asked(host, gone).status_code == UNAUTHORIZED


def test_a_frozen_token_makes_no_call_until_it_is_thawed(desk: Shell) -> None:
    mine = opening(desk, "mine")
    name = mine.split("_")[1]
    with served(desk, good=mine) as host:
        assert as_client(host, mine, said("1")) == [(False, "1")]
        assert desk("freeze", "token", name, "--reason", "stolen").code == 0
        while (frozen := asked(host, mine).status_code) == OK:
            pass
        assert frozen == FORBIDDEN
        assert desk("thaw", "token", name, "--reason", "found").code == 0
        while asked(host, mine).status_code == FORBIDDEN:
            pass
        assert as_client(host, mine, said("2")) == [(False, "2")]


@pytest.mark.long
def test_limits_count_over_connections_and_hosts_for_one_principal(
    desk: Shell,
) -> None:  # law 4
    mine, other = opening(desk, "mine"), opening(desk, "other")
    with served(desk, good=mine) as host:
        assert as_client(host, mine, said("1")) == [(False, "1")]
        assert as_client(host, mine, said("2")) == [(False, "2")]
        host.stop(signal.SIGTERM)
    with served(desk, good=mine) as host:
        assert as_client(host, mine, said("3", "4")) == [(False, "3"), SPENT]
        assert as_client(host, other, said("5")) == [(False, "5")]
        host.stop(signal.SIGTERM)

    assert len(desk.runs()) == 2
    assert desk.types().count("RunResumed") == 1


def test_calls_at_the_same_time_share_the_limits_of_their_principal(
    desk: Shell,
) -> None:  # law 4
    mine = opening(desk, "mine")
    answers: list[tuple[bool, str]] = []

    async def both(host: Host) -> None:
        async def one(connection: Client, number: int) -> None:
            answers.extend(await echoes(connection, str(number)))

        async with (
            client(host, session="dev") as left,
            client(host, session="dev") as right,
            anyio.create_task_group() as tasks,
        ):
            for number in range(32):
                tasks.start_soon(one, left, number)
                tasks.start_soon(one, right, number)

    with served(desk, good=mine) as host:
        anyio.run(both, host)

    assert len(answers) == 64
    assert sum(not is_error for is_error, _ in answers) == 3
    assert {one for one in answers if one[0]} == {SPENT}
    assert len(desk.runs()) == 1


def test_an_older_client_cancels_its_call_by_a_notification(desk: Shell) -> None:
    mine = opening(desk, "mine")
    slow = {"name": "mcp__demo__slow", "arguments": {"seconds": 3600}}
    call = {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": slow}
    cancel = {
        "jsonrpc": "2.0",
        "method": "notifications/cancelled",
        "params": {"requestId": 7, "reason": "too slow"},
    }

    async def cancelled(host: Host) -> dict[str, Any]:
        found: dict[str, Any] = {}
        headers = {"authorization": f"Bearer {mine}", "accept": "application/json"}
        async with httpx.AsyncClient(headers=headers, timeout=60) as http:
            url = f"{host.url}/mcp/dev"
            hello = {"jsonrpc": "2.0", "id": 1, "method": "initialize"}
            sent = await http.post(url, json=hello)
            session = {"mcp-session-id": sent.headers["mcp-session-id"]}

            async def wait() -> None:
                answer = await http.post(url, json=call, headers=session)
                found.update(answer.json()["result"])

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(wait)
                while "ToolInvoked" not in desk.types():  # noqa: ASYNC110 -- a process
                    await anyio.sleep(0.01)
                others = {"mcp-session-id": "0" * 32}
                await http.post(url, json=cancel, headers=others)
                await http.delete(url, headers=session)
                await anyio.sleep(0.1)
                assert not found
                await http.post(url, json=cancel, headers=session)
        return found

    with served(desk, good=mine) as host:
        found = anyio.run(cancelled, host)
        assert found["isError"] is True
        assert found["content"][0]["text"] == "failed (cancelled): too slow"
        assert as_client(host, mine, said("on")) == [(False, "on")]
    assert desk.types() == [
        *("RunStarted", "ToolInvoked", "ToolFailed"),
        *("ToolInvoked", "ToolCompleted"),
    ]


def test_hanging_up_cancels_the_call(desk: Shell) -> None:
    mine = opening(desk, "mine")

    async def leave(one: Client) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(one.call_tool, "mcp__demo__slow", {"seconds": 3600})
            while "ToolInvoked" not in desk.types():  # noqa: ASYNC110 -- a process
                await anyio.sleep(0.01)
            tasks.cancel_scope.cancel()

    with served(desk, good=mine) as host:
        as_client(host, mine, leave)
        while "ToolFailed" not in desk.types():
            pass


@pytest.mark.long
def test_every_answer_that_a_client_received_is_in_the_log(desk: Shell) -> None:
    # laws 3, 7 and 10
    mine = opening(desk, "mine")
    answers: list[str] = []

    call: dict[str, Any] = {"name": "mcp__counting__send", "arguments": {}}
    body: dict[str, Any] = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": call,
    }
    headers = {"authorization": f"Bearer {mine}", "accept": "application/json"}

    async def flood(host: Host) -> None:
        async def calling(http: httpx.AsyncClient) -> None:
            # It is over when the host is.
            with contextlib.suppress(httpx.HTTPError):
                while True:
                    answer = await http.post(f"{host.url}/mcp/dev", json=body)
                    text = answer.json()["result"]["content"][0]["text"]
                    answers.append(json.loads(text)["key"])
                    if len(answers) == 100:
                        host.child.send_signal(signal.SIGKILL)

        async with (
            httpx.AsyncClient(headers=headers, timeout=60) as http,
            anyio.create_task_group() as tasks,
        ):
            for _ in range(16):
                tasks.start_soon(calling, http)

    with served(desk, good=mine) as host:
        anyio.run(flood, host)
        host.child.wait()
    with served(desk, good=mine) as host:
        assert as_client(host, mine, said("on")) == [(False, "on")]
        host.stop(signal.SIGTERM)

    found = events(desk)
    calls: Mapping[int, dict[str, Any]] = {
        one["payload"]["call"]: one["payload"]
        for one in found
        if one["type"] == "ToolInvoked"
    }
    completed = {
        calls[one["payload"]["call"]]["idempotency_key"]
        for one in found
        if one["type"] == "ToolCompleted"
    }
    effects = (desk.folder / "effects.txt").read_text().split("\n")[:-1]
    keys = [line.split(" ")[1] for line in effects]
    assert {*answers} <= completed
    assert len(keys) == len({*keys})
    assert {*keys} <= {call["idempotency_key"] for call in calls.values()}
    assert desk("audit", "verify").code == 0


@pytest.mark.long
def test_a_session_that_another_host_drives_is_refused(desk: Shell) -> None:
    mine = opening(desk, "mine")
    with served(desk, good=mine) as host, served(desk, good=mine) as other:
        assert as_client(host, mine, said("1")) == [(False, "1")]
        refused = asked(other, mine).json()["error"]
        run = desk.runs()[0].removeprefix("run/")
        assert refused["message"].endswith(f"drives run {run}")
        assert as_client(host, mine, said("2")) == [(False, "2")]
    assert len(desk.runs()) == 1


def test_what_people_decide_from_afar_is_left_to_the_client(desk: Shell) -> None:
    config = (desk.folder / "caxton.toml").read_text()
    asks = '\n[[sessions.ops.allow]]\ntools = ["demo/slow"]\napprove = {}\n'
    desk.write("caxton.toml", config + asks)
    own, boss = opening(desk, "pen", "ops"), token(desk)
    desk.set(CAXTON_TOKEN=boss)

    def shown() -> tuple[str, str]:
        found = desk("runs", "show", run)
        return found.out, found.err

    async def fails(one: Client) -> bool:
        return (await one.call_tool("mcp__demo__slow", {"seconds": 0})).is_error

    with served(desk, good=boss) as host:
        for verdict, is_error in (("approve", False), ("deny", True)):
            assert as_client(host, own, fails, "ops")
            run = desk.runs()[0].removeprefix("run/")
            until(lambda: "state   suspended" in shown()[0])
            said = desk("--host", host.url, "approval", verdict, run)
            assert (said.code, said.out) == (0, ""), said.err
            assert "the session goes on" in said.err
            assert "the session goes on" in shown()[1]
            assert "runs resume" not in shown()[1]
            assert as_client(host, own, fails, "ops") is is_error
