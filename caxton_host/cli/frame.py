"""What every command shares: its options, the configuration, the store, the actor."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
from collections.abc import AsyncGenerator, Callable, Coroutine
from dataclasses import dataclass, replace
from functools import update_wrapper
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ..actor import local_actor
from ..core.redact import MIN_LENGTH
from .screen import note

if TYPE_CHECKING:
    from ..config import Config, Paths
    from ..store.sql import SqlStore

__all__ = ["Frame", "as_json", "local_actor", "wait"]

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """
    The options that stand before a command.

    Attributes:
        config: The file that was asked for, or ``None``.

        db: The store that was asked for, or ``None``.
    """

    config: str | None = None
    db: str | None = None

    def load(self) -> Config:
        """Return the configuration, with its warnings told."""
        from ..config import load

        config = load(
            Path(self.config) if self.config else None,
            environ=os.environ,
            cwd=Path.cwd(),
            store_url=self.db,
        )
        for warning in config.warnings:
            note(f"warning: {warning}")
        return self._guarded(config)

    def command(self) -> str:
        """Return how a command line begins that means the same, without passwords."""
        from ..config import passwords

        db = self.db or ""
        for secret in passwords(db):
            db = db.replace(secret, "***")
        given = (("--config", self.config), ("--db", db))
        words = [f"{option} {shlex.quote(text)}" for option, text in given if text]
        return " ".join(["caxton", *words])

    def paths(self) -> Paths:
        """Return where keys and caches are."""
        from ..config import Paths

        return Paths.of(os.environ)

    def look(self, *, traced: bool = False) -> Config:
        """
        Return where the log is, and nothing of the configuration that is secret.

        Args:
            traced: Return where spans go as well.
        """
        from ..config import load_log

        config = load_log(
            Path(self.config) if self.config else None,
            environ=os.environ,
            cwd=Path.cwd(),
            store_url=self.db,
            traced=traced,
        )
        return self._guarded(config)

    def _guarded(self, config: Config) -> Config:
        """Return *config* with the passwords of ``--db`` among its secrets."""
        from ..config import passwords

        found = {one for one in passwords(self.db or "") if len(one) >= MIN_LENGTH}
        return replace(config, secrets=config.secrets | found)

    @contextlib.asynccontextmanager
    async def log(self) -> AsyncGenerator[SqlStore]:
        """Open the event store to read, without reading any credential."""
        from ..bootstrap import open_store

        async with open_store(self.look(), write=False) as store:
            yield store

    @contextlib.asynccontextmanager
    async def store(self) -> AsyncGenerator[SqlStore]:
        """Open the event store to read."""
        from ..bootstrap import open_store

        async with open_store(self.load(), write=False) as store:
            yield store


def wait(work: Coroutine[Any, Any, _T]) -> _T:
    """Run a command's coroutine to its end."""
    return asyncio.run(work)


def as_json(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--json``."""
    option = click.option(
        "--json", "as_json", is_flag=True, help="Print one JSON document."
    )
    return update_wrapper(option(function), function)
