"""A run replays to the end that it had, however that came: law 6, in the sandbox."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from caxton_host.core.calls import JSON, Completed
from caxton_host.core.limits import Limits
from caxton_host.core.log.events import Event, LogWritten, RunFailed, RunStarted
from caxton_host.core.log.projection import summarise
from caxton_host.core.log.requests import Resend
from caxton_host.core.sections import INTERPRETER, section
from caxton_host.lib import codec
from caxton_host.ports.tools import ToolRequest
from caxton_host.runs.host import Host
from caxton_host.runs.replay import Replayed, replay
from caxton_host.runs.run_request import ForkRequest, RunRequest
from caxton_host.sandbox import WasmSandbox
from caxton_host.sandbox.interface import HOST_FUNCTIONS
from caxton_host.store.memory import MemoryStore
from caxton_host.telemetry import NoTelemetry
from caxton_host.testing import FakeClock, FakeEntropy, FakeTools
from tests.integration.sandbox.support import CALL, ECHO, KEY, LOOP, wasm
from tests.scene import DEMO, types

ANN: dict[str, JSON] = {"kind": "local", "id": "ann", "authenticated": False}
LOG = "(call $log (i32.const 1) (i32.const 0) (i32.const 4))"
DROPPED = f"(drop {CALL})"
DONE = "(i32.const 0)"
TWO = f"{LOG} {DROPPED} {LOG} {DROPPED} {DONE}"


def workers() -> set[int]:
    """Return the workers that this process has."""
    found: set[int] = set()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        with contextlib.suppress(OSError):
            stat = (entry / "stat").read_text().rpartition(")")[2].split()
            line = (entry / "cmdline").read_bytes()
            if int(stat[1]) == os.getpid() and b"sandbox.worker" in line:
                found.add(int(entry.name))
    return found


@dataclass
class Tools(FakeTools):
    """Tools of which the second call can be told what to do."""

    second: str = ""
    #: Workers of other tests' sandboxes in this process.
    others: set[int] = field(default_factory=workers)
    reached: asyncio.Event = field(default_factory=asyncio.Event)

    async def call_tool(self, request: ToolRequest) -> Completed:
        if request.call == 2 and self.second == "hang":
            self.reached.set()
            await asyncio.Event().wait()
        if request.call == 2 and self.second == "kill":
            self.second = ""
            for pid in workers() - self.others:
                os.kill(pid, signal.SIGKILL)
        return await super().call_tool(request)


@dataclass
class Place:
    """A host with a real sandbox; the rest of it forgets everything."""

    clock: FakeClock
    sandbox: WasmSandbox
    tools: Tools
    store: MemoryStore
    host: Host
    run_id: str = ""

    #: Appended to each module.
    section: bytes = b""

    def request(self, body: str, **limits: float) -> RunRequest:
        bounds = Limits.from_payload(Limits().to_payload() | limits)
        return RunRequest(
            agent="a",
            module=wasm(body, before=ECHO, memory="2") + self.section,
            actor=ANN,
            grant=DEMO,
            names={"echo": ("demo", "echo")},
            limits=bounds,
        )

    def began(self, run_id: str) -> None:
        self.run_id = run_id

    async def run(self, body: str, **limits: float) -> list[Event]:
        await self.host.start(self.request(body, **limits), on_started=self.began)
        return await self.events()

    async def events(self) -> list[Event]:
        recorded = await self.store.reader.read(f"run/{self.run_id}")
        return [one.event for one in recorded if one.event]

    def crash(self, count: int) -> None:
        """Leave the first events of the run, as a crash would."""
        del self.store.streams[f"run/{self.run_id}"][count:]

    async def replay(self) -> Replayed:
        return await replay(
            self.run_id,
            store=self.store.reader,
            sandbox=self.sandbox,
            telemetry=NoTelemetry(),
        )


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
async def place(cache: Path) -> AsyncIterator[Place]:
    clock, entropy = FakeClock(), FakeEntropy()
    store = MemoryStore(clock=clock, entropy=entropy)
    tools = Tools({("demo", "echo"): "echoed"})
    async with WasmSandbox(cache, KEY) as sandbox:
        host = Host(
            store=store,
            tools=tools,
            sandbox=sandbox,
            clock=clock,
            entropy=entropy,
            telemetry=NoTelemetry(),
            servers=["demo"],
        )
        yield Place(clock, sandbox, tools, store, host)


LIMITS: list[tuple[str, str, dict[str, float]]] = [
    ("fuel", f"{DROPPED} {LOOP}", {"fuel": 200_000}),
    ("compute", f"{DROPPED} {LOOP}", {"compute": 0.05}),
    ("wall", f"{DROPPED} {LOOP}", {"wall": 0.2}),
    (
        "host_calls",
        f"{DROPPED} (loop $l {LOG} (br $l)) (unreachable)",
        {"host_calls": 9},
    ),
    (
        "total_calls",
        f"(loop $l {DROPPED} (br $l)) (unreachable)",
        {"total_calls": 2},
    ),
    ("recorded", f"(loop $l {DROPPED} (br $l)) (unreachable)", {"recorded": 99}),
    (
        "output",
        f"{DROPPED} (call $output (i32.const 0) (i32.const 9)) {DONE}",
        {"output": 8},
    ),
]


@pytest.mark.parametrize(("limit", "body", "limits"), LIMITS)
async def test_run_that_a_limit_ended_replays_to_it(
    place: Place, limit: str, body: str, limits: dict[str, float]
) -> None:
    end = (await place.run(body, **limits))[-1]

    assert isinstance(end, RunFailed)
    assert (end.kind, end.message.partition(":")[0]) == ("limit", limit)
    replayed = await place.replay()
    assert (replayed.verdict, replayed.state) == ("identical", "failed")


@pytest.mark.parametrize(
    "body",
    [
        f"{DROPPED} (unreachable)",
        f"{LOG} {DROPPED} (i32.load (i32.const -1))",
        "(call $random (i32.const -1) (i32.const 9)) (i32.const 0)",
        f"(call {len(HOST_FUNCTIONS)})",
    ],
    ids=["unreachable", "memory", "pointer", "stack"],
)
async def test_run_that_trapped_replays_to_its_trap(place: Place, body: str) -> None:
    end = (await place.run(body))[-1]

    assert isinstance(end, RunFailed)
    assert end.kind == "trap"
    assert (await place.replay()).verdict == "identical"


# law 5: the profile of the engine comes from the module alone
@pytest.mark.parametrize(
    ("body", "kind", "message"),
    [
        (f"{DROPPED} (unreachable)", "agent_error", "the interpreter aborted: unreach"),
        (f"(call {len(HOST_FUNCTIONS)})", "limit", "stack: "),
        (
            f"(call $fail (i32.const 0) (i32.const 600)) {DROPPED} (i32.const 1)",
            "agent_error",
            "echo",
        ),
    ],
    ids=["trap", "stack", "reason"],
)
async def test_run_of_an_interpreter_replays_to_its_end(
    place: Place, body: str, kind: str, message: str
) -> None:
    place.section = section(INTERPRETER, b"")

    end = (await place.run(body))[-1]

    assert isinstance(end, RunFailed)
    assert end.kind == kind
    assert end.message.startswith(message)
    assert (await place.replay()).verdict == "identical"


async def test_run_whose_agent_failed_replays_to_that(place: Place) -> None:
    end = (await place.run(f"{DROPPED} (i32.const 7)"))[-1]

    assert isinstance(end, RunFailed)
    assert end.kind == "agent_error"
    assert (await place.replay()).verdict == "identical"


async def test_run_that_was_cancelled_in_a_call_replays(place: Place) -> None:
    place.tools.second = "hang"
    task = asyncio.create_task(place.run(TWO))
    await asyncio.wait_for(place.tools.reached.wait(), 30)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task

    assert types(await place.events())[-2:] == ["ToolFailed", "RunCancelled"]
    replayed = await place.replay()
    assert (replayed.verdict, replayed.state) == ("identical", "cancelled")


@pytest.mark.parametrize("count", range(1, 8))
async def test_run_that_was_killed_anywhere_replays_as_far_as_it_was(
    place: Place, count: int
) -> None:  # law 10
    await place.run(TWO)
    place.crash(count)

    replayed = await place.replay()

    assert (replayed.verdict, replayed.state) == ("identical", "running")


async def test_run_that_was_suspended_resolved_and_resumed_replays(
    place: Place,
) -> None:  # law 7
    await place.run(TWO)
    place.crash(6)
    assert types(await place.events())[-1] == "ToolInvoked"

    await place.host.resume(place.run_id, actor=ANN, grant=DEMO)
    assert types(await place.events())[-1] == "RunSuspended"
    assert (await place.replay()).verdict == "identical"

    await place.host.resolve(place.run_id, 6, Resend(), actor=ANN, reason="none there")
    assert (await place.replay()).verdict == "identical"

    await place.host.resume(place.run_id, actor=ANN, grant=DEMO)
    assert types(await place.events())[-1] == "RunCompleted"
    assert (await place.replay()).verdict == "identical"


async def test_run_that_was_resumed_in_the_middle_replays(place: Place) -> None:
    await place.run(TWO)
    place.crash(4)

    await place.host.resume(place.run_id, actor=ANN, grant=DEMO)

    assert types(await place.events())[-1] == "RunCompleted"
    assert (await place.replay()).verdict == "identical"


async def test_run_whose_worker_died_replays(place: Place) -> None:  # law 10
    place.tools.second = "kill"

    events = await place.run(TWO)

    assert types(events)[-1] == "RunCompleted"
    assert [request.call for request in place.tools.asked] == [1, 2]
    assert (await place.replay()).verdict == "identical"


# -- forks ---------------------------------------------------------------------


def drawing() -> str:
    """Return a guest that outputs 8 numbers: a random one and the time, 4 times."""
    at, code = 2001, ""
    for turn in range(4):
        code += f"(i32.store8 (i32.const {at}) (i32.const 0xcf))"
        code += f"(call $random (i32.const {at + 1}) (i32.const 8))"
        code += f"(i32.store8 (i32.const {at + 9}) (i32.const 0xcf))"
        code += f"(i64.store (i32.const {at + 10}) (call $now))"
        code += DROPPED if turn < 3 else ""
        at += 18
    code += "(i32.store8 (i32.const 2000) (i32.const 0x98))"
    return f"{code} (call $output (i32.const 2000) (i32.const 73)) {DONE}"


async def test_fork_has_other_random_numbers_behind_its_last_inherited_call(
    place: Place,
) -> None:  # law 5
    await place.run(drawing())
    parent = place.run_id

    async def fork(run: str, seq: int) -> list[JSON]:
        place.clock.time += 1_000_000
        place.run_id = await place.host.fork(
            ForkRequest(run_id=run, seq=seq, actor=ANN, grant=DEMO)
        )
        assert (await place.replay()).verdict == "identical"
        return await drawn()

    async def drawn() -> list[JSON]:
        recorded = await place.store.reader.read(f"run/{place.run_id}")
        output = summarise(place.run_id, recorded).output
        assert isinstance(output, list)
        return output

    first = await drawn()
    # 1 start, 2-3 call 1, 4-5 call 2, 6-7 call 3, 8 end
    second = await fork(parent, 5)
    child = place.run_id
    third = await fork(child, 3)
    fourth = await fork(parent, 1)

    assert (
        len({*first[::2], *second[4::2], *third[6::2], *fourth[::2]}) == 4 + 2 + 1 + 4
    )
    assert second[:4] == first[:4]
    assert second[5] == first[5]
    assert third[:6] == second[:6]
    assert third[7] == second[7]
    assert fourth[1] == first[1]
    assert second[7] != first[7]
    assert fourth[3] != first[3]


async def test_worker_that_dies_under_a_fork_changes_nothing(place: Place) -> None:
    await place.run(drawing())
    place.tools.second = "kill"
    place.tools.asked.clear()

    place.run_id = await place.host.fork(
        ForkRequest(run_id=place.run_id, seq=3, actor=ANN, grant=DEMO)
    )

    assert [request.call for request in place.tools.asked] == [2, 3]
    started, *_, end = await place.events()
    assert isinstance(started, RunStarted)
    assert types([end]) == ["RunCompleted"]
    assert (await place.replay()).verdict == "identical"


async def test_log_line_that_was_tampered_with_is_a_divergence(place: Place) -> None:
    await place.run(TWO)
    stream = place.store.streams[f"run/{place.run_id}"]
    line = stream[1].event
    assert isinstance(line, LogWritten)
    stream[1] = replace(stream[1], event=replace(line, text="other"))

    found = (await place.replay()).divergence

    assert found
    assert (found.seq, found.path, found.recorded) == (2, "$.text", "other")
    assert codec.encode(found.replayed)
