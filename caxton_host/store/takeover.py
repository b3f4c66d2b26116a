"""Taking over the stream of a run: from nobody, or from a host that is dead."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..core.names import run_of
from ..errors import BusyError
from .commit import Driver, ask
from .leases import Leases

_OWNER = "SELECT owner FROM runs WHERE run_id = ?"


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """
    The guard of the transaction that takes a stream over.

    Attributes:
        stream: Its name.

        host: Who claims it, if that has joined.

        driven: Whether this host writes the stream already.
    """

    stream: str
    leases: Leases
    host: str | None
    driven: Callable[[], bool]

    def __call__(self, driver: Driver) -> None:
        """
        Return if nobody drives the run. Who changes that appends, so conflicts.

        Raises:
            BusyError: A living host drives it.
        """
        run_id = run_of(self.stream)
        row = ask(driver, _OWNER, run_id).fetchone()
        owner = row[0] if row else None
        if owner is None:
            return
        if owner == self.host:
            # A run that this host has let go of, after its log failed.
            alive = self.driven()
        else:
            alive = not self.leases.is_dead(driver, owner)
        if alive:
            raise driven(run_id, owner)


def driven(run_id: str, owner: str) -> BusyError:
    """Return what is told to who wants a run that a living host drives."""
    return BusyError(
        f"{owner} drives run {run_id}",
        fix=f"wait for it, or stop it with `caxton runs cancel {run_id}`",
    )


def grown(stream: str) -> BusyError:
    """Return what is told to who read a stream that has gone on since."""
    return BusyError(
        f"run {run_of(stream)} has gone on meanwhile",
        fix="look at it again with `caxton runs show`, and repeat the command",
    )
