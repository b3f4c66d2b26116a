"""The host functions of components, in this process: one guest a test."""

from __future__ import annotations

import functools
import hashlib
import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
import wasmtime
from hypothesis import given
from hypothesis import strategies as st
from wasmtime.component import Component, Linker, _enter

from caxton_host.core.limits import Limits
from caxton_host.errors import BadBytes
from caxton_host.lib import codec
from caxton_host.ports.sandbox import Answer
from caxton_host.sandbox import component as subject
from caxton_host.sandbox import wire
from caxton_host.sandbox.engine import build_engine
from caxton_host.sandbox.session import CALL_FUEL, execute, tail
from caxton_host.sandbox.settings import STACKS, settings_for
from caxton_host.sandbox.wire import End
from tests.components import LOOP, REPLY, SHOW, TEXT, call, component, place, text

from .support import SEED
from .test_abi import FakeHost, _start

PAGE = 65536
REPLIED = Answer(0, codec.encode({"status": "ok", "message": "é", "data": None}), 77)


@functools.cache
def _engine() -> tuple[wasmtime.Engine, Linker]:
    built = build_engine(settings_for(Limits(memory=64 * PAGE), component=True))
    return built, subject.link(built)


@functools.cache
def _code(data: bytes) -> subject.ComponentCode:
    built, linker = _engine()
    return subject.ComponentCode(built, linker, Component(built, data))


def run(
    data: bytes,
    host: FakeHost | None = None,
    **fields: Any,  # noqa: ANN401 -- by name
) -> End:
    """Run a guest to its end."""
    start = _start(**{"memory": 64 * PAGE} | fields)
    session = subject.Session(start, host or FakeHost(REPLIED))
    return _THREADS.submit(execute, _code(data), session).result(60)


def _thread() -> ThreadPoolExecutor:
    """Return what runs a guest on a stack like a worker's."""
    before = threading.stack_size(STACKS[True, False] + 4 * 1024 * 1024)
    made = ThreadPoolExecutor(1)
    made.submit(threading.get_ident).result(60)
    threading.stack_size(before)
    return made


_THREADS = _thread()


def shown(
    body: str,
    host: FakeHost | None = None,
    before: str = "",
    **fields: Any,  # noqa: ANN401 -- by name
) -> Any:  # noqa: ANN401 -- whatever it is
    """Return the value of the last text that *body* was given."""
    end = run(component(f"{body} {SHOW}", before=before), host, **fields)
    assert end.kind == "returned", end
    assert end.output is not None
    return codec.decode(end.output, limit=1 << 20)


def _calling(params: str, name: str = "echo") -> bytes:
    data, body = call(name, params)
    return component(body, before=data)


def _writing(function: str, value: str, *, level: str = "") -> bytes:
    body = f"(call ${function} {level} {place(TEXT, value)})"
    return component(body, before=text(TEXT, value))


def test_call_carries_msgpack_and_gives_json() -> None:
    host = FakeHost(REPLIED)
    data, body = call("echo", '{"n": 1, "text": "é"}')
    found = shown(body, host, before=data)
    assert found == {"status": "ok", "message": "é", "data": None}
    [(name, params, fuel)] = host.calls
    assert name == b"echo"
    assert params == codec.encode({"n": 1, "text": "é"})
    assert fuel > CALL_FUEL


def test_params_have_the_bytes_that_a_core_module_would_send() -> None:
    given_ = {"z": [1, -1, 2**63, 1.5, None, True], "a": {"é": "\N{SNAKE}"}}
    host = FakeHost(REPLIED)
    run(_calling(json.dumps(given_)), host)
    assert host.calls[0][1] == codec.encode(given_)


@pytest.mark.parametrize(
    "params",
    ["", "{", "nil", "[1]", "7", "a", '{"a":1,"a":2}', '{"n":NaN}', '{"n":1e999}',
     '{"n":18446744073709551616}', '{"t":"\\ud800"}', "[" * 2000, "ޟ", "\ufeff{}",
     "߿" * 9],
)  # fmt: skip
def test_params_that_are_no_json_object_are_for_the_host_to_refuse(params: str) -> None:
    host = FakeHost(REPLIED)
    assert run(_calling(params), host).kind == "returned"
    [(_, sent, _)] = host.calls
    with pytest.raises(BadBytes):
        codec.decode_map(sent, limit=Limits().params)


@given(st.text(max_size=40))
def test_no_text_that_is_not_json_is_a_map_or_a_batch_to_the_host(value: str) -> None:
    data = value.encode()
    with pytest.raises(BadBytes):
        codec.decode_map(data, limit=1000)
    with pytest.raises(BadBytes):
        codec.split_batch(data)


def test_long_params_are_bounded_and_still_differ() -> None:
    host = FakeHost(REPLIED)
    limits = Limits(params=100)
    for end in "ab":
        run(_calling('{"t":"' + "x" * 200 + end + '"}'), host, limits=limits)
    # Short as a text, and long as msgpack: nine bytes for each of these.
    floats = "[" + "1.5," * 20 + "2]"
    run(_calling(floats), host, limits=limits)
    first, second, third = (params for _, params, _ in host.calls)
    assert len(first) == len(second) == len(third) == 140
    assert first[:100] == second[:100]
    assert first != second
    packed = codec.encode(json.loads(floats))
    assert third == packed[:100] + tail(packed)


def test_name_is_cut() -> None:
    host = FakeHost(REPLIED)
    data, body = call("n" * (wire.MAX_NAME + 1), "{}")
    run(component(body, before=data, memory="3"), host)
    assert len(host.calls[0][0]) == wire.MAX_NAME


@pytest.mark.parametrize("which", ["name", "params"])
def test_text_that_would_wait_in_memory_has_a_bound(which: str) -> None:
    size = f"(i32.const {subject.MAX_TEXT + 1})"
    short = f"(i32.const 0) {size} (i32.const 0) (i32.const 0)"
    long = f"(i32.const 0) (i32.const 0) (i32.const 0) {size}"
    arguments = short if which == "name" else long
    host = FakeHost(REPLIED)
    end = run(
        component(f"(call $mcp-call {arguments} (i32.const 16))", memory="40"), host
    )
    assert end.kind == "trap"
    assert "a text of 2097153 bytes" in end.message
    assert not host.calls


def test_batch_carries_msgpack_and_moves_the_time() -> None:
    batch = '[["echo",{"n":1}],["echo",{}]]'
    host = FakeHost(Answer(0, codec.encode([{"status": "ok"}]), 99))
    body = f"""(call $mcp-call-many {place(TEXT, batch)} (i32.const {REPLY}))
      (if (i64.ne (call $now) (i64.const 99)) (then (unreachable)))"""
    assert shown(body, host, before=text(TEXT, batch)) == [{"status": "ok"}]
    [(sent, fuel)] = host.batches
    assert sent == codec.encode([["echo", {"n": 1}], ["echo", {}]])
    assert fuel > CALL_FUEL


def test_bad_item_of_a_batch_spoils_only_itself() -> None:
    batch = (
        '[["a",{"n":NaN}],["b",{"x":1,"x":2}],["c",{"n":1}],7,["d",{"t":"\\ud800"}],'
        '["e",{"n":99999999999999999999}]]'
    )
    host = FakeHost(REPLIED)
    body = f"(call $mcp-call-many {place(TEXT, batch)} (i32.const {REPLY}))"
    run(component(body, before=text(TEXT, batch)), host)
    items = codec.split_batch(host.batches[0][0])
    assert [name for name, _ in items] == [b"a", b"b", b"c", None, b"d", b"e"]
    good = []
    for name, params in items:
        try:
            good.append((name, codec.decode_map(params, limit=1000)))
        except BadBytes:
            continue
    assert good == [(b"c", {"n": 1})]


def test_long_batches_are_cut_with_the_digest_of_all() -> None:
    size = codec.BATCH_BYTES + 1
    host = FakeHost(REPLIED)
    body = f"(call $mcp-call-many (i32.const 0) (i32.const {size}) (i32.const 16))"
    run(component(body, memory="20"), host)
    [(batch, _)] = host.batches
    assert len(batch) == codec.BATCH_BYTES + 40


def test_tools_input_and_context_are_json() -> None:
    tools = [{"name": "a", "input_schema": {}}]
    assert shown("(call $tools (i32.const 16))", tools=codec.encode(tools)) == tools
    given_ = {"n": [1, 1.0, None, "é"]}
    assert shown("(call $input (i32.const 16))", input=codec.encode(given_)) == given_
    # The option's case is before the text that it may have.
    read = f"(call $context {place(TEXT, 'user')} (i32.const 12))"
    context = {"user": codec.encode("Ada")}
    assert shown(read, before=text(TEXT, "user"), context=context) == "Ada"


def test_context_of_an_unknown_key_is_none() -> None:
    body = f"""(i32.store (i32.const 12) (i32.const 1))
      (call $context {place(TEXT, "user")} (i32.const 12))
      (if (i32.load8_u (i32.const 12)) (then (unreachable)))"""
    assert run(component(body, before=text(TEXT, "user"))).kind == "returned"


def test_now_and_random_are_those_of_the_log() -> None:  # law 5
    drawn = [
        int.from_bytes(hashlib.shake_256(SEED).digest(16)[at : at + 8], "little")
        for at in (0, 8)
    ]
    body = "".join(
        f"(if (i64.ne (call $random) (i64.const {number})) (then (unreachable)))"
        for number in drawn
    )
    time = "(if (i64.ne (call $now) (i64.const -5)) (then (unreachable)))"
    assert run(component(body + time), now=-5).kind == "returned"


def test_random_stream_has_an_end() -> None:
    end = run(component("(loop $l (drop (call $random)) (br $l))"), limits=_FREE)
    assert end.kind == "trap"
    assert "random bytes" in end.message


_FREE = Limits(host_calls=10**6)


@pytest.mark.parametrize("level", range(4))
def test_log_has_its_level_and_its_text(level: int) -> None:
    host = FakeHost()
    run(_writing("log", "línea", level=f"(i32.const {level})"), host)
    assert host.lines == [(level, "línea".encode())]


def test_level_that_is_none_is_a_trap() -> None:
    host = FakeHost()
    end = run(_writing("log", "x", level="(i32.const 4)"), host)
    assert (end.kind, host.lines) == ("trap", [])


def test_log_is_cut_just_over_its_limit_and_then_silent() -> None:
    host = FakeHost()
    line = "(call $log (i32.const 1) (i32.const 64) (i32.const 60000))"
    run(component(line + line), host, limits=Limits(log=1_000))
    assert [len(line) for _, line in host.lines] == [1_001]


def test_last_output_counts() -> None:
    first, second = "1", '{"n": [2]}'
    body = f"(call $output {place(TEXT, first)}) (call $output {place(80, second)})"
    end = run(component(body, before=text(TEXT, first) + text(80, second)))
    assert end.output == codec.encode({"n": [2]})


@pytest.mark.parametrize("value", ["", "a", "{", "NaN", "1 2", '{"a":1,"a":1}'])
def test_output_that_is_no_json_fails_the_run_unless_another_follows(
    value: str,
) -> None:
    bad = f"(call $output {place(TEXT, value)})"
    end = run(component(bad, before=text(TEXT, value)))
    assert (end.kind, end.code, end.output) == ("returned", 1, None)
    assert end.message.startswith("output: ")
    good = f"{bad} (call $output {place(96, 'null')})"
    end = run(component(good, before=text(TEXT, value) + text(96, "null")))
    assert (end.code, end.message, end.output) == (0, "", b"\xc0")


@pytest.mark.parametrize("value", ['"' + "x" * 20 + '"', "[1.5,1.5]"])
def test_output_over_its_limit_is_an_end(value: str) -> None:
    end = run(_writing("output", value), limits=Limits(output=10))
    assert (end.kind, end.limit, end.output) == ("limit", "output", None)


def test_error_of_the_entry_point_is_told() -> None:
    body = f"""(i32.store8 (i32.const 0) (i32.const 1))
      (i32.store (i32.const 4) (i32.const {TEXT}))
      (i32.store (i32.const 8) (i32.const 5))"""
    end = run(component(body, before=text(TEXT, "hurt!")))
    assert (end.kind, end.code, end.message) == ("returned", 1, "hurt!")
    assert end.fuel is not None


def test_error_of_the_entry_point_is_bounded() -> None:
    body = """(i32.store8 (i32.const 0) (i32.const 1))
      (i32.store (i32.const 4) (i32.const 4096))
      (i32.store (i32.const 8) (i32.const 60000))"""
    end = run(component(body))
    assert len(end.message) == wire.MAX_MESSAGE


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("(unreachable)", "unreachable"),
        ("(drop (call $f))", "stack overflow"),
        ("(drop (i32.load (i32.const -1)))", "out of bounds memory access"),
        ("(drop (i32.div_s (i32.const 1) (local.get $i)))", "integer division by zero"),
        (
            "(drop (i32.div_s (i32.const 0x80000000) (i32.const -1)))",
            "integer overflow",
        ),
        (
            "(call_indirect (param i32) (i32.const 1) (i32.const 1))",
            "indirect call of another type",
        ),
        (
            "(drop (call_indirect (result i32) (i32.const 9)))",
            "out of bounds table access",
        ),
        (
            "(drop (call_indirect (result i32) (i32.const 0)))",
            "call of an empty table element",
        ),
        (
            "(drop (i32.trunc_f32_s (f32.const nan)))",
            "invalid conversion to integer",
        ),
    ],
)
def test_trap_has_the_words_that_it_has_in_a_core_module(
    body: str, message: str
) -> None:
    before = (
        "(table 2 funcref) (func $f (result i32) (call $f)) (elem (i32.const 1) $f)"
    )
    end = run(component(body, before=before))
    assert (end.kind, end.message) == ("trap", message)
    assert end.fuel is not None


@pytest.mark.parametrize(
    "body",
    [
        "(call $output (i32.const -1) (i32.const 2))",
        "(call $output (i32.const 65535) (i32.const 2))",
        "(call $output (i32.const 64) (i32.const 1))",  # not UTF-8
        "(call $tools (i32.const -4))",
        "(call $tools (i32.const 17))",  # not aligned
    ],
)
def test_place_that_is_none_is_a_trap_and_nothing_happens(body: str) -> None:
    end = run(component(body, before='(data (i32.const 64) "\\ff")'))
    assert (end.kind, end.output) == ("trap", None)
    assert end.message


def test_start_function_that_traps_or_loops_is_a_run_that_failed() -> None:
    trap = run(component("", before="(func $s (unreachable)) (start $s)"))
    assert (trap.kind, trap.message) == ("trap", "unreachable")
    loop = f"(func $s {LOOP}) (start $s)"
    limits = Limits(fuel=10**7)
    end = run(component("", before=loop), limits=limits)
    assert (end.kind, end.limit, end.fuel) == ("limit", "fuel", 10**7)


def test_start_function_may_use_the_door() -> None:
    data, body = call("echo", "{}")
    host = FakeHost(REPLIED)
    assert run(component("", before=f"{data} (func $s {body}) (start $s)"), host).fuel
    assert len(host.calls) == 1


def test_loop_ends_by_fuel() -> None:
    end = run(component(LOOP), limits=Limits(fuel=10**6))
    assert (end.kind, end.limit, end.fuel) == ("limit", "fuel", 10**6)


def test_host_calls_are_counted_and_burn_fuel() -> None:
    flood = component("(loop $l (drop (call $now)) (br $l))")
    counted = run(flood, limits=Limits(host_calls=50))
    assert (counted.kind, counted.limit) == ("limit", "host_calls")
    assert counted.fuel is not None
    assert counted.fuel > 50 * CALL_FUEL
    burnt = run(flood, limits=Limits(fuel=105_000))
    assert (burnt.kind, burnt.limit, burnt.fuel) == ("limit", "fuel", 105_000)


def test_memory_grows_to_its_limit_and_not_beyond() -> None:
    body = """(loop $l (br_if $l (i32.ne (memory.grow (i32.const 1)) (i32.const -1))))
      (if (i32.ne (memory.size) (i32.const 4)) (then (unreachable)))"""
    assert run(component(body), memory=4 * PAGE).kind == "returned"


def test_memory_that_is_larger_than_its_share_never_starts() -> None:
    end = run(component("", memory="9"), memory=4 * PAGE)
    assert (end.kind, end.limit) == ("limit", "memory")


def test_module_that_is_instantiated_twice_has_no_memory_to_spare() -> None:
    around = "(core instance $again (instantiate $libc))"
    end = run(component("", around=around), limits=Limits(memories=1))
    assert (end.kind, end.limit) == ("limit", "memory")


def test_instances_are_bounded() -> None:
    empty = "(core module $e) " + "(core instance (instantiate $e))" * 126
    assert run(component("", around=empty)).kind == "returned"
    end = run(component("", around=f"{empty} (core instance (instantiate $e))"))
    assert (end.kind, end.limit) == ("limit", "memory")


def test_reply_that_the_guest_has_no_room_for_is_its_own_trap() -> None:
    data, body = call("echo", "{}")
    host = FakeHost(Answer(0, codec.encode("x" * 500_000), 1))
    end = run(component(body, before=data), host, memory=4 * PAGE)
    assert (end.kind, end.message) == ("trap", "unreachable")
    assert len(host.calls) == 1  # law 2: it was made, and is recorded


@pytest.mark.parametrize("error", [ValueError("v"), KeyboardInterrupt(), SystemExit(1)])
def test_what_a_host_function_raises_ends_its_guest_and_no_other(
    error: BaseException,
) -> None:
    module = _calling("{}")
    host = FakeHost(REPLIED)
    end = run(module, replace(host, error=error))
    assert end.kind == "failed"
    assert type(error).__name__ in end.message
    assert run(module).kind == "returned"
    assert _enter.LAST_EXCEPTION is None


def test_guest_that_is_stopped_calls_nothing_more() -> None:
    host = FakeHost(REPLIED)
    session = subject.Session(_start(memory=64 * PAGE), host)
    session.end(End(kind="stopped"))
    assert execute(_code(_calling("{}")), session).kind == "stopped"
    assert not host.calls


def test_name_of_a_function_is_not_taken_for_a_cause() -> None:
    name = r"x\0a\0awasm trap: all fuel consumed by WebAssembly"
    before = f'(func $wasm_trap (@name "{name}") (unreachable))'
    end = run(component("(call $wasm_trap)", before=before))
    assert (end.kind, end.message) == ("trap", "unreachable")


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        ("mmap failed to reserve 0x19 bytes\n\nCaused by:\n    os error 12", "no_room"),
        ("cannot create a memfd", "no_room"),
        ("an image\n\nCaused by:\n    File too large (os error 27)", "limit"),
        ("resource limit exceeded: memory count too high at 2", "limit"),
        ("something else", "failed"),
    ],
)
def test_start_that_fails_says_whether_another_worker_can_help(
    reason: str, kind: str
) -> None:
    assert subject._failed(reason, started=False).kind == kind


def _any_text() -> Callable[..., Any]:
    return given(st.binary(max_size=64))


@_any_text()
def test_any_bytes_of_a_guest_are_a_call_a_trap_or_refused(data: bytes) -> None:
    host = FakeHost(REPLIED)
    body = f"""(call $mcp-call (i32.const {TEXT}) (i32.const 4)
      (i32.const {TEXT}) (i32.const {len(data)}) (i32.const 16))"""
    encoded = "".join(f"\\{byte:02x}" for byte in data)
    end = run(component(body, before=f'(data (i32.const {TEXT}) "{encoded}")'), host)
    assert end.kind in {"returned", "trap"}
    assert len(host.calls) == (end.kind == "returned")
