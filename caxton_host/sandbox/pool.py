"""
The sandbox: assigns guests to worker processes.

A worker serves one trust domain. It starts with its first guest, is kept for the next
ones, and ends when it has been idle for a while, or when another domain needs its
place. Its address space fits a number of guests like the first one; a guest that finds
no room is started again in another worker.

Guests without a place wait in one queue a domain, and the domains take turns. While
a domain waits for a process, one that has more of them gives one up: that worker takes
no new guests.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Literal, Self, TypeAlias

import anyio

from ..core.limits import Limits, is_component
from ..core.sections import is_interpreter
from ..errors import ModuleRefused, SandboxError
from ..ports.sandbox import Door, Ending, Guest, Prepared
from . import gate
from .artifacts import Artifact
from .binary import ModuleInfo
from .compiler import Compiler, Compiling, key_of
from .link import Link, Mapped, NoRoom
from .settings import PAGE, settings_for, share
from .wire import STACK_OVERFLOW

_MIB = 1024 * 1024
#: Bytes that a worker maps before its first guest, with its compiled modules.
_WORKER_SPACE = 1024 * _MIB
#: A guest's tables and host functions, beside its stack, and of a component up to
#: four texts that wait with it.
_GUEST_SPACE = 4 * _MIB
_TEXT_SPACE = 12 * _MIB
#: Bytes that are hashed faster than a thread is woken.
_SMALL = 64 * 1024
#: Larger modules whose digests are remembered: runtimes, which many runs share.
_REMEMBERED = 4
#: Bytes of a module of which it is kept what it declares.
_LARGE = 1024 * 1024
#: Bytes of that. An agent in Python has 1,400.
_MOST_TOLD = 64 * 1024

_CLOSED = "the sandbox is closed"

#: Called with each worker that starts, and each that dies; not at a normal end.
OnWorker: TypeAlias = Callable[[Literal["started", "died"]], None]


def _unreported(what: str) -> None:
    """Ignore a worker."""
    del what


@dataclass(frozen=True, slots=True, kw_only=True)
class _Code:
    """
    A module that can be sent to workers.

    Attributes:
        settings: Of its engine, as JSON.

        artifact: Native code.

        memory: Most bytes of each of its memories.

        memories: How many it has. An inner component that is instantiated twice
            would have more than its share.

        reserved: Address space that one guest takes.

        space: Bytes of it that the guest may write.

        images: Whether its worker has to be one that may make memory images.

        interpreter: Whether it declares that it interprets a program.
    """

    settings: str
    artifact: Artifact
    memory: int
    memories: int
    reserved: int
    space: int
    images: bool
    interpreter: bool

    @property
    def mapped(self) -> Mapped | None:
        """What its worker has to map before its first guest, or ``None``."""
        if self.artifact.descriptor is None or not self.images:
            return None
        return Mapped(self.artifact.descriptor, self.artifact.key, self.settings)


class _Worker:
    """
    A worker, or one that is starting.

    Attributes:
        left: Bytes that none of its guests may write.

        guests: How many it has.

        full: A guest found no room, so it gets no more.

        leaving: Its place is for another domain, so it gets no more guests.

        idle: Ends it when it has had no guest for a while.
    """

    def __init__(
        self, domain: str, guests: int, compute: int | None, code: _Code
    ) -> None:
        self.domain = domain
        self.images = code.images
        self.mapped = code.mapped
        self.left = guests * code.space
        self.guests = 0
        self.full = self.leaving = False
        self.link = asyncio.create_task(
            Link.spawn(
                _WORKER_SPACE + guests * code.reserved,
                _WORKER_SPACE + self.left,
                compute,
                images=code.images,
                mapped=code.mapped,
            )
        )
        self.idle: asyncio.TimerHandle | None = None

    def takes(self, domain: str, code: _Code) -> bool:
        """Whether a guest of *code* may be one of its guests."""
        return (
            self.domain == domain
            and self.images == code.images
            and code.mapped in {None, self.mapped}
            and self.left >= code.space
            and self.usable
        )

    @property
    def usable(self) -> bool:
        """Whether it may be given another guest."""
        if self.full or self.leaving:
            return False
        return not self.died

    @property
    def died(self) -> bool:
        """Whether it did not start, or ended without being closed."""
        if not self.link.done():
            return False
        return bool(self.link.exception() or self.link.result().lost)

    async def end(self) -> None:
        """End the process, and return once it has."""
        await asyncio.wait({self.link})
        if not self.link.exception():
            self.link.result().kill("the worker was closed")
            await self.link.result().closed


@dataclass(frozen=True, slots=True, eq=False)
class _Turn:
    """A guest that waits for a place."""

    code: _Code
    placed: asyncio.Future[_Worker]


class WasmSandbox:
    """
    Runs guests in confined worker processes; see `ports.Sandbox`.

    Use it as an async context manager, in the main thread: workers end with the
    thread that started them.

    Args:
        cache: Folder for compiled modules, for this user alone.

        mac_key: At least 32 secret bytes, which authenticate the cached modules.

        workers: How many processes there may be for the guests of one level.

        guests: How many guests one of them may hold.

        compute: How many of those may compute at a time; by default as many as
            there are processors.

        idle: Seconds after which one without guests is closed.

        on_worker: Called with ``started`` or ``died``, for each worker.

        compiling: Entered while a module is compiled that is not in the cache.
    """

    def __init__(  # noqa: PLR0913 -- by name
        self,
        cache: Path,
        mac_key: bytes,
        *,
        workers: int = 16,
        guests: int = 128,
        compute: int | None = None,
        idle: float = 60.0,
        on_worker: OnWorker = _unreported,
        compiling: Compiling = nullcontext,
    ) -> None:
        self._compiler = Compiler(cache, mac_key, compiling)
        self._most_workers = workers
        self._most_guests = guests
        self._compute = compute
        self._idle = idle
        self._on_worker = on_worker
        self._code: dict[str, _Code] = {}
        self._prepared: dict[tuple[str, Limits, str], Prepared] = {}
        self._digests: deque[tuple[bytes, str]] = deque(maxlen=_REMEMBERED)
        self._workers: list[_Worker] = []
        #: By domain; the one that was served last comes last.
        self._waiting: dict[str, deque[_Turn]] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    @property
    def workers(self) -> tuple[int, int]:
        """How many workers have guests, and how many have none; from any thread."""
        busy = [bool(worker.guests) for worker in [*self._workers]]
        return sum(busy), len(busy) - sum(busy)

    async def aclose(self) -> None:
        """End all workers. Runs that are left end with a `SandboxError`."""
        self._closed = True
        for turn in [one for line in self._waiting.values() for one in line]:
            if not turn.placed.done():
                turn.placed.set_exception(SandboxError(_CLOSED))
        self._waiting.clear()
        for worker in [*self._workers]:
            self._end(worker)
        with anyio.CancelScope(shield=True):
            while self._ending:
                await asyncio.wait(self._ending)
        self._compiler.close()

    async def prepare(self, module: bytes, limits: Limits, entry: str) -> Prepared:
        """Check and compile a module; see `ports.Sandbox.prepare`."""
        wanted = await self._digest(module), limits, entry
        if wanted not in self._prepared:
            self._prepared[wanted] = await self._prepare(module, *wanted)
        return self._prepared[wanted]

    async def _digest(self, module: bytes) -> str:
        if len(module) <= _SMALL:
            return sha256(module).hexdigest()
        for known, digest in self._digests:
            if known is module:
                return digest
        digest = (await asyncio.to_thread(sha256, module)).hexdigest()
        self._digests.append((module, digest))
        return digest

    async def _prepare(
        self, module: bytes, digest: str, limits: Limits, entry: str
    ) -> Prepared:
        limits = limits.of(module)
        component, interpreter = is_component(module), is_interpreter(module)
        settings = settings_for(limits, component=component, interpreter=interpreter)
        (info, memory), found = await asyncio.gather(
            asyncio.to_thread(self._admit, module, digest, limits, entry),
            self._compiler.find(key_of(digest, settings, entry)),
        )
        artifact = found or await self._compiler.artifact(
            module, limits, settings, entry
        )
        memories = max(1, len(info.memories))
        beside = memories * 2 * settings.guard + settings.stack + _GUEST_SPACE
        beside += component * _TEXT_SPACE
        beside += 2 * (limits.files or 0) + 2 * (limits.scratch or 0)
        # One artifact may serve several limits.
        key = f"{artifact.key}/{memory}/{beside}"
        self._code[key] = _Code(
            settings=settings.to_json(),
            artifact=artifact,
            memory=memory,
            memories=memories,
            reserved=memories * settings.memory + beside,
            space=memories * memory + beside,
            images=settings.images,
            interpreter=interpreter,
        )
        return Prepared(
            sha256=info.sha256,
            abi=info.abi,
            engine=settings.fingerprint,
            key=key,
        )

    def _admit(
        self, module: bytes, digest: str, limits: Limits, entry: str
    ) -> tuple[ModuleInfo, int]:
        """Check a module; return what it declares, and the bound of each memory."""
        info = self._checked(module, digest, limits, entry)
        most = limits.memory or 0
        memory = share([one.maximum for one in info.memories], most)
        if any(one.minimum * PAGE > memory for one in info.memories):
            raise ModuleRefused(
                f"the memories share {most:,} bytes, so each may have {memory:,}",
                fix="let each memory declare a maximum, or raise limits.memory",
            )
        return info, memory

    def _checked(
        self, module: bytes, digest: str, limits: Limits, entry: str
    ) -> ModuleInfo:
        """Check a module. What a large one declares is read once, and kept."""
        if len(module) < _LARGE:
            return gate.check(module, limits, entry)
        cache, key = self._compiler.cache, f"{digest}.{gate.VERSION}"
        if kept := cache.read(key):
            known = ModuleInfo.from_json(kept.data)
            return gate.check(module, limits, entry, lambda _: known)
        info = gate.check(module, limits, entry)
        told = info.to_json()
        if len(told) <= _MOST_TOLD:
            cache.write(Artifact(key=key, data=told))
        return info

    async def run(self, prepared: Prepared, guest: Guest, door: Door) -> Ending:
        """Execute a guest once, from a fresh instance; see `ports.Sandbox.run`."""
        try:
            return await self._run(prepared.key, guest, door)
        except NoRoom:
            return await self._run(prepared.key, guest, door)

    async def _run(self, key: str, guest: Guest, door: Door) -> Ending:
        code = self._code[key]
        limits = replace(guest.limits, memories=code.memories)
        guest = replace(guest, limits=limits)
        # A guest may wait for guests of higher levels, so these have workers apart.
        domain = f"{guest.level}:{guest.domain}"
        async with self._place(domain, code) as worker:
            link = await asyncio.shield(worker.link)
            link.load(code.artifact, code.settings)
            try:
                ending = await link.run(code.artifact.key, code.memory, guest, door)
            except NoRoom:
                worker.full = True
                raise
        return _aborted(ending) if code.interpreter else ending

    @asynccontextmanager
    async def _place(self, domain: str, code: _Code) -> AsyncGenerator[_Worker]:
        """Hold a place for one guest in a worker of *domain*."""
        worker = await self._placed(domain, code)
        try:
            yield worker
        finally:
            self._leave(worker, code.space)

    async def _placed(self, domain: str, code: _Code) -> _Worker:
        if self._closed:
            raise SandboxError(_CLOSED)
        turn = _Turn(code, asyncio.get_running_loop().create_future())
        self._waiting.setdefault(domain, deque()).append(turn)
        self._serve()
        try:
            return await turn.placed
        except asyncio.CancelledError:
            if turn.placed.cancelled():
                self._serve()
            elif not turn.placed.exception():
                self._leave(turn.placed.result(), code.space)
            raise

    def _serve(self) -> None:
        """Give a place to one guest of each domain in turn, while there are any."""
        served = True
        while served:
            served = False
            for domain in [*self._waiting]:
                line = self._waiting[domain]
                while line and line[0].placed.done():
                    line.popleft()
                worker = self._choose(domain, line[0].code) if line else None
                if worker:
                    self._enter(worker, line.popleft())
                    served = True
                    self._waiting[domain] = self._waiting.pop(domain)
                if not line:
                    del self._waiting[domain]

    def _enter(self, worker: _Worker, turn: _Turn) -> None:
        worker.guests += 1
        worker.left -= turn.code.space
        if worker.idle:
            worker.idle.cancel()
        turn.placed.set_result(worker)

    def _leave(self, worker: _Worker, space: int) -> None:
        worker.guests -= 1
        worker.left += space
        if not worker.guests:
            self._rest(worker)
        self._serve()

    def _choose(self, domain: str, code: _Code) -> _Worker | None:
        """Return a worker for a guest of *domain*, or ``None`` if it has to wait."""
        for worker in self._workers:
            if worker.guests < self._most_guests and worker.takes(domain, code):
                return worker
        level, _, _ = domain.partition(":")
        peers = [one for one in self._workers if one.domain.startswith(f"{level}:")]
        if len(peers) >= self._most_workers:
            unused = [one for one in peers if not one.guests]
            if not unused:
                self._vacate(domain, peers)
                return None
            self._end(min(unused, key=lambda one: one.domain != domain))
        worker = _Worker(domain, self._most_guests, self._compute, code)
        self._workers.append(worker)
        self._on_worker("started")
        return worker

    def _vacate(self, domain: str, peers: Sequence[_Worker]) -> None:
        """Mark a worker of the domain with the most, if *domain* has fewer."""
        if any(worker.leaving for worker in peers):
            return
        held = Counter(worker.domain for worker in peers)
        most = max(peers, key=lambda one: (held[one.domain], -one.guests))
        most.leaving = held[most.domain] > held[domain]

    def _rest(self, worker: _Worker) -> None:
        if worker.usable and not self._closed:
            loop = asyncio.get_running_loop()
            worker.idle = loop.call_later(self._idle, self._end, worker)
        else:
            self._end(worker)

    def _end(self, worker: _Worker) -> None:
        if worker in self._workers:
            self._workers.remove(worker)
            if worker.died:
                self._on_worker("died")
            if worker.idle:
                worker.idle.cancel()
            task = asyncio.create_task(worker.end())
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)


def _aborted(ending: Ending) -> Ending:
    """
    Return how an interpreter ended, by what that says of its program.

    Its traps are where it gives up, not bugs that the author of a program can find.
    """
    if ending.kind != "trap":
        return ending
    if ending.message == STACK_OVERFLOW:
        return replace(ending, kind="limit", limit="stack", message="it is full")
    message = f"the interpreter aborted: {ending.message}"
    return replace(ending, kind="returned", code=1, message=message, output=None)
