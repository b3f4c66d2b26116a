"""A guest can be stopped wherever it is, and its worker can die at any time."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import anyio
import pytest

from caxton_host.core.limits import Limits
from caxton_host.errors import Divergence, NondeterminismError, SandboxError
from caxton_host.ports.sandbox import Answer
from caxton_host.sandbox import WasmSandbox, link

from .support import (
    CALL,
    ECHO,
    KEY,
    LOOP,
    SOON,
    FakeDoor,
    alive,
    execute,
    guest,
    never,
    until,
    wasm,
    workers,
)

LONG = Limits(compute=60, fuel=2**62, host_calls=2**40)
WAIT = wasm(f"(drop {CALL}) (i32.const 0)", before=ECHO)
SPIN = wasm(
    f"(call $log (i32.const 1) (i32.const 0) (i32.const 4)) {LOOP}", before=ECHO
)
FLOOD = wasm("(loop $l (drop (call $now)) (br $l)) (unreachable)")


async def _cancelled_after(task: asyncio.Task[object]) -> float:
    """Cancel *task*, and return how long it took to end."""
    task.cancel()
    before = time.perf_counter()
    with pytest.raises(asyncio.CancelledError):
        await task
    return time.perf_counter() - before


@pytest.mark.parametrize("module", [SPIN, FLOOD], ids=["spinning", "calling"])
async def test_cancelled_run_stops_a_guest_that_computes(
    sandbox: WasmSandbox, module: bytes
) -> None:
    await execute(sandbox, wasm("(i32.const 0)"))
    (pid,) = workers(sandbox)
    task = asyncio.ensure_future(execute(sandbox, module, limits=LONG))
    await asyncio.sleep(0.3)
    assert await _cancelled_after(task) < 5
    assert (await execute(sandbox, wasm("(i32.const 3)"))).code == 3
    assert workers(sandbox) == [pid]


async def test_cancelled_run_stops_a_guest_that_waits_and_the_door_first(
    sandbox: WasmSandbox,
) -> None:
    door = FakeDoor(never)
    task = asyncio.ensure_future(execute(sandbox, WAIT, door))
    async with asyncio.timeout(SOON):
        await door.called.wait()
    assert await _cancelled_after(task) < 5
    assert door.left == ["cancelled"]
    assert (await execute(sandbox, wasm("(i32.const 3)"))).code == 3
    assert len(workers(sandbox)) == 1


async def test_cancel_scope_of_anyio_stops_a_guest_too(sandbox: WasmSandbox) -> None:
    # Its cancellation comes again at every await.
    prepared = await sandbox.prepare(SPIN, LONG, "run")
    with anyio.move_on_after(0.3) as scope:
        await sandbox.run(prepared, guest(LONG), FakeDoor())
    assert scope.cancelled_caught
    assert (await execute(sandbox, wasm("(i32.const 3)"))).code == 3
    assert len(workers(sandbox)) == 1


async def test_what_the_door_raises_ends_the_run_and_is_raised(
    sandbox: WasmSandbox,
) -> None:
    async def diverge() -> Answer:
        raise NondeterminismError(Divergence(3, "$.name", "a", "b"))

    twice = wasm(f"(drop {CALL}) (drop {CALL}) (i32.const 0)", before=ECHO)
    door = FakeDoor(diverge)
    with pytest.raises(NondeterminismError):
        await execute(sandbox, twice, door)
    assert len(door.calls) == 1
    assert (await execute(sandbox, wasm("(i32.const 3)"))).code == 3
    assert len(workers(sandbox)) == 1


async def test_deadline_of_the_door_is_not_taken_for_a_lost_worker(
    sandbox: WasmSandbox,
) -> None:
    async def late() -> Answer:
        raise TimeoutError

    with pytest.raises(TimeoutError):
        await execute(sandbox, WAIT, FakeDoor(late))


async def test_what_the_log_raises_ends_the_run_before_another_call(
    sandbox: WasmSandbox,
) -> None:
    class Refusing(FakeDoor):
        def log(self, level: int, text: bytes) -> None:
            super().log(level, text)
            raise LookupError(text)

    module = wasm(
        "(call $log (i32.const 1) (i32.const 0) (i32.const 4))"
        "(call $log (i32.const 1) (i32.const 0) (i32.const 4))"
        f"(drop {CALL}) (i32.const 0)",
        before=ECHO,
    )
    door = Refusing()
    with pytest.raises(LookupError):
        await execute(sandbox, module, door)
    assert len(door.lines) == 1
    assert not door.calls


async def test_two_guests_of_one_worker_do_not_wait_for_each_other(
    sandbox: WasmSandbox,
) -> None:
    gate = asyncio.Event()

    async def held() -> Answer:
        await gate.wait()
        return Answer(0, b"\x80", 9)

    first = asyncio.ensure_future(execute(sandbox, WAIT, slow := FakeDoor(held)))
    async with asyncio.timeout(SOON):
        await slow.called.wait()
    second = await execute(sandbox, WAIT)
    assert second.kind == "returned"
    gate.set()
    assert (await first).kind == "returned"
    assert len(workers(sandbox)) == 1


async def test_many_guests_take_turns_at_the_socket(sandbox: WasmSandbox) -> None:
    body = f"""(loop $l (drop {CALL}) (br_if $l (i32.lt_u
      (local.tee $i (i32.add (local.get $i) (i32.const 1))) (i32.const 50))))
      (i32.const 0)"""
    module = wasm(body, before=ECHO)

    async def brief() -> Answer:
        await asyncio.sleep(0.001)
        return Answer(0, b"\x80", 9)

    doors = [FakeDoor(brief) for _ in range(20)]
    endings = await asyncio.gather(*(execute(sandbox, module, door) for door in doors))
    assert {ending.kind for ending in endings} == {"returned"}
    assert {len(door.calls) for door in doors} == {50}
    assert len({ending.fuel for ending in endings}) == 1


async def test_killed_worker_ends_its_runs_and_the_next_run_has_another(
    sandbox: WasmSandbox,
) -> None:
    served = asyncio.Event()

    async def slow() -> Answer:
        await served.wait()
        return Answer(0, b"\x80", 9)

    door = FakeDoor(slow)
    waiting = asyncio.ensure_future(execute(sandbox, WAIT, door))
    spinning = asyncio.ensure_future(
        execute(sandbox, SPIN, started := FakeDoor(), limits=LONG)
    )
    await until(lambda: bool(started.lines and door.calls))
    (pid,) = workers(sandbox)
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(SandboxError):
        await spinning
    assert not waiting.done()  # its call is under way: the outcome will be recorded
    served.set()
    with pytest.raises(SandboxError):
        await waiting
    assert door.left == []
    assert (await execute(sandbox, wasm("(i32.const 3)"))).code == 3
    assert pid not in workers(sandbox)


async def test_workers_that_start_and_those_that_die_are_told_of(
    compiled: Path,
) -> None:
    told: list[str] = []
    async with WasmSandbox(compiled, KEY, on_worker=told.append) as sandbox:
        spinning = asyncio.ensure_future(
            execute(sandbox, SPIN, started := FakeDoor(), limits=LONG)
        )
        await until(lambda: bool(started.lines))
        (pid,) = workers(sandbox)
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(SandboxError):
            await spinning
        await execute(sandbox, wasm("(i32.const 0)"))

    # The second one was closed, as it should be.
    assert told == ["started", "died", "started"]


async def test_answers_for_a_worker_that_is_gone_are_dropped_in_silence(
    sandbox: WasmSandbox, caplog: pytest.LogCaptureFixture
) -> None:
    served = asyncio.Event()

    async def slow() -> Answer:
        await served.wait()
        return Answer(0, b"\x80", 9)

    doors = [FakeDoor(slow) for _ in range(20)]
    waiting = [asyncio.ensure_future(execute(sandbox, WAIT, door)) for door in doors]
    await until(lambda: all(door.calls for door in doors))
    (pid,) = workers(sandbox)
    (worker,) = sandbox._workers
    os.kill(pid, signal.SIGKILL)
    await until(lambda: bool(worker.link.result().lost))
    served.set()
    ended = await asyncio.gather(*waiting, return_exceptions=True)
    assert {type(end) for end in ended} == {SandboxError}
    assert caplog.records == []


async def test_guest_that_cannot_be_stopped_costs_its_worker(
    sandbox: WasmSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link, "GRACE_S", 0.25)
    # A stopped process stands for one that an escaped guest has taken over.
    other = asyncio.ensure_future(
        execute(sandbox, SPIN, beside := FakeDoor(), limits=LONG)
    )
    task = asyncio.ensure_future(
        execute(sandbox, SPIN, started := FakeDoor(), limits=LONG)
    )
    await until(lambda: bool(started.lines and beside.lines))
    (pid,) = workers(sandbox)
    os.kill(pid, signal.SIGSTOP)
    await _cancelled_after(task)
    with pytest.raises(SandboxError):
        await other
    await until(lambda: not alive(pid))


async def test_fuel_is_the_same_in_every_run_and_every_process(
    sandbox: WasmSandbox,
) -> None:
    door = FakeDoor()
    module = wasm(
        f"(call $random (i32.const 64) (i32.const 8)) (drop {CALL}) (drop {CALL})"
        "(i32.const 0)",
        before=ECHO,
    )
    endings = [
        await execute(sandbox, module, door, domain=domain)
        for domain in ("one", "one", "two")
    ]
    assert len(workers(sandbox)) == 2
    assert len({ending.fuel for ending in endings}) == 1
    fuel = [burnt for _, _, burnt in door.calls]
    assert fuel[:2] == fuel[2:4] == fuel[4:]


_HOST = """
import asyncio, sys
from pathlib import Path
from tests.integration.sandbox import support, test_stopping as t

async def main():
    async with support.WasmSandbox(Path(sys.argv[1]), support.KEY) as sandbox:
        run = asyncio.ensure_future(
            support.execute(sandbox, t.SPIN, door := support.FakeDoor(), t.LONG))
        await support.until(lambda: bool(door.lines))
        print(support.workers(sandbox)[0], flush=True)
        await run

asyncio.run(main())
"""


def test_workers_end_with_their_host_even_while_a_guest_spins(tmp_path: Path) -> None:
    root = Path(__file__).parents[3]
    with subprocess.Popen(
        [sys.executable, "-c", _HOST, tmp_path], cwd=root, stdout=subprocess.PIPE
    ) as host:
        assert host.stdout is not None
        pid = int(host.stdout.readline())
        assert alive(pid)
        host.kill()
    deadline = time.monotonic() + SOON
    while alive(pid):
        assert time.monotonic() < deadline
        time.sleep(0.01)


async def test_interrupt_of_the_terminal_is_not_the_workers(
    sandbox: WasmSandbox,
) -> None:
    await execute(sandbox, wasm("(i32.const 0)"))
    (pid,) = workers(sandbox)
    assert os.getsid(pid) == pid
    os.kill(pid, signal.SIGINT)
    assert (await execute(sandbox, wasm("(i32.const 3)"))).code == 3
    assert workers(sandbox) == [pid]
