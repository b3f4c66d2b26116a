"""
What we rely on below components in wasmtime-py. A new version must pass this.

The values of a component cross as 32 bytes each, of which we know the places.
"""

from __future__ import annotations

import ctypes
import resource
import threading
from typing import Any

import pytest
import wasmtime
from wasmtime import _ffi as ffi
from wasmtime.component import Component, Linker, _enter

from caxton_host.core.limits import Limits
from caxton_host.sandbox import component_engine as values
from caxton_host.sandbox import engine
from caxton_host.sandbox.settings import COMPONENT_SWITCHES, settings_for
from tests.components import LOOP, component, place, text

INTERFACE = "caxton:agent/host@1.0.0"


@pytest.fixture(scope="module")
def built() -> wasmtime.Engine:
    return engine.build_engine(settings_for(Limits(memory=4 << 20), component=True))


def _store(built: wasmtime.Engine) -> wasmtime.Store:
    store = wasmtime.Store(built)
    store.set_fuel(10**10)
    store.set_epoch_deadline(10**6)
    return store


def _linker(built: wasmtime.Engine, functions: dict[str, Any]) -> Linker:
    linker = Linker(built)
    with linker.root() as root, root.add_instance(INTERFACE) as host:
        for number, (name, callback) in enumerate(functions.items()):
            values.define(host, name, callback, number)
    return linker


def _callback(function: Any) -> object:  # noqa: ANN401 -- of a test
    @values.host_callback
    def called(
        number: int, _c: int, _t: int, args: int, count: int, results: int, more: int
    ) -> int:
        return int(function(number, args, count, results, more) or 0)

    return called


NOTHING = _callback(lambda *_: 0)
ALL = dict.fromkeys(
    (
        "mcp-call",
        "mcp-call-many",
        "tools",
        "context",
        "input",
        "output",
        "now",
        "random",
        "log",
        "program",
    ),
    NOTHING,
)


def _run(built: wasmtime.Engine, data: bytes, **functions: object) -> bytes | None:
    named = {name.replace("_", "-"): one for name, one in functions.items()}
    linker = _linker(built, ALL | named)
    with _store(built) as store:
        instance = linker.instantiate(store, Component(built, data))
        return values.call(store, values.entry(store, instance, "run"), 100)


def test_private_parts_are_those_of_the_pinned_version() -> None:
    assert ctypes.sizeof(ffi.wasmtime_component_val_t) == 32
    value: Any = ffi.wasmtime_component_val_t
    text_: Any = ffi.wasm_byte_vec_t
    result: Any = ffi.wasmtime_component_valresult_t
    assert value.of.offset == text_.data.offset == result.val.offset == 8
    for name in COMPONENT_SWITCHES:
        assert hasattr(ffi, f"wasmtime_config_{name}_set"), name


def test_host_function_has_its_number_and_its_arguments(
    built: wasmtime.Engine,
) -> None:
    seen: list[object] = []

    def log(number: int, args: int, count: int, _results: int, more: int) -> None:
        seen.append((number, count, more, values.enumeration(args, 0)))
        address, length = values.text(args, 1)
        seen.append(ctypes.string_at(address, length))
        with pytest.raises(TypeError):
            values.text(args, 0)

    body = f"(call $log (i32.const 2) {place(64, 'é!')})"
    callback = _callback(log)
    assert _run(built, component(body, before=text(64, "é!")), log=callback) is None
    assert seen == [(8, 2, 0, "warning"), "é!".encode()]


def test_results_reach_the_guest(built: wasmtime.Engine) -> None:
    functions = {
        "now": _callback(lambda *at: values.give_s64(at[3], -7)),
        "random": _callback(lambda *at: values.give_u64(at[3], 2**64 - 1)),
        "input": _callback(lambda *at: values.give_text(at[3], "é\0x".encode())),
        "context": _callback(lambda *at: values.give_some(at[3], b"some")),
    }
    body = """
      (if (i64.ne (call $now) (i64.const -7)) (then (unreachable)))
      (if (i64.ne (call $random) (i64.const -1)) (then (unreachable)))
      (call $input (i32.const 16))
      (if (i32.ne (i32.load (i32.const 20)) (i32.const 4)) (then (unreachable)))
      (if (i32.ne (i32.load (i32.load (i32.const 16))) (i32.const 0x7800a9c3))
        (then (unreachable)))
      (call $context (i32.const 0) (i32.const 0) (i32.const 16))
      (if (i32.ne (i32.load8_u (i32.const 16)) (i32.const 1)) (then (unreachable)))
      (if (i32.ne (i32.load (i32.load (i32.const 20))) (i32.const 0x656d6f73))
        (then (unreachable)))"""
    assert _run(built, component(body), **functions) is None


def test_no_value_is_told_from_some(built: wasmtime.Engine) -> None:
    body = """(i32.store (i32.const 16) (i32.const 9))
      (call $context (i32.const 0) (i32.const 0) (i32.const 16))
      (if (i32.load8_u (i32.const 16)) (then (unreachable)))"""
    none = _callback(lambda *at: values.give_none(at[3]))
    assert _run(built, component(body), context=none) is None


def test_result_of_another_type_is_an_error_and_not_a_crash(
    built: wasmtime.Engine,
) -> None:
    wrong = _callback(lambda *at: values.give_s64(at[3], 7))
    with pytest.raises(wasmtime.WasmtimeError, match="type mismatch"):
        _run(built, component("(call $input (i32.const 16))"), input=wrong)


def test_returned_error_ends_the_guest_and_leaves_nothing_behind(
    built: wasmtime.Engine,
) -> None:
    stop = _callback(lambda *_: engine.new_error())
    with pytest.raises(wasmtime.WasmtimeError, match="stopped by the host"):
        _run(built, component("(drop (call $now))"), now=stop)
    assert _enter.LAST_EXCEPTION is None


def test_error_of_the_entry_point_is_cut(built: wasmtime.Engine) -> None:
    body = """(i32.store8 (i32.const 0) (i32.const 1))
      (i32.store (i32.const 4) (i32.const 4096))
      (i32.store (i32.const 8) (i32.const 1000))"""
    assert _run(built, component(body)) == bytes(100)


def test_entry_point_that_is_not_there_is_an_error(built: wasmtime.Engine) -> None:
    linker = _linker(built, ALL)
    with _store(built) as store:
        instance = linker.instantiate(store, Component(built, component("")))
        with pytest.raises(LookupError):
            values.entry(store, instance, "other")


def test_cause_of_a_trap_is_the_last_line(built: wasmtime.Engine) -> None:
    with pytest.raises(wasmtime.WasmtimeError) as caught:
        _run(built, component("(unreachable)"))
    last = str(caught.value).rstrip().splitlines()[-1].strip()
    assert last == "wasm trap: wasm `unreachable` instruction executed"


def test_fuel_can_be_charged_in_a_host_function(built: wasmtime.Engine) -> None:
    def charge(_number: int, _args: int, _count: int, results: int, _more: int) -> None:
        values.give_s64(results, 7)
        engine.set_fuel(context, 0)

    spend = _callback(charge)
    linker = _linker(built, ALL | {"now": spend})
    with _store(built) as store:
        context = engine.context_of(store)
        code = Component(built, component(f"(drop (call $now)) {LOOP}"))
        run = values.entry(store, linker.instantiate(store, code), "run")
        with pytest.raises(wasmtime.WasmtimeError, match="all fuel consumed"):
            values.call(store, run, 100)


def test_name_can_be_defined_once(built: wasmtime.Engine) -> None:
    linker = Linker(built)
    with linker.root() as root:
        values.define(root, "f", NOTHING, 0)
        with pytest.raises(wasmtime.WasmtimeError):
            values.define(root, "f", NOTHING, 0)


def test_texts_are_given_back(built: wasmtime.Engine) -> None:
    data = b"x" * 1_000_000

    def give(_number: int, _args: int, _count: int, results: int, _more: int) -> None:
        values.give_text(results, data)

    # Each time the guest takes a megabyte and sends it back, to the same place.
    body = """(call $output (i32.const 0) (i32.const 2000000))
      (call $input (i32.const 16))"""
    module = component(body, memory="40")
    callback = _callback(give)
    before = 0
    for turn in range(120):
        _run(built, module, input=callback) if turn else None
        if turn == 20:
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert after - before < 50_000  # KiB; 100 turns that kept a text would be 300 MB


def test_many_threads_share_a_linker_and_nothing_else(built: wasmtime.Engine) -> None:
    seen: dict[int, list[int]] = {}
    lock = threading.Lock()

    def output(_number: int, args: int, _count: int, _results: int, _more: int) -> int:
        _, length = values.text(args, 0)
        with lock:
            seen.setdefault(threading.get_ident(), []).append(length)
        return engine.new_error() if length == 3 else 0

    callback = _callback(output)
    linker = _linker(built, ALL | {"output": callback})
    codes = [
        Component(built, component(f"(call $output (i32.const 0) (i32.const {n}))"))
        for n in range(1, 5)
    ]
    failures: list[int] = []
    together = threading.Barrier(4)

    def work(which: int) -> None:
        together.wait(60)
        for _ in range(50):
            with _store(built) as store:
                instance = linker.instantiate(store, codes[which])
                try:
                    values.call(store, values.entry(store, instance, "run"), 100)
                except wasmtime.WasmtimeError:
                    failures.append(which)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failures == [2] * 50
    assert sorted(map(tuple, seen.values())) == [(n,) * 50 for n in range(1, 5)]
