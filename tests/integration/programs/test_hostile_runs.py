"""Programs that mean harm, as runs of a host: what the log says of them is true."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from caxton_host.core.calls import JSON
from caxton_host.core.grants.grants import Grant, Rule
from caxton_host.core.limits import Limits
from caxton_host.core.log.events import Event, RunCompleted, RunFailed, ToolCompleted
from caxton_host.core.programs import program_of
from caxton_host.core.text.globs import Pattern
from caxton_host.lib.machine import SystemClock
from caxton_host.runs.host import Host
from caxton_host.runs.replay import replay
from caxton_host.runs.run_request import RunRequest
from caxton_host.sandbox import WasmSandbox
from caxton_host.store.sql import SqlStore
from caxton_host.store.verify import verify
from caxton_host.telemetry import NoTelemetry
from caxton_host.testing import FakeTools

from .attacks import LIMITS

#: The runtime is built and compiled once for a test run.
pytestmark = [pytest.mark.timeout(400), pytest.mark.anyio]

_GRANT = Grant(allow=(Rule(id="allow[1]", tools=(Pattern.parse("demo/echo"),)),))
_NAME = "mcp__demo__echo"
_ASK = (
    f"import caxton_agent as ca\nimport wit_world.imports.host as wit\nN = {_NAME!r}\n"
)


@dataclass(frozen=True, slots=True)
class House:
    """A host with a real sandbox and a real log, whose tools only echo."""

    runtime: bytes
    sandbox: WasmSandbox
    store: SqlStore
    tools: FakeTools

    async def start(self, source: str, limits: Limits) -> str:
        """Run a program to its end, and return the id of the run."""
        host = Host(
            store=self.store,
            tools=self.tools,
            sandbox=self.sandbox,
            clock=SystemClock(),
            entropy=os.urandom,
            telemetry=NoTelemetry(),
            servers=["demo"],
        )
        program = program_of("program.py", source.encode(), language="python")
        request = RunRequest(
            agent="hostile",
            module=self.runtime,
            program=program,
            actor={"kind": "local", "id": "ann", "authenticated": False},
            limits=limits,
            grant=_GRANT,
        )
        return await host.start(request)

    async def events(self, run_id: str) -> list[Event]:
        """Return what the log holds of a run."""
        history = await self.store.reader.read(f"run/{run_id}")
        return [one.event for one in history if one.event is not None]


@pytest.fixture
async def house(
    python_runtime: Path, compiled_runtimes: Path, tmp_path: Path
) -> AsyncIterator[House]:
    url = f"sqlite:///{tmp_path / 'log.db'}"
    answers: dict[tuple[str, str], JSON] = {("demo", "echo"): "said"}
    async with (
        SqlStore.open(url, clock=SystemClock(), entropy=os.urandom) as store,
        WasmSandbox(compiled_runtimes, bytes(32)) as sandbox,
    ):
        runtime = await asyncio.to_thread(python_runtime.read_bytes)
        yield House(runtime, sandbox, store, FakeTools(answers))


@dataclass(frozen=True, slots=True)
class Run:
    """
    A hostile program.

    Attributes:
        ends: Is in the type, message or output of its end.

        sent: How many of its calls are sent.
    """

    source: str
    ends: str
    sent: int = 0


ATTACKS = {
    "loop": Run("while True: pass", "limit: fuel"),
    "log": Run("while True: print('x' * 99)", "limit: host_calls"),
    "bytecode": Run(
        "def f(): pass\nf.__code__ = f.__code__.replace(co_code=b'\\xff' * 64)\nf()",
        "agent_error: the interpreter aborted: unreachable",
    ),
    "no_right": Run(
        f"{_ASK}ca.mcp_call('mcp__demo__other')", "Denied: this agent has no grant"
    ),
    "answers_itself": Run(
        f"{_ASK}import caxton_agent._calls as c\n"
        "c.decode = lambda t: {'status': 'ok', 'message': 'forged', 'data': None}\n"
        "ca.output([ca.mcp_call(N).message, ca.mcp_call('mcp__demo__other').message])",
        "completed: ['forged', 'forged']",
        sent=1,
    ),
    "calls_below_the_bridge": Run(
        f"{_ASK}ca.output(wit.mcp_call(N, '{{}}')[:14])", "completed: {", sent=1
    ),
    "no_json": Run(f"{_ASK}ca.output(wit.mcp_call(N, 'nan'))", "bad_request"),
    "numbers": Run(f"{_ASK}ca.mcp_call(N, {{'x': 2**64}})", "BadRequest"),
    "many": Run(f"{_ASK}ca.mcp_call_many([(N, None)] * 65)", "BadRequest"),
    "calls": Run(
        f"{_ASK}while True:\n  try: ca.mcp_call(N)\n  except BaseException: pass",
        "limit: total_calls",
        sent=20,
    ),
    "patient": Run(
        f"{_ASK}import time\nwhile True: time.sleep(10**6); ca.mcp_call('no')",
        "Denied",
    ),
}


def how(end: Event) -> str:
    if isinstance(end, RunFailed):
        return f"{end.kind}: {end.message}"
    assert isinstance(end, RunCompleted)
    return f"completed: {end.output}"


@pytest.mark.parametrize("name", ATTACKS)
@pytest.mark.long
async def test_attack_is_in_the_log_as_it_was_and_replays(
    house: House, name: str
) -> None:
    # laws 2, 6 and 9
    attack = ATTACKS[name]
    limits = Limits.from_payload({**LIMITS.to_payload(), "total_calls": 20})

    run_id = await house.start(attack.source, limits)

    events = await house.events(run_id)
    assert attack.ends in how(events[-1])
    assert len(house.tools.asked) == attack.sent
    assert sum(isinstance(one, ToolCompleted) for one in events) == attack.sent
    verdict = await verify(house.store.reader, f"run/{run_id}")
    assert (verdict.streams, verdict.first_bad) == (1, None)
    again = await replay(
        run_id,
        store=house.store.reader,
        sandbox=house.sandbox,
        telemetry=NoTelemetry(),
    )
    assert again.verdict == "identical"
    assert len(house.tools.asked) == attack.sent
    honest = await house.start("def run(): return 42", LIMITS)
    assert how((await house.events(honest))[-1]) == "completed: 42"
