"""A bare engine with the host functions of components, and nothing behind them."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any, TypeAlias

import wasmtime as wt
from wasmtime import component as wc

Tool: TypeAlias = Callable[[str, Any], Any]

HOST = "caxton:agent/host@1.0.0"
BEGAN = 1_767_225_600_123_456


def ok(message: str, data: object = None) -> dict[str, Any]:
    return {"status": "ok", "message": message, "data": data}


def problem(status: str, code: str, message: str, data: object = None) -> Any:  # noqa: ANN401 -- JSON
    error = {"code": code, "message": message}
    return {"status": status, "message": message, "data": data, "error": error}


@functools.cache
def compiled(module: bytes) -> tuple[wt.Engine, wc.Component]:
    engine = wt.Engine()
    return engine, wc.Component(engine, module)


@dataclass(kw_only=True)
class Machine:
    """
    Runs one component once.

    Attributes:
        tool: Answers calls, and those of batches unless `many` does.
    """

    input: object = None
    tool: Tool = lambda _name, _params: ok("")
    many: object = None
    variables: Mapping[str, object] = field(default_factory=dict)
    calls: list[tuple[str, str]] = field(default_factory=list)
    logs: list[tuple[str, str]] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)

    def run(self, module: bytes) -> str | None:
        """Return what was wrong, if anything was."""
        engine, component = compiled(module)
        store = wt.Store(engine)
        linker = wc.Linker(engine)
        times, drawn = count(BEGAN, 1_500_000), count(1)
        with linker.root() as root, root.add_instance(HOST) as host:
            for name, function in (
                ("mcp-call", self._call),
                ("mcp-call-many", self._many),
                ("tools", lambda: '[{"name":"weather"}]'),
                ("context", self._context),
                ("input", lambda: json.dumps(self.input)),
                ("output", self.outputs.append),
                ("now", lambda: next(times)),
                ("random", lambda: next(drawn) * 0x0123_4567_89AB_CDEF % 2**64),
                ("log", lambda level, text: self.logs.append((level, text))),
                ("program", lambda: "null"),
            ):
                host.add_func(name, functools.partial(_without_store, function))
        entry = linker.instantiate(store, component).get_func(store, "run")
        assert entry
        said = entry(store)
        assert said is None or isinstance(said, str)
        return said

    def result(self) -> Any:  # noqa: ANN401 -- whatever it output
        """Return the value that the guest output."""
        return json.loads(self.outputs[-1])

    def _call(self, name: str, params: str) -> str:
        self.calls.append((name, params))
        return json.dumps(self.tool(name, json.loads(params)))

    def _many(self, batch: str) -> str:
        self.calls.append(("", batch))
        if self.many is not None:
            return json.dumps(self.many)
        return json.dumps([self.tool(*item) for item in json.loads(batch)])

    def _context(self, key: str) -> str | None:
        return json.dumps(self.variables[key]) if key in self.variables else None


def _without_store(function: Callable[..., Any], _store: object, *values: Any) -> Any:  # noqa: ANN401 -- of the host function
    return function(*values)
