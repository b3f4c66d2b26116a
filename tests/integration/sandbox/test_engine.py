"""What we rely on in the private parts of wasmtime-py. A new version must pass this."""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from typing import Any

import pytest
import wasmtime
from wasmtime import _ffi as ffi
from wasmtime import _func

from caxton_host.core.limits import Limits
from caxton_host.sandbox import engine
from caxton_host.sandbox.settings import SWITCHES, EngineSettings, settings_for

EMPTY = bytes(wasmtime.wat2wasm("(module)"))
SETTINGS = settings_for(Limits(memory=4 * 65536))


@pytest.fixture(scope="module")
def built() -> wasmtime.Engine:
    return engine.build_engine(SETTINGS)


def _run(
    built: wasmtime.Engine,
    text: str,
    linker: wasmtime.Linker | None = None,
    store: wasmtime.Store | None = None,
) -> object:
    store = store or _store(built)
    module = wasmtime.Module(built, bytes(wasmtime.wat2wasm(text)))
    pre = (linker or wasmtime.Linker(built)).instantiate_pre(module)
    instance = pre.instantiate(store)
    return engine.exported_function(store, instance, "run")(store)


def _store(built: wasmtime.Engine, fuel: int = 10**12) -> wasmtime.Store:
    store = wasmtime.Store(built)
    store.set_fuel(fuel)
    store.set_epoch_deadline(10**6)
    return store


def test_private_parts_are_those_of_the_pinned_version() -> None:
    assert version("wasmtime").startswith("50.")
    assert ctypes.sizeof(ffi.wasmtime_val_raw_t) == 16
    for name in SWITCHES:
        assert hasattr(ffi, f"wasmtime_config_{name}_set"), name


def test_host_function_has_its_number_its_memory_and_its_fuel(
    built: wasmtime.Engine,
) -> None:
    seen: list[object] = []
    store = _store(built, 1_000)
    context = engine.context_of(store)

    @engine.host_callback
    def function(number: int, caller: int, values: int, count: int) -> int:
        memory: Any = engine.caller_memory(caller)
        assert memory is not None
        place = ctypes.byref(memory)
        base = engine.memory_base(context, place)
        seen.append((number, count, ctypes.string_at(values, 4)))
        seen.append((engine.memory_size(context, place), ctypes.string_at(base, 2)))
        seen.append(engine.get_fuel(context))
        engine.set_fuel(context, 500)
        ctypes.c_uint64.from_address(values).value = 2**40
        return 0

    linker = wasmtime.Linker(built)
    type_ = wasmtime.FuncType([wasmtime.ValType.i32()], [wasmtime.ValType.i64()])
    engine.define(linker, ("m", "f"), type_, function, 7)
    result = _run(
        built,
        """(module (import "m" "f" (func $f (param i32) (result i64)))
        (memory (export "memory") 1) (data (i32.const 0) "hi")
        (func (export "run") (result i64) (call $f (i32.const -2))))""",
        linker,
        store,
    )
    assert result == 2**40
    assert seen[0] == (7, 1, b"\xfe\xff\xff\xff")
    assert seen[1] == (65536, b"hi")
    assert isinstance(seen[2], int)
    assert 900 < seen[2] < 1_000
    assert 400 < store.get_fuel() <= 500


def test_returned_trap_ends_the_guest_and_leaves_nothing_behind(
    built: wasmtime.Engine,
) -> None:
    @engine.host_callback
    def function(_number: int, _caller: int, _values: int, _count: int) -> int:
        return engine.new_trap()

    linker = wasmtime.Linker(built)
    engine.define(linker, ("m", "f"), wasmtime.FuncType([], []), function, 0)
    with pytest.raises(wasmtime.WasmtimeError, match="stopped by the host"):
        _run(
            built,
            """(module (import "m" "f" (func $f))
            (func (export "run") (result i32) (call $f) (i32.const 1)))""",
            linker,
        )
    assert _func.LAST_EXCEPTION is None


def test_name_can_be_defined_once(built: wasmtime.Engine) -> None:
    linker, type_ = wasmtime.Linker(built), wasmtime.FuncType([], [])
    function = engine.host_callback(lambda *_: 0)
    engine.define(linker, ("m", "f"), type_, function, 0)
    with pytest.raises(wasmtime.WasmtimeError):
        engine.define(linker, ("m", "f"), type_, function, 0)


@contextmanager
def _ticking(built: wasmtime.Engine) -> Iterator[None]:
    over = threading.Event()

    def tick() -> None:
        while not over.is_set():
            built.increment_epoch()
            time.sleep(0.002)

    thread = threading.Thread(target=tick)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def test_epoch_callback_is_asked_at_every_tick_until_it_refuses(
    built: wasmtime.Engine,
) -> None:
    asked: list[int] = []

    @engine.epoch_callback
    def ask(_context: int, _data: int, delta: int, kind: int) -> int:
        asked.append(threading.get_ident())
        if len(asked) == 3:
            return engine.new_error()
        ctypes.c_uint64.from_address(delta).value = 1
        ctypes.c_uint8.from_address(kind).value = 0
        return 0

    store = _store(built)
    engine.on_epoch(store, ask)
    engine.set_epoch_deadline(engine.context_of(store), 1)
    with _ticking(built), pytest.raises(wasmtime.WasmtimeError):
        _run(
            built,
            """(module (func (export "run") (result i32)
            (loop $l (br $l)) (unreachable)))""",
            store=store,
        )
    assert asked == [threading.get_ident()] * 3


def test_function_is_found_by_name_or_not_at_all(built: wasmtime.Engine) -> None:
    for text in ("(module)", '(module (memory (export "run") 1))'):
        with pytest.raises(LookupError):
            _run(built, text)


def test_nan_has_one_shape(built: wasmtime.Engine) -> None:
    text = """(module (func (export "run") (result i32) (i32.reinterpret_f32
      (f32.add (f32.const nan:0x212345) (f32.const 1)))))"""
    assert _run(built, text) == 0x7FC00000


@pytest.mark.parametrize(
    "text",
    [
        "(module (memory i64 1))",
        "(module (memory 1 1 shared))",
        "(module (memory 1 (pagesize 1)))",
        "(module (table 1 externref))",
        "(module (type (struct)))",
        "(module (tag))",
        "(component)",
    ],
)
def test_what_is_not_deterministic_or_not_needed_is_off(
    built: wasmtime.Engine, text: str
) -> None:
    with pytest.raises(wasmtime.WasmtimeError):
        wasmtime.Module(built, bytes(wasmtime.wat2wasm(text)))


def test_artifact_of_other_settings_is_refused(built: wasmtime.Engine) -> None:
    artifact = wasmtime.Module(built, EMPTY).serialize()
    other = EngineSettings(
        memory=8 * 65536, wasmtime=SETTINGS.wasmtime, machine=SETTINGS.machine
    )
    with pytest.raises(wasmtime.WasmtimeError):
        wasmtime.Module.deserialize(engine.build_engine(other), artifact)
