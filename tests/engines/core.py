"""Core modules by chance: control flow, arithmetic, memory, tables and the host."""

from __future__ import annotations

import random  # noqa: TID251 -- drawn from the seed that is printed
from collections.abc import Callable

import wasmtime

from caxton_host.sandbox.interface import HOST_FUNCTIONS

_TYPES = ("i32", "i64", "f32", "f64")
_WHOLE = ("add", "sub", "mul", "and", "or", "xor", "shl", "shr_s", "shr_u", "rotl")
_PARTIAL = ("div_s", "div_u", "rem_s", "rem_u")
_FLOAT = ("add", "sub", "mul", "div", "min", "max")
_UNARY = {
    **dict.fromkeys(("i32", "i64"), ("clz", "ctz", "popcnt", "extend8_s")),
    **dict.fromkeys(
        ("f32", "f64"), ("abs", "neg", "ceil", "floor", "trunc", "nearest", "sqrt")
    ),
}
_COMPARED = {
    **dict.fromkeys(("i32", "i64"), ("eq", "ne", "lt_s", "lt_u", "gt_s", "ge_u")),
    **dict.fromkeys(("f32", "f64"), ("eq", "ne", "lt", "gt", "le", "ge")),
}
_EDGES = {
    "i32": (0, 1, -1, 2, 31, 32, 2**31 - 1, -(2**31), 255, 65535),
    "i64": (0, 1, -1, 63, 64, 2**63 - 1, -(2**63), 2**32, 2**53 + 1),
    "f32": ("0", "-0", "1", "-1.5", "inf", "-inf", "1e-45", "3e38", "16777217", "0.1"),
    "f64": ("0", "-0", "1", "0.1", "inf", "-inf", "5e-324", "1e308", "-9e15", "4.5"),
}
#: Conversions to a type, and what they convert.
_MADE = {
    "i32": ("i32.wrap_i64 i64", "i32.trunc_sat_f64_s f64", "i32.trunc_sat_f32_u f32"),
    "i64": ("i64.extend_i32_s i32", "i64.extend_i32_u i32", "i64.trunc_sat_f64_u f64"),
    "f32": ("f32.convert_i64_u i64", "f32.demote_f64 f64", "f32.convert_i32_s i32"),
    "f64": ("f64.convert_i64_s i64", "f64.promote_f32 f32", "f64.convert_i64_u i64"),
}
_OF_I32 = {
    "i32": "{}",
    "i64": "(i64.extend_i32_s {})",
    "f32": "(f32.convert_i32_s {})",
    "f64": "(f64.convert_i32_u {})",
}
#: The bits of numbers, of which those of a NaN are left out: each engine chooses them.
#: And a digest of the first page.
HELPERS = """
(func $bits64 (param $x f64) (result i64) (if (result i64)
  (f64.eq (local.get $x) (local.get $x)) (then (i64.reinterpret_f64 (local.get $x)))
  (else (i64.const 1))))
(func $bits32 (param $x f32) (result i32) (if (result i32)
  (f32.eq (local.get $x) (local.get $x)) (then (i32.reinterpret_f32 (local.get $x)))
  (else (i32.const 1))))
(func $digest (result i64) (local $at i32) (local $sum i64)
  (local.set $sum (i64.const 0xcbf29ce484222325))
  (loop $on
    (local.set $sum (i64.mul (i64.const 0x100000001b3)
      (i64.xor (local.get $sum) (i64.load (local.get $at)))))
    (local.set $at (i32.add (local.get $at) (i32.const 8)))
    (br_if $on (i32.lt_u (local.get $at) (i32.const 65536))))
  (local.get $sum))
"""
_CALLED = ("mcp__demo__look", "mcp__demo__wrong", "mcp__demo__nothing", "b d")
_PARAMS = b"\x81\xa1n\x05\x81\xa1n\xcb\x3f\xf0\0\0\0\0\0\0\x80\x90\x91\x92\xa1x\x80"
#: Places and sizes of params among these bytes.
_SENT = ((1000, 4), (1004, 12), (1016, 1), (1017, 1), (1000, 3))
_OUTSIDE = (-1, 2**31 - 1, 131072, 131073, -65536)


def escaped(data: bytes) -> str:
    """Return bytes as the text format has them."""
    return "".join(f"\\{one:02x}" for one in data)


def imported(module: str, name: str, signature: str) -> str:
    """Return the import of a function."""
    parameters, _, result = signature.partition(" -> ")
    types = parameters.strip("()").replace(",", "")
    taken = f"(param {types})" if types else ""
    given = "" if result == "()" else f"(result {result})"
    return f'(import "{module}" "{name}" (func ${name} {taken} {given}))'


IMPORTS = "".join(imported("caxton", *one) for one in HOST_FUNCTIONS.items())


class Core:
    """
    A core module that is drawn from a seed. Its output is a digest of its memory.

    Args:
        nans: Include the bits of NaNs, which engines choose differently.
    """

    def __init__(self, seed: int, *, nans: bool = False) -> None:
        self.by = random.Random(seed)  # noqa: S311 -- to be repeated
        self._left = self._loops = self._level = self._labels = 0
        self._bits = (
            {"f32": "(i32.reinterpret_f32 {})", "f64": "(i64.reinterpret_f64 {})"}
            if nans
            else {"f32": "(call $bits32 {})", "f64": "(call $bits64 {})"}
        )
        self._values: dict[Callable[[str, int], str], float] = {
            self._binary: 35,
            self._unary: 10,
            self._conversion: 10,
            self._load: 10,
            self._choice: 15,
            self._comparison: 7,
            self._grow: 3,
            self._call: 4,
            self._indirect: 1,
            self._outside: 5,
        }
        self._statements: dict[Callable[[int], str], float] = {
            self._set: 40,
            self._store: 15,
            self._loop: 10,
            self._branch: 10,
            self._global: 3,
            self._fill: 2,
            self._trap: 0.3,
            self._host: 20,
        }

    def module(self) -> bytes:
        """Return it."""
        by, functions, count = self.by, "", self.by.randrange(1, 5)
        locals_ = "".join(f"(local ${one}{n} {one})" for one in _TYPES for n in "xy")
        for self._level in range(count):
            self._left = by.choice((40, 150, 500))
            functions += f"""(func $f{self._level} (param $p i32) (result i32) {locals_}
              (local $l0 i32) (local $l1 i32) (local $l2 i32)
              {self._block(4)} {self._value("i32", 5)})"""
        start = "(start $s) (func $s (drop (call $f0 (i32.const 3))))"
        names = "".join(
            f'(data (i32.const {2000 + 100 * n}) "{one}")'
            for n, one in enumerate(_CALLED)
        )
        text = f"""(module {IMPORTS}
          (memory (export "memory") 2 {by.choice(("", "3", "9"))})
          (type $t (func (param i32) (result i32)))
          (table $t 6 6 funcref)
          (elem (i32.const 0) {" ".join(f"$f{n}" for n in range(count))})
          (global $g (mut i64) (i64.const 7)) {HELPERS} {functions}
          {names} (data (i32.const 1000) "{escaped(_PARAMS)}")
          {start if by.random() < 0.1 else ""}
          (func (export "run") (result i32) (local $r i32)
            (local.set $r (call $f{count - 1} (i32.const 5)))
            (i32.store8 (i32.const 65536) (i32.const 0x92))
            (i32.store8 (i32.const 65537) (i32.const 0xcf))
            (i32.store8 (i32.const 65546) (i32.const 0xcf))
            (i64.store (i32.const 65547) (i64.xor (global.get $g)
              (i64.extend_i32_u (memory.size))))
            (i64.store (i32.const 65538) (call $digest))
            (call $output (i32.const 65536) (i32.const 19))
            {"(local.get $r)" if by.random() < 0.05 else "(i32.const 0)"}))"""
        return bytes(wasmtime.wat2wasm(text))

    # -- values

    def _value(self, type_: str, depth: int) -> str:
        by = self.by
        self._left -= 1
        if depth <= 0 or self._left < 0 or by.random() < 0.15:
            if by.random() < 0.5:
                return f"(local.get ${type_}{by.choice('xy')})"
            return f"({type_}.const {by.choice(_EDGES[type_])})"
        (make,) = by.choices([*self._values], [*self._values.values()])
        return make(type_, depth - 1)

    def _binary(self, type_: str, depth: int) -> str:
        one, other = self._value(type_, depth), self._value(type_, depth)
        if type_[0] == "f":
            return f"({type_}.{self.by.choice(_FLOAT)} {one} {other})"
        if self.by.random() > 0.03:
            return f"({type_}.{self.by.choice(_WHOLE)} {one} {other})"
        if self.by.random() > 0.1:
            other = f"({type_}.or {other} ({type_}.const 1))"
        return f"({type_}.{self.by.choice(_PARTIAL)} {one} {other})"

    def _unary(self, type_: str, depth: int) -> str:
        return f"({type_}.{self.by.choice(_UNARY[type_])} {self._value(type_, depth)})"

    def _conversion(self, type_: str, depth: int) -> str:
        operator, _, source = self.by.choice(_MADE[type_]).partition(" ")
        return f"({operator} {self._value(source, depth)})"

    def _load(self, type_: str, depth: int) -> str:
        if type_[0] == "i":
            width = self.by.choice(("load8_s", "load16_u", "load"))
            return f"({type_}.{width} {self._place(depth)})"
        # What is there may be a NaN of bits that no engine has chosen.
        return f"({type_}.add ({type_}.load {self._place(depth)}) ({type_}.const 0))"

    def _choice(self, type_: str, depth: int) -> str:
        one, other = self._value(type_, depth), self._value(type_, depth)
        test = self._value("i32", depth)
        if self.by.random() < 0.5:
            return f"(select {one} {other} {test})"
        return f"(if (result {type_}) {test} (then {one}) (else {other}))"

    def _comparison(self, type_: str, depth: int) -> str:
        source = self.by.choice(_TYPES)
        pair = f"{self._value(source, depth)} {self._value(source, depth)}"
        compared = f"({source}.{self.by.choice(_COMPARED[source])} {pair})"
        return _OF_I32[type_].format(compared)

    def _grow(self, type_: str, depth: int) -> str:
        return _OF_I32[type_].format(f"(memory.grow {self._value('i32', depth)})")

    def _call(self, type_: str, depth: int) -> str:
        given = self._value("i32", depth)
        if not self._level:
            return _OF_I32[type_].format(given)
        callee = self.by.randrange(self._level)
        return _OF_I32[type_].format(f"(call $f{callee} {given})")

    def _indirect(self, type_: str, depth: int) -> str:
        # Seldom itself, to the end of the stack, nothing, or a place outside.
        wild = not self._level or self.by.random() < 0.1
        place = self.by.randrange(*((self._level, 7) if wild else (self._level,)))
        given = f"{self._value('i32', depth)} (i32.const {place})"
        if not self._level and self.by.random() > 0.1:
            return self._value(type_, depth)
        return _OF_I32[type_].format(f"(call_indirect (type $t) {given})")

    def _outside(self, type_: str, depth: int) -> str:
        if type_ == "i64" and self.by.random() < 0.5:
            return self.by.choice(("(call $now)", "(global.get $g)"))
        source = {"i32": "f32", "i64": "f64"}.get(type_)
        if source is None:
            return self._value(type_, depth)
        return self._bits[source].format(self._value(source, depth))

    def _place(self, depth: int) -> str:
        value = self._value("i32", depth)
        if self.by.random() < 0.02:
            return value
        return f"(i32.and {value} (i32.const 0xfff0))"

    # -- statements

    def _block(self, depth: int) -> str:
        return " ".join(self._statement(depth) for _ in range(self.by.randrange(1, 6)))

    def _statement(self, depth: int) -> str:
        self._left -= 1
        if depth <= 0 or self._left < 0:
            return self._set(depth)
        makers = self._statements
        (make,) = self.by.choices([*makers], [*makers.values()])
        return make(depth)

    def _set(self, depth: int) -> str:
        type_ = self.by.choice(_TYPES)
        name = f"${type_}{self.by.choice('xy')}"
        return f"(local.set {name} {self._value(type_, depth)})"

    def _store(self, depth: int) -> str:
        type_ = self.by.choice(_TYPES)
        value = self._bits.get(type_, "{}").format(self._value(type_, depth))
        stored = {"f32": "i32", "f64": "i64"}.get(type_, type_)
        return f"({stored}.store {self._place(depth)} {value})"

    def _loop(self, depth: int) -> str:
        if self._loops == 3:
            return self._set(depth)
        counter, self._loops = f"$l{self._loops}", self._loops + 1
        self._labels += 1
        label, body = f"$on{self._labels}", self._block(depth - 1)
        self._loops -= 1
        return f"""(local.set {counter} (i32.const {self.by.choice((2, 5, 12))}))
          (loop {label} {body}
          (local.set {counter} (i32.sub (local.get {counter}) (i32.const 1)))
          (br_if {label} (local.get {counter})))"""

    def _branch(self, depth: int) -> str:
        one, other = self._block(depth - 1), self._block(depth - 1)
        return f"(if {self._value('i32', depth)} (then {one}) (else {other}))"

    def _global(self, depth: int) -> str:
        return f"(global.set $g {self._value('i64', depth)})"

    def _fill(self, depth: int) -> str:
        size = f"(i32.and {self._value('i32', 1)} (i32.const 255))"
        if self.by.random() < 0.1:
            size = f"{self._place(1)} {size}"
            return f"(memory.copy {self._place(depth)} {size})"
        return f"(memory.fill {self._place(1)} {self._value('i32', 1)} {size})"

    def _trap(self, depth: int) -> str:
        return f"(if {self._value('i32', depth)} (then (unreachable)))"

    def _host(self, _depth: int) -> str:
        by = self.by
        usual = ("mcp_call", "mcp_call", "mcp_call_many", "log", "random")
        name = by.choice((*usual, *HOST_FUNCTIONS))
        signature, _, result = HOST_FUNCTIONS[name].partition(" -> ")
        if name == "mcp_call" and by.random() < 0.9:
            tool = by.randrange(len(_CALLED))
            numbers = [2000 + 100 * tool, len(_CALLED[tool]), *by.choice(_SENT)]
            numbers += [8192, by.choice((0, 40, 4096))]
        else:
            numbers = [self._argument() for _ in range(signature.count("i32"))]
        given = " ".join(f"(i32.const {one})" for one in numbers)
        called = f"(call ${name} {given})"
        if result == "()":
            return called
        return f"({result}.store (i32.const {by.randrange(0, 900, 8)}) {called})"

    def _argument(self) -> int:
        if self.by.random() < 0.01:
            return self.by.choice(_OUTSIDE)
        usual = (0, 1, 3, 20, 64, 1000, 1018, 2000, 9000, self.by.randrange(5000))
        return self.by.choice(usual)
