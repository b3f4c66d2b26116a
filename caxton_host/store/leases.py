"""
Which hosts live: who may send for a run, and whose runs may be taken over.

A lease is a host's, not a run's: a host that drives a thousand runs renews one.
On SQLite it is a lock on a file beside the database. The kernel lets go of it when
the process ends, however it ends, so a dead host shows at once; one that is only
stopped still has it. PostgreSQL has `leases_postgres`.

The names of hosts are never used again, so a file that is not locked may go.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import time
from collections.abc import Collection
from pathlib import Path
from typing import Protocol
from urllib.parse import quote, unquote

from ..errors import StoreError
from .commit import Driver
from .engine import explain
from .files import is_locked

_TRIES = 100
_PAUSE = 0.01


class Leases(Protocol):
    """The leases of one store; its own, and those of others as they are seen."""

    def holds(self) -> bool:
        """Return whether the host that joined may still send."""
        ...

    async def join(self, host: str) -> None:
        """Hold the lease of *host* from now on."""
        ...

    def is_dead(self, driver: Driver, host: str) -> bool:
        """
        Return whether *host* is dead; if so, it stays dead for this transaction.

        Args:
            driver: The connection, in the transaction that takes over a run.

            host: The owner of that run.
        """
        ...

    def living(self, hosts: Collection[str]) -> set[str]:
        """Return those of *hosts* that live."""
        ...

    def hosts(self) -> set[str]:
        """Return all hosts that live."""
        ...

    async def aclose(self) -> None:
        """Let go of the lease."""
        ...


class FileLeases:
    """
    Locks on files in a folder. See `Leases`.

    Args:
        folder: Made by the first host that joins.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._held: dict[Path, int] = {}

    def holds(self) -> bool:
        """Return true: who has lost this lock is no more."""
        return True

    async def join(self, host: str) -> None:
        """Hold the lock of *host*, and remove what dead hosts left."""
        await asyncio.to_thread(self._join, host)

    def _join(self, host: str) -> None:
        try:
            self._folder.mkdir(mode=0o700, exist_ok=True)
            for path in self._folder.iterdir():
                if not is_locked(path):
                    path.unlink(missing_ok=True)
            path = self._path(host)
            self._held[path] = _lock(path)
        except OSError as exc:
            text, fix = explain(
                exc, self._folder, f"see that this user owns the folder {self._folder}"
            )
            raise StoreError(
                f"hosts cannot lock files in {self._folder}: {text}", fix=fix
            ) from None

    def is_dead(self, driver: Driver, host: str) -> bool:
        """Return whether nobody has the lock of *host*. Nobody will again."""
        del driver
        return not is_locked(self._path(host))

    def living(self, hosts: Collection[str]) -> set[str]:
        """Return those of *hosts* whose locks are held."""
        return {host for host in hosts if is_locked(self._path(host))}

    def hosts(self) -> set[str]:
        """Return all hosts whose locks are held."""
        try:
            names = [path.name for path in self._folder.iterdir()]
        except FileNotFoundError:
            return set()
        return self.living({f"host/{unquote(name)}" for name in names})

    async def aclose(self) -> None:
        """Remove the file, and let go of its lock."""
        while self._held:
            path, descriptor = self._held.popitem()
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)
            os.close(descriptor)

    def _path(self, host: str) -> Path:
        return self._folder / quote(host.removeprefix("host/"), safe="")


def _lock(path: Path) -> int:
    """Return a descriptor that holds the lock of *path*, until it is closed."""
    for _ in range(_TRIES):
        # Python opens close-on-exec: no worker and no tool server inherits it.
        descriptor = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # In between, another host may have found it unlocked, and removed it.
            if os.path.samestat(os.fstat(descriptor), path.stat()):
                return descriptor
        except (BlockingIOError, FileNotFoundError):
            time.sleep(_PAUSE)  # Another looks, or a host of that name lives.
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
    raise StoreError(f"a host with the name {path.name} lives already")
