"""Agents that mean harm, as real runs: each ends as it must, and costs nobody else."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
from collections import Counter
from collections.abc import AsyncIterator, Collection, Iterator
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self

import pytest

from caxton_host.core.calls import JSON, Completed
from caxton_host.core.grants.grants import Grant, Rule
from caxton_host.core.grants.tool_catalog import Offered
from caxton_host.core.limits import Limits
from caxton_host.core.log.events import Event, RunCompleted, RunFailed, ToolInvoked
from caxton_host.core.text.globs import Pattern
from caxton_host.errors import ModuleRefused, ToolError
from caxton_host.lib.machine import SystemClock
from caxton_host.ports.tools import RunScope, ToolRequest
from caxton_host.runs.host import Host
from caxton_host.runs.replay import replay
from caxton_host.runs.run_request import RunRequest
from caxton_host.sandbox import WasmSandbox, link
from caxton_host.sandbox.artifacts import Artifact
from caxton_host.sandbox.settings import EngineSettings
from caxton_host.store.sql import SqlStore
from caxton_host.store.verify import verify
from caxton_host.telemetry import NoTelemetry
from caxton_host.testing import FakeTools, offer

from .hostile import ATTACKS, Attack, calls, fatal

pytestmark = pytest.mark.no_cover

_MIB = 1024 * 1024
_SOON = 30.0
_GRANT = Grant(allow=(Rule(id="allow[1]", tools=(Pattern.parse("demo/*"),)),))
_GOOD = calls(1)
_ENDS = ("RunCompleted", "RunFailed", "RunCancelled")
_ANSWERS: dict[tuple[str, str], JSON | ToolError | Completed] = {
    ("demo", "echo"): "said",
    ("demo", "big"): "x" * 100_000,
    ("demo", "huge"): Completed(message="huge", bytes=2 * _MIB),
}


@dataclass(slots=True)
class House:
    """A host over a real sandbox and a real log."""

    sandbox: WasmSandbox
    store: SqlStore
    tools: FakeTools | Counting

    async def start(
        self, module: bytes, limits: Limits | None = None, agent: str = "hostile"
    ) -> str:
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
            agent=agent,
            module=module,
            actor={"kind": "local", "id": "ann", "authenticated": False},
            limits=limits or Limits(),
            grant=_GRANT,
        )
        async with asyncio.timeout(_SOON):
            return await host.start(request)

    async def events(self, run_id: str) -> list[Event]:
        history = await self.store.reader.read(f"run/{run_id}")
        return [one.event for one in history if one.event is not None]

    async def streams(self) -> int:
        return len(await self.store.reader.streams())

    async def sound(self, run_id: str) -> None:
        """Assert that the log of a run is as it was written, and replays."""
        verdict = await verify(self.store.reader, f"run/{run_id}")
        assert (verdict.streams, verdict.first_bad) == (1, None)
        async with asyncio.timeout(_SOON):
            found = await replay(
                run_id,
                store=self.store.reader,
                sandbox=self.sandbox,
                telemetry=NoTelemetry(),
            )
        assert found.divergence is None

    def workers(self) -> dict[int, str]:
        """Return process and trust domain of each worker that runs."""
        return {
            one.link.result()._process.pid: one.domain.partition(":")[2]
            for one in self.sandbox._workers
            if one.link.done() and not one.link.exception()
        }


@dataclass(slots=True)
class Counting:
    """A tool that takes a moment, and remembers who called it how often."""

    seen: Counter[tuple[str, int]] = field(default_factory=Counter)

    def open(self, _scope: RunScope) -> nullcontext[Self]:
        return nullcontext(self)

    async def offered(self, servers: Collection[str]) -> Offered:
        del servers
        return Offered(offers=(offer("demo", "echo"),))

    async def resources(self, _servers: Collection[str], _scope: RunScope) -> tuple[()]:
        return ()

    async def call_tool(self, request: ToolRequest) -> Completed:
        self.seen[request.run_id, request.call] += 1
        await asyncio.sleep(0.01)
        return Completed(message="said")


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """One loop for all: the host is to survive all of them."""
    return "asyncio"


@pytest.fixture(scope="module", autouse=True)
def patience() -> Iterator[None]:
    """On a busy machine, no worker dies for being slow."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(link, "GRACE_S", 10.0)
        yield


@pytest.fixture(scope="module")
async def house(
    anyio_backend: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[House]:
    del anyio_backend
    folder = tmp_path_factory.mktemp("house")
    async with _store(folder) as store, _sandbox(folder) as sandbox:
        yield House(sandbox, store, FakeTools(_ANSWERS))


def _store(folder: Path) -> SqlStore:
    url = f"sqlite:///{folder / 'log.db'}"
    return SqlStore.open(url, clock=SystemClock(), entropy=os.urandom)


def _sandbox(folder: Path) -> WasmSandbox:
    return WasmSandbox(folder / "cache", b"k" * 32)


def _resident(pid: int, what: str) -> int:
    lines = Path(f"/proc/{pid}/status").read_text("utf-8").splitlines()
    (line,) = [one for one in lines if one.startswith(f"{what}:")]
    return int(line.split()[1]) * 1024


def _how(end: Event) -> str:
    if isinstance(end, RunFailed):
        return f"{end.kind} {end.message}"
    return "completed" if isinstance(end, RunCompleted) else type(end).__name__


async def _good_run(house: House) -> None:
    run_id = await house.start(_GOOD)
    assert _how((await house.events(run_id))[-1]) == "completed"


@pytest.mark.parametrize("attack", ATTACKS, ids=str)
async def test_attack_ends_as_it_must_and_costs_nobody_else(
    house: House, attack: Attack
) -> None:
    # attacks 1 to 8 and 10 to 21
    # laws 2, 6 and 9
    await _good_run(house)
    before = {pid: _resident(pid, "VmRSS") for pid in house.workers()}
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    streams = await house.streams()

    if attack.ends == "refused":
        with pytest.raises(ModuleRefused) as refused:
            await house.start(attack.module, attack.limits)
        text = f"{refused.value} {refused.value.fix}"
        assert text.isprintable()
        assert len(text) < 1_000
        assert await house.streams() == streams
    else:
        run_id = await house.start(attack.module, attack.limits)
        events = await house.events(run_id)
        types = [type(event).__name__ for event in events]
        assert _how(events[-1]).startswith(attack.ends)
        assert [one for one in types if one in _ENDS] == types[-1:]
        assert {*attack.recorded} <= {*types}
        assert {*before} <= {*house.workers()}
        for pid, resident in before.items():
            if attack.most is not None:
                assert _resident(pid, "VmHWM") - resident < attack.most
        await house.sound(run_id)

    risen = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - most
    assert risen * 1024 < 64 * _MIB
    await _good_run(house)


def test_each_row_of_the_table_is_an_attack() -> None:
    rows = {attack.row for attack in ATTACKS}
    assert rows == {*range(1, 22)} - {9}  # 9 is below


async def test_compiled_module_that_was_tampered_with_is_compiled_again(
    anyio_backend: str, tmp_path: Path
) -> None:
    # attack 9
    del anyio_backend
    for _ in range(2):
        async with _store(tmp_path) as store, _sandbox(tmp_path) as sandbox:
            house = House(sandbox, store, FakeTools(_ANSWERS))
            await _good_run(house)
        (artifact,) = (tmp_path / "cache").iterdir()
        good = artifact.read_bytes()
        assert len(good) > 100
        artifact.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))


async def test_refused_import_is_named(house: House) -> None:
    # attack 7
    (attack,) = [one for one in ATTACKS if one.what == "imports env.system"]
    with pytest.raises(ModuleRefused, match="system"):
        await house.start(attack.module)


async def test_numbers_beyond_2_to_the_53_reach_the_tool_as_they_are(
    house: House,
) -> None:
    # attack 16
    assert isinstance(house.tools, FakeTools)
    for what, sent in {"largest number": 2**64 - 1, "2^53 + 1": 2**53 + 1}.items():
        (attack,) = [one for one in ATTACKS if one.what == what]
        await house.start(attack.module)
        assert house.tools.asked[-1].params == {"k": sent}


async def test_log_of_a_flood_is_cut_and_says_so_once(house: House) -> None:
    # attack 19
    (attack,) = [one for one in ATTACKS if one.what == "log flood"]
    run_id = await house.start(attack.module, attack.limits)
    lines = [e for e in await house.events(run_id) if type(e).__name__ == "LogWritten"]
    assert [getattr(one, "level", "") for one in lines].count("truncated") == 1
    written = sum(len(getattr(one, "text", "")) for one in lines)
    assert written < attack.limits.log + 100


async def test_runs_survive_their_workers_and_no_call_is_made_twice(
    house: House,
) -> None:
    # laws 7 and 10
    tools = Counting()
    here = replace(house, tools=tools)
    agents = [f"agent{number % 4}" for number in range(16)]
    module = calls(40)
    runs = [asyncio.create_task(here.start(module, agent=one)) for one in agents]
    ways = (signal.SIGKILL, signal.SIGABRT, signal.SIGILL, signal.SIGKILL)
    for killed, how in enumerate(ways):
        wanted = (killed + 1) * 60 + os.urandom(1)[0] % 60
        while tools.seen.total() < wanted:  # noqa: ASYNC110 -- of many tasks
            await asyncio.sleep(0.001)
        for pid, domain in here.workers().items():
            if domain.startswith("agent"):
                with suppress(ProcessLookupError):  # An idle one that died before.
                    os.kill(pid, how)
    for run_id in await asyncio.gather(*runs):
        events = await here.events(run_id)
        assert _how(events[-1]) == "completed"
        assert sum(isinstance(one, ToolInvoked) for one in events) == 40
        await here.sound(run_id)
    assert tools.seen.total() == 16 * 40
    assert {*tools.seen.values()} == {1}


@pytest.mark.parametrize("agent", ["peer", "deadly"])
@pytest.mark.long
async def test_guest_that_takes_its_worker_down_in_native_code_costs_no_other_run(
    house: House, monkeypatch: pytest.MonkeyPatch, agent: str
) -> None:
    # laws 7 and 9: no signal from outside, and under load
    compiler = house.sandbox._compiler
    compiled = compiler.artifact
    deadly = calls(3, end="unreachable")

    async def artifact(
        module: bytes, limits: Limits, settings: EngineSettings, entry: str
    ) -> Artifact:
        found = await compiled(module, limits, settings, entry)
        return replace(found, data=fatal(found.data)) if module == deadly else found

    monkeypatch.setattr(compiler, "artifact", artifact)
    tools = Counting()
    here = replace(house, tools=tools)
    module = calls(150)
    peers = [asyncio.create_task(here.start(module, agent="peer")) for _ in range(8)]
    while tools.seen.total() < 100:  # noqa: ASYNC110 -- of many tasks
        await asyncio.sleep(0.001)
    before = {pid for pid, domain in house.workers().items() if domain == "peer"}

    run_id = await here.start(deadly, agent=agent)

    events = await here.events(run_id)
    assert _how(events[-1]).startswith("worker")
    assert sum(isinstance(one, ToolInvoked) for one in events) == 3
    assert agent == "deadly" or not before & {*house.workers()}
    assert not all(run.done() for run in peers)
    for peer in await asyncio.gather(*peers):
        events = await here.events(peer)
        assert _how(events[-1]) == "completed"
        assert sum(isinstance(one, ToolInvoked) for one in events) == 150
        await here.sound(peer)
    assert tools.seen.total() == 8 * 150 + 3
    assert {*tools.seen.values()} == {1}
    await _good_run(house)


async def test_run_that_takes_three_workers_down_alone_fails_and_its_peers_do_not(
    house: House,
) -> None:
    deaths: list[str] = []
    peers = replace(house, tools=Counting())

    async def kill_workers_of(run: asyncio.Task[str]) -> None:
        # What a guest does that aborts its worker each time it comes to a point.
        while not run.done():
            for pid, domain in house.workers().items():
                if domain.startswith("deadly") and _computes(pid):
                    deaths.append(domain)
                    os.kill(pid, signal.SIGKILL)
                    while pid in house.workers():  # noqa: ASYNC110 -- until it is seen
                        await asyncio.sleep(0.005)
            await asyncio.sleep(0.005)

    spins = next(one for one in ATTACKS if one.what == "endless loop").module
    run = asyncio.create_task(house.start(spins, Limits(), agent="deadly"))
    others = [asyncio.create_task(peers.start(calls(40), agent="peer"))]
    await kill_workers_of(run)
    events = await house.events(await run)
    assert _how(events[-1]).startswith("worker")
    alone = [one for one in deaths if one != "deadly"]
    assert len(alone) == 3
    for one in others:
        assert _how((await peers.events(await one))[-1]) == "completed"
    await _good_run(house)


def _computes(pid: int) -> bool:
    """Return whether a worker has had a guest for a while."""
    stat = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()
    return int(stat[17]) > 1
