"""Which worker runs which guest."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from caxton_host.core.limits import Limits
from caxton_host.core.sections import section
from caxton_host.errors import ModuleRefused, SandboxError
from caxton_host.sandbox import WasmSandbox, gate, pool
from caxton_host.sandbox.binary import ModuleInfo, parse_module

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

NOTHING = wasm("(i32.const 0)")
WAIT = wasm(f"(drop {CALL}) (i32.const 0)", before=ECHO)
SPIN = wasm(
    f"(call $log (i32.const 1) (i32.const 0) (i32.const 4)) {LOOP}", before=ECHO
)
_GIB = 1024**3


async def test_prepared_module_says_what_it_was_made_for(sandbox: WasmSandbox) -> None:
    prepared = await sandbox.prepare(NOTHING, Limits(), "run")
    assert prepared.abi == "core/1"
    assert prepared.engine.startswith("wasmtime-")
    other = await sandbox.prepare(NOTHING, Limits(memory=_GIB), "run")
    assert other.sha256 == prepared.sha256
    assert other.engine != prepared.engine
    assert other.key != prepared.key


async def test_digest_of_a_large_module_is_made_once(
    sandbox: WasmSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = NOTHING + section("large", bytes(100_000))
    made: list[bytes] = []

    def digest(data: bytes) -> object:
        made.append(data)
        return hashlib.sha256(data)

    monkeypatch.setattr(pool, "sha256", digest)
    first = await sandbox.prepare(module, Limits(), "run")
    assert await sandbox.prepare(module, Limits(), "run") is first
    assert made == [module]
    assert await sandbox.prepare(bytes(bytearray(module)), Limits(), "run") is first
    assert made == [module, module]


async def test_module_that_the_gate_refuses_is_refused(sandbox: WasmSandbox) -> None:
    with pytest.raises(ModuleRefused):
        await sandbox.prepare(b"(module)", Limits(), "run")


async def test_large_module_is_parsed_once_and_checked_each_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parsed: list[bytes] = []

    def parse(module: bytes) -> ModuleInfo:
        parsed.append(module)
        return parse_module(module)

    monkeypatch.setattr(pool, "_LARGE", 1)
    monkeypatch.setattr(gate, "parse_module", parse)
    for _ in range(2):
        async with WasmSandbox(tmp_path, KEY) as sandbox:
            await sandbox.prepare(NOTHING, Limits(), "run")
            with pytest.raises(ModuleRefused, match="memories"):
                await sandbox.prepare(NOTHING, Limits(memories=0), "run")
    assert len(parsed) == 1

    monkeypatch.setattr(pool, "_MOST_TOLD", 1)
    async with WasmSandbox(tmp_path / "other", KEY) as sandbox:
        await sandbox.prepare(NOTHING, Limits(), "run")
    assert len([*(tmp_path / "other").iterdir()]) == 1
    parsed.pop()

    # What this host did not write is not believed.
    (record,) = tmp_path.glob(f"*.{gate.VERSION}")  # noqa: ASYNC240 -- small
    record.write_bytes(record.read_bytes()[:-1])
    async with WasmSandbox(tmp_path, KEY) as sandbox:
        await sandbox.prepare(NOTHING, Limits(), "run")
    assert len(parsed) == 2


async def test_domains_never_share_a_worker_and_guests_of_one_do(
    sandbox: WasmSandbox,
) -> None:
    for domain in ("a", "b", "a", "b"):
        await execute(sandbox, NOTHING, domain=domain)
    assert len(workers(sandbox)) == 2


async def test_worker_is_confined_before_its_first_guest(sandbox: WasmSandbox) -> None:
    await execute(sandbox, NOTHING)
    guards = sandbox._workers[0].link.result().guards
    assert {"no-files", "no-core", "address-space"} <= set(guards)


async def test_unused_worker_is_closed_after_a_while(compiled: Path) -> None:
    async with WasmSandbox(compiled, KEY, idle=0.05) as sandbox:
        await execute(sandbox, NOTHING)
        (pid,) = workers(sandbox)
        await until(lambda: not alive(pid))
        assert not sandbox._workers
        assert (await execute(sandbox, NOTHING)).kind == "returned"


async def test_unused_worker_makes_place_for_another_domain(compiled: Path) -> None:
    async with WasmSandbox(compiled, KEY, workers=1) as sandbox:
        await execute(sandbox, NOTHING, domain="a")
        (pid,) = workers(sandbox)
        await execute(sandbox, NOTHING, domain="b")
        assert len(workers(sandbox)) == 1
        await until(lambda: not alive(pid))


async def test_run_waits_for_a_place_and_no_longer(compiled: Path) -> None:
    async with WasmSandbox(compiled, KEY, workers=1, guests=1) as sandbox:
        first = asyncio.ensure_future(execute(sandbox, WAIT, door := FakeDoor(never)))
        async with asyncio.timeout(SOON):
            await door.called.wait()
        second = asyncio.ensure_future(execute(sandbox, NOTHING))
        third = asyncio.ensure_future(execute(sandbox, NOTHING))
        await asyncio.sleep(0.1)
        assert not second.done()
        third.cancel()
        first.cancel()
        assert (await second).kind == "returned"
        await asyncio.wait({first, third})


async def test_guest_without_room_is_started_in_another_worker(compiled: Path) -> None:
    async with WasmSandbox(compiled, KEY, guests=1) as sandbox:
        await execute(sandbox, NOTHING)
        (first,) = workers(sandbox)
        # As if more guests were in there than it was made for.
        sandbox._workers[0].left = 1024 * _GIB
        big = await execute(sandbox, NOTHING, limits=Limits(memory=3 * _GIB))
        assert big.kind == "returned"
        await until(lambda: not alive(first))


async def test_guest_that_finds_room_nowhere_is_an_error(
    compiled: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "_GUEST_SPACE", -2 * _GIB)
    async with WasmSandbox(compiled, KEY, guests=1) as sandbox:
        with pytest.raises(SandboxError, match="mmap"):
            await execute(sandbox, NOTHING, limits=Limits(memory=3 * _GIB))
        assert not workers(sandbox)


async def test_closed_sandbox_ends_its_runs_and_takes_no_more(compiled: Path) -> None:
    async with WasmSandbox(compiled, KEY) as sandbox:
        run = asyncio.ensure_future(execute(sandbox, SPIN, door := FakeDoor()))
        await until(lambda: bool(door.lines))
        (pid,) = workers(sandbox)
        prepared = await sandbox.prepare(NOTHING, Limits(), "run")
    assert not alive(pid)
    with pytest.raises(SandboxError):
        await run
    with pytest.raises(SandboxError, match="closed"):
        await sandbox.run(prepared, guest(), FakeDoor())


async def test_sandbox_can_be_closed_while_a_worker_starts(compiled: Path) -> None:
    async with WasmSandbox(compiled, KEY) as sandbox:
        prepared = await sandbox.prepare(NOTHING, Limits(), "run")
        run = asyncio.ensure_future(sandbox.run(prepared, guest(), FakeDoor()))
        await asyncio.sleep(0)
    with pytest.raises(SandboxError):
        await run


async def test_domains_take_turns_at_the_one_process(compiled: Path) -> None:
    async with WasmSandbox(compiled, KEY, workers=1, guests=2) as sandbox:
        prepared = await sandbox.prepare(NOTHING, Limits(), "run")
        waits = await sandbox.prepare(WAIT, Limits(), "run")
        order: list[str] = []

        async def one(domain: str) -> None:
            await sandbox.run(prepared, guest(domain=domain), FakeDoor())
            order.append(domain)

        door = FakeDoor(never)
        first = asyncio.ensure_future(sandbox.run(waits, guest(domain="a"), door))
        async with asyncio.timeout(SOON):
            await door.called.wait()
            many = [asyncio.ensure_future(one(domain)) for domain in "bcaaaaaa"]
            await asyncio.sleep(0.05)
            # There is room beside the guest of a; but others wait for its process.
            assert order == []
            first.cancel()
            await asyncio.gather(*many)
        assert {*order[:2]} == {"b", "c"}


async def test_domain_with_the_most_processes_gives_one_up(compiled: Path) -> None:
    async with WasmSandbox(compiled, KEY, workers=2, guests=1) as sandbox:
        prepared = await sandbox.prepare(WAIT, Limits(), "run")
        doors = [FakeDoor(never) for _ in range(3)]
        runs = [
            asyncio.ensure_future(sandbox.run(prepared, guest(domain="a"), door))
            for door in doors
        ]
        async with asyncio.timeout(SOON):
            await doors[0].called.wait()
            await doors[1].called.wait()
            other = asyncio.ensure_future(execute(sandbox, NOTHING, domain="b"))
            await asyncio.sleep(0.05)
            for run in runs[:2]:
                run.cancel()
            assert (await other).kind == "returned"
            runs[2].cancel()
            await asyncio.wait(runs)


async def test_place_of_a_run_that_is_cancelled_as_it_gets_it_is_free(
    compiled: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with WasmSandbox(compiled, KEY, workers=1, guests=1) as sandbox:
        first = asyncio.ensure_future(execute(sandbox, WAIT, door := FakeDoor(never)))
        async with asyncio.timeout(SOON):
            await door.called.wait()
        second = asyncio.ensure_future(execute(sandbox, NOTHING))
        await until(lambda: bool(sandbox._waiting))
        enter = sandbox._enter

        def enter_and_cancel(*place: Any) -> None:  # noqa: ANN401 -- passed on
            enter(*place)
            second.cancel()

        monkeypatch.setattr(sandbox, "_enter", enter_and_cancel)
        first.cancel()
        await asyncio.wait({first, second})
        assert second.cancelled()
        monkeypatch.undo()
        assert (await execute(sandbox, NOTHING)).kind == "returned"


async def test_one_guest_at_a_time_may_compute_if_it_is_said_so(
    compiled: Path,
) -> None:
    async with WasmSandbox(compiled, KEY, compute=1) as sandbox:
        runs = [
            asyncio.ensure_future(execute(sandbox, SPIN, limits=Limits(compute=0.2)))
            for _ in range(3)
        ]
        for ending in await asyncio.gather(*runs):
            assert (ending.kind, ending.limit) == ("limit", "compute")
        (pid,) = workers(sandbox)
        assert _last_word(pid) == "1"


def _last_word(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text().rstrip("\0").split("\0")[-1]


async def test_only_the_first_compile_of_a_module_is_told(tmp_path: Path) -> None:
    told: list[str] = []

    @contextmanager
    def compiling() -> Iterator[None]:
        told.append("begun")
        yield
        told.append("done")

    for _ in range(2):
        async with WasmSandbox(tmp_path, KEY, compiling=compiling) as sandbox:
            await sandbox.prepare(NOTHING, Limits(), "run")
    assert told == ["begun", "done"]


async def test_guest_of_a_run_that_another_waits_for_has_a_place(
    compiled: Path,
) -> None:
    async with WasmSandbox(compiled, KEY, workers=1, guests=1) as sandbox:
        first = asyncio.ensure_future(execute(sandbox, WAIT, door := FakeDoor(never)))
        async with asyncio.timeout(SOON):
            await door.called.wait()
            for domain in ("test", "other"):
                ending = await execute(sandbox, NOTHING, domain=domain, level=1)
                assert ending.kind == "returned"
        first.cancel()
