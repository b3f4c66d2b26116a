"""Guests written in WebAssembly text, and a door that answers at once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import wasmtime

from caxton_host.core.limits import Limits
from caxton_host.ports.sandbox import Answer, Door, Ending, Guest
from caxton_host.sandbox import WasmSandbox
from caxton_host.sandbox.interface import HOST_FUNCTIONS

KEY = b"k" * 32
SEED = bytes(range(32))
#: Upper bound for what must end; nothing here is a measurement.
SOON = 20.0

LOOP = "(loop $for_ever (br $for_ever)) (unreachable)"


def _import(name: str, signature: str) -> str:
    parameters, _, result = signature.partition(" -> ")
    taken = "".join(f"(param {one})" for one in parameters.strip("()").split(", "))
    given = "" if result == "()" else f"(result {result})"
    return (
        f'(import "caxton" "{name}" (func ${name} {taken.replace("(param )", "")}'
        f"{given}))"
    )


IMPORTS = "\n".join(_import(*item) for item in HOST_FUNCTIONS.items())


def wasm(run: str, *, before: str = "", memory: str = "1") -> bytes:
    """Return a module whose entry point has the body *run*."""
    text = f"""(module {IMPORTS}
      (memory (export "memory") {memory})
      {before}
      (func (export "run") (result i32) (local $i i32) (local $r i64) {run}))"""
    return bytes(wasmtime.wat2wasm(text))


#: One tool call: a reply of up to 100 bytes to 1024, the result on the stack.
CALL = """(call $mcp_call (i32.const 0) (i32.const 4) (i32.const 4) (i32.const 1)
  (i32.const 1024) (i32.const 100))"""
#: What it sends.
ECHO = '(data (i32.const 0) "echo\\80")'


OK = Answer(0, b"\x80", 1_000)


async def never() -> Answer:
    """Answer no call at all."""
    await asyncio.Event().wait()
    raise AssertionError


@dataclass
class FakeDoor:
    """A door that remembers, and answers as it was told to."""

    answer: Answer | Callable[[], Awaitable[Answer]] = OK
    calls: list[tuple[bytes, bytes, int]] = field(default_factory=list)
    batches: list[tuple[bytes, int]] = field(default_factory=list)
    lines: list[tuple[int, bytes]] = field(default_factory=list)
    called: asyncio.Event = field(default_factory=asyncio.Event)
    left: list[str] = field(default_factory=list)

    async def call(self, name: bytes, params: bytes, fuel: int) -> Answer:
        self.calls.append((name, params, fuel))
        return await self._answered()

    async def call_many(self, batch: bytes, fuel: int) -> Answer:
        self.batches.append((batch, fuel))
        return await self._answered()

    async def _answered(self) -> Answer:
        self.called.set()
        if isinstance(self.answer, Answer):
            return self.answer
        try:
            return await self.answer()
        except asyncio.CancelledError:
            self.left.append("cancelled")
            raise

    def log(self, level: int, text: bytes) -> None:
        self.lines.append((level, text))


def guest(limits: Limits | None = None, **fields: Any) -> Guest:  # noqa: ANN401 -- by name
    """Return a guest; what is not said is dull."""
    given: dict[str, Any] = {
        "domain": "test",
        "entry": "run",
        "limits": limits or Limits(),
        "input": b"\xc0",
        "seed": SEED,
        "now": 5,
    }
    return Guest(**given | fields)


async def execute(
    sandbox: WasmSandbox,
    module: bytes,
    door: Door | None = None,
    limits: Limits | None = None,
    **fields: Any,  # noqa: ANN401 -- by name
) -> Ending:
    """Prepare *module* and run it once."""
    limits = limits or Limits()
    prepared = await sandbox.prepare(module, limits, "run")
    async with asyncio.timeout(SOON):
        return await sandbox.run(prepared, guest(limits, **fields), door or FakeDoor())


def workers(sandbox: WasmSandbox) -> list[int]:
    """Return the process ids of the workers that run."""
    return [
        worker.link.result()._process.pid
        for worker in sandbox._workers
        if worker.link.done()
    ]


def alive(pid: int) -> bool:
    """Return whether a process exists and is no zombie."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


async def until(true: Callable[[], bool]) -> None:
    """Wait until something is true."""
    async with asyncio.timeout(SOON):
        while not true():  # noqa: ASYNC110 -- of another process, or thread
            await asyncio.sleep(0.01)
