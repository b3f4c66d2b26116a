"""A bare engine with the host functions of core modules, and nothing behind them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any, TypeAlias

import wasmtime as wt

from caxton_host.lib import codec

Tool: TypeAlias = Callable[[str, Any], Any]

BEGAN = 1_767_225_600_123_456
LEVELS = ("debug", "info", "warning", "error")
_STATUS = {"ok": 0, "tool_error": 1, "denied": 2, "failed": 3, "bad_request": 4}
_I32, _I64 = wt.ValType.i32(), wt.ValType.i64()


def ok(message: str, data: object = None) -> dict[str, Any]:
    return {"status": "ok", "message": message, "data": data}


def problem(status: str, code: str, message: str, data: object = None) -> Any:  # noqa: ANN401 -- JSON
    error = {"code": code, "message": message}
    return {"status": status, "message": message, "data": data, "error": error}


@functools.cache
def compiled(module: bytes) -> tuple[wt.Engine, wt.Module]:
    config = wt.Config()
    config.max_wasm_stack = 1024 * 1024
    engine = wt.Engine(config)
    return engine, wt.Module(engine, module)


def stream(size: int) -> bytes:
    """Return the first random bytes of a run."""
    return bytes(n * 167 % 256 for n in range(size))


@dataclass(kw_only=True)
class Machine:
    """
    Runs one module once.

    Attributes:
        tool: Answers calls, and those of batches unless `many` does.

        calls: The name and params of each, as msgpack; of a batch, "" and the batch.
    """

    input: object = None
    tool: Tool = lambda _name, _params: ok("")
    many: object = None
    variables: Mapping[str, object] = field(default_factory=dict)
    calls: list[tuple[str, bytes]] = field(default_factory=list)
    logs: list[tuple[str, str]] = field(default_factory=list)
    outputs: list[Any] = field(default_factory=list)
    reason: str = ""
    drawn: int = 0
    _waiting: bytes = b""
    _store: wt.Store | None = None
    _memory: wt.Memory | None = None

    def run(self, module: bytes) -> str | None:
        """Return what was wrong, if anything was."""
        engine, compiled_module = compiled(module)
        store = wt.Store(engine)
        linker = wt.Linker(engine)
        times = count(BEGAN, 1_500_000)
        for name, params, results, function in (
            ("mcp_call", 6, [_I64], self._call),
            ("mcp_call_many", 4, [_I64], self._many),
            ("take_reply", 2, [_I32], lambda out, _cap: self._put(out, self._waiting)),
            ("tools", 2, [_I64], functools.partial(self._reply, [{"name": "weather"}])),
            ("context", 4, [_I64], self._context),
            ("input", 2, [_I64], functools.partial(self._reply, self.input)),
            ("program", 2, [_I64], functools.partial(self._reply, None)),
            ("output", 2, [], self._output),
            ("now", 0, [_I64], lambda: next(times)),
            ("random", 2, [], self._random),
            ("log", 3, [], self._log),
            ("fail", 2, [], self._fail),
        ):
            type_ = wt.FuncType([_I32] * params, results)
            linker.define_func("caxton", name, type_, function)
        instance = linker.instantiate(store, compiled_module)
        memory, entry = (instance.exports(store)[name] for name in ("memory", "run"))
        assert isinstance(memory, wt.Memory)
        assert isinstance(entry, wt.Func)
        self._store, self._memory = store, memory
        return (self.reason or "no reason") if entry(store) else None

    def result(self) -> Any:  # noqa: ANN401 -- whatever it output
        """Return the value that the guest output."""
        return self.outputs[-1]

    def sent(self, at: int = 0) -> Any:  # noqa: ANN401 -- JSON
        """Return the params of a call, or a batch."""
        return codec.decode_trusted(self.calls[at][1])

    def _read(self, at: int, size: int) -> bytes:
        assert self._memory
        assert self._store
        return bytes(self._memory.read(self._store, at, at + size))

    def _write(self, at: int, data: bytes) -> None:
        assert self._memory
        assert self._store
        self._memory.write(self._store, data, at)

    def _put(self, out: int, data: bytes) -> int:
        self._write(out, data)
        return len(data)

    def _reply(self, value: object, *place: int, status: int = 0) -> int:
        out, cap = place
        self._waiting = codec.encode(value)
        if len(self._waiting) <= cap:
            self._put(out, self._waiting)
        return status << 32 | len(self._waiting)

    def _call(self, *args: int) -> int:
        name, params = (self._read(*args[:2]).decode(), self._read(*args[2:4]))
        self.calls.append((name, params))
        try:
            value = codec.decode_trusted(params)
        except ValueError:  # which the host records, and answers so
            return self._reply(
                problem("bad_request", "bad_request", ""), *args[4:], status=4
            )
        answer = self.tool(name, value)
        return self._reply(answer, *args[4:], status=_STATUS[answer["status"]])

    def _many(self, at: int, size: int, out: int, cap: int) -> int:
        batch = self._read(at, size)
        self.calls.append(("", batch))
        if self.many is not None:
            return self._reply(self.many, out, cap, status=4)
        answers = [self.tool(*item) for item in codec.decode_trusted(batch)]
        return self._reply(answers, out, cap)

    def _context(self, at: int, size: int, out: int, cap: int) -> int:
        key = self._read(at, size).decode(errors="replace")
        if key in self.variables:
            return self._reply(self.variables[key], out, cap)
        unknown = problem("bad_request", "unknown_key", "no such key")
        return self._reply(unknown, out, cap, status=4)

    def _output(self, at: int, size: int) -> None:
        self.outputs.append(codec.decode_trusted(self._read(at, size)))

    def _random(self, at: int, size: int) -> None:
        self._write(at, stream(self.drawn + size)[self.drawn :])
        self.drawn += size

    def _log(self, level: int, at: int, size: int) -> None:
        self.logs.append((LEVELS[level], self._read(at, size).decode()))

    def _fail(self, at: int, size: int) -> None:
        self.reason = self._read(at, size).decode()
