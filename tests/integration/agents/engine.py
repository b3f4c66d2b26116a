"""A bare engine with the host functions of the ABI, and nothing behind them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import wasmtime as wt

from caxton_host.lib import codec

Tool: TypeAlias = Callable[[str, Any], tuple[int, bytes]]

_I32, _I64 = wt.ValType.i32(), wt.ValType.i64()


def no_tool(_name: str, _params: object) -> tuple[int, bytes]:
    raise AssertionError("no tool was expected to be called")


def ok(message: str, data: object = None) -> tuple[int, bytes]:
    reply = {"status": "ok", "message": message, "data": data}
    return 0, codec.encode(reply)


def problem(status: int, word: str, code: str, message: str) -> tuple[int, bytes]:
    error = {"code": code, "message": message}
    reply = {"status": word, "message": message, "data": None, "error": error}
    return status, codec.encode(reply)


@functools.cache
def compiled(module: bytes) -> tuple[wt.Engine, wt.Module]:
    engine = wt.Engine()
    return engine, wt.Module(engine, module)


@dataclass(kw_only=True)
class Machine:
    """
    Runs one module once.

    Attributes:
        input: The reply of `input()`, as it is; need not be msgpack.
    """

    input: bytes = b"\xc0"
    tool: Tool = no_tool
    calls: list[tuple[str, Any]] = field(default_factory=list)
    output: bytes | None = None
    logs: list[tuple[int, str]] = field(default_factory=list)
    taken: int = 0
    _memory: wt.Memory | None = None
    _store: wt.Store | None = None
    _waiting: bytes = b""

    def run(self, module: bytes) -> int:
        engine, compiled_module = compiled(module)
        self._store = store = wt.Store(engine)
        linker = wt.Linker(engine)
        for name, params, results, function in (
            ("mcp_call", [_I32] * 6, [_I64], self._mcp_call),
            ("mcp_call_many", [_I32] * 4, [_I64], self._mcp_call_many),
            ("take_reply", [_I32] * 2, [_I32], self._take_reply),
            ("tools", [_I32] * 2, [_I64], self._tools),
            ("context", [_I32] * 4, [_I64], self._context),
            ("input", [_I32] * 2, [_I64], self._input),
            ("output", [_I32] * 2, [], self._output),
            ("now", [], [_I64], lambda: 1_700_000_000_000_000),
            ("random", [_I32] * 2, [], self._random),
            ("log", [_I32] * 3, [], self._log),
        ):
            linker.define_func("caxton", name, wt.FuncType(params, results), function)
        instance = linker.instantiate(store, compiled_module)
        exports = instance.exports(store)
        memory, entry = exports["memory"], exports["run"]
        assert isinstance(memory, wt.Memory)
        assert isinstance(entry, wt.Func)
        self._memory = memory
        return int(entry(store))

    def _read(self, at: int, size: int) -> bytes:
        assert self._memory
        assert self._store
        assert 0 <= at <= at + size <= self._memory.data_len(self._store)
        return bytes(self._memory.read(self._store, at, at + size))

    def _write(self, at: int, data: bytes) -> None:
        assert self._memory
        assert self._store
        assert 0 <= at <= at + len(data) <= self._memory.data_len(self._store)
        self._memory.write(self._store, data, at)

    def _reply(self, status: int, reply: bytes, out: int, cap: int) -> int:
        self._read(out, cap)
        self._waiting = reply
        if len(reply) <= cap:
            self._write(out, reply)
        return status << 32 | len(reply)

    def _take_reply(self, out: int, cap: int) -> int:
        self.taken += 1
        if len(self._waiting) <= cap:
            self._write(out, self._waiting)
        return len(self._waiting)

    def _mcp_call(self, *args: int) -> int:
        name_at, name_size, at, size, out, cap = args
        name = self._read(name_at, name_size).decode()
        params = codec.decode_map(self._read(at, size), limit=65536)
        self.calls.append((name, params))
        return self._reply(*self.tool(name, params), out, cap)

    def _mcp_call_many(self, at: int, size: int, out: int, cap: int) -> int:
        items = codec.split_batch(self._read(at, size))
        if not items:
            return self._reply(
                *problem(4, "bad_request", "bad_request", "no"), out, cap
            )
        replies = []
        for raw, params in items:
            assert raw is not None
            name = raw.decode()
            self.calls.append((name, codec.decode_map(params, limit=65536)))
            replies.append(codec.decode_trusted(self.tool(*self.calls[-1])[1]))
        return self._reply(0, codec.encode(replies), out, cap)

    def _input(self, out: int, cap: int) -> int:
        return self._reply(0, self.input, out, cap)

    def _tools(self, out: int, cap: int) -> int:
        return self._reply(0, codec.encode([{"name": "weather"}]), out, cap)

    def _context(self, at: int, size: int, out: int, cap: int) -> int:
        if self._read(at, size) == b"user_name":
            return self._reply(0, codec.encode("Ada"), out, cap)
        return self._reply(
            *problem(4, "bad_request", "unknown_key", "no such key"), out, cap
        )

    def _output(self, at: int, size: int) -> None:
        self.output = self._read(at, size)

    def _random(self, at: int, size: int) -> None:
        self._write(at, bytes(range(size)))

    def _log(self, level: int, at: int, size: int) -> None:
        self.logs.append((level, self._read(at, size).decode()))

    def result(self) -> Any:  # noqa: ANN401 -- whatever it output
        """Return the value that the guest output."""
        assert self.output is not None
        return codec.decode(self.output, limit=1 << 20)
