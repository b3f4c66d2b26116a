"""No guest outlives its limits, whatever it does."""

from __future__ import annotations

import asyncio
import hashlib

import pytest

from caxton_host.core.limits import Limits
from caxton_host.errors import ModuleRefused
from caxton_host.ports.sandbox import Answer
from caxton_host.sandbox import WasmSandbox

from .support import CALL, ECHO, LOOP, SEED, FakeDoor, execute, guest, wasm

_MIB = 1024 * 1024


async def test_guest_returns_its_code_and_what_it_burnt(sandbox: WasmSandbox) -> None:
    ending = await execute(sandbox, wasm("(i32.const -7)"))
    assert (ending.kind, ending.code, ending.fuel) == ("returned", -7, 2)
    assert ending.output is None


async def test_endless_loop_ends_by_fuel(sandbox: WasmSandbox) -> None:
    # attack 1
    ending = await execute(sandbox, wasm(LOOP), limits=Limits(fuel=1_000_000))
    assert (ending.kind, ending.limit, ending.fuel) == ("limit", "fuel", 1_000_000)


async def test_endless_loop_ends_by_the_clock_and_records_no_fuel(
    sandbox: WasmSandbox,
) -> None:
    ending = await execute(sandbox, wasm(LOOP), limits=Limits(compute=0.1))
    assert (ending.kind, ending.limit, ending.fuel) == ("limit", "compute", None)


async def test_endless_start_function_is_a_run_that_failed(
    sandbox: WasmSandbox,
) -> None:
    # attack 1
    module = wasm("(i32.const 0)", before=f"(func $s {LOOP}) (start $s)")
    by_fuel = await execute(sandbox, module, limits=Limits(fuel=1_000_000))
    assert (by_fuel.kind, by_fuel.limit) == ("limit", "fuel")
    by_clock = await execute(sandbox, module, limits=Limits(compute=0.1))
    assert (by_clock.kind, by_clock.limit) == ("limit", "compute")


async def test_start_function_may_use_the_door(sandbox: WasmSandbox) -> None:
    door = FakeDoor()
    module = wasm("(i32.const 0)", before=f"{ECHO} (func $s (drop {CALL})) (start $s)")
    ending = await execute(sandbox, module, door)
    assert ending.kind == "returned"
    assert [(name, params) for name, params, _ in door.calls] == [(b"echo", b"\x80")]


async def test_deep_recursion_is_a_trap_with_the_same_fuel_each_time(
    sandbox: WasmSandbox,
) -> None:
    # attack 2
    module = wasm("(call $f)", before="(func $f (result i32) (call $f))")
    first = await execute(sandbox, module)
    second = await execute(sandbox, module)
    assert (first.kind, first.message) == ("trap", "stack overflow")
    assert first.fuel == second.fuel


async def test_host_function_works_at_the_bottom_of_the_stack(
    sandbox: WasmSandbox,
) -> None:
    # Its own frames come on top of a guest's stack that is all but full.
    deep = f"""(func $f (param $n i32) (result i32)
      (drop {CALL}) (call $f (i32.add (local.get $n) (i32.const 1))))"""
    door = FakeDoor()
    ending = await execute(
        sandbox, wasm("(call $f (i32.const 0))", before=ECHO + deep), door
    )
    assert ending.message == "stack overflow"
    assert len(door.calls) > 1_000


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("(unreachable)", "unreachable"),
        ("(i32.load (i32.const 65533))", "out of bounds memory access"),
        ("(i32.div_u (i32.const 1) (i32.const 0))", "integer division by zero"),
        ("(i32.trunc_f32_s (f32.const nan))", "invalid conversion to integer"),
        (
            "(call_indirect (result i32) (i32.const 0))",
            "call of an empty table element",
        ),
    ],
)
async def test_trap_is_named(sandbox: WasmSandbox, body: str, message: str) -> None:
    ending = await execute(sandbox, wasm(body, before="(table 1 funcref)"))
    assert (ending.kind, ending.message) == ("trap", message)
    assert ending.fuel is not None


async def test_memory_grows_to_its_limit_and_not_beyond(sandbox: WasmSandbox) -> None:
    # attack 3
    grow = """(loop $more
      (br_if $more (i32.ne (memory.grow (i32.const 1)) (i32.const -1))))
      (memory.size)"""
    ending = await execute(sandbox, wasm(grow), limits=Limits(memory=4 * _MIB))
    assert (ending.kind, ending.code) == ("returned", 64)


async def test_all_memories_together_keep_to_the_limit(sandbox: WasmSandbox) -> None:
    grow = """(loop $one (br_if $one
        (i32.ne (memory.grow 0 (i32.const 1)) (i32.const -1))))
      (loop $two (br_if $two
        (i32.ne (memory.grow 1 (i32.const 1)) (i32.const -1))))
      (i32.add (memory.size 0) (memory.size 1))"""
    module = wasm(grow, before="(memory 1)")
    ending = await execute(sandbox, module, limits=Limits(memory=4 * _MIB))
    assert (ending.kind, ending.code) == ("returned", 64)


async def test_memories_that_cannot_share_the_limit_are_refused(
    sandbox: WasmSandbox,
) -> None:
    limits = Limits(memory=4 * _MIB)
    with pytest.raises(ModuleRefused, match="share") as refused:
        await sandbox.prepare(
            wasm("(i32.const 0)", before="(memory 40)"), limits, "run"
        )
    assert "maximum" in refused.value.fix


async def test_host_call_flood_ends_by_its_limit(sandbox: WasmSandbox) -> None:
    # attack 19
    flood = "(loop $l (drop (call $now)) (br $l)) (unreachable)"
    ending = await execute(sandbox, wasm(flood), limits=Limits(host_calls=500))
    assert (ending.kind, ending.limit) == ("limit", "host_calls")
    assert ending.fuel is not None
    assert ending.fuel >= 500 * 10_000


async def test_host_calls_burn_fuel(sandbox: WasmSandbox) -> None:
    flood = "(loop $l (drop (call $now)) (br $l)) (unreachable)"
    ending = await execute(sandbox, wasm(flood), limits=Limits(fuel=1_000_000))
    assert (ending.kind, ending.limit, ending.fuel) == ("limit", "fuel", 1_000_000)


async def test_only_tool_calls_restart_the_compute_clock(sandbox: WasmSandbox) -> None:
    # attack 19
    now = "(loop $l (drop (call $now)) (br $l)) (unreachable)"
    limits = Limits(compute=0.2, host_calls=2**40, fuel=2**62)
    ending = await execute(sandbox, wasm(now), limits=limits)
    assert (ending.kind, ending.limit) == ("limit", "compute")


async def test_time_at_the_door_is_not_compute(sandbox: WasmSandbox) -> None:
    async def slow() -> Answer:
        await asyncio.sleep(0.8)
        return Answer(0, b"\x80", 1)

    module = wasm(f"(drop {CALL}) (i32.const 0)", before=ECHO)
    ending = await execute(sandbox, module, FakeDoor(slow), Limits(compute=0.5))
    assert ending.kind == "returned"


async def test_log_flood_stops_at_its_limit_and_one_line(sandbox: WasmSandbox) -> None:
    # attack 19
    flood = """(loop $l
      (call $log (i32.const 1) (i32.const 0) (i32.const 100))
      (br_if $l (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 1)))
        (i32.const 1000)))) (i32.const 0)"""
    door = FakeDoor()
    ending = await execute(sandbox, wasm(flood), door, Limits(log=1_000))
    assert ending.kind == "returned"
    assert sum(len(text) for _, text in door.lines) == 1_100


async def test_empty_log_lines_are_not_free(sandbox: WasmSandbox) -> None:
    flood = """(loop $l
      (call $log (i32.const 1) (i32.const 0) (i32.const 0))
      (br_if $l (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 1)))
        (i32.const 1000)))) (i32.const 0)"""
    door = FakeDoor()
    await execute(sandbox, wasm(flood), door, Limits(log=160))
    assert len(door.lines) == 11


async def test_output_over_its_limit_ends_the_run(sandbox: WasmSandbox) -> None:
    body = "(call $output (i32.const 0) (i32.const 101)) (i32.const 0)"
    ending = await execute(sandbox, wasm(body), limits=Limits(output=100))
    assert (ending.kind, ending.limit) == ("limit", "output")


async def test_spinning_guests_do_not_starve_another(sandbox: WasmSandbox) -> None:
    limits = Limits(compute=1.0)
    spin = await sandbox.prepare(wasm(LOOP), limits, "run")
    spinning = [
        asyncio.ensure_future(sandbox.run(spin, guest(limits), FakeDoor()))
        for _ in range(6)
    ]
    await asyncio.sleep(0.1)
    quick = await execute(sandbox, wasm("(i32.const 3)"))
    assert quick.code == 3
    assert not any(one.done() for one in spinning)
    for ending in await asyncio.gather(*spinning):
        assert ending.limit == "compute"


async def test_host_functions_need_nothing_that_confinement_took(
    sandbox: WasmSandbox,
) -> None:
    body = """(call $random (i32.const 64) (i32.const 8))
      (drop (call $mcp_call (i32.const 0) (i32.const 4) (i32.const 0) (i32.const 500)
        (i32.const 1024) (i32.const 100)))
      (drop (call $context (i32.const 0) (i32.const 4) (i32.const 0) (i32.const 0)))
      (call $output (i32.const 64) (i32.const 8)) (i32.const 0)"""
    door = FakeDoor()
    ending = await execute(sandbox, wasm(body, before=ECHO), door, Limits(params=100))
    assert ending.output == hashlib.shake_256(SEED).digest(8)
    ((_, params, _),) = door.calls
    assert len(params) == 140


async def test_flood_of_empty_batches_ends_by_the_clock(sandbox: WasmSandbox) -> None:
    # law 9: what records nothing gives no new time to compute
    empty = """(loop $l (drop (call $mcp_call_many
        (i32.const 0) (i32.const 1) (i32.const 8) (i32.const 8))) (br $l))
      (unreachable)"""
    module = wasm(empty, before='(data (i32.const 0) "\\90")')
    door = FakeDoor(Answer(0, b"\x90", 0))
    limits = Limits(compute=0.05, host_calls=10**9, fuel=2**62)
    ending = await execute(sandbox, module, door, limits)
    assert (ending.kind, ending.limit) == ("limit", "compute")
