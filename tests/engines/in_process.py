"""
A sandbox in this process, for guests that a test wrote.

It has the worker's host functions and its engine. What is left out is a process for
each module and one for each guest, which take a thousand times as long.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import TypeVar

import wasmtime

from caxton_host.core.limits import Limits
from caxton_host.lib import codec
from caxton_host.ports.sandbox import Answer, Door, Ending, Guest, Prepared
from caxton_host.sandbox import gate, wasi, wire
from caxton_host.sandbox.engine import build_engine
from caxton_host.sandbox.session import Ended, execute
from caxton_host.sandbox.settings import settings_for, share
from caxton_host.sandbox.wire import Start

_T = TypeVar("_T")


class InProcess:
    """A sandbox without workers. It runs one module at a time."""

    def __init__(self, limits: Limits) -> None:
        self.built = build_engine(settings_for(limits))
        self.linker = wasi.link(self.built)

    async def prepare(self, module: bytes, limits: Limits, entry: str) -> Prepared:
        info = gate.check(module, limits.of(module), entry)
        self.module = wasmtime.Module(self.built, module)
        self.share = share([one.maximum for one in info.memories], limits.memory or 0)
        digest = codec.sha256(module)
        return Prepared(sha256=digest, abi=info.abi, engine="here", key=digest)

    async def run(self, prepared: Prepared, guest: Guest, door: Door) -> Ending:
        del prepared
        start = Start(
            module="",
            memory=self.share,
            entry=guest.entry,
            limits=guest.limits,
            input=guest.input,
            context=dict(guest.context),
            tools=guest.tools,
            program=guest.program,
            command=guest.command,
            seed=guest.seed,
            now=guest.now,
        )
        code = wasi.ModuleCode(self.built, self.linker.instantiate_pre(self.module))
        host = _Bridge(door, asyncio.get_running_loop())
        end = await asyncio.to_thread(execute, code, wasi.Session(start, host))
        if host.raised:
            raise host.raised
        assert end.kind in wire.ENDS[:3], end
        return end.ending()


@dataclass
class _Bridge:
    door: Door
    loop: asyncio.AbstractEventLoop
    raised: BaseException | None = None

    def call(self, name: bytes, params: bytes, fuel: int) -> Answer:
        return self._wait(self.door.call(name, params, fuel))

    def call_many(self, batch: bytes, fuel: int) -> Answer:
        return self._wait(self.door.call_many(batch, fuel))

    def log(self, level: int, text: bytes) -> None:
        async def log() -> None:
            self.door.log(level, text)

        self._wait(log())

    def tick(self) -> bool:
        return True

    def _wait(self, asked: Awaitable[_T]) -> _T:
        async def ask() -> _T:
            return await asked

        try:
            return asyncio.run_coroutine_threadsafe(ask(), self.loop).result()
        except Exception as exc:  # noqa: BLE001 -- raised where the run is driven
            self.raised = exc
            raise Ended from None
