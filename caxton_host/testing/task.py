"""What an agent is given in a test."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TypedDict

from ..core.calls import JSON
from ..core.limits import Limits
from ..core.names import is_server_name
from ..errors import UsageError

#: A module, or its file.
Module = Path | str | bytes

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SEED_BYTES = 32


class Given(TypedDict, total=False):
    """The keyword arguments of a run; see `Task`."""

    input: JSON
    context: Mapping[str, JSON]
    entry: str
    seed: int
    now: datetime
    limits: Limits


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """
    What an agent is given.

    Attributes:
        input: Its input.

        context: Its run variables.

        entry: The exported function to call; by default what the configuration or
            the cassette says, or else ``run``.

        seed: What its random numbers come from.

        now: What its clock says. It stands still: a test gives the same each time.

        limits: Its bounds, or ``None`` for the usual ones.
    """

    input: JSON = None
    context: Mapping[str, JSON] = field(default_factory=dict[str, JSON])
    entry: str | None = None
    seed: int = 0
    now: datetime = datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
    limits: Limits | None = None

    @property
    def micros(self) -> int:
        """
        The time in microseconds since 1970.

        Raises:
            UsageError: It is none.
        """
        if self.now.tzinfo is None or self.now < _EPOCH:
            raise UsageError(
                f"now is {self.now}, without a time zone or before 1970",
                fix="write for example datetime(2026, 11, 21, tzinfo=UTC)",
            )
        return (self.now - _EPOCH) // timedelta(microseconds=1)

    @property
    def seed_bytes(self) -> bytes:
        """
        The seed as the log holds it.

        Raises:
            UsageError: It does not fit.
        """
        try:
            return self.seed.to_bytes(_SEED_BYTES, "big")
        except OverflowError:
            raise UsageError(
                "the seed is negative, or has more than 256 bits",
                fix="use another number",
            ) from None


def name_of(module: Module) -> str:
    """Return what an agent is called whose name nobody said."""
    stem = "" if isinstance(module, bytes) else Path(module).stem
    return stem if is_server_name(stem) else "agent"


def bytes_of(module: Module, limits: Limits | None) -> bytes:
    """
    Return the bytes of a module.

    Raises:
        UsageError: It cannot be read, or is too large.
    """
    if isinstance(module, bytes):
        return module
    limit = (limits or Limits()).module
    try:
        with Path(module).open("rb") as file:
            data = file.read(limit + 1)
    except OSError as exc:
        raise UsageError(
            f"cannot read the module {module}: {exc.strerror}",
            fix="build it first: caxton agent build",
        ) from None
    if len(data) > limit:
        raise UsageError(
            f"the module {module} is larger than {limit} bytes",
            fix="build a smaller one, or pass limits=Limits(module=...)",
        )
    return data
