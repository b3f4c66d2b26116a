"""``caxton serve``: what its clients see, and what becomes of runs when it stops."""

from __future__ import annotations

import json
import signal
import socket
import subprocess

import httpx
import pytest
from mcp import Client, StdioServerParameters

from tests import standin
from tests.load.storm import storm

from .guests import call, guest
from .serving import Host, client, served, token
from .shell import CAXTON, SOON, Shell, processes
from .test_cli_cancel import until

CONFIG = """\
version = 1
[servers.demo]
{demo}
tools.slow.effect = "read"
[agents.quick]
module = "quick.wasm"
expose = {{ mcp = true }}
allow = [{{ tools = ["demo/*"] }}]
[agents.brief]
module = "brief.wasm"
allow = [{{ tools = ["demo/*"] }}]
[agents.slow]
module = "slow.wasm"
allow = [{{ tools = ["demo/*"] }}]
[agents.asks]
module = "quick.wasm"
allow = [{{ tools = ["demo/*"], approve = {{ by = ["ops"] }} }}]
[agents.lapses]
module = "quick.wasm"
allow = [{{ tools = ["demo/*"], approve = {{ within = "100ms" }} }}]
"""
NEW = '[agents.new]\nmodule = "quick.wasm"\nexpose = { mcp = true }\n'


@pytest.fixture
def desk(shell: Shell) -> Shell:
    shell.write("caxton.toml", CONFIG.format(demo=standin.toml(f"of={shell.folder}")))
    weather = call("mcp__demo__get_weather", location="Oslo")
    shell.write("quick.wasm", guest(weather, output={"sky": "clear"}))
    shell.write("brief.wasm", guest(call("mcp__demo__slow", seconds=2)))
    shell.write("slow.wasm", guest(call("mcp__demo__slow", seconds=3600)))
    return shell


def state(host: Host, run_id: str) -> str:
    found: str = host.get(f"/api/v1/runs/{run_id}").json()["state"]
    return found


def called(shell: Shell, run_id: str) -> bool:
    types = [event["type"] for event in shell("events", "export", run_id).document]
    return "ToolInvoked" in types


def types(shell: Shell, run_id: str) -> list[str]:
    query = f"SELECT type FROM events WHERE stream = 'run/{run_id}' ORDER BY seq"  # noqa: S608 -- ours
    return [type_ for (type_,) in shell.rows(query)]


@pytest.fixture
def good(desk: Shell) -> str:
    return token(desk)


async def test_an_agent_is_called_as_a_tool_and_its_run_is_seen(
    desk: Shell, good: str
) -> None:
    with served(desk, good=good) as host:
        assert host.said["agents"] == ["asks", "brief", "lapses", "quick", "slow"]
        async with client(host) as mcp:
            (tool,) = (await mcp.list_tools()).tools
            done = await mcp.call_tool(tool.name, {})

            config = desk.folder / "caxton.toml"
            config.write_text(config.read_text() + NEW)
            assert desk.typed("config", "reload").code == 0
        async with client(host) as mcp:
            names = [tool.name for tool in (await mcp.list_tools()).tools]

        assert tool.name == "quick"
        assert done.structured_content == {"sky": "clear"}
        assert names == ["new", "quick"]
        assert done.meta is not None
        run = host.get(f"/api/v1/runs/{done.meta['io.caxton/run-id']}").json()
        assert (run["agent"], run["state"]) == ("quick", "completed")
        assert run["actor"]["kind"] == "token"
        code, err = host.stop(signal.SIGTERM)

    assert (code, err.count("stopping")) == (0, 1)
    until(lambda: not [*processes(str(desk.folder))])


def test_a_run_has_time_to_end_when_the_host_stops(desk: Shell) -> None:
    # law 10
    with served(desk) as host:
        run_id = host.start("brief")
        host.child.send_signal(signal.SIGTERM)
        until(
            lambda: host.get("/readyz").status_code == httpx.codes.SERVICE_UNAVAILABLE
        )
        assert host.get("/readyz").json()["draining"] is True
        assert host.get("/healthz").status_code == httpx.codes.OK
        late = host.post("/api/v1/runs", {"agent": "quick"})
        assert late.status_code == httpx.codes.SERVICE_UNAVAILABLE
        assert int(late.headers["retry-after"]) > 0
        host.child.communicate(timeout=SOON)

    assert host.child.returncode == 0
    assert types(desk, run_id)[-1] == "RunCompleted"


def test_a_run_that_takes_longer_is_suspended_and_taken_over(desk: Shell) -> None:
    # law 10
    with served(desk, "--drain", "100ms") as host:
        run_id = host.start("slow")
        until(lambda: "ToolInvoked" in types(desk, run_id))
        code, err = host.stop(signal.SIGTERM)

    assert (code, types(desk, run_id)[-1]) == (0, "RunSuspended")
    assert "1 run suspended" in err
    shown = desk("runs", "show", run_id)
    assert f"to go on: caxton runs resume {run_id}" in shown.err

    with served(desk, "--drain", "100ms", good=host.token) as other:
        until(lambda: types(desk, run_id)[-1] == "RunResumed")
        until(lambda: state(other, run_id) == "running")
        other.child.kill()
        other.child.wait()

    # After kill -9 nobody has written an end.
    assert types(desk, run_id).count("RunSuspended") == 1
    with served(desk, good=host.token) as third:
        until(lambda: types(desk, run_id).count("RunResumed") == 2)
        until(lambda: state(third, run_id) == "running")
        assert desk("runs", "cancel", run_id, "--reason", "enough").code == 0
        assert types(desk, run_id)[-1] == "RunCancelled"


def test_a_second_signal_ends_it_at_once(desk: Shell) -> None:
    with served(desk) as host:
        run_id = host.start("slow")
        until(lambda: "ToolInvoked" in types(desk, run_id))
        host.child.send_signal(signal.SIGINT)
        until(
            lambda: host.get("/readyz").status_code == httpx.codes.SERVICE_UNAVAILABLE
        )
        code, _ = host.stop(signal.SIGINT)

    assert code == 128 + signal.SIGINT
    assert types(desk, run_id)[-1] == "ToolInvoked"


def test_a_run_goes_on_when_somebody_decides_or_nobody_does(desk: Shell) -> None:
    with served(desk) as host:
        run_id, lapses = host.start("asks"), host.start("lapses")
        until(lambda: state(host, run_id) == "suspended")
        words = ("approval", "approve", run_id, "--as", "ops", "--no-resume")
        assert desk(*words).code == 0

        until(lambda: state(host, run_id) == "completed")
        until(lambda: state(host, lapses) == "completed")

        other = host.start("asks")
        until(lambda: state(host, other) == "suspended")
        ops = token(desk, "--scope", "decide", "--role", "ops")
        (asked,) = host.get("/api/v1/approvals", token=ops).json()["approvals"]
        path = f"/api/v1/approvals/{other}/{asked['seq']}/approve"
        said = host.ask("POST", path, token=ops, json={"reason": "fine"})
        assert said.is_success, said.text
        until(lambda: state(host, other) == "completed")

    assert "ToolCompleted" in types(desk, run_id)
    assert "ToolDenied" in types(desk, lapses)


def test_a_token_that_is_revoked_is_good_for_nothing_at_once(desk: Shell) -> None:
    with served(desk) as host:
        other = token(desk)
        (row,) = desk.rows("SELECT id FROM tokens ORDER BY created_at DESC LIMIT 1")
        assert host.get("/api/v1/runs", token=other).is_success

        assert desk("serve", "token", "revoke", row[0]).code == 0

        answer = host.get("/api/v1/runs", token=other)
        assert answer.status_code == httpx.codes.UNAUTHORIZED
        assert "www-authenticate" in answer.headers


async def test_of_many_calls_at_once_each_is_answered(desk: Shell, good: str) -> None:
    config = desk.folder / "caxton.toml"
    config.write_text(config.read_text() + "[serve]\nruns = 4\nqueue = 4\n")
    with served(desk, good=good) as host:
        answers = await storm(host.said["mcp"], [good], "quick", {}, calls=60)

    assert answers.wrong == []
    assert sum(answers.kinds.values()) == 60
    assert answers.kinds["503"] > 0
    # law 3: whoever was answered was recorded first
    ended = desk.rows("SELECT run_id FROM runs WHERE state = 'completed'")
    assert {run for (run,) in ended} == {*answers.runs}
    assert desk.rows("SELECT count(*) FROM runs") == [(len(answers.runs),)]


async def test_a_client_on_stdio_is_the_user_of_the_machine(desk: Shell) -> None:
    program = StdioServerParameters(
        command=CAXTON, args=["serve", "--stdio"], env=desk.environ, cwd=desk.folder
    )
    async with Client(program) as mcp:
        done = await mcp.call_tool("quick", {})

    assert done.structured_content == {"sky": "clear"}
    (row,) = desk.rows("SELECT actor FROM runs")
    assert '"kind": "local"' in row[0]


def test_a_host_on_stdio_stops_though_its_client_does_not_hang_up(desk: Shell) -> None:
    with desk.started("serve", "--stdio", stdin=subprocess.PIPE) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write(b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}\n')
        child.stdin.flush()
        assert json.loads(child.stdout.readline())["id"] == 1
        child.send_signal(signal.SIGTERM)

        assert child.wait(SOON) == 0


def test_a_host_on_stdio_ends_quietly_if_its_client_no_longer_reads(
    desk: Shell,
) -> None:
    with desk.started("serve", "--stdio", stdin=subprocess.PIPE) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        assert child.stderr is not None
        child.stdout.close()
        child.stdin.write(b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}\n')
        child.stdin.close()

        # It may find the end of stdin first, and then has nothing to write.
        assert child.wait(SOON) in {0, 128 + signal.SIGPIPE}
        assert b"Traceback" not in child.stderr.read()


def test_a_host_on_stdio_ends_if_its_client_no_longer_reads_and_keeps_stdin_open(
    desk: Shell,
) -> None:
    with desk.started("serve", "--stdio", stdin=subprocess.PIPE) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write(b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}\n')
        child.stdin.flush()
        assert json.loads(child.stdout.readline())["id"] == 1
        child.stdout.close()

        assert child.wait(SOON) == 0


def test_a_user_of_the_machine_needs_no_token_if_it_is_said(desk: Shell) -> None:
    with served(desk, "--allow-unauthenticated", "--mcp-only", good="none") as host:
        assert host.said["api"] is None
        assert httpx.get(f"{host.url}/api/v1/runs").status_code == httpx.codes.NOT_FOUND
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
        listed = httpx.post(host.said["mcp"], json=message).json()
        assert [tool["name"] for tool in listed["result"]["tools"]] == ["quick"]


def test_systemd_is_told_when_it_is_ready_lives_and_stops(desk: Shell) -> None:
    good = token(desk)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(desk.folder / "notify"))
        manager.settimeout(SOON)
        desk.set(NOTIFY_SOCKET=str(desk.folder / "notify"), WATCHDOG_USEC="100000")
        with served(desk, good=good) as host:
            assert manager.recv(100) == b"READY=1"
            assert [manager.recv(100) for _ in range(3)] == [b"WATCHDOG=1"] * 3
            host.child.send_signal(signal.SIGTERM)
            while (said := manager.recv(100)) == b"WATCHDOG=1":
                pass
            assert said == b"STOPPING=1"
            host.child.communicate(timeout=SOON)


def test_what_cannot_be_served_is_told(desk: Shell) -> None:
    none = desk("serve", "--port", "0")
    assert (none.code, none.fix.startswith("caxton serve token create")) == (2, True)
    assert not desk.runs()

    token(desk)
    open_ = desk("serve", "--address", "0.0.0.0", "--allow-unauthenticated")  # noqa: S104
    assert (open_.code, "127.0.0.1" in open_.fix) == (2, True)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        assert desk("serve", "--port", port).fix.startswith("choose another")
    assert desk("serve", "--address", "no.such.invalid").code == 2
    assert "--tls-key" in desk("serve", "--tls-cert", "none.pem").fix
    # It would be served in the clear.
    assert "--tls-cert" in desk("serve", "--tls-key", "key.pem").fix
    assert desk("serve", "--drain", "soon").code == 2
    assert desk("serve", "--stdio", "--port", "1").code == 2


@pytest.mark.parametrize(
    ("gone", "why"),
    [
        ("quick.wasm", "no agent that can be run; see above"),
        ("caxton.toml", "no agent: caxton init writes a configuration with one"),
    ],
)
def test_why_no_agent_is_served_is_told(desk: Shell, gone: str, why: str) -> None:
    (desk.folder / gone).unlink()
    token(desk)
    with desk.started("serve", "--port", "0") as child:
        assert child.stderr is not None
        told = next(line for line in child.stderr if b"  /mcp " in line)

    assert told.decode() == f"  /mcp      {why}\n"


def test_what_a_host_does_is_counted_and_logged(desk: Shell, good: str) -> None:
    with served(desk, "--log-format=json", good=good) as host:
        started = host.post("/api/v1/runs", {"agent": "quick"}).json()
        until(lambda: state(host, started["run_id"]) == "completed")
        read = host.get("/metrics")
        assert read.headers["content-type"].startswith("text/plain; version=0.0.4")
        lines = read.text.splitlines()
        assert "caxton_runs 0.0" in lines
        labels = 'server="demo",status="tool_error",tool="get_weather"'
        assert f"caxton_calls_total{{{labels}}} 1.0" in lines
        assert httpx.get(f"{host.url}/metrics").status_code == 401
        code, err = host.stop(signal.SIGTERM)
    assert code == 0
    said = [json.loads(line) for line in err.splitlines()]  # each is a record
    messages = [line["message"] for line in said]
    assert f"listening on {host.url}" in messages
    assert "stopping: runs get 30 s; once more ends at once" in messages
    (settled,) = [line for line in said if line["message"] == "call settled"]
    assert settled["run"] == started["run_id"]
    assert settled["principal"].startswith("token/")
    assert (settled["server"], settled["status"]) == ("demo", "tool_error")
    assert good not in err  # law 8
