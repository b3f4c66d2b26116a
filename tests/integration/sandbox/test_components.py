"""Components in confined workers."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from caxton_host.core.limits import Limits
from caxton_host.errors import ModuleRefused
from caxton_host.lib import codec
from caxton_host.ports.sandbox import Answer
from caxton_host.sandbox import WasmSandbox, confine
from tests.components import LOOP, SHOW, call, component, place, text

from .support import KEY, SOON, FakeDoor, execute, guest, never, wasm, workers

DATA, CALL = call("echo", '{"n": 1}')
AGENT = component(
    f"(call $log (i32.const 1) {place(64, 'echo')}) {CALL} {SHOW}", before=DATA
)
REPLY = {"status": "ok", "message": "é", "data": {"n": [1, 2.5]}}
ANSWER = Answer(0, codec.encode(REPLY), 1_000)


async def test_component_runs_end_to_end(sandbox: WasmSandbox) -> None:
    door = FakeDoor(ANSWER)
    ending = await execute(sandbox, AGENT, door)
    assert (ending.kind, ending.code, ending.message) == ("returned", 0, "")
    assert ending.output == codec.encode(REPLY)
    assert door.lines == [(1, b"echo")]
    [(name, params, fuel)] = door.calls
    assert (name, params) == (b"echo", codec.encode({"n": 1}))
    assert ending.fuel is not None
    assert 20_000 < fuel < ending.fuel


async def test_component_has_an_abi_and_an_engine_of_its_own(
    sandbox: WasmSandbox,
) -> None:
    one = await sandbox.prepare(AGENT, Limits(), "run")
    core = await sandbox.prepare(wasm("(i32.const 0)"), Limits(), "run")
    assert (one.abi, core.abi) == ("component/1", "core/1")
    assert one.engine != core.engine


async def test_error_of_an_agent_is_told(sandbox: WasmSandbox) -> None:
    body = """(i32.store8 (i32.const 0) (i32.const 1))
      (i32.store (i32.const 4) (i32.const 64))
      (i32.store (i32.const 8) (i32.const 5))"""
    ending = await execute(sandbox, component(body, before=text(64, "né\x1b!")))
    assert (ending.kind, ending.code) == ("returned", 1)
    assert ending.message == "né\x1b!"


async def test_only_guests_with_images_have_workers_that_may_make_them(
    sandbox: WasmSandbox,
) -> None:
    await execute(sandbox, wasm("(i32.const 0)"))
    await execute(sandbox, AGENT)
    await execute(sandbox, wasm("(i32.const 0)"))
    assert len(workers(sandbox)) == 2
    held = {
        worker.images: set(worker.link.result().guards) for worker in sandbox._workers
    }
    assert held[False] ^ held[True] <= {"no-files", "few-files"}
    assert "few-files" not in held[False]
    available = {guard.name for guard in confine.guards() if guard.available}
    assert available - held[True] == {"no-files", "cpu"} & available  # law 1


# law 5
async def test_fuel_and_output_are_the_same_in_every_run_and_every_process(
    tmp_path: Path,
) -> None:
    seen = set()
    for life in range(3):
        if life == 2:
            shutil.rmtree(tmp_path / "artifacts")
        async with WasmSandbox(tmp_path / "artifacts", KEY) as sandbox:
            for _ in range(2):
                door = FakeDoor(ANSWER)
                ending = await execute(sandbox, AGENT, door)
                seen.add((ending.fuel, ending.output, tuple(door.calls)))
    assert len(seen) == 1


@pytest.mark.parametrize(
    ("body", "kind", "said"),
    [
        ("(unreachable)", "trap", "unreachable"),
        ("(drop (call $f))", "trap", "stack overflow"),
        (LOOP, "limit", "all fuel is burnt"),
        ("(drop (i32.load (i32.const -1)))", "trap", "out of bounds memory access"),
    ],
)
async def test_end_has_the_same_fuel_each_time(
    sandbox: WasmSandbox, body: str, kind: str, said: str
) -> None:
    module = component(body, before="(func $f (result i32) (call $f))")
    first = await execute(sandbox, module, limits=Limits(fuel=10**8))
    assert (first.kind, first.message) == (kind, said)
    assert first.fuel is not None
    async with WasmSandbox(sandbox._compiler.cache._folder, KEY) as other:
        second = await execute(other, module, limits=Limits(fuel=10**8))
    assert second == first


async def test_loop_ends_by_the_clock_and_records_no_fuel(
    sandbox: WasmSandbox,
) -> None:
    ending = await execute(sandbox, component(LOOP), limits=Limits(compute=0.2))
    assert (ending.kind, ending.limit, ending.fuel) == ("limit", "compute", None)


async def test_start_function_that_loops_is_a_run_that_failed(
    sandbox: WasmSandbox,
) -> None:
    module = component("", before=f"(func $s {LOOP}) (start $s)")
    ending = await execute(sandbox, module, limits=Limits(compute=0.2))
    assert (ending.kind, ending.limit) == ("limit", "compute")


@pytest.mark.parametrize("body", [LOOP, CALL])
async def test_cancelled_run_stops_a_component(sandbox: WasmSandbox, body: str) -> None:
    door = FakeDoor(never)
    before = f"{DATA} (func $call {CALL})"
    module = component(f"(call $call) {LOOP}" if body == LOOP else body, before=before)
    if body == LOOP:
        door.answer = ANSWER
    run = asyncio.ensure_future(execute(sandbox, module, door))
    async with asyncio.timeout(SOON):
        await door.called.wait()
        run.cancel()
        await asyncio.wait({run})
    assert run.cancelled()
    assert not [worker for worker in sandbox._workers if worker.guests]
    assert (await execute(sandbox, AGENT, FakeDoor(ANSWER))).kind == "returned"


async def test_many_components_wait_in_one_worker(sandbox: WasmSandbox) -> None:
    prepared = await sandbox.prepare(AGENT, Limits(), "run")
    go = asyncio.Event()

    async def answer() -> Answer:
        await go.wait()
        return ANSWER

    doors = [FakeDoor(answer) for _ in range(60)]
    runs = [
        asyncio.ensure_future(sandbox.run(prepared, guest(), door)) for door in doors
    ]
    async with asyncio.timeout(SOON):
        for door in doors:
            await door.called.wait()
        assert len(workers(sandbox)) == 1
        go.set()
        endings = await asyncio.gather(*runs)
    assert {ending.output for ending in endings} == {codec.encode(REPLY)}
    assert len({ending.fuel for ending in endings}) == 1


async def test_first_contents_of_memory_are_the_same_for_each_run(
    sandbox: WasmSandbox,
) -> None:
    image = """(core module $image (memory 1) (data (i32.const 2000) "a")
        (func $check
          (if (i32.ne (i32.load8_u (i32.const 2000)) (i32.const 97))
            (then (unreachable)))
          (i32.store8 (i32.const 2000) (i32.const 98)))
        (start $check))
      (core instance (instantiate $image))"""
    module = component("", around=image)
    for _ in range(3):
        ending = await execute(sandbox, module)
        assert (ending.kind, ending.message) == ("returned", "")


async def test_more_images_than_a_worker_may_hold_need_another_worker(
    sandbox: WasmSandbox,
) -> None:
    seen: set[int] = set()
    for number in range(confine.IMAGES + 2):
        image = f"""(core module $m (memory 1) (data (i32.const 2000) "{number}"))
          (core instance (instantiate $m))"""
        ending = await execute(sandbox, component("", around=image))
        assert (ending.kind, ending.message) == ("returned", "")
        seen.update(workers(sandbox))
    assert len(seen) == 2


@pytest.mark.parametrize(
    ("function", "type_", "said"),
    [
        ("now", "(result u64)", "() -> u64; it is () -> s64"),
        ("output", '(param "v" (list u8))', "(ListType); it is (string)"),
        (
            "log",
            '(param "l" (option string)) (param "t" string)',
            "(option<string>, string); it is (enum {debug, info, warning, error}, ",
        ),
        ("tools", "", "(); it is () -> string"),
    ],
)
async def test_import_of_another_type_is_refused_in_words(
    sandbox: WasmSandbox, function: str, type_: str, said: str
) -> None:
    module = component("", imports={function: type_})
    with pytest.raises(ModuleRefused) as caught:
        await sandbox.prepare(module, Limits(), "run")
    assert f'imports "{function}" as {said}' in str(caught.value)
    assert "WIT of this host" in str(caught.value.fix)
    assert not workers(sandbox)


@pytest.mark.parametrize(
    "entry", ["(result u32)", "", "(result (result string (error string)))"]
)
async def test_entry_point_of_another_type_is_refused_in_words(
    sandbox: WasmSandbox, entry: str
) -> None:
    module = component("", entry=entry, result="i32" if entry else "")
    with pytest.raises(ModuleRefused, match='"run" is not a function') as caught:
        await sandbox.prepare(module, Limits(), "run")
    assert "() -> result<_, string>" in str(caught.value)


async def test_component_that_is_not_valid_is_refused(sandbox: WasmSandbox) -> None:
    broken = component("", around="(core module (func (result i32)))")
    with pytest.raises(ModuleRefused):
        await sandbox.prepare(broken, Limits(), "run")


async def test_known_module_is_not_looked_at_again(
    sandbox: WasmSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await sandbox.prepare(AGENT, Limits(), "run")
    monkeypatch.setattr(sandbox._compiler, "find", None)
    assert await sandbox.prepare(bytes(AGENT), Limits(), "run") == first
