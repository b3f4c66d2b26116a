"""Modules that interpret a program: their engine, and how they end."""

from __future__ import annotations

import asyncio

import pytest

from caxton_host.core.limits import Limits
from caxton_host.core.sections import INTERPRETER, section
from caxton_host.lib import codec
from caxton_host.ports.sandbox import Answer
from caxton_host.sandbox import WasmSandbox, wire
from tests.components import LOOP, call, component, text

from .support import SOON, FakeDoor, execute, guest, wasm, workers

MARK = section(INTERPRETER, b"")
DEEP = "(func $f (param i32) (result i32) (call $f (local.get 0)))"
#: Recurses so often, and returns 0.
LEVELS = """(func $f (param i32) (result i32)
  (if (result i32) (local.get 0)
    (then (i32.add (i32.const 0)
      (call $f (i32.sub (local.get 0) (i32.const 1)))))
    (else (i32.const 0))))"""
#: More than the 512 KiB and 8 MiB of other modules hold.
MANY = {"core": 60_000, "component": 400_000}
REASON = "x" * 9_000


def core(body: str, before: str = "") -> bytes:
    return wasm(f"{body} (i32.const 0)", before=before) + MARK


def large(body: str, before: str = "") -> bytes:
    return component(body, before=before) + MARK


KINDS = pytest.mark.parametrize("kind", ["core", "component"])


def made(kind: str, body: str, before: str = "") -> bytes:
    return (core if kind == "core" else large)(body, before)


@KINDS
async def test_trap_of_an_interpreter_is_an_error_of_the_agent(
    sandbox: WasmSandbox, kind: str
) -> None:
    ending = await execute(sandbox, made(kind, "(unreachable)"))

    assert (ending.kind, ending.code) == ("returned", 1)
    assert ending.message == "the interpreter aborted: unreachable"
    assert ending.fuel


@KINDS
async def test_stack_of_an_interpreter_is_a_limit_with_the_same_fuel_each_time(
    sandbox: WasmSandbox, kind: str
) -> None:
    module = made(kind, "(drop (call $f (i32.const 0)))", DEEP)

    first = await execute(sandbox, module)

    assert (first.kind, first.limit) == ("limit", "stack")
    assert first.fuel
    assert await execute(sandbox, module) == first


@KINDS
async def test_interpreter_has_a_larger_stack_than_other_modules(
    sandbox: WasmSandbox, kind: str
) -> None:
    module = made(kind, f"(drop (call $f (i32.const {MANY[kind]})))", LEVELS)

    other = await execute(sandbox, module.removesuffix(MARK))
    ending = await execute(sandbox, module)

    assert other.message == wire.STACK_OVERFLOW
    assert (ending.kind, ending.code) == ("returned", 0)


@KINDS
async def test_interpreter_ends_by_fuel_like_other_modules(
    sandbox: WasmSandbox, kind: str
) -> None:
    module = made(kind, LOOP)

    ending = await execute(sandbox, module, limits=Limits(fuel=1_000_000))

    assert (ending.kind, ending.limit, ending.fuel) == ("limit", "fuel", 1_000_000)


async def test_reason_of_an_interpreter_may_be_a_traceback(
    sandbox: WasmSandbox,
) -> None:
    fail = wasm(
        f"(call $fail (i32.const 0) (i32.const {len(REASON)})) (i32.const 1)",
        before=text(0, REASON),
    )
    error = component(
        f"""(i32.store8 (i32.const 0) (i32.const 1))
        (i32.store (i32.const 4) (i32.const 64))
        (i32.store (i32.const 8) (i32.const {len(REASON)}))""",
        before=text(64, REASON),
    )

    said = [
        len((await execute(sandbox, one)).message)
        for one in (fail, fail + MARK, error, error + MARK)
    ]

    assert said == [512, 4096, 512, 4096]


async def test_interpreters_share_the_workers_of_guests_with_images(
    sandbox: WasmSandbox,
) -> None:
    for module in (core(""), large(""), component("")):
        assert (await execute(sandbox, module)).kind == "returned"

    assert len(workers(sandbox)) == 1


async def test_limit_on_memory_holds_under_one_artifact_for_all_limits(
    sandbox: WasmSandbox,
) -> None:
    grow = "(memory.grow (i32.const 15)) (drop) (memory.grow (i32.const 1))"
    module = wasm(grow) + MARK
    small, large_ = (Limits(memory=pages * 65536) for pages in (16, 17))
    prepared = [await sandbox.prepare(module, one, "run") for one in (small, large_)]

    endings = [
        await sandbox.run(one, guest(limits), FakeDoor())
        for one, limits in zip(prepared, (small, large_), strict=True)
    ]

    assert [ending.code for ending in endings] == [-1, 16]
    assert len({one.engine for one in prepared}) == 1


async def test_worker_holds_as_many_interpreters_as_other_guests(
    sandbox: WasmSandbox,
) -> None:
    data, body = call("echo", "{}")
    # Its memory is the most that it may have.
    module = component(body, before=data, memory="4096") + MARK
    prepared = await sandbox.prepare(module, Limits(), "run")
    go = asyncio.Event()

    async def answer() -> Answer:
        await go.wait()
        return Answer(0, codec.encode({"status": "ok"}), 1)

    doors = [FakeDoor(answer) for _ in range(128)]
    runs = [
        asyncio.ensure_future(sandbox.run(prepared, guest(), door)) for door in doors
    ]
    async with asyncio.timeout(SOON):
        for door in doors:
            await door.called.wait()
        assert len(workers(sandbox)) == 1
        go.set()
        endings = await asyncio.gather(*runs)
    assert {(ending.kind, ending.code) for ending in endings} == {("returned", 0)}


async def test_interpreter_has_an_engine_of_its_own(sandbox: WasmSandbox) -> None:
    module = component("")

    plain = await sandbox.prepare(module, Limits(), "run")
    marked = await sandbox.prepare(module + MARK, Limits(), "run")

    assert plain.abi == marked.abi
    assert plain.engine != marked.engine
