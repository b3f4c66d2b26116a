"""
The kill loop: keep one host alive, and kill processes at random.

Hosts are forked from a parent that has imported the package and has neither threads
nor an event loop; workers and tool servers start as usual. The orphans of a killed host
become children of this process and have to end by themselves.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import logging
import os
import random  # noqa: TID251 -- drawn from the seed that is printed
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path

from caxton_host.store.sql import SqlStore

from . import hosted
from .check import unfinished
from .scene import Place

#: Modules that are imported once, not by every host.
_HEAVY = (
    "alembic.autogenerate",
    "alembic.command",
    "caxton_host.mcp.transport.streamable",
    "caxton_host.sandbox.pool",
    "mcp.client.session",
    "mcp_types",
    "psycopg",
    "sqlalchemy.dialects.postgresql.psycopg",
    "sqlalchemy.dialects.sqlite",
)
_SUBREAPER = 36
#: Seconds in which orphans of a dead host, and a host without work, must end.
_ENDS, _DRAINS = 20.0, 120.0
#: Seconds in which a host that is to lose a child may start one.
_STARTS = 1.0
_OFTEN, _LEASE = 500, 0.25
_WEIGHTS = {"host": 4, "worker": 3, "server": 3}


class FailedError(Exception):
    """A host violated an invariant."""


@dataclass(slots=True)
class Conductor:
    """
    Kills processes.

    Attributes:
        pace: Mean seconds between two kills.

        live: What a host does.

        kills: Number of kills by kind.
    """

    place: Place
    chance: random.Random
    pace: float = 0.06
    live: Callable[[Place], Coroutine[None, None, None]] = hosted.live
    weights: Mapping[str, int] = field(default_factory=lambda: {**_WEIGHTS})
    kills: Counter[str] = field(default_factory=Counter)
    _host: int = 0
    _told: int = 0

    def run(self, cycles: int) -> None:
        """Kill *cycles* times, then wait until all runs have ended."""
        self._prepare()
        try:
            self._spawn()
            while self.kills.total() < cycles:
                time.sleep(min(self.chance.expovariate(1 / self.pace), 16 * self.pace))
                self._strike()
                self._tell(cycles)
            self.place.stop.touch()
            self._drain()
        finally:
            if self._host:
                os.kill(self._host, signal.SIGKILL)
                self._reap()

    def _tell(self, cycles: int) -> None:
        done = self.kills.total()
        if done % _OFTEN == 0 and done > self._told:
            self._told = done
            sys.stderr.write(f"{done} of {cycles} kills\n")

    def _prepare(self) -> None:
        ctypes.CDLL(None).prctl(_SUBREAPER, 1)
        for name in _HEAVY:
            import_module(name)
        # On PostgreSQL the next host has to wait that long.
        SqlStore.open.__func__.__kwdefaults__["lease"] = _LEASE  # type: ignore[attr-defined]
        # Servers killed during their start are expected.
        logging.getLogger("caxton_host").setLevel(logging.ERROR)
        gc.collect()
        gc.freeze()

    def _spawn(self) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        self._host = os.fork()
        if self._host:
            return
        code = 1
        try:
            asyncio.run(self.live(self.place))
            code = 0
        except BaseException:  # noqa: BLE001 -- the process ends here
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)

    def _strike(self) -> None:
        wanted = self.chance.choices([*self.weights], [*self.weights.values()])[0]
        if wanted == "host":
            self._kill_host()
        elif found := self._awaited(wanted):
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.chance.choice(found), signal.SIGKILL)
                self.kills[wanted] += 1

    def _kill_host(self) -> None:
        ended, status = os.waitpid(self._host, os.WNOHANG)
        if ended:
            self._host = 0
            raise FailedError(f"a host ended by itself: {status}")
        os.kill(self._host, signal.SIGKILL)
        self.kills["host"] += 1
        self._reap()
        self._spawn()

    def _awaited(self, kind: str) -> list[int]:
        """Return the processes of a kind; a slow machine gets time to start one."""
        until = time.monotonic() + _STARTS
        while not (found := self._children().get(kind)) and time.monotonic() < until:
            time.sleep(0.005)
        return found or []

    def _children(self) -> dict[str, list[int]]:
        """Return the processes of the host, by kind."""
        found: dict[str, list[int]] = {}
        children = Path(f"/proc/{self._host}/task/{self._host}/children")
        with contextlib.suppress(OSError):
            for pid in children.read_text("ascii").split():
                if kind := _kind(int(pid)):
                    found.setdefault(kind, []).append(int(pid))
        return found

    def _reap(self) -> None:
        """Wait until the host and all processes that it started have ended."""
        self._host = 0
        until = time.monotonic() + _ENDS
        while True:
            try:
                pid, _ = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid:
                continue
            if time.monotonic() > until:
                raise FailedError("a process of a dead host still runs")
            time.sleep(0.001)

    def _drain(self) -> None:
        until = time.monotonic() + _DRAINS
        while time.monotonic() < until:
            ended, status = os.waitpid(self._host, os.WNOHANG)
            if ended:
                self._host = 0
                if status:
                    raise FailedError(f"the last host failed: {status}")
                return
            time.sleep(0.01)
        os.kill(self._host, signal.SIGUSR2)  # It tells what it does.
        left = asyncio.run(unfinished(self.place))
        raise FailedError(f"the last host does not end: {left}")


def _kind(pid: int) -> str:
    with contextlib.suppress(OSError):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        if b"caxton_host.sandbox.worker" in words:
            return "worker"
        if any(word.endswith(b"chaos/server.py") for word in words):
            return "server"
    return ""
