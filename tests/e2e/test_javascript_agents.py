"""Agents in JavaScript, as their authors and operators run them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from caxton_host.building import build_agent, find_shared
from tests import standin

from .shell import Shell

#: The engine is compiled first, and a machine may be busy.
pytestmark = pytest.mark.timeout(400)

ECHO = ("--server", f"demo={standin.typed()}", "--allow", "demo/echo")
Agent = Callable[[str], bytes]

#: Everything of the language that differs from one run to the next elsewhere.
CHANCE = """\
import { mcpCall, random, randomBytes } from "caxton";

const drawn = () => [
  Math.random(), random(), Date.now(), new Date().toISOString(), Date(),
  performance.now(), crypto.randomUUID(), ...randomBytes(3),
];

export function run() {
  const told = [];
  for (let call = 0; call < 3; call++) {
    const sent = { text: drawn().join(" ") };
    told.push(mcpCall("mcp__demo__echo", sent).message);
  }
  return { told, drawn: drawn(), keys: [...new Set(told)] };
}
"""


@pytest.fixture(scope="session")
def agent(tmp_path_factory: pytest.TempPathFactory, javascript_cache: Path) -> Agent:
    """Return what builds an agent of one file."""
    folder = tmp_path_factory.mktemp("javascript") / "agent"
    folder.mkdir()

    def build(text: str) -> bytes:
        (folder / "agent.js").write_text(text)
        return build_agent(folder, cache=javascript_cache).path.read_bytes()

    return build


def events(shell: Shell) -> list[dict[str, Any]]:
    """Return the events of the last run, without what differs from run to run."""
    differs = {"module_sha256", "abi", "engine", "limits", "fuel"}
    differs |= {"seed", "host", "idempotency_key", "duration_us"}
    return [
        {
            "type": event["type"],
            "call": event.get("call"),
            **{
                key: value
                for key, value in event["payload"].items()
                if key not in differs
            },
        }
        for event in shell("events", "list", "@last", "--json").document
    ]


def test_the_weather_in_javascript_is_the_weather_in_c(
    shell: Shell, agent: Agent
) -> None:
    module = agent(find_shared("agents/weather/weather.js").read_text())
    assert shell("init").code == 0
    for given in ([], ["--input", '{"location": "Nowhere"}']):
        ran: list[list[dict[str, Any]]] = []
        for content in (
            find_shared("agents/weather/weather.wasm").read_bytes(),
            module,
        ):
            shell.write("agents/weather.wasm", content)
            assert shell("run", "weather", *given).code == 0
            ran.append(events(shell))
            assert shell("replay", "@last").out.startswith("identical: 3 calls ")
        assert ran[0] == ran[1]


# law 4


def test_a_replay_sees_the_same_time_and_the_same_chance(
    shell: Shell, agent: Agent
) -> None:
    shell.write("chance.wasm", agent(CHANCE))
    outputs = []
    for _ in range(2):
        done = shell("run", "chance.wasm", *ECHO)
        assert done.code == 0
        outputs.append(json.loads(done.out))
        assert shell("replay", "@last").out.startswith("identical: 3 calls ")
    one, other = (output["drawn"] for output in outputs)
    assert len(one) == len(other) == 10
    assert not set(one[:4]) & set(other[:4])  # the next one counts seconds
    assert one[6] != other[6]


PROGRAM = """\
const said: string[] = await Promise.all(
  ["one", "two"].map((text) => tools.demo.echo({ text })),
);
export const run = () => ({ said });
"""
ANONYMOUS = """\
import { context } from "caxton";

export function run() {
  return context("user").name;
}
"""
ENDLESS = "const down = (n) => down(n + 1) + 1;\nexport const run = () => down(0);\n"
NO_NAME = "TypeError: cannot read property 'name' of undefined (agent.js:4:10)"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (ANONYMOUS, f"agent_error: {NO_NAME}\n  at run (agent.js:4:10)\n"),
        (ENDLESS, "agent_error: RangeError: Maximum call stack size exceeded"),
    ],
    ids=["thrown", "overflow"],
)
def test_a_run_that_fails_says_why_and_replays(
    text: str, said: str, shell: Shell, agent: Agent
) -> None:
    shell.write("agent.wasm", agent(text))
    done = shell("run", "agent.wasm")
    assert done.code == 1
    assert f"Error: {said}" in done.err, done.err
    assert shell("replay", "@last").out.startswith("identical: 0 calls ")


@pytest.mark.long
def test_a_program_runs_without_a_build_and_replays(javascript: Shell) -> None:
    shell = javascript
    shell.write("report.ts", PROGRAM.encode())
    done = shell("run", "report.ts", *ECHO)
    assert done.code == 0, done.err
    assert json.loads(done.out) == {"said": ["one", "two"]}
    assert shell("replay", "@last").out.startswith("identical: 2 calls ")
    shell.write("report.js", b"output(1);\nlet x = ;\n")
    done = shell("run", "report.js")
    assert done.code == 1
    assert (
        "SyntaxError: unexpected token in expression: ';' (report.js:2:9)" in done.err
    )


def test_a_program_without_its_runtime_is_told_the_command(shell: Shell) -> None:
    shell.write("report.js", b"output(1);\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(shell.folder / "cache"))
        done = shell("run", "report.js")
    assert done.code == 2
    assert "the javascript runtime is not installed" in done.err
    assert "To fix: caxton runtime install javascript" in done.err
