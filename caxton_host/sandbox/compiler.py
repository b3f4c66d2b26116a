"""
The host side of the compiler: compiles modules to artifacts, and keeps these.

wasmtime itself runs only in the compile child (`compile_child`).
"""

from __future__ import annotations

import asyncio
import functools
import hashlib
import json
import os
import platform
import signal
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from typing import TypeAlias

from ..core.limits import Limits
from ..core.names import clean_name
from ..errors import ModuleRefused, SandboxError
from .artifacts import MOST, Artifact, Cache, Draft
from .confine import command
from .settings import EngineSettings

_CHILD = "caxton_host.sandbox.compile_child"
_MIB = 1024 * 1024

#: A child that neither computes nor ends is killed after this many times its
#: processor time, plus time to start on a busy machine.
_WALL_FACTOR = 3
_WALL_START_S = 30.0
#: Machine code is about 5 times its module; 10,000 tiny functions make 3 MiB.
_ARTIFACT_FACTOR = 16
_ARTIFACT_LEAST = 8 * _MIB
#: Bytes of an error of wasmtime that a message shows.
_REASON = 300

_Job: TypeAlias = tuple[str, float, int]

Compiling: TypeAlias = Callable[[], AbstractContextManager[None]]


class Compiler:
    """Compiles each module once, in a confined child, and caches the result."""

    def __init__(
        self, cache: Path, mac_key: bytes, compiling: Compiling = nullcontext
    ) -> None:
        """
        Use a cache folder, which need not exist or be writable.

        Args:
            cache: For this user alone. It is created with mode 0700.

            mac_key: At least 32 secret bytes. With another key, all is recompiled.

            compiling: Entered while a module is compiled that is not in the cache.

        Attributes:
            cache: Where artifacts are kept.
        """
        self.cache = Cache(cache, mac_key)
        self._compiling = compiling
        self._jobs: dict[_Job, asyncio.Task[Artifact]] = {}
        self._mapped: dict[str, Artifact] = {}
        self._slots = asyncio.Semaphore(os.cpu_count() or 1)

    async def artifact(
        self,
        module: bytes,
        limits: Limits,
        settings: EngineSettings,
        entry: str = "run",
    ) -> Artifact:
        """
        Return *module*, compiled. Callers that ask for the same share the work.

        Args:
            module: One that passed the gate.

            limits: Bounds on the time and memory of compiling.

            settings: The engine it is compiled for.

            entry: The function that is going to be called. Its type is checked if
                this is a component; the gate has checked that of a core module.

        Raises:
            ModuleRefused: wasmtime refuses it, or it costs too much to compile.

            SandboxError: The compile child could not start.
        """
        digest = await asyncio.to_thread(hashlib.sha256, module)
        key = key_of(digest.hexdigest(), settings, entry)
        job = key, limits.compile_cpu, limits.compile_memory
        task = self._jobs.get(job)
        if task is None:
            task = asyncio.create_task(self._make(key, module, limits, settings, entry))
            self._jobs[job] = task
            task.add_done_callback(lambda _: self._jobs.pop(job))
        return await asyncio.shield(task)

    async def find(self, key: str) -> Artifact | None:
        """Return the artifact with a key of `key_of`, unless it is to be compiled."""
        if key in self._mapped:
            return self._mapped[key]
        found = await asyncio.to_thread(self.cache.read, key)
        return self._kept(found) if found else None

    def close(self) -> None:
        """Close the descriptors of the artifacts."""
        for artifact in self._mapped.values():
            artifact.close()
        self._mapped.clear()

    async def _make(
        self,
        key: str,
        module: bytes,
        limits: Limits,
        settings: EngineSettings,
        entry: str,
    ) -> Artifact:
        if found := await self.find(key):
            return found
        async with self._slots:
            with self._compiling():
                artifact = await _compile(key, module, limits, settings, entry)
        await asyncio.to_thread(self.cache.write, artifact)
        return self._kept(artifact)

    def _kept(self, artifact: Artifact) -> Artifact:
        """Return the one artifact of that key that this host maps."""
        if artifact.descriptor is None:
            return artifact
        kept = self._mapped.setdefault(artifact.key, artifact)
        if kept is not artifact:
            artifact.close()
        return kept


def key_of(digest: str, settings: EngineSettings, entry: str) -> str:
    """Return the key of the artifact of a module with that SHA-256."""
    parts = [
        digest,
        settings.wasmtime,
        settings.fingerprint,
        settings.to_json(),
        _processor(),
    ]
    if settings.component:
        parts.append(entry)
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


@functools.cache
def _processor() -> str:
    """Return the processor's features: machines may share a cache folder."""
    with suppress(OSError), Path("/proc/cpuinfo").open(encoding="utf-8") as file:
        for line in file:
            if line.startswith(("flags", "Features")):
                return line
    return platform.processor()


async def _compile(
    key: str, module: bytes, limits: Limits, settings: EngineSettings, entry: str
) -> Artifact:
    order = {
        "entry": entry,
        "settings": settings.to_json(),
        "cpu": limits.compile_cpu,
        "memory": limits.compile_memory,
    }
    child = await asyncio.create_subprocess_exec(
        *command(_CHILD, str(os.getpid())),
        stdin=PIPE,
        stdout=PIPE,
        stderr=DEVNULL,
        env={},
        cwd="/",
        start_new_session=True,
        limit=_MIB,
    )
    most = min(_ARTIFACT_FACTOR * len(module) + _ARTIFACT_LEAST, MOST)
    with Draft() as draft:
        try:
            async with asyncio.timeout(
                _WALL_START_S + _WALL_FACTOR * limits.compile_cpu
            ):
                await _send(child, json.dumps(order).encode() + b"\n", module)
                head = await _receive(child, draft, most)
                code = await child.wait()
        except TimeoutError:
            raise ModuleRefused(
                "compiling the module took too long", fix=_SMALLER
            ) from None
        finally:
            with suppress(ProcessLookupError):
                child.kill()
            # Drains the little that is left in the pipe, and closes it.
            await child.communicate()
        _judge(head, bytes(draft.data), code, limits)
        return draft.sealed(key)


async def _send(child: Process, *parts: bytes) -> None:
    """Write to a child that may be dead: its exit code explains more than the pipe."""
    assert child.stdin is not None  # noqa: S101 -- a pipe was asked for
    with suppress(ConnectionError):
        child.stdin.writelines(parts)
        await child.stdin.drain()
    child.stdin.close()


async def _receive(child: Process, draft: Draft, most: int) -> bytes:
    """Return the first two bytes of a reply; *draft* gets the rest."""
    assert child.stdout is not None  # noqa: S101 -- a pipe was asked for
    try:
        head = await child.stdout.readexactly(2)
    except asyncio.IncompleteReadError as exc:
        return exc.partial
    while chunk := await child.stdout.read(_MIB):
        draft.write(chunk)
        if draft.size > most:
            raise ModuleRefused(
                f"the compiled module has more than {most:,} bytes", fix=_SMALLER
            )
    return head


_SMALLER = "build a smaller module (-Os, shorter functions), or split it"


def _judge(head: bytes, rest: bytes, code: int, limits: Limits) -> None:
    """Raise why the module is refused, unless *rest* is an artifact."""
    if not head:
        raise SandboxError("the compile child did not start", fix="run: caxton doctor")
    verdict = head[1:]
    if code == 0 and verdict == b"+":
        return
    if code == 0 and verdict == b"?":
        raise ModuleRefused(
            clean_name(rest, _REASON),
            fix="build it with the WIT of this host, package caxton:agent",
        )
    if code == 0 and verdict == b"-":
        reason = clean_name(b" ".join(rest[:_REASON].split()), _REASON)
        raise ModuleRefused(
            f"wasmtime refuses the module: {reason}",
            fix="build it for WebAssembly 2.0, without threads, exceptions and "
            "garbage collection",
        )
    if code in {-signal.SIGXCPU, -signal.SIGKILL}:
        raise ModuleRefused(
            "compiling the module takes more than "
            f"{limits.compile_cpu:g} s of processor time",
            fix=f"{_SMALLER}, or raise limits.compile_cpu",
        )
    raise ModuleRefused(
        "the compiler ran out of memory or crashed on the module; it may use "
        f"{limits.compile_memory // _MIB:,} MiB",
        fix=f"{_SMALLER}, or raise limits.compile_memory",
    )
