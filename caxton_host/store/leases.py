"""
Leases of hosts: which are alive, may send for a run, and lose their runs otherwise.

A lease belongs to a host, not to a run: a host that drives a thousand runs renews one.
On SQLite it is a lock on a file beside the database. The kernel releases it when the
process ends for any reason, so a dead host is seen at once; a stopped process keeps it.
For PostgreSQL see `leases_postgres`.

The names of hosts are never reused, so a file that is not locked may be deleted.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol
from urllib.parse import quote, unquote

from ..core.log.runs import RunRow
from ..core.names import run_of, stream_of
from ..errors import BusyError, StoreError
from .commit import Driver, Line, ask
from .database import Database
from .diagnosis import explain
from .drafts import driven, grown
from .file_guard import is_locked
from .reader import Reader

_TRIES = 100
_PAUSE_S = 0.01
_OWNER = "SELECT owner FROM runs WHERE run_id = ?"


class HostLeases(Protocol):
    """
    The leases of all hosts of a database, and that of this host.

    Attributes:
        left: Called after another host has stopped, or died, where that is noticed.
    """

    left: Callable[[], None]

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
        """Return those of *hosts* that are alive."""
        ...

    def hosts(self) -> set[str]:
        """Return all hosts that are alive."""
        ...

    async def aclose(self) -> None:
        """Release the lease."""
        ...


class FileLeases:
    """
    Locks on files in a folder. See `HostLeases`.

    Args:
        folder: Created by the first host that joins.
    """

    def __init__(self, folder: Path) -> None:
        self.left: Callable[[], None] = lambda: None
        self._folder = folder
        self._held: dict[Path, int] = {}

    def holds(self) -> bool:
        """Return true: the lock is held as long as the process exists."""
        return True

    async def join(self, host: str) -> None:
        """Hold the lock of *host*, and remove the files of dead hosts."""
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
        """Return whether the lock of *host* is free; it is never taken again."""
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
        """Remove the file, and release its lock."""
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
        # Python opens close-on-exec: no worker and no tool server inherits the lock.
        descriptor = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Meanwhile another host may have found it unlocked, and removed it.
            if os.path.samestat(os.fstat(descriptor), path.stat()):
                return descriptor
        except (BlockingIOError, FileNotFoundError):
            time.sleep(_PAUSE_S)  # Another host checks it, or has that name.
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
    raise StoreError(f"a host with the name {path.name} is running already")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Takeover:
    """
    The guard of the transaction that takes over a stream.

    Attributes:
        stream: Its name.

        host: The host that claims it, if it has joined.

        driven: Whether this host writes the stream already.
    """

    stream: str
    leases: HostLeases
    host: str | None
    driven: Callable[[], bool]

    def __call__(self, driver: Driver) -> None:
        """
        Return if no living host drives the run.

        A host that starts to drive it meanwhile appends an event, which conflicts.

        Raises:
            BusyError: A living host drives it.
        """
        run_id = run_of(self.stream)
        row = ask(driver, _OWNER, run_id).fetchone()
        owner = row[0] if row else None
        if owner is None:
            return
        if owner == self.host:
            # This host may have stopped driving the run, after its log failed.
            alive = self.driven()
        else:
            alive = not self.leases.is_dead(driver, owner)
        if alive:
            raise driven(run_id, owner)


class Leases:
    """
    Which hosts are alive and which runs they drive. See `caxton_host.ports.log.Leases`.

    Args:
        database: Shared by the hosts.

        reader: Of the same database.

        hosts: The leases of the hosts.

        lines: The streams that this host writes, by name.

    Attributes:
        host: The stream of this host, once it has joined.
    """

    def __init__(
        self,
        database: Database,
        reader: Reader,
        hosts: HostLeases,
        lines: Mapping[str, Line],
    ) -> None:
        self.host: str | None = None
        self._database = database
        self._reader = reader
        self._hosts = hosts
        self._lines = lines

    async def join(self, host: str) -> None:
        """
        Take the lease of the host with that stream, until the store is closed.

        Raises:
            StoreError: The store is opened to read only, or the lease cannot be taken.
        """
        self._database.require_write()
        if self.host:
            raise StoreError(f"this store belongs to {self.host} already")
        await self._hosts.join(host)
        self.host = host

    def tell(self, left: Callable[[], None]) -> None:
        """Call *left* after another host has stopped, or died; not with SQLite."""
        self._hosts.left = left

    def holds(self) -> bool:
        """Return whether the host that joined may still send."""
        return self._hosts.holds()

    async def owner(self, run_id: str) -> str | None:
        """Return the stream of the living host that drives a run, or ``None``."""
        row = await self._reader.row(run_id)
        host = row.owner if row else None
        if host is None:
            return None
        living = await asyncio.to_thread(self._hosts.living, {host})
        return host if host in living else None

    async def hosts(self) -> list[str]:
        """Return the streams of the hosts that are alive, oldest first."""
        return sorted(await asyncio.to_thread(self._hosts.hosts))

    async def idle(self) -> list[RunRow]:
        """
        Return the runs under way that no living host drives, oldest first.

        Those are among them that no living host has in its queue, and those that this
        host stopped driving because their logs failed.
        """
        rows = await self._reader.under_way()
        owners = [(row, row.owner or row.host) for row in rows]
        known = {owner for _, owner in owners if owner is not None}
        living = await asyncio.to_thread(self._hosts.living, known)
        return [
            row
            for row, owner in owners
            if owner not in living
            or (row.owner == self.host and not self._drives(stream_of(row.run_id)))
        ]

    def takeover(self, stream: str) -> Callable[[Driver], None]:
        """Return the guard of the transaction that takes over a stream."""
        return _Takeover(
            stream=stream,
            leases=self._hosts,
            host=self.host,
            driven=lambda: self._drives(stream),
        )

    async def refusal(self, stream: str) -> BusyError:
        """Return why a stream could not be taken over."""
        run_id = run_of(stream)
        owner = await self.owner(run_id)
        return driven(run_id, owner) if owner else grown(stream)

    def _drives(self, stream: str) -> bool:
        line = self._lines.get(stream)
        return line is not None and line.error is None and not line.over

    async def aclose(self) -> None:
        """Release the lease of this host."""
        await self._hosts.aclose()
