"""WASI programs that make random calls, and output a digest of what those wrote."""

from __future__ import annotations

import random  # noqa: TID251 -- drawn from the seed that is printed
import struct

import wasmtime

from caxton_host.core.commands import MODULE
from caxton_host.sandbox.interface import WASI_FUNCTIONS

from .core import HELPERS, IMPORTS, escaped, imported

FILES = {"data/a.txt": b"hello", "data/deep/b.txt": b"there" * 900, "c.txt": b""}
_PATHS = (
    *("tmp/y", "data/a.txt", "data/deep/b.txt", "tmp", "tmp/x", ".", "tmp/d/../x"),
    *("data/new", "d", "d/e", "..", "/etc", "tmp/x/z", "é", "d/", "x" * 300, ""),
)
_PRINTED = (
    *(b"line\n", b"1e400", b"[1e3, 12345678901234567890123]", b'{"a": 1, "a": 2}'),
    b'{"10": 1.0, "9": [1, -0.0, 18446744073709551615], "a": null}',
    *(b"\xff[]", b' [true, "\\ud83d\\ude00"] '),
)
_USUAL = (
    *("path_open", "path_open", "path_rename", "path_unlink_file", "fd_renumber"),
    *("path_create_directory", "path_remove_directory", "path_filestat_get"),
    *("fd_write", "fd_read", "fd_readdir", "fd_seek", "fd_close", "fd_pwrite"),
    *("fd_filestat_set_size", "fd_filestat_get", "poll_oneoff"),
)
_MOVES = ("fd_read", "fd_write", "fd_pread", "fd_pwrite")
_WIDE = (0, 1, 2, 5, 64, 66, 1000, 70_000, -1, 2**62, -(2**63))
#: Where the vectors are, what they name, and the paths.
_VECTORS, _TEXT, _NAMES = 2048, 6000, 4096


class Command:
    """A program that is drawn from a seed."""

    def __init__(self, seed: int) -> None:
        self.by = random.Random(seed)  # noqa: S311 -- to be repeated
        self._paths = [path.encode() for path in _PATHS]

    def module(self) -> bytes:
        """Return it."""
        by = self.by
        printed = by.choice(_PRINTED)
        vectors = (_TEXT, len(printed), 7000, 300, _NAMES, 40, _TEXT, 0)
        data = f"""(data (i32.const {_NAMES}) "{escaped(b"".join(self._paths))}")
          (data (i32.const {_VECTORS}) "{escaped(struct.pack("<8I", *vectors))}")
          (data (i32.const {_TEXT}) "{escaped(printed)}")"""
        names = by.choices((*WASI_FUNCTIONS, *_USUAL * 4), k=by.choice((5, 30, 120)))
        code = "".join(map(self._call, names))
        if by.random() < 0.1:
            code += f"(call $note (call $fd_write {_constants(1, _VECTORS, 1, 9000)}))"
        output = "(call $output (i32.const 65536) (i32.const 9))"
        imports = "".join(imported(MODULE, *one) for one in WASI_FUNCTIONS.items())
        text = f"""(module {imports} {IMPORTS} (memory (export "memory") 4 20)
          (global $g (mut i64) (i64.const 1)) {HELPERS} {data}
          (func $note (param $errno i32)
            (global.set $g (i64.mul (i64.const 0x100000001b3) (i64.xor (global.get $g)
              (i64.add (call $digest) (i64.extend_i32_u (local.get $errno)))))))
          (func (export "_start") {code}
            (i32.store8 (i32.const 65536) (i32.const 0xcf))
            (i64.store (i32.const 65537) (global.get $g))
            {"" if by.random() < 0.2 else output}))"""
        return bytes(wasmtime.wat2wasm(text))

    def _call(self, name: str) -> str:
        types = WASI_FUNCTIONS[name].partition(" -> ")[0].strip("()").split(", ")
        path = self.by.randrange(len(self._paths))
        given = " ".join(
            f"({type_}.const {self._argument(name, place, type_, path)})"
            for place, type_ in enumerate(types)
            if type_
        )
        if name == "proc_exit":
            return f"(call $proc_exit {given})" if self.by.random() < 0.1 else ""
        return f"(call $note (call ${name} {given}))"

    def _argument(self, name: str, place: int, type_: str, path: int) -> int:
        by = self.by
        if by.random() < 0.01:
            return by.choice((-1, 2**31 - 1, 262_144, 255, 1024, 1025))
        if name.startswith("path_"):
            at = 2 if name in {"path_open", "path_filestat_get"} else 1
            start = _NAMES + sum(map(len, self._paths[:path]))
            said = {0: by.choice((3, 3, 3, 4, 5)), at: start}
            said[at + 1] = len(self._paths[path])
            if name == "path_rename":
                said |= {3: 3, 4: _NAMES, 5: 5}
            if name == "path_open":
                said[4] = by.choice((0, 1, 1, 2, 5, 8, 9))
            if place in said:
                return said[place]
        elif name in _MOVES and place in {1, 2}:
            return _VECTORS if place == 1 else by.choice((1, 2, 3, 4, 0))
        elif name.startswith("fd_") and not place:
            return by.choice((0, 1, 2, 3, 4, 4, 5, 6, 7))
        if type_ == "i64":
            return by.choice(_WIDE)
        return by.choice((0, 1, 2, 3, 8192, 9000, 12_000, 16_384, 16, 300))


def _constants(*numbers: int) -> str:
    return " ".join(f"(i32.const {one})" for one in numbers)
