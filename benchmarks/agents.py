"""
Measure agents by language: start, call, memory while waiting.

A start is a complete run of a precompiled agent that returns at once, in a warm
worker: frames both ways, a fresh instance, its end. The peer runs the same core module
with Extism's SDK for Python, in one process and without a journal. A call sends 1 KiB
to a stub that answers at once with 1 KiB, which leaves the cost of the round trip.
Waiting agents are runs of `weather`, each blocked in one tool call.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import time
from argparse import Namespace
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from caxton_host.building import build_agent, find_shared, new_agent
from caxton_host.core.limits import Limits
from caxton_host.lib import codec
from caxton_host.ports.sandbox import Answer, Ending, Guest, Prepared
from caxton_host.sandbox import WasmSandbox
from tests.components import call, component
from tests.integration.sandbox.support import wasm

from .page import Figure, Section
from .scale import memory

AGENTS = 200
CALLS = 1000
STARTS = 100
_KEY, _SEED = b"k" * 32, b"s" * 32
_LIMITS = Limits(total_calls=10**6, host_calls=10**6)
_REPLY = codec.encode({"status": "ok", "message": "y" * 500, "data": {"t": "z" * 480}})

#: Language to the file and code of an agent that returns at once, and its limit in ms.
_IDLE: Mapping[str, tuple[str, str, float]] = {
    "c": ("agent.c", '#include "caxton.h"\nCX_RUN { return 0; }\n', 1.0),
    "javascript": ("agent.js", "export function run() {}\n", 3.0),
    "python": ("agent.py", "def run():\n    pass\n", 5.0),
}


@dataclass(slots=True)
class _Door:
    """
    A stub of the gateway. It answers at once, or when ``open`` is set.

    Attributes:
        waits: Number of calls after which ``full`` is set; 0 answers at once.
    """

    waits: int = 0
    asked: int = 0
    full: asyncio.Event = field(default_factory=asyncio.Event)
    open: asyncio.Event = field(default_factory=asyncio.Event)

    async def call(self, name: bytes, params: bytes, fuel: int) -> Answer:
        """Answer with 1 KiB."""
        del name, params, fuel
        self.asked += 1
        if self.asked == self.waits:
            self.full.set()
        if self.waits:
            await self.open.wait()
        return Answer(0, _REPLY, 1)

    async def call_many(self, batch: bytes, fuel: int) -> Answer:
        """Refuse batches."""
        raise NotImplementedError

    def log(self, level: int, text: bytes) -> None:
        """Drop the line."""


def section(folder: Path, options: Namespace) -> Section:
    """Measure starts, calls and memory of each language."""
    return Section(
        "agents",
        "Agents by language",
        "Start: a run of an agent that returns at once, in a warm worker; "
        f"{STARTS} per round. Call: 1 KiB each way; {CALLS} per round. Memory: PSS of "
        f"host and workers while {AGENTS} agents wait, each in one call.",
        asyncio.run(_measured(folder, options.rounds)),
    )


async def _measured(folder: Path, rounds: int) -> list[Figure]:
    modules = _built(folder)
    async with WasmSandbox(folder / "cache", _KEY) as sandbox:
        figures = [
            await _starts(sandbox, lang, modules[lang], rounds) for lang in _IDLE
        ]
        figures.append(_extism(modules["c"], rounds))
        figures += await _calls(sandbox, rounds)
    async with WasmSandbox(folder / "cache", _KEY) as sandbox:
        figures.append(await _waiting(sandbox, modules["weather"]))
    return figures


def _built(folder: Path) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for lang, (name, text, _) in _IDLE.items():
        home = new_agent(f"idle-{lang}", lang, folder)
        (home / name).write_text(text, "utf-8")
        built = build_agent(home, into=folder, cache=folder / "zig")
        found[lang] = built.path.read_bytes()
    home = find_shared("agents/weather")
    built = build_agent(home, lang="python", into=folder, cache=folder / "zig")
    found["weather"] = built.path.read_bytes()
    return found


async def _starts(
    sandbox: WasmSandbox, lang: str, module: bytes, rounds: int
) -> Figure:
    prepared = await sandbox.prepare(module, _LIMITS, "run")
    await _run(sandbox, prepared, _Door())
    took = [
        statistics.median([await _timed(sandbox, prepared) for _ in range(STARTS)])
        for _ in range(rounds)
    ]
    size = f"{len(module) / 1024:,.0f} KiB"
    return Figure(f"start, {lang} ({size})", took, "ms", (_IDLE[lang][2], False))


async def _timed(sandbox: WasmSandbox, prepared: Prepared) -> float:
    began = time.perf_counter()
    await _run(sandbox, prepared, _Door())
    return 1e3 * (time.perf_counter() - began)


async def _run(sandbox: WasmSandbox, prepared: Prepared, door: _Door) -> Ending:
    guest = Guest(
        domain="bench",
        entry="run",
        limits=_LIMITS,
        input=codec.encode({"location": "Seattle"}),
        seed=_SEED,
        now=1,
    )
    ending = await sandbox.run(prepared, guest, door)
    if ending.kind != "returned":
        sys.exit(f"Error: the agent ended with {ending}")
    return ending


def _extism(module: bytes, rounds: int) -> Figure:
    from extism.extism import (  # noqa: PLC0415 -- in an extra
        CompiledPlugin,
        Plugin,
    )

    compiled = CompiledPlugin({"wasm": [{"data": module}]}, functions=[])
    took: list[float] = []
    for _ in range(rounds):
        each: list[float] = []
        for _ in range(STARTS):
            began = time.perf_counter()
            Plugin(compiled).call("run", b"")
            each.append(1e3 * (time.perf_counter() - began))
        took.append(statistics.median(each))
    return Figure("start, c, Extism in one process", took, "ms")


async def _calls(sandbox: WasmSandbox, rounds: int) -> list[Figure]:
    params = {"text": "x" * 1000, "n": 1}
    packed = codec.encode(params)
    code = "".join(f"\\{byte:02x}" for byte in packed)
    data, ask = call("echo", json.dumps(params))
    one = await sandbox.prepare(
        wasm(
            _loop(
                "(drop (call $mcp_call (i32.const 0) (i32.const 4) (i32.const 16) "
                f"(i32.const {len(packed)}) (i32.const 4096) (i32.const 4096)))"
            )
            + "(i32.const 0)",
            before=f'(data (i32.const 0) "echo") (data (i32.const 16) "{code}")',
        ),
        _LIMITS,
        "run",
    )
    other = await sandbox.prepare(
        component(_loop(ask), before=data, memory="100"), _LIMITS, "run"
    )
    core = [await _call(sandbox, one) for _ in range(rounds)]
    component_ = [await _call(sandbox, other) for _ in range(rounds)]
    return [
        Figure("a call with 1 KiB, core module", core, "us"),
        Figure("the same, component", component_, "us"),
        Figure(
            "component / core",
            [b / a for a, b in zip(core, component_, strict=True)],
            "",
            (2.0, False),
        ),
    ]


def _loop(body: str) -> str:
    return (
        f"(local.set $i (i32.const {CALLS})) (loop $again {body} "
        "(local.set $i (i32.sub (local.get $i) (i32.const 1))) "
        "(br_if $again (local.get $i)))"
    )


async def _call(sandbox: WasmSandbox, prepared: Prepared) -> float:
    began = time.perf_counter()
    await _run(sandbox, prepared, _Door())
    return 1e6 * (time.perf_counter() - began) / CALLS


async def _waiting(sandbox: WasmSandbox, module: bytes) -> Figure:
    prepared = await sandbox.prepare(module, _LIMITS, "run")
    door = _Door(waits=AGENTS)
    runs = [asyncio.create_task(_run(sandbox, prepared, door)) for _ in range(AGENTS)]
    await door.full.wait()
    parts, _ = memory()
    door.open.set()
    await asyncio.gather(*runs)
    pss = [sum(parts.values()) / 1e6]
    return Figure(f"{AGENTS} waiting Python agents", pss, "MB", (1000.0, False))
