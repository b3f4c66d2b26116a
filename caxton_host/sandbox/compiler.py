"""
The host side of the compiler: compiles modules to artifacts, and caches these.

An artifact is native code, so it is used only if this host made it: what is on disk
carries a MAC under a key that no worker and no compile child ever sees. wasmtime
itself runs only in the compile child (`compile_child`).
"""

from __future__ import annotations

import asyncio
import functools
import hashlib
import hmac
import json
import os
import platform
import signal
import stat
import tempfile
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from ..core.limits import Limits
from ..core.names import clean_name
from ..errors import ModuleRefused, SandboxError
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
#: Bytes of any artifact: a child could otherwise fill the host's memory.
_ARTIFACT_MOST = 512 * _MIB
_MAC_SIZE = hashlib.sha256().digest_size
#: Bytes of an error of wasmtime that a message shows.
_REASON = 300

_Job: TypeAlias = tuple[str, float, int]

Compiling: TypeAlias = Callable[[], AbstractContextManager[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifact:
    """
    A compiled module.

    Attributes:
        key: Names it: equal for equal modules, engines and processors.

        data: What `wasmtime.Module.deserialize` takes.
    """

    key: str
    data: bytes = field(repr=False)


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
        """
        self._cache = _Cache(cache, mac_key)
        self._compiling = compiling
        self._jobs: dict[_Job, asyncio.Task[Artifact]] = {}
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
        key = await asyncio.to_thread(_key, module, settings, entry)
        job = key, limits.compile_cpu, limits.compile_memory
        task = self._jobs.get(job)
        if task is None:
            task = asyncio.create_task(self._make(key, module, limits, settings, entry))
            self._jobs[job] = task
            task.add_done_callback(lambda _: self._jobs.pop(job))
        return await asyncio.shield(task)

    async def _make(
        self,
        key: str,
        module: bytes,
        limits: Limits,
        settings: EngineSettings,
        entry: str,
    ) -> Artifact:
        data = await asyncio.to_thread(self._cache.read, key)
        if data is None:
            async with self._slots:
                with self._compiling():
                    data = await _compile(module, limits, settings, entry)
            await asyncio.to_thread(self._cache.write, key, data)
        return Artifact(key=key, data=data)


class _Cache:
    """Files of a MAC and an artifact. A file with any fault counts as missing."""

    def __init__(self, folder: Path, mac_key: bytes) -> None:
        if len(mac_key) < _MAC_SIZE:
            raise ValueError(f"a MAC key has at least {_MAC_SIZE} bytes")
        self._folder = folder
        self._mac_key = mac_key

    def read(self, key: str) -> bytes | None:
        # Non-blocking: opening a named pipe would otherwise never return.
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            with os.fdopen(os.open(self._folder / key, flags), "rb") as file:
                status = os.fstat(file.fileno())
                if not stat.S_ISREG(status.st_mode) or status.st_size > _ARTIFACT_MOST:
                    return None
                mac, data = file.read(_MAC_SIZE), file.read(_ARTIFACT_MOST)
        except OSError:
            return None
        return data if hmac.compare_digest(mac, self._mac(key, data)) else None

    def write(self, key: str, data: bytes) -> None:
        with suppress(OSError):
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._folder.chmod(0o700)
            handle, name = tempfile.mkstemp(dir=self._folder, suffix=".tmp")
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(self._mac(key, data))
                    file.write(data)
                Path(name).replace(self._folder / key)
            except OSError:
                Path(name).unlink()
                raise

    def _mac(self, key: str, data: bytes) -> bytes:
        mac = hmac.new(self._mac_key, key.encode(), "sha256")
        mac.update(data)
        return mac.digest()


def _key(module: bytes, settings: EngineSettings, entry: str) -> str:
    parts = [
        hashlib.sha256(module).hexdigest(),
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
    module: bytes, limits: Limits, settings: EngineSettings, entry: str
) -> bytes:
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
    most = min(_ARTIFACT_FACTOR * len(module) + _ARTIFACT_LEAST, _ARTIFACT_MOST)
    try:
        async with asyncio.timeout(_WALL_START_S + _WALL_FACTOR * limits.compile_cpu):
            await _send(child, json.dumps(order).encode() + b"\n", module)
            reply = await _receive(child, most)
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
    return _judge(reply, code, limits)


async def _send(child: Process, *parts: bytes) -> None:
    """Write to a child that may be dead: its exit code explains more than the pipe."""
    assert child.stdin is not None  # noqa: S101 -- a pipe was asked for
    with suppress(ConnectionError):
        child.stdin.writelines(parts)
        await child.stdin.drain()
    child.stdin.close()


async def _receive(child: Process, most: int) -> bytes:
    assert child.stdout is not None  # noqa: S101 -- a pipe was asked for
    reply = bytearray()
    while chunk := await child.stdout.read(_MIB):
        reply += chunk
        if len(reply) > most:
            raise ModuleRefused(
                f"the compiled module has more than {most:,} bytes", fix=_SMALLER
            )
    return bytes(reply)


_SMALLER = "build a smaller module (-Os, shorter functions), or split it"


def _judge(reply: bytes, code: int, limits: Limits) -> bytes:
    """Return the artifact, or raise why the module is refused."""
    if not reply:
        raise SandboxError("the compile child did not start", fix="run: caxton doctor")
    verdict, rest = reply[1:2], reply[2:]
    if code == 0 and verdict == b"+":
        return rest
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
