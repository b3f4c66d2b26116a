"""How servers are found, started, asked and started again."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from caxton_host.app.tool_setup import open_tools
from caxton_host.config import Config
from caxton_host.core.calls import JSON
from caxton_host.core.log.events import (
    Event,
    ServerConnected,
    ServerDisabled,
    ToolsChanged,
)
from caxton_host.core.text.redact import Redactor
from caxton_host.core.tools.servers import Restart, ServerConfig, ToolOptions
from caxton_host.errors import ConfigError, ServerUnavailable, StoreError, ToolError
from caxton_host.mcp import McpTools
from caxton_host.mcp.transport import stdio
from caxton_host.ports.tools import Asker
from caxton_host.telemetry import NoTelemetry

from .conftest import FAULTY, SECRET, Faulty, noted, processes, request, until

DEMO = ServerConfig(name="demo", command=("python", "-m", "caxton_host.demo_server"))


def demo(config: ServerConfig = DEMO) -> McpTools:
    return McpTools({config.name: config}, redact=Redactor())


async def test_the_demo_server_answers_as_its_tools_promise() -> None:
    async with demo() as tools:
        offered = await tools.offered(["demo", "somebody else's"])
        weather = await tools.call_tool(
            request("get_weather", {"location": "Seattle"}, server="demo")
        )
        nowhere = await tools.call_tool(
            request("get_weather", {"location": "Atlantis"}, server="demo")
        )
        failed = await tools.call_tool(
            request("fail", {"message": "no"}, server="demo")
        )
        picture = await tools.call_tool(request("picture", server="demo"))
        large = await tools.call_tool(request("large", {"bytes": 5000}, server="demo"))
        slow = await tools.call_tool(request("slow", {"seconds": 0.01}, server="demo"))
        wrong = await tools.call_tool(request("echo", {"txt": "?"}, server="demo"))
    assert [offer.exposed for offer in offered.offers] == [
        f"mcp__demo__{name}"
        for name in (
            *("get_weather", "echo", "slow", "fail", "picture"),
            *("read_mail", "list_suppliers", "pay", "large"),
        )
    ]
    about = offered.servers["demo"]
    assert (about["name"], about["protocol"]) == ("caxton-demo", "2026-07-28")
    assert weather.message == "Seattle: 12 °C, rain"
    assert weather.data == {
        "content": [{"type": "text", "text": "Seattle: 12 °C, rain"}],
        "structuredContent": {
            "location": "Seattle",
            "temperature": 12,
            "conditions": "rain",
        },
    }
    assert (nowhere.is_error, nowhere.message) == (True, "no weather for 'Atlantis'")
    assert (failed.is_error, failed.message) == (True, "no")
    assert '"mimeType": "image/png"' in json.dumps(picture.data)
    assert large.bytes > 5000
    assert slow.duration_us >= 10_000
    assert wrong.is_error


async def test_the_demo_server_refuses_a_tool_it_never_had(faulty: Faulty) -> None:
    async with faulty("sound") as tools:
        with pytest.raises(ToolError, match="does not offer") as caught:
            await tools.call_tool(request("rm"))
        assert caught.value.sent == "no"


@pytest.mark.parametrize(
    ("mode", "protocol"),
    [
        ("legacy", "2025-11-25"),
        ("legacy_2024", "2024-11-05"),
        ("legacy_ignores", "2025-11-25"),
        ("slow_start", "2026-07-28"),
        ("junk_at_start", "2026-07-28"),
    ],
)
async def test_every_protocol_is_spoken_without_a_long_probe(
    faulty: Faulty, events: list[Event], mode: str, protocol: str
) -> None:
    async with faulty(mode) as tools, asyncio.timeout(6):
        offered = await tools.offered(["faulty"])
        assert (await tools.call_tool(request("act"))).message == "fine"
    assert offered.servers["faulty"]["protocol"] == protocol
    assert isinstance(events[0], ServerConnected)
    assert events[0].name.isprintable()


async def test_a_server_may_take_longer_to_start_than_the_sdk_waits(
    faulty: Faulty, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mcp.client.session.DISCOVER_TIMEOUT_SECONDS", 0.1)
    async with faulty("slow_start", required=True) as tools:
        assert len((await tools.offered(["faulty"])).offers) == 2


async def test_an_old_server_is_not_probed_again_after_a_restart(
    faulty: Faulty, state: Path, events: list[Event]
) -> None:
    async with faulty("legacy") as tools:
        await tools.offered(["faulty"])
        os.kill(processes(str(state))[0], signal.SIGKILL)
        await until(lambda: len(events) == 4)
    assert len(noted(state, "told server/discover")) == 1


async def test_all_pages_of_tools_are_listed(faulty: Faulty) -> None:
    async with faulty("two_pages") as tools:
        offered = await tools.offered(["faulty"])
        await tools.call_tool(request("other"))
    assert [offer.tool for offer in offered.offers] == ["act", "echo", "other"]


@pytest.mark.parametrize(
    ("mode", "why"),
    [
        ("endless_pages", "does not end"),
        ("huge_list", "too long"),
        ("long_list", "too long"),
        ("no_list", "not a list"),
        ("junk_for_ever", "a line that is not JSON|a line that was refused"),
        ("dies_at_start", "exit code 5"),
        ("silent", "not ready within 1 s"),
        ("no_protocol", "agree on a protocol: no such method"),
        ("odd_handshake", "agree on a protocol: ValidationError"),
        ("protocol_of_1999", "agree on a protocol: RuntimeError"),
    ],
)
async def test_a_server_that_cannot_start_is_skipped_unless_it_is_required(
    faulty: Faulty, mode: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # attack 28
    for name in stdio.withheld(os.environ, {}):
        monkeypatch.delenv(name)
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy")
    async with faulty(mode, start_timeout=1.0 if mode == "silent" else 20.0) as tools:
        assert (await tools.offered(["faulty"])).offers == ()
        problem = tools.problem("faulty")
    async with faulty(mode, required=True, start_timeout=1.0) as tools:
        with pytest.raises(
            ServerUnavailable, match="the server faulty is down"
        ) as caught:
            await tools.offered(["faulty"])
    assert problem is not None
    assert re.search(why, str(problem))
    assert SECRET not in str(problem)  # law 8
    assert 'env = { HTTPS_PROXY = "${env:HTTPS_PROXY}" }' in caught.value.fix


async def test_tools_that_cannot_be_told_apart_are_left_out(
    faulty: Faulty, caplog: pytest.LogCaptureFixture
) -> None:
    # attacks 22 and 26
    async with faulty("odd_tools") as tools:
        offered = await tools.offered(["faulty"])
    assert [offer.tool for offer in offered.offers] == ["act"]
    assert "'echo': listed 2 times" in caplog.text
    assert r"zero\u200bwidth" in caplog.text


async def test_options_of_a_tool_that_is_not_there_are_told_of(
    faulty: Faulty, caplog: pytest.LogCaptureFixture
) -> None:
    options = {"act": ToolOptions(), "ecco": ToolOptions(), "zzz": ToolOptions()}
    async with faulty("sound", tools=options) as tools:
        await tools.offered(["faulty"])
    offers = "MCP: faulty offers no tool"
    assert [line for line in caplog.messages if line.startswith(offers)] == [
        f"{offers} 'ecco', which is configured; did you mean echo?",
        f"{offers} 'zzz', which is configured",
    ]


@pytest.mark.parametrize("mode", ["changes", "changes_on_restart"])
async def test_a_changed_definition_is_never_called(
    faulty: Faulty, state: Path, events: list[Event], mode: str
) -> None:
    # attack 27
    async with faulty(mode) as tools:
        shown = (await tools.offered(["faulty"])).offers[0]
        pinned = request("act", pin=shown.definition_sha256)
        await tools.call_tool(pinned)
        if mode == "changes_on_restart":
            os.kill(processes(str(state))[0], signal.SIGKILL)
            await until(lambda: len(events) >= 4)
        with pytest.raises(ToolError) as caught:
            await tools.call_tool(pinned)
        now = (await tools.offered(["faulty"])).offers[0]
        await tools.call_tool(request("act", pin=now.definition_sha256))
    assert (caught.value.kind, caught.value.sent) == ("changed", "no")
    changed = [event for event in events if isinstance(event, ToolsChanged)]
    assert [event.changed[0] for event in changed] == ["act"]


async def test_an_answer_that_is_kept_is_forgotten_with_the_definition(
    state: Path, events: list[Event]
) -> None:
    command = (sys.executable, "-S", str(FAULTY), "changes", str(state))
    kept = {"act": ToolOptions(effect="read", cache=60.0)}
    server = ServerConfig(name="faulty", command=command, tools=kept)
    config = Config(store_url="sqlite://", servers={"faulty": server})
    telemetry, redact = NoTelemetry(), Redactor()
    async with open_tools(config, redact, telemetry, events.append) as tools:
        shown = (await tools.offered(["faulty"])).offers[0]
        pinned = replace(
            request("act", pin=shown.definition_sha256),
            asker=Asker(agent="a", grants=(), params_sha256="00"),
        )
        first, again = [await tools.call_tool(pinned) for _ in range(2)]
        await tools.offered(["faulty"])
        with pytest.raises(ToolError) as caught:
            await tools.call_tool(pinned)
    assert (first.cached, again.cached) == (False, True)
    assert caught.value.kind == "changed"
    assert [type(event) for event in events].count(ToolsChanged) == 1


async def test_a_server_is_started_once_for_all_who_ask_at_the_same_time(
    faulty: Faulty, state: Path
) -> None:
    async with faulty("sound") as tools:
        await asyncio.gather(*(tools.call_tool(request("echo")) for _ in range(40)))
    assert len(noted(state, "start")) == 1


async def test_servers_start_at_the_same_time(state: Path) -> None:
    # Each of the two is ready only once the other has been started.
    configs = {
        name: ServerConfig(
            name=name,
            command=(
                *(sys.executable, "-S", str(FAULTY), "waits_for_another"),
                str(state.with_name(f"state-{name}")),
            ),
        )
        for name in ("one", "two")
    }
    async with McpTools(configs, redact=Redactor()) as tools, asyncio.timeout(20):
        offered = await tools.offered(["one", "two"])
    assert {offer.server for offer in offered.offers} == {"one", "two"}


async def test_a_server_that_is_down_is_told_and_the_others_are_offered(
    state: Path, caplog: pytest.LogCaptureFixture
) -> None:
    command = (sys.executable, "-S", str(FAULTY), "sound", str(state))
    configs = {
        "crm": ServerConfig(name="crm", url="http://127.0.0.1:1/mcp", transport="http"),
        "faulty": ServerConfig(name="faulty", command=command),
    }
    async with McpTools(configs, redact=Redactor()) as tools:
        offered = await tools.offered(["crm", "faulty"])
    assert {offer.server for offer in offered.offers} == {"faulty"}
    [line] = [line for line in caplog.messages if line.startswith("MCP: failed")]
    assert line.startswith(
        "MCP: failed to initialize http://127.0.0.1:1/mcp, skipping: "
    )
    assert "To fix: check url and headers of [servers.crm]" in line


@pytest.mark.parametrize("eager", [True, False])
async def test_only_an_eager_server_starts_before_it_is_needed(
    faulty: Faulty, state: Path, events: list[Event], *, eager: bool
) -> None:
    async with faulty("sound", eager=eager):
        if eager:
            await until(lambda: len(events) == 1)
        await asyncio.sleep(0)
    assert bool(noted(state, "start")) == eager


async def test_a_server_that_was_down_at_first_works_once_it_is_back(
    faulty: Faulty,
) -> None:
    restart = Restart(backoff=0.01)
    async with faulty("dies_at_first_start", restart=restart) as tools:
        assert (await tools.offered(["faulty"])).offers == ()
        assert (await tools.call_tool(request("echo"))).message == "fine"
        assert len((await tools.offered(["faulty"])).offers) == 2


async def test_a_server_gets_next_to_nothing_of_the_environment(
    faulty: Faulty, monkeypatch: pytest.MonkeyPatch
) -> None:
    # attack 38
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "not for servers")
    async with faulty("tells_environment", env={"MINE": "yes"}) as tools:
        told = json.loads((await tools.call_tool(request("act"))).message)
    assert set(told) <= {*stdio._PASSED, "PATH", "MINE", "LC_CTYPE"}
    assert told["MINE"] == "yes"
    assert told["PATH"].split(os.pathsep)[0] == str(Path(sys.executable).parent)


async def test_arguments_reach_the_server_as_they_were_judged(faulty: Faulty) -> None:
    params = {"text": "höhe \u2028 \x00", "big": 2**64 - 1, "list": [True, None, 1.5]}
    async with faulty("tells_arguments") as tools:
        answer = await tools.call_tool(request("act", params))  # type: ignore[arg-type]
    assert json.loads(answer.message) == params


async def test_the_idempotency_key_and_the_trace_go_with_a_call(state: Path) -> None:
    command = (sys.executable, "-S", str(FAULTY), "sound", str(state))
    config = ServerConfig(name="faulty", command=command)
    traceparent = f"00-{1:032x}-{2:016x}-01"
    async with McpTools(
        {"faulty": config},
        redact=Redactor(),
        trace_context=lambda: {"traceparent": traceparent},
    ) as tools:
        await tools.call_tool(request("echo"))
    [line] = noted(state, "call echo ")
    meta = json.loads(line)
    assert meta["io.caxton/idempotency-key"] == "key"
    assert meta["traceparent"] == traceparent
    assert meta["io.modelcontextprotocol/protocolVersion"] == "2026-07-28"


async def test_a_keyed_tool_gets_the_key_in_the_argument_that_is_its_own(
    faulty: Faulty,
) -> None:
    # law 7: an agent that chose the key could make a call happen twice.
    params: dict[str, JSON] = {"amount": 7, "request_id": "mine"}
    keyed = {"act": ToolOptions(effect="keyed", key_argument="request_id")}
    async with faulty("tells_arguments", tools=keyed) as tools:
        first = await tools.call_tool(request("act", params))
        again = await tools.call_tool(replace(request("act", params), attempt=2))
    assert json.loads(first.message) == {"amount": 7, "request_id": "key"}
    assert first.message == again.message
    assert params["request_id"] == "mine"


@pytest.mark.parametrize(
    ("command", "why"),
    [
        (("no-such-program-here",), "no program 'no-such-program-here'"),
        (("./no/such/program",), "no program"),
        ((), "no command is configured"),
        (("python", "a\0b"), "null byte"),
    ],
)
async def test_a_missing_program_is_named(command: tuple[str, ...], why: str) -> None:
    config = ServerConfig(name="x", command=command, required=True)
    async with demo(config) as tools:
        with pytest.raises(ServerUnavailable, match=why) as caught:
            await tools.offered(["x"])
    assert "[servers.x]" in caught.value.fix


async def test_a_fault_of_the_host_itself_leaves_nobody_waiting_and_is_told(
    faulty: Faulty, events: list[Event], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_args: object, **_kwargs: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("caxton_host.mcp.supervisor.connect", broken)
    async with faulty("sound", timeout=60.0) as tools, asyncio.timeout(10):
        for _ in range(2):
            with pytest.raises(ToolError) as caught:
                await tools.call_tool(request("echo"))
            assert (caught.value.kind, caught.value.sent) == ("transport", "no")
    reason = "the host failed: ZeroDivisionError"
    assert events == [ServerDisabled(server="faulty", reason=reason)]


async def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    config = ServerConfig(
        name="x", command=("python",), cwd=str(tmp_path / "none"), required=True
    )
    async with demo(config) as tools:
        with pytest.raises(ServerUnavailable, match="No such file"):
            await tools.offered(["x"])


async def test_an_unknown_server_is_not_sent_to() -> None:
    async with demo() as tools:
        with pytest.raises(ToolError) as caught:
            await tools.call_tool(request("t", server="x"))
    assert caught.value.sent == "no"


async def test_two_tools_of_one_name_are_an_error_of_the_configuration(
    faulty: Faulty,
) -> None:
    options = {"act": ToolOptions(expose_as="x"), "echo": ToolOptions(expose_as="x")}
    async with faulty("sound", tools=options) as tools:
        with pytest.raises(ConfigError, match="two tools would be called 'x'"):
            await tools.offered(["faulty"])


async def test_a_log_that_takes_no_event_does_not_stop_a_server(state: Path) -> None:
    def refuse(_event: Event) -> None:
        raise StoreError("full")

    command = (sys.executable, "-S", str(FAULTY), "sound", str(state))
    config = ServerConfig(name="faulty", command=command)
    async with McpTools(
        {"faulty": config}, redact=Redactor(), on_event=refuse
    ) as tools:
        assert (await tools.call_tool(request("echo"))).message == "fine"


@pytest.mark.skipif(not stdio._tied_to_host(), reason="needs setpriv")
def test_a_server_ends_with_a_host_that_is_killed(state: Path) -> None:
    program = (
        "import asyncio, sys\n"
        "from caxton_host.core.text.redact import Redactor\n"
        "from caxton_host.core.tools.servers import ServerConfig\n"
        "from caxton_host.mcp import McpTools\n"
        "async def main():\n"
        "    config = ServerConfig(name='faulty', command=tuple(sys.argv[1:]))\n"
        "    async with McpTools({'faulty': config}, redact=Redactor()) as tools:\n"
        "        await tools.offered(['faulty'])\n"
        "        print('up', flush=True)\n"
        "        await asyncio.sleep(3600)\n"
        "asyncio.run(main())\n"
    )
    command = [sys.executable, "-S", str(FAULTY), "stubborn", str(state)]
    with subprocess.Popen(
        [sys.executable, "-c", program, *command], stdout=subprocess.PIPE
    ) as host:
        assert host.stdout is not None
        assert host.stdout.readline() == b"up\n"
        host.kill()
