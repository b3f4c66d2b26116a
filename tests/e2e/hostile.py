"""Agents that mean harm, as modules, and how a run of each has to end."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import wasmtime

from caxton_host.core.limits import Limits
from caxton_host.sandbox.interface import HOST_FUNCTIONS
from tests.unit.sandbox.binaries import locals_bomb

_MIB = 1024 * 1024
_KIB = 1024
_ALL = 2**32 - 1


def _import(name: str, signature: str) -> str:
    parameters, _, result = signature.partition(" -> ")
    taken = "".join(f"(param {one})" for one in parameters.strip("()").split(", "))
    given = "" if result == "()" else f"(result {result})"
    taken = taken.replace("(param )", "")
    return f'(import "caxton" "{name}" (func ${name} {taken}{given}))'


_IMPORTS = "\n".join(_import(*item) for item in HOST_FUNCTIONS.items())
_NAME = '(data (i32.const 0) "mcp__demo__echo")'
_SIZE = 15


def wasm(run: str, *, before: str = "", memory: str = "4") -> bytes:
    """Return a module whose entry point has the body *run*."""
    text = f"""(module {_IMPORTS}
      (memory (export "memory") {memory})
      {before}
      (func (export "run") (result i32) (local $i i32) (local $r i64) {run}))"""
    return bytes(wasmtime.wat2wasm(text))


def _quoted(data: bytes) -> str:
    return '"' + "".join(f"\\{byte:02x}" for byte in data) + '"'


def calls(count: int, end: str = "(i32.const 0)") -> bytes:
    """Return an agent that makes so many calls, and then does *end*."""
    call = f"(drop {_call(0, _SIZE, 64, 1)})"
    loop = f"(loop $again {call} {_next(count)})"
    data = f'{_NAME} (data (i32.const 64) "\\80")'
    return wasm(f"{loop} {end}", before=data)


def _next(count: int) -> str:
    return f"""(br_if $again (i32.lt_u
      (local.tee $i (i32.add (local.get $i) (i32.const 1))) (i32.const {count})))"""


def _call(name: int, size: int, params: int, length: int, cap: int = 256) -> str:
    numbers = (name, size, params, length, 131072, cap)
    values = " ".join(f"(i32.const {number})" for number in numbers)
    return f"(call $mcp_call {values})"


def sends(params: bytes, status: int, name: bytes = b"mcp__demo__echo") -> bytes:
    """Return an agent that makes one call, and fails unless it gets that status."""
    call = _call(0, len(name), 64, len(params))
    return wasm(
        f"(i64.ne (i64.shr_u {call} (i64.const 32)) (i64.const {status}))",
        before=f"(data (i32.const 0) {_quoted(name)})"
        f"(data (i32.const 64) {_quoted(params)})",
        memory=str(4 + len(params) // 65536),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Attack:
    """
    A module, and the one way in which its run may end.

    Attributes:
        row: In the table of threats.

        ends: ``refused``, ``completed``, or kind and message of the failure.

        recorded: Types of events that its log must have, besides start and end.

        most: Bytes by which its worker may grow.
    """

    row: int
    what: str
    module: bytes = field(repr=False)
    ends: str
    limits: Limits = field(default_factory=Limits)
    recorded: tuple[str, ...] = ()
    most: int | None = None

    def __str__(self) -> str:
        return f"{self.row}-{self.what.replace(' ', '-')}"


_FUEL = Limits(fuel=10_000_000)
_CLOCK = Limits(compute=0.1)
_LOOP = "(loop $for_ever (br $for_ever)) (unreachable)"
_RECURSION = "(func $f (param i64) (result i32) (call $f (local.get 0)))"
_START = f"(func $s {_LOOP}) (start $s)"
_GROW = """(if (i32.ne (memory.grow (i32.const 65535)) (i32.const -1))
    (then unreachable))
  (loop $more (br_if $more (i32.ne (memory.grow (i32.const 1)) (i32.const -1))))
  (memory.fill (i32.const 0) (i32.const 7) (i32.mul (memory.size) (i32.const 65536)))
  (i32.const 0)"""
_GROW_TABLE = """(i32.ne (table.grow $t (ref.null func) (i32.const 100000000))
  (i32.const -1))"""
_BAD = ("ToolInvoked", "ToolDenied")
_TRAP = "trap a host function was given a place outside memory"


def _attack(row: int, what: str, module: bytes, ends: str, **more: Any) -> Attack:  # noqa: ANN401 -- by name
    return Attack(row=row, what=what, module=module, ends=ends, **more)


def _endless() -> Iterator[Attack]:
    yield _attack(1, "endless loop", wasm(_LOOP), "limit fuel", limits=_FUEL)
    yield _attack(
        1, "endless loop by clock", wasm(_LOOP), "limit compute", limits=_CLOCK
    )
    start = wasm("(i32.const 0)", before=_START)
    yield _attack(1, "endless start", start, "limit fuel", limits=_FUEL)
    yield _attack(1, "endless start by clock", start, "limit compute", limits=_CLOCK)
    deep = wasm("(call $f (i64.const 1))", before=_RECURSION)
    yield _attack(2, "deep recursion", deep, "trap stack overflow")


def _memory() -> Iterator[Attack]:
    size = 8 * _MIB
    small = Limits(memory=size)
    most = size + 16 * _MIB
    grow = wasm(_GROW)
    yield _attack(3, "memory grow", grow, "completed", limits=small, most=most)
    four = wasm("(i32.const 0)", memory="65536")
    yield _attack(3, "4 GiB at once", four, "refused")
    wide = bytes(
        wasmtime.wat2wasm(
            '(module (memory (export "memory") i64 1)'
            '(func (export "run") (result i32) (i32.const 0)))'
        )
    )
    yield _attack(3, "memory64", wide, "refused")
    table = "(table $t {} funcref)"
    bomb = wasm("(i32.const 0)", before=table.format(4_000_000_000))
    yield _attack(4, "table bomb", bomb, "refused")
    grown = wasm(_GROW_TABLE, before=table.format(1))
    yield _attack(4, "table grow", grown, "completed", most=16 * _MIB)
    yield _attack(
        4, "table64", wasm("(i32.const 0)", before=table.format("i64 1")), "refused"
    )


def _modules() -> Iterator[Attack]:
    bomb = Limits(compile_cpu=1)
    yield _attack(
        5, "one big function", locals_bomb(40_000, 340_000), "refused", limits=bomb
    )
    many = "(func (result i32) (i32.const 1))" * 50_000
    yield _attack(
        5, "50k functions", wasm("(i32.const 0)", before=many), "refused", limits=bomb
    )
    exports = "".join(f'(export "e{i}" (func $one))' for i in range(50_000))
    one = "(func $one)"
    yield _attack(
        6, "50k exports", wasm("(i32.const 0)", before=one + exports), "refused"
    )
    long = f'(export "{"x" * 64 * _KIB}" (func $one))'
    yield _attack(6, "64 KiB name", wasm("(i32.const 0)", before=one + long), "refused")
    good = wasm("(i32.const 0)")
    yield _attack(
        6,
        "name not in UTF-8",
        good.replace(b"take_reply", b"take\xff\x1b[2Jy"),
        "refused",
    )
    for module, name in (
        ("env", "system"),
        ("wasi_snapshot_preview1", "fd_write"),
        ("caxton", "exec"),
    ):
        text = f"""(module (import "{module}" "{name}" (func))
          (memory (export "memory") 1)
          (func (export "run") (result i32) (i32.const 0)))"""
        yield _attack(
            7, f"imports {module}.{name}", bytes(wasmtime.wat2wasm(text)), "refused"
        )
    wrong = """(module (import "caxton" "now" (func (param i64)))
      (memory (export "memory") 1) (func (export "run") (result i32) (i32.const 0)))"""
    yield _attack(7, "wrong signature", bytes(wasmtime.wat2wasm(wrong)), "refused")
    yield _attack(8, "WAT text", b"(module)", "refused")
    yield _attack(8, "component", b"\0asm\x0d\0\1\0", "refused")
    yield _attack(8, "truncated", good[:-9], "refused")
    yield _attack(8, "empty", b"", "refused")


def _pointers() -> Iterator[Attack]:
    end = 4 * 65536
    places = {
        "name at -1": (_ALL, 1, 64, 1),
        "name at 2^31": (2**31, 1, 64, 1),
        "name over the end": (end - 3, 4, 64, 1),
        "name length overflows": (8, _ALL, 64, 1),
        "params over the end": (0, _SIZE, end, 1),
        "answer over the end": (0, _SIZE, 64, 1, end),
    }
    for what, place in places.items():
        module = wasm(f"(drop {_call(*place)}) (i32.const 0)", before=_NAME)
        yield _attack(10, what, module, _TRAP)
    nothing = sends(b"", 4, name=b"")
    yield _attack(10, "nothing at all", nothing, "completed", recorded=_BAD)
    alloc = f"""{_NAME} (func (export "alloc") (param i32) (result i32)
      (drop {_call(0, _SIZE, 64, 1)}) unreachable)
      (data (i32.const 64) "\\80")"""
    module = wasm(f"(drop {_call(0, _SIZE, 64, 1)}) (i32.const 0)", before=alloc)
    # No host function calls into the guest: a trap waits where an allocator would be.
    yield _attack(
        11, "alloc that calls again", module, "completed", recorded=("ToolCompleted",)
    )


def _params() -> Iterator[Attack]:
    one = b"\x81\xa1k"
    bad = {
        12: {
            "nested 60k": b"\x91" * 60_000 + b"\xc0",
            "nested 65": one + b"\x91" * 64 + b"\xc0",
        },
        13: {
            f"claims 4G {kind}": data
            for kind, data in {
                "array": b"\xdd" + b"\xff" * 4,
                "map": b"\xdf" + b"\xff" * 4,
                "text": one + b"\xdb" + b"\xff" * 4,
                "bin": one + b"\xc6" + b"\xff" * 4,
            }.items()
        },
        14: {
            "10k empty maps": one + b"\xdc\x27\x10" + b"\x80" * 10_000,
            "over 512 KiB": one + b"\xdb\x00\x08\x00\x00" + b"x" * 512 * _KIB,
        },
        15: {
            "extension": one + b"\xd4\x05\x00",
            "timestamp": one + b"\xd6\xff\x00\x00\x00\x01",
            "bin": one + b"\xc4\x01a",
            "key of bytes": b"\x81\xc4\x01k\x01",
            "key of number": b"\x81\x01\x01",
            "key twice": b"\x82\xa1k\x01\xa1k\x02",
        },
        16: {
            "NaN": one + b"\xcb\x7f\xf8" + b"\0" * 6,
            "infinity": one + b"\xcb\x7f\xf0" + b"\0" * 6,
        },
        17: {"not UTF-8": one + b"\xa1\xff", "surrogate": one + b"\xa3\xed\xa0\x80"},
        18: {"trailing byte": b"\x80\x00", "two objects": b"\x80\x80"},
    }
    for row, cases in bad.items():
        for what, params in cases.items():
            yield _attack(row, what, sends(params, 4), "completed", recorded=_BAD)
    for what, params in {
        "largest number": one + b"\xcf" + b"\xff" * 8,
        "2^53 + 1": one + b"\xcf\x00\x20" + b"\0" * 5 + b"\1",
        "minus zero": one + b"\xcb\x80" + b"\0" * 7,
    }.items():
        yield _attack(
            16, what, sends(params, 0), "completed", recorded=("ToolCompleted",)
        )
    for what, name in {
        "NUL in a name": b"mcp__demo__ech\0",
        "name of escapes": b"\x1b[2J",
    }.items():
        yield _attack(17, what, sends(b"\x80", 4, name), "completed", recorded=_BAD)


def _floods() -> Iterator[Attack]:
    log = "(call $log (i32.const 1) (i32.const 0) (i32.const 4096))"
    flood = f"(loop $again {log} {_next(5_000)})"
    yield _attack(
        19,
        "log flood",
        wasm(f"{flood} (i32.const 0)"),
        "completed",
        recorded=("LogWritten",),
    )
    now = wasm("(loop $again (drop (call $now)) (br $again)) (unreachable)")
    yield _attack(
        19, "host call flood", now, "limit host_calls", limits=Limits(host_calls=1_000)
    )
    yield _attack(19, "host call flood by fuel", now, "limit fuel", limits=_FUEL)
    many = calls(100)
    yield _attack(
        19,
        "tool call flood",
        many,
        "limit total_calls",
        limits=Limits(total_calls=10),
        recorded=("ToolDenied",),
    )


def _many(batch: int, size: int, out: int = 131072, cap: int = 256) -> str:
    values = " ".join(f"(i32.const {number})" for number in (batch, size, out, cap))
    return f"(call $mcp_call_many {values})"


def sends_many(batch: bytes, status: int) -> bytes:
    """Return an agent that makes one batch, and fails unless it gets that status."""
    call = _many(0, len(batch), 2 * _MIB)
    return wasm(
        f"(i64.ne (i64.shr_u {call} (i64.const 32)) (i64.const {status}))",
        before=f"(data (i32.const 0) {_quoted(batch)})",
        memory="40",
    )


def _batches() -> Iterator[Attack]:
    end = 4 * 65536
    places = {
        "batch at -1": (_ALL, 1),
        "batch over the end": (end - 3, 4),
        "batch length overflows": (8, _ALL),
        "answers over the end": (0, 1, end),
        "answers length overflows": (0, 1, 8, _ALL),
    }
    item = b"\x92\xafmcp__demo__echo"
    data = f"(data (i32.const 0) {_quoted(bytes([0x91]) + item + bytes([0x80]))})"
    for what, place in places.items():
        module = wasm(f"(drop {_many(*place)}) (i32.const 0)", before=data)
        yield _attack(10, what, module, _TRAP)
    for row, what, batch in (
        (12, "batch nested 60k", b"\x91" + item + b"\x91" * 60_000 + b"\xc0"),
        (13, "batch claims 4G items", b"\xdd" + b"\xff" * 4),
        (13, "item claims 4G values", b"\x91" + item + b"\xdf" + b"\xff" * 4),
        (14, "batch of 65", b"\xdc\0\x41" + (item + b"\x80") * 65),
        (14, "batch over 1 MiB", b"\x91" + item + b"\xc6\0\x10\0\0" + bytes(_MIB)),
        (18, "two batches", b"\x90\x90"),
    ):
        module = sends_many(batch, 4)
        yield _attack(row, what, module, "completed", recorded=_BAD)
    deep = b"\x92" + item + b"\x81\xa1k" * 900 + b"\xc0" + item + b"\x80"
    yield _attack(
        12,
        "item nested 900",
        sends_many(deep, 0),
        "completed",
        recorded=("ToolDenied", "ToolCompleted"),
    )
    full = b"\xdc\0\x40" + (item + b"\x80") * 64
    yield _attack(
        19,
        "batch flood",
        wasm(
            f"(loop $again (drop {_many(0, len(full))}) {_next(5_000)}) (i32.const 0)",
            before=f"(data (i32.const 0) {_quoted(full)})",
        ),
        "limit total_calls",
        limits=Limits(total_calls=100),
        recorded=("ToolCompleted", "ToolFailed", "ToolDenied"),
    )


def _results() -> Iterator[Attack]:
    # A reply that does not fit writes nothing: what was in its place still is.
    small = wasm(
        f"""(i32.store (i32.const 131072) (i32.const 77))
        (drop {_call(0, 14, 64, 1, 8)})
        (i32.ne (i32.load (i32.const 131072)) (i32.const 77))""",
        before='(data (i32.const 0) "mcp__demo__big") (data (i32.const 64) "\\80")',
    )
    yield _attack(
        20, "huge result, small buffer", small, "completed", recorded=("ToolCompleted",)
    )
    large = sends(b"\x80", 3, b"mcp__demo__huge")
    yield _attack(
        20,
        "result over its limit",
        large,
        "completed",
        recorded=("ToolFailed",),
        limits=Limits(result=_MIB),
    )
    nan = """(i32.ne (i32.reinterpret_f32 (f32.div (f32.const 0) (f32.const 0)))
      (i32.const 0x7fc00000))"""
    yield _attack(21, "bits of a NaN", wasm(nan), "completed")
    idle = f"(loop $again {_next(1_000_000)})"
    still = f"(i64.ne (call $now) (block (result i64) {idle} (call $now)))"
    yield _attack(21, "clock that stands", wasm(still), "completed")
    drawn = """(i32.store8 (i32.const 0) (i32.const 0xcf))
      (call $random (i32.const 1) (i32.const 8))
      (call $output (i32.const 0) (i32.const 9)) (i32.const 0)"""
    yield _attack(21, "random output", wasm(drawn), "completed")


ATTACKS = [
    *_endless(),
    *_memory(),
    *_modules(),
    *_pointers(),
    *_params(),
    *_floods(),
    *_batches(),
    *_results(),
]


def fatal(artifact: bytes) -> bytes:
    """
    Return a compiled module whose traps wasmtime does not know for its own.

    The processor still stops at them, and nobody takes the signal: the process dies
    in the code of the guest, as it does of a fault in the compiler.
    """
    name_at = artifact.index(b".wasmtime.traps\0")
    (sections,) = struct.unpack_from("<Q", artifact, 40)
    size, count, names = struct.unpack_from("<HHH", artifact, 58)
    headers = [
        struct.unpack_from("<IIQQQQ", artifact, sections + size * number)
        for number in range(count)
    ]
    _, _, _, _, names_at, _ = headers[names]
    (at,) = (
        offset for name, _, _, _, offset, _ in headers if names_at + name == name_at
    )
    # The first number says how many there are.
    return artifact[:at] + bytes(4) + artifact[at + 4 :]
