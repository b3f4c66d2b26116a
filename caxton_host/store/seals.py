"""
Signing the log: what SQLite and PostgreSQL have in common.

A host signs with its first commit, then once a second while there are new events, and
when it closes; so the last second of a host that was killed is not signed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from ..core.log.checkpoint import Checkpoint, Note, origin_of
from ..core.log.tree import Frontier
from ..errors import CaxtonError, LogBrokenError, StoreError
from ..lib.signing import Signer

#: Seconds between two checkpoints, unless one is forced.
PERIOD = 1.0
#: Logged with what `unsigned` returns.
UNSIGNED = "the log is not signed: %s. To fix: %s"
_STATE = "the state folder ($XDG_STATE_HOME/caxton, else ~/.local/state/caxton)"

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Seal:
    """A signed checkpoint, and the public key that it is signed with."""

    note: Note
    public_key: bytes


class Sealer(Protocol):
    """Makes checkpoints of one log."""

    @property
    def newest(self) -> Seal | None:
        """The newest checkpoint of this process."""
        ...

    async def seal(self, *, force: bool = False) -> None:
        """
        Sign new events, if there are any.

        Args:
            force: Wait until everything committed before is signed with our key.

        Raises:
            StoreError: *force*, and it cannot be signed.
        """
        ...


class Sealing:
    """
    Signs once a second, and reports each new checkpoint.

    Args:
        sealer: Makes the checkpoints.

        on_seal: Called with the newest one, on the event loop.

        keep: Stores it on this machine; called in a thread.
    """

    def __init__(
        self,
        sealer: Sealer,
        on_seal: Callable[[Note], None],
        keep: Callable[[Note], None] = lambda _: None,
    ) -> None:
        self._sealer = sealer
        self._on_seal = on_seal
        self._keep = keep
        self._told: Seal | None = None
        self._warned = False
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin."""
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Sign the rest, and stop."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
            await self._seal()

    async def force(self) -> Note:
        """
        Return a checkpoint of everything that is committed.

        Raises:
            StoreError: It cannot be signed, or there are no events.
        """
        await self._sealer.seal(force=True)
        await self._tell()
        if self._told is None:
            raise StoreError("the log has no events yet", fix="run an agent first")
        return self._told.note

    async def _tell(self) -> None:
        newest = self._sealer.newest
        if newest is not None and newest is not self._told:
            await asyncio.to_thread(self._keep, newest.note)
            self._told = newest
            self._on_seal(newest.note)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(PERIOD)
            await self._seal()

    async def _seal(self) -> None:
        try:
            await self._sealer.seal()
            await self._tell()
        except (CaxtonError, OSError) as exc:
            # No run waits for a checkpoint, or fails without one.
            if not self._warned:
                self._warned = True
                _log.warning(UNSIGNED, *unsigned(exc))


def unsigned(exc: CaxtonError | OSError) -> tuple[str, str]:
    """Return why a log is not signed, and how to fix it, for `UNSIGNED`."""
    if isinstance(exc, OSError):
        file = exc.filename or _STATE
        why = f"{file} cannot be written: {exc.strerror}"
        return why, f"free space on its disk, or have this user write to {_STATE}"
    return str(exc), exc.fix or "see `caxton db status`"


def sign(signer: Signer, tree: Frontier, first: bytes) -> Seal:
    """Return the checkpoint of a log whose first event has the hash *first*."""
    checkpoint = Checkpoint(origin=origin_of(first), size=tree.size, root=tree.root())
    return Seal(signer.sign(checkpoint), signer.public_key())


def shortened(events: int) -> LogBrokenError:
    """Return the error for a log that lost events."""
    return LogBrokenError(
        f"the log has lost events: its tree has {events}",
        fix="caxton audit verify; restore the database from a copy",
    )
