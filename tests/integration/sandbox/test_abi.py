"""The host functions, in this process: no worker, no door, one guest a test."""

from __future__ import annotations

import functools
import hashlib
import struct
from dataclasses import dataclass, field
from typing import Any

import pytest
import wasmtime
from hypothesis import given
from hypothesis import strategies as st

from caxton_host.core.limits import CORE_MEMORY, Limits
from caxton_host.gateway import guest_calls
from caxton_host.lib import codec
from caxton_host.ports.sandbox import Answer
from caxton_host.sandbox import abi, wire
from caxton_host.sandbox.abi import ModuleCode, _unstarted
from caxton_host.sandbox.engine import build_engine
from caxton_host.sandbox.interface import HOST_FUNCTIONS
from caxton_host.sandbox.session import CALL_FUEL, MAX_RANDOM, execute, tail
from caxton_host.sandbox.settings import settings_for
from caxton_host.sandbox.wire import End, Start

from .support import CALL, ECHO, OK, SEED, wasm

MEMORY = 65536
OUTSIDE = "a host function was given a place outside memory"


@dataclass
class FakeHost:
    """Answers calls at once."""

    answer: Answer = OK
    calls: list[tuple[bytes, bytes, int]] = field(default_factory=list)
    batches: list[tuple[bytes, int]] = field(default_factory=list)
    lines: list[tuple[int, bytes]] = field(default_factory=list)
    error: BaseException | None = None

    def call(self, name: bytes, params: bytes, fuel: int) -> Answer:
        self.calls.append((name, params, fuel))
        if self.error:
            raise self.error
        return self.answer

    def call_many(self, batch: bytes, fuel: int) -> Answer:
        self.batches.append((batch, fuel))
        return self.answer

    def log(self, level: int, text: bytes) -> None:
        self.lines.append((level, text))

    def tick(self) -> bool:
        return True


@functools.cache
def _engine() -> tuple[wasmtime.Engine, wasmtime.Linker]:
    built = build_engine(settings_for(Limits(memory=4 * MEMORY)))
    return built, abi.link(built)


@functools.cache
def _code(module: bytes) -> ModuleCode:
    built, linker = _engine()
    return ModuleCode(built, linker.instantiate_pre(wasmtime.Module(built, module)))


def _start(**fields: Any) -> Start:  # noqa: ANN401 -- by name
    given: dict[str, Any] = {
        "module": "",
        "memory": 4 * MEMORY,
        "entry": "run",
        "limits": Limits(),
        "input": b"\xc0",
        "context": {},
        "tools": b"\x90",
        "program": b"\xc0",
        "seed": SEED,
        "now": 5,
    }
    return Start(**given | fields)


def run(
    module: bytes,
    host: FakeHost | None = None,
    **fields: Any,  # noqa: ANN401 -- by name
) -> End:
    """Run a guest to its end."""
    return execute(_code(module), abi.Session(_start(**fields), host or FakeHost()))


def shown(
    body: str,
    host: FakeHost | None = None,
    **fields: Any,  # noqa: ANN401 -- by name
) -> bytes:
    """Return the first 2 KiB of memory after *body*, as the guest's output."""
    show = "(call $output (i32.const 0) (i32.const 2048)) (i32.const 0)"
    end = run(wasm(f"{body} {show}", before=ECHO), host, **fields)
    assert end.kind == "returned", end
    assert end.output is not None
    return end.output


def _store(result: str) -> str:
    return f"(i64.store (i32.const 0) {result})"


def _result(memory: bytes) -> tuple[int, int]:
    length, status = struct.unpack_from("<II", memory)
    return status, length


def _any_call(name: str) -> bytes:
    """Return a module that calls *name* with what its input holds."""
    signature = HOST_FUNCTIONS[name]
    count = signature.partition(" -> ")[0].count("i32")
    loads = " ".join(f"(i32.load (i32.const {4 * at}))" for at in range(count))
    drop = "" if signature.endswith("()") else "drop"
    read = "(drop (call $input (i32.const 0) (i32.const 64)))"
    return wasm(f"{read} (call ${name} {loads}) {drop} (i32.const 0)")


#: Each host function's pairs of pointer and length, by position.
PAIRS = {
    "mcp_call": [(0, 1), (2, 3), (4, 5)],
    "mcp_call_many": [(0, 1), (2, 3)],
    "take_reply": [(0, 1)],
    "tools": [(0, 1)],
    "context": [(0, 1), (2, 3)],
    "input": [(0, 1)],
    "output": [(0, 1)],
    "random": [(0, 1)],
    "log": [(1, 2)],
    "program": [(0, 1)],
    "fail": [(0, 1)],
}
HOSTILE = [
    (-1, 1),
    (0, -1),
    (-1, -1),
    (2**31, 1),
    (-(2**31), 0),
    (MEMORY, 1),
    (MEMORY - 1, 2),
    (MEMORY + 1, 0),
    (1, MEMORY),
    (2**32 - 16, 32),
]


def test_every_pair_of_every_host_function_is_known() -> None:
    for name, signature in HOST_FUNCTIONS.items():
        parameters = signature.partition(" -> ")[0].count("i32")
        assert len(PAIRS.get(name, [])) * 2 + (name == "log") == parameters


@pytest.mark.parametrize("place", HOSTILE)
@pytest.mark.parametrize("name", PAIRS)
def test_place_outside_memory_is_a_trap_and_nothing_happens(
    name: str, place: tuple[int, int]
) -> None:
    # attack 10
    width = max(max(pair) for pair in PAIRS[name]) + 1
    for pair in PAIRS[name]:
        arguments = [0] * width
        arguments[pair[0]], arguments[pair[1]] = (one & 0xFFFFFFFF for one in place)
        host = FakeHost()
        end = run(_any_call(name), host, input=struct.pack(f"<{width}I", *arguments))
        assert (end.kind, end.message) == ("trap", OUTSIDE)
        assert not host.calls  # law 2: the place of the answer is checked before
        assert not host.batches
        assert not host.lines


@pytest.mark.parametrize("name", PAIRS)
def test_empty_place_at_the_very_end_of_memory_is_inside(name: str) -> None:
    width = max(max(pair) for pair in PAIRS[name]) + 1
    for pair in PAIRS[name]:
        arguments = [0] * width
        arguments[pair[0]] = MEMORY
        end = run(_any_call(name), input=struct.pack(f"<{width}I", *arguments))
        assert end.kind == "returned", end


_U32 = st.one_of(
    st.integers(0, 2**32 - 1),
    st.integers(MEMORY - 70, MEMORY + 70),
    st.integers(0, 70),
    st.integers(2**32 - 70, 2**32 - 1),
)


@given(
    name=st.sampled_from(sorted(PAIRS)),
    arguments=st.lists(_U32, min_size=6, max_size=6),
)
def test_a_place_is_inside_or_the_guest_traps(name: str, arguments: list[int]) -> None:
    # attack 10
    inside = all(
        arguments[pointer] + arguments[length] <= MEMORY
        for pointer, length in PAIRS[name]
    )
    end = run(_any_call(name), input=struct.pack("<6I", *arguments))
    assert (end.kind == "returned") is inside


def test_call_carries_the_guests_own_bytes_and_gives_the_reply() -> None:
    host = FakeHost(Answer(2, b"\x83reply", 77))
    body = f"{_store(CALL)} (i64.store (i32.const 8) (call $now))"
    memory = shown(body, host)
    assert host.calls[0][:2] == (b"echo", b"\x80")
    assert _result(memory) == (2, 6)
    assert memory[1024:1030] == b"\x83reply"
    assert struct.unpack_from("<q", memory, 8) == (77,)


def test_call_tells_what_was_burnt_so_far() -> None:
    host = FakeHost()
    run(wasm(f"(drop {CALL}) (drop {CALL}) (i32.const 0)", before=ECHO), host)
    first, second = (fuel for _, _, fuel in host.calls)
    assert first > CALL_FUEL
    assert CALL_FUEL < second - first < CALL_FUEL + 100


def test_reply_that_does_not_fit_writes_nothing_and_is_taken_later() -> None:
    # attack 20
    host = FakeHost(Answer(0, b"r" * 200, 1))
    body = f"""{_store(CALL)}
      (i32.store (i32.const 8) (call $take_reply (i32.const 1024) (i32.const 199)))
      (i32.store (i32.const 12) (i32.load (i32.const 1024)))
      (i32.store (i32.const 16) (call $take_reply (i32.const 1024) (i32.const 200)))"""
    memory = shown(body, host)
    assert _result(memory) == (0, 200)
    assert struct.unpack_from("<III", memory, 8) == (200, 0, 200)
    assert memory[1024:1224] == b"r" * 200
    assert len(host.calls) == 1


def test_take_reply_gives_the_last_reply_of_any_import_again() -> None:
    body = """(drop (call $tools (i32.const 8) (i32.const 0)))
      (i32.store (i32.const 0) (call $take_reply (i32.const 1024) (i32.const 100)))
      (drop (call $input (i32.const 8) (i32.const 0)))
      (i32.store (i32.const 4) (call $take_reply (i32.const 1124) (i32.const 100)))"""
    memory = shown(body, tools=b"\x91\x01", input=b"\xa3abc")
    assert struct.unpack_from("<II", memory) == (2, 4)
    assert memory[1024:1026] == b"\x91\x01"
    assert memory[1124:1128] == b"\xa3abc"


def test_take_reply_is_nothing_before_the_first_reply() -> None:
    body = "(i32.store (i32.const 0) (call $take_reply (i32.const 8) (i32.const 8)))"
    assert shown(body)[:4] == bytes(4)


def test_context_has_the_bare_value_of_a_key_and_a_reply_for_an_unknown_one() -> None:
    body = """(i32.store (i32.const 512) (i32.const 0x61))
      (i64.store (i32.const 0) (call $context
        (i32.const 512) (i32.const 1) (i32.const 1024) (i32.const 99)))
      (i64.store (i32.const 8) (call $context
        (i32.const 512) (i32.const 2) (i32.const 1224) (i32.const 500)))"""
    memory = shown(body, context={"a": b"\xa1x"})
    assert _result(memory) == (0, 2)
    assert memory[1024:1026] == b"\xa1x"
    length, status = struct.unpack_from("<II", memory, 8)
    assert status == 4
    reply = codec.decode_map(memory[1224 : 1224 + length], limit=1000)
    assert reply["status"] == "bad_request"
    assert reply["data"] is None
    assert reply["error"] == {"code": "unknown_key", "message": reply["message"]}


def test_random_is_the_shake_256_stream_of_the_seed() -> None:
    # attack 21
    body = """(call $random (i32.const 0) (i32.const 10))
      (call $random (i32.const 10) (i32.const 500))
      (call $random (i32.const 510) (i32.const 0))
      (call $random (i32.const 510) (i32.const 1538))"""
    assert shown(body) == hashlib.shake_256(SEED).digest(2048)


def test_random_stream_has_an_end() -> None:
    body = """(loop $l (call $random (i32.const 0) (i32.const 65536)) (br $l))
      (unreachable)"""
    end = run(wasm(body))
    assert (end.kind, end.message) == (
        "trap",
        f"more than {MAX_RANDOM} random bytes",
    )


def test_now_is_the_start_until_the_first_reply() -> None:
    # attack 21
    assert struct.unpack_from("<q", shown(_store("(call $now)"), now=123)) == (123,)


def test_last_output_wins_and_an_empty_one_is_not_none() -> None:
    body = """(call $output (i32.const 0) (i32.const 5))
      (call $output (i32.const 0) (i32.const 0)) (i32.const 0)"""
    assert run(wasm(body)).output == b""


def test_log_passes_bytes_on_and_knows_four_levels() -> None:
    host = FakeHost()
    body = """(call $log (i32.const 2) (i32.const 0) (i32.const 4))
      (call $log (i32.const -1) (i32.const 0) (i32.const 1)) (i32.const 0)"""
    run(wasm(body, before='(data (i32.const 0) "\\ff\\00hi")'), host)
    assert host.lines == [(2, b"\xff\0hi"), (3, b"\xff")]


def test_one_long_line_is_cut_just_over_the_limit() -> None:
    host = FakeHost()
    body = "(call $log (i32.const 1) (i32.const 0) (i32.const 60000)) (i32.const 0)"
    run(wasm(body), host, limits=Limits(log=1_000))
    assert [len(text) for _, text in host.lines] == [1_001]


def test_door_counts_a_line_for_no_less_than_the_worker() -> None:
    assert guest_calls._LINE_COST >= wire.LINE_COST


def test_long_names_and_params_are_bounded_and_still_differ() -> None:
    body = """(drop (call $mcp_call (i32.const 0) (i32.const 70000)
        (i32.const 0) (i32.const 1001) (i32.const 0) (i32.const 0)))
      (i32.store (i32.const 1000) (i32.const 1))
      (drop (call $mcp_call (i32.const 0) (i32.const 4)
        (i32.const 0) (i32.const 1001) (i32.const 0) (i32.const 0)))
      (drop (call $mcp_call (i32.const 0) (i32.const 4)
        (i32.const 0) (i32.const 1000) (i32.const 0) (i32.const 0)))
      (i32.const 0)"""
    host = FakeHost()
    end = run(wasm(body, memory="2"), host, limits=Limits(params=1_000))
    assert end.kind == "returned"
    (name, first, _), (_, second, _), (_, third, _) = host.calls
    assert len(name) == wire.MAX_NAME
    assert len(first) == len(second) == 1_040
    assert first[:1_000] == second[:1_000]
    assert second[1_000:] == tail(bytes(1_000) + b"\1")
    assert first != second
    assert third == bytes(1_000)


def _batch(length: int, out: int = 1024, cap: int = 100) -> str:
    numbers = (0, length, out, cap)
    return f"(call $mcp_call_many {' '.join(f'(i32.const {n})' for n in numbers)})"


def test_batch_carries_the_guests_own_bytes_and_gives_the_reply() -> None:
    host = FakeHost(Answer(0, b"\x91reply", 77))
    body = f"{_store(_batch(5))} (i64.store (i32.const 8) (call $now))"
    memory = shown(body, host)
    [(batch, fuel)] = host.batches
    assert (batch, host.calls) == (b"echo\x80", [])
    assert fuel > CALL_FUEL
    assert _result(memory) == (0, 6)
    assert memory[1024:1030] == b"\x91reply"
    assert struct.unpack_from("<q", memory, 8) == (77,)


def test_batch_that_recorded_nothing_leaves_the_time_as_it_is() -> None:
    host = FakeHost(Answer(0, b"\x90", 0))
    body = f"(drop {_batch(0)}) (i64.store (i32.const 0) (call $now))"
    assert struct.unpack_from("<q", shown(body, host, now=123)) == (123,)


def test_replies_of_a_batch_that_do_not_fit_are_taken_later() -> None:
    host = FakeHost(Answer(0, b"r" * 200, 1))
    body = f"""{_store(_batch(5))}
      (i32.store (i32.const 8) (i32.load (i32.const 1024)))
      (i32.store (i32.const 16) (call $take_reply (i32.const 1024) (i32.const 200)))"""
    memory = shown(body, host)
    assert _result(memory) == (0, 200)
    assert struct.unpack_from("<I", memory, 8) == (0,)
    assert memory[1024:1224] == b"r" * 200
    assert len(host.batches) == 1


def test_long_batches_are_bounded_and_still_differ() -> None:
    most = codec.BATCH_BYTES
    body = f"""(drop {_batch(most + 1, cap=0)})
      (i32.store (i32.const {most}) (i32.const 1))
      (drop {_batch(most + 1, cap=0)}) (drop {_batch(most, cap=0)}) (i32.const 0)"""
    built = build_engine(settings_for(Limits()))
    code = wasmtime.Module(built, wasm(body, memory="17"))
    host = FakeHost()
    session = abi.Session(_start(memory=CORE_MEMORY), host)
    end = execute(ModuleCode(built, abi.link(built).instantiate_pre(code)), session)
    assert end.kind == "returned"
    (first, _), (second, _), (third, _) = host.batches
    assert first[:most] == second[:most] == third == bytes(most)
    assert first[most:] == tail(bytes(most + 1))
    assert second[most:] == tail(bytes(most) + b"\1")


@pytest.mark.parametrize("error", [ValueError("v"), KeyboardInterrupt(), SystemExit(1)])
def test_what_a_host_function_raises_ends_its_guest_and_no_other(
    error: BaseException,
) -> None:
    module = wasm(f"(drop {CALL}) (i32.const 0)", before=ECHO)
    end = run(module, FakeHost(error=error))
    assert end.kind == "failed"
    assert type(error).__name__ in end.message
    assert run(module).kind == "returned"


def test_memory_that_is_not_exported_is_a_trap() -> None:
    text = """(module (import "caxton" "now" (func $now (result i64)))
      (func (export "run") (result i32) (drop (call $now)) (i32.const 0)))"""
    end = run(bytes(wasmtime.wat2wasm(text)))
    assert (end.kind, end.message) == ("trap", "no memory is exported")


def test_memory_that_has_no_room_is_told_from_one_beyond_its_limit() -> None:
    end = run(wasm("(i32.const 0)", memory="3"), memory=2 * MEMORY)
    assert (end.kind, end.limit) == ("limit", "memory")


FLOOD = "(loop $l (drop (call $now)) (br $l)) (unreachable)"


def test_host_calls_are_counted_and_burn_fuel() -> None:
    counted = run(wasm(FLOOD), limits=Limits(host_calls=50))
    assert (counted.kind, counted.limit) == ("limit", "host_calls")
    assert counted.fuel is not None
    assert counted.fuel > 50 * CALL_FUEL
    burnt = run(wasm(FLOOD), limits=Limits(fuel=105_000))
    assert (burnt.kind, burnt.limit, burnt.fuel) == ("limit", "fuel", 105_000)


def test_guest_that_is_stopped_calls_nothing_more() -> None:
    host = FakeHost()
    session = abi.Session(_start(), host)
    session.end(End(kind="stopped"))
    module = wasm(f"(drop {CALL}) (i32.const 0)", before=ECHO)
    assert execute(_code(module), session).kind == "stopped"
    assert not host.calls


def test_output_over_its_limit_is_an_end() -> None:
    body = "(call $output (i32.const 0) (i32.const 11)) (i32.const 0)"
    end = run(wasm(body), limits=Limits(output=10))
    assert (end.kind, end.limit, end.output) == ("limit", "output", None)


def test_log_beyond_its_limit_is_not_passed_on() -> None:
    host = FakeHost()
    line = "(call $log (i32.const 1) (i32.const 0) (i32.const 11))"
    run(wasm(f"{line} {line} (i32.const 0)"), host, limits=Limits(log=10))
    assert len(host.lines) == 1


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("(unreachable)", "unreachable"),
        ("(call $f)", "stack overflow"),
        ("(i32.load (i32.const 65533))", "out of bounds memory access"),
        ("(i32.div_s (i32.const 0x80000000) (i32.const -1))", "integer overflow"),
        (
            "(call_indirect (param i32) (result i32) (i32.const 1) (i32.const 1))",
            "indirect call of another type",
        ),
        ("(call_indirect (result i32) (i32.const 9))", "out of bounds table access"),
    ],
)
def test_trap_is_told_in_words(body: str, message: str) -> None:
    before = (
        "(table 2 funcref) (func $f (result i32) (call $f)) (elem (i32.const 1) $f)"
    )
    end = run(wasm(body, before=before))
    assert (end.kind, end.message) == ("trap", message)
    assert end.fuel is not None


def test_entry_that_is_not_there_is_the_workers_failure() -> None:
    with pytest.raises(LookupError):
        run(wasm("(i32.const 0)"), entry="other")


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        (
            "mmap failed to reserve 0x19 bytes\n\nCaused by: os error 12",
            "no_room",
        ),
        ("table minimum size of 30000 elements exceeds table limits", "limit"),
        ("something else", "failed"),
    ],
)
def test_start_that_fails_says_whether_another_worker_can_help(
    reason: str, kind: str
) -> None:
    assert _unstarted(reason).kind == kind


def test_program_is_given_as_it_is() -> None:
    program = codec.encode({"name": "a.py", "source": "1"})

    memory = shown(
        "(drop (call $program (i32.const 0) (i32.const 64)))", program=program
    )

    assert memory.startswith(program)


FAIL = "(call $fail (i32.const 512) (i32.const 3))"


def test_reason_of_a_failure_is_that_of_the_guest() -> None:
    end = run(wasm(f"{FAIL} (i32.const 7)", before='(data (i32.const 512) "why")'))

    assert (end.kind, end.code, end.message) == ("returned", 7, "why")


def test_reason_without_a_failure_is_ignored() -> None:
    end = run(wasm(f"{FAIL} (i32.const 0)", before='(data (i32.const 512) "why")'))

    assert (end.code, end.message) == (0, "")
