"""
The sandbox: which worker runs which guest.

A worker serves one trust domain. It starts when its first guest comes, is kept for
the next ones, and ends when it has had nothing to do for a while, or when another
domain needs its place. Its address space is what a number of guests like the first
one take; a guest that finds no room is started once more, in a worker of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import anyio

from ..core.limits import Limits
from ..errors import ModuleRefused, SandboxError
from ..ports import Door, Ending, Guest, Prepared
from . import gate
from .binary import ModuleInfo
from .compiler import Compiler
from .link import Link, NoRoom
from .settings import PAGE, STACK, settings_for, share

__all__ = ["WasmSandbox"]

_MIB = 1024 * 1024
#: What a worker maps before its first guest, and its compiled modules.
_WORKER_SPACE = 1024 * _MIB
#: A guest's thread, tables and host functions.
_GUEST_SPACE = STACK + 4 * _MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class _Code:
    """
    A module that can be sent to workers.

    Attributes:
        settings: Of its engine, as JSON.

        artifact: Native code.

        memory: Most bytes of each of its memories.

        space: Address space that one guest takes.
    """

    settings: str
    artifact: bytes = field(repr=False)
    memory: int
    space: int


class _Worker:
    """A worker, or one that is starting, and the guests that count on it."""

    def __init__(self, domain: str, space: int) -> None:
        self.domain = domain
        self.left = space
        self.guests = 0
        self.full = False
        self.link = asyncio.create_task(Link.spawn(_WORKER_SPACE + space))
        self.idle: asyncio.TimerHandle | None = None

    @property
    def usable(self) -> bool:
        """Whether it may be given another guest."""
        if self.full or not self.link.done():
            return not self.full
        return not (self.link.exception() or self.link.result().lost)

    async def end(self) -> None:
        """End the process, and return once it has."""
        await asyncio.wait({self.link})
        if not self.link.exception():
            self.link.result().kill("the worker was closed")
            await self.link.result().closed


class WasmSandbox:
    """
    Runs guests in confined worker processes; see `ports.Sandbox`.

    Use it as an async context manager, in the main thread: workers end with the
    thread that started them.

    Args:
        cache: Folder for compiled modules, for this user alone.

        mac_key: At least 32 secret bytes, which authenticate what is in there.

        workers: How many processes there may be.

        guests: How many guests one of them may hold.

        idle: Seconds after which one without guests is closed.
    """

    def __init__(
        self,
        cache: Path,
        mac_key: bytes,
        *,
        workers: int = 16,
        guests: int = 128,
        idle: float = 60.0,
    ) -> None:
        self._compiler = Compiler(cache, mac_key)
        self._most_workers = workers
        self._most_guests = guests
        self._idle = idle
        self._code: dict[str, _Code] = {}
        self._workers: list[_Worker] = []
        self._waiting: list[asyncio.Future[None]] = []
        self._ending: set[asyncio.Task[None]] = set()
        self._closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """End all workers. Runs that are left end with a `SandboxError`."""
        self._closed = True
        self._wake()
        for worker in [*self._workers]:
            self._end(worker)
        with anyio.CancelScope(shield=True):
            while self._ending:
                await asyncio.wait(self._ending)

    async def prepare(self, module: bytes, limits: Limits, entry: str) -> Prepared:
        """Check and compile a module; see `ports.Sandbox.prepare`."""
        info, memory = await asyncio.to_thread(_admit, module, limits, entry)
        settings = settings_for(limits)
        artifact = await self._compiler.artifact(module, limits, settings)
        reserved = len(info.memories) * (settings.memory + 2 * settings.guard)
        self._code[artifact.key] = _Code(
            settings=settings.to_json(),
            artifact=artifact.data,
            memory=memory,
            space=reserved + _GUEST_SPACE,
        )
        return Prepared(
            sha256=info.sha256,
            abi="core/1",
            engine=settings.fingerprint,
            key=artifact.key,
        )

    async def run(self, prepared: Prepared, guest: Guest, door: Door) -> Ending:
        """Execute a guest once, from a fresh instance; see `ports.Sandbox.run`."""
        try:
            return await self._run(prepared.key, guest, door)
        except NoRoom:
            return await self._run(prepared.key, guest, door)

    async def _run(self, key: str, guest: Guest, door: Door) -> Ending:
        code = self._code[key]
        async with self._place(guest.domain, code.space) as worker:
            link = await asyncio.shield(worker.link)
            link.load(key, code.settings, code.artifact)
            try:
                return await link.run(key, code.memory, guest, door)
            except NoRoom:
                worker.full = True
                raise

    @asynccontextmanager
    async def _place(self, domain: str, space: int) -> AsyncGenerator[_Worker]:
        """Hold a place for one guest in a worker of *domain*."""
        while (worker := self._choose(domain, space)) is None:
            turn = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            await turn
        worker.guests += 1
        worker.left -= space
        if worker.idle:
            worker.idle.cancel()
        try:
            yield worker
        finally:
            worker.guests -= 1
            worker.left += space
            if not worker.guests:
                self._rest(worker)
            self._wake()

    def _choose(self, domain: str, space: int) -> _Worker | None:
        """Return a worker for a guest of *domain*, or ``None``: it has to wait."""
        if self._closed:
            raise SandboxError("the sandbox is closed")
        for worker in self._workers:
            if (
                worker.domain == domain
                and worker.usable
                and worker.guests < self._most_guests
                and worker.left >= space
            ):
                return worker
        if len(self._workers) >= self._most_workers:
            unused = next((one for one in self._workers if not one.guests), None)
            if unused is None:
                return None
            self._end(unused)
        worker = _Worker(domain, self._most_guests * space)
        self._workers.append(worker)
        return worker

    def _rest(self, worker: _Worker) -> None:
        if worker.usable and not self._closed:
            loop = asyncio.get_running_loop()
            worker.idle = loop.call_later(self._idle, self._end, worker)
        else:
            self._end(worker)

    def _end(self, worker: _Worker) -> None:
        if worker in self._workers:
            self._workers.remove(worker)
            if worker.idle:
                worker.idle.cancel()
            task = asyncio.create_task(worker.end())
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for turn in waiting:
            if not turn.done():
                turn.set_result(None)


def _admit(module: bytes, limits: Limits, entry: str) -> tuple[ModuleInfo, int]:
    """Let a module pass the gate; return what it declares, and a memory's bound."""
    gate.check(module, limits, entry)
    info = gate.inspect(module)
    memory = share([one.maximum for one in info.memories], limits.memory)
    if any(one.minimum * PAGE > memory for one in info.memories):
        raise ModuleRefused(
            f"the memories share {limits.memory:,} bytes, so each may have {memory:,}",
            fix="let each memory declare a maximum, or raise limits.memory",
        )
    return info, memory
