"""Runs of programs, executed again to learn which lines made their calls. Law 6."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from caxton_host.core.calls import JSON
from caxton_host.core.grants.approvals import Approve
from caxton_host.core.grants.grants import Grant, Rule
from caxton_host.core.limits import Limits
from caxton_host.core.programs import language_of, program_of
from caxton_host.core.text.globs import Pattern
from caxton_host.lib.machine import SystemClock
from caxton_host.runs.host import Host
from caxton_host.runs.replay import Options, Replayed, replay
from caxton_host.runs.run_request import RunRequest
from caxton_host.sandbox import WasmSandbox
from caxton_host.store.memory import MemoryStore
from caxton_host.telemetry import NoTelemetry
from caxton_host.testing import FakeTools
from tests.programs import LIMITS, text

#: The runtimes are built and compiled once for a test run.
pytestmark = [pytest.mark.timeout(400), pytest.mark.anyio]

_ECHO = Rule(id="allow[1]", tools=(Pattern.parse("demo/echo"),))
_ASKED = Rule(id="allow[2]", tools=(Pattern.parse("demo/pay"),), approve=Approve())


@dataclass(frozen=True, slots=True)
class House:
    """A host with real runtimes, whose tools only echo."""

    module: Callable[[str], Path]
    sandbox: WasmSandbox
    store: MemoryStore
    tools: FakeTools

    async def __call__(
        self, name: str, source: str, *, limits: Limits = LIMITS, lines: bool = True
    ) -> Replayed:
        """Run a program to its end, and execute it again."""
        language = language_of(name)
        assert language
        program = program_of(name, source.encode(), language=language)
        host = Host(
            store=self.store,
            tools=self.tools,
            sandbox=self.sandbox,
            clock=SystemClock(),
            entropy=os.urandom,
            telemetry=NoTelemetry(),
            servers=["demo"],
        )
        request = RunRequest(
            agent="demo",
            module=await asyncio.to_thread(self.module(program.runtime).read_bytes),
            program=program,
            actor={"kind": "local", "id": "ann", "authenticated": False},
            limits=limits,
            grant=Grant(allow=(_ECHO, _ASKED)),
        )
        run_id = await host.start(request)
        sent = len(self.tools.asked)
        found = await replay(
            run_id,
            store=self.store.reader,
            sandbox=self.sandbox,
            telemetry=NoTelemetry(),
            options=Options(lines=lines),
        )
        assert len(self.tools.asked) == sent
        return found


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def house(
    python_runtime: Path, javascript_runtime: Path, compiled_runtimes: Path
) -> AsyncIterator[House]:
    runtimes = {"python": python_runtime, "javascript": javascript_runtime}
    answers: dict[tuple[str, str], JSON] = {("demo", "echo"): text("said").data}
    store = MemoryStore(clock=SystemClock(), entropy=os.urandom)
    async with WasmSandbox(compiled_runtimes, bytes(32)) as sandbox:
        yield House(runtimes.__getitem__, sandbox, store, FakeTools(answers))


CALLS = '''\
"""A program, and how it calls."""
from __future__ import annotations
from caxton_agent import mcp_call_many, tools
print(__name__, __doc__, __file__)
def ask(n):
    return tools.demo.echo(
        text=n
    )
ask("a"); ask("b")
mcp_call_many([("mcp__demo__echo", {}), ("mcp__demo__echo", {"text": "c"})])
def run():
    try:
        tools["mcp__demo__echo"](text=object())
    except TypeError:
        pass
    try:
        return ask(1)
    finally:
        mcp_call_many([("no name!", {})])
'''
AWAITS = """\
import asyncio
from caxton_agent import aio, mcp_call
async def one(n):
    await asyncio.sleep(n)
    return await aio.mcp_call("mcp__demo__echo", {"text": n})
async def run():
    await asyncio.gather(
        one(0),
        aio.mcp_call("mcp__demo__echo"),
        aio.tools.demo.echo(text=1),
    )
    await asyncio.gather(*(aio.tools.demo.echo(text=i) for i in range(2)))
    loop = asyncio.get_running_loop()
    loop.call_soon(mcp_call, "mcp__demo__echo")
    async with asyncio.timeout(5):
        return (await asyncio.create_task(one(1))).message
"""
FAILS = """\
from caxton_agent import mcp_call
def deep(n):
    return deep(n + 1)
try:
    deep(0)
except RecursionError:
    mcp_call("mcp__demo__echo")
raise ValueError("no") from KeyError(1)
"""
SCRIPT = """\
#!/usr/bin/env run
import { mcpCall, mcpCallMany, tools } from "caxton";
const echo = "mcp__demo__echo";
try { mcpCall(echo, { large: 1n << 80n }); } catch { [].push({}); }
await Promise.resolve({}).then(tools.demo.echo);
mcpCall(echo, { text: "a" });
mcpCallMany([[echo], [echo, { text: "b" }]]);
const one = async (text) => {
  await null;
  return tools.demo.echo({ text });
};
await Promise.all([one(1), one(2),
  tools.demo.echo({ text: "c" })]);
export async function run() {
  await tools.demo.echo();
  throw new Error("no");
}
"""
TYPED = """\
interface Said {
  text: string;
}
enum Tone { Low, High }
const ask = async (said: Said): Promise<unknown> => {
  return tools.demo.echo({ ...said });
};
await ask({ text: `${Tone.High}` } as Said);
output(await Promise.all(["a", "b"].map((text: string) => ask({ text }))));
"""


@pytest.mark.parametrize(
    ("name", "source", "lines"),
    [
        ("calls.py", CALLS, [6, 6, 10, 10, 6, 19]),
        ("awaits.py", AWAITS, [9, 10, 5, 12, 12, None, 5]),
        ("fails.py", FAILS, [7]),
        ("script.js", SCRIPT, [None, 6, 7, 7, 13, 10, 10, 15]),
        ("typed.ts", TYPED, [6, 6, 6]),
    ],
)
async def test_each_call_has_the_line_that_made_it(
    house: House, name: str, source: str, lines: list[int | None]
) -> None:
    found = await house(name, source)

    assert found.divergence is None
    assert found.calls == len(lines)
    assert found.lines == {n: line for n, line in enumerate(lines, 1) if line}


ENDS: Mapping[str, tuple[str, list[int], Limits]] = {
    "logs": (
        "print('x' * 999)\nask('mcp__demo__echo')",
        [3],
        replace(LIMITS, log=1_000),
    ),
    "calls": (
        "for n in range(9):\n ask('mcp__demo__echo')",
        [3] * 5,
        replace(LIMITS, total_calls=4),
    ),
    "fuel": (
        "ask('mcp__demo__echo')\nwhile True: pass",
        [2],
        replace(LIMITS, fuel=100_000_000),
    ),
    "asks": ("ask('mcp__demo__echo')\nask('mcp__demo__pay')", [2, 3], LIMITS),
}


@pytest.mark.parametrize("name", ENDS)
async def test_a_run_that_was_stopped_has_the_lines_of_its_calls(
    house: House, name: str
) -> None:
    source, lines, limits = ENDS[name]
    found = await house(
        "a.py", f"from caxton_agent import mcp_call as ask\n{source}", limits=limits
    )

    assert found.lines == dict(enumerate(lines, 1)), found


DIFFERS = """\
from caxton_agent import _loop, mcp_call
mcp_call("mcp__demo__echo", {"text": _loop.Calls.add.__name__})
"""
RAISES = """\
from caxton_agent import _loop, mcp_call
_loop.Calls.add.__globals__.pop("json", None)
mcp_call("mcp__demo__echo")
"""
TELLS = """\
from caxton_agent import _bridge, _loop
mark, wire = _loop.Calls.add.__globals__.get("MARK", ""), _bridge.host()
for told in "[99]", "[0]", "[-1]", "[true]", "[" * 900, "[1, 2]", "[2]":
    wire.log("info", mark + told)
    type(wire).mcp_call(wire, "mcp__demo__echo", "{}")
"""


@pytest.mark.parametrize(
    ("source", "lines"), [(DIFFERS, None), (RAISES, None), (TELLS, {7: 2})]
)
async def test_what_a_hostile_program_tells_is_a_line_of_its_own_or_none(
    house: House, source: str, lines: Mapping[int, int] | None
) -> None:
    found = await house("a.py", source)

    assert found.lines == lines


async def test_a_replay_that_is_not_asked_for_lines_has_none(house: House) -> None:
    found = await house("fails.py", FAILS, lines=False)

    assert (found.verdict, found.lines) == ("identical", None)
