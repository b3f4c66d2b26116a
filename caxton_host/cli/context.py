"""What every command shares: its options, the configuration, the store, the actor."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
from collections.abc import AsyncGenerator, Callable, Coroutine
from dataclasses import dataclass
from functools import update_wrapper
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ..errors import UsageError
from . import interrupt
from .output import note

if TYPE_CHECKING:
    from ..config import Config, Paths
    from ..ports import History
    from ..store.sql import SqlStore
    from .host_option import There


#: Sections of the configuration that a command needs to write a signed log.
SIGNED = ("audit", "http")

_T = TypeVar("_T")
#: What reads the configuration or the log.
_COMMAND = re.compile(
    r"\bcaxton (?=(?:approval|audit|config|db|events|grant|replay|run|runs|serve|"
    r"server|tool) |agent list\b)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """
    The options that stand before a command.

    Attributes:
        config: The file that was asked for, or ``None``.

        db: The store that was asked for, or ``None``.

        there: The host that was asked for, or ``None``: this machine.
    """

    config: str | None = None
    db: str | None = None
    there: There | None = None

    def here(self, command: str = "") -> None:
        """
        Return if this machine is meant.

        Args:
            command: What was typed; by default it is the one under way.

        Raises:
            UsageError: A host is meant, and the command does nothing there.
        """
        if self.there is None:
            return
        raise UsageError(
            f"{command or click.get_current_context().command_path} does not work "
            "with --host",
            fix="type it on the machine of that host; leave out --host, and unset "
            "CAXTON_HOST, for this one",
        )

    def load(self) -> Config:
        """Return the configuration, with its warnings told."""
        from ..config import load

        self.here()
        config = load(
            Path(self.config) if self.config else None,
            environ=os.environ,
            cwd=Path.cwd(),
            store_url=self.db,
        )
        for warning in config.warnings:
            note(f"warning: {warning}")
        return config

    def command(self) -> str:
        """Return how a command line begins that means the same, without passwords."""
        from ..config.sections import passwords

        if self.there is not None:
            return self.there.command()
        db = self.db or ""
        for secret in sorted(passwords(db), key=len, reverse=True):
            db = db.replace(secret, "***")
        given = (("--config", self.config), ("--db", db))
        words = [f"{option} {shlex.quote(text)}" for option, text in given if text]
        return " ".join(["caxton", *words])

    def named(self, text: str) -> str:
        """Return *text* with the commands in it as typed with these options."""
        if self.there is not None:
            return self.there.named(text)
        command = self.command()
        return _COMMAND.sub(lambda _: f"{command} ", text)

    def paths(self) -> Paths:
        """Return where keys and caches are."""
        from ..config import Paths

        return Paths.of(os.environ)

    def look(self, *sections: str, guarded: bool = False) -> Config:
        """
        Return where the log is, and what some sections of the configuration say.

        Args:
            sections: Those that are needed; see `load_parts`.

            guarded: Know the secrets of the others too, as far as they can be
                resolved: something that is typed will be kept.
        """
        from ..config import load_parts

        self.here()
        return load_parts(
            Path(self.config) if self.config else None,
            sections,
            environ=os.environ,
            cwd=Path.cwd(),
            store_url=self.db,
            guarded=guarded,
        )

    @contextlib.asynccontextmanager
    async def log(self) -> AsyncGenerator[SqlStore]:
        """Open the event store to read, without resolving anything else."""
        from ..app.bootstrap import open_store

        async with open_store(self.look(), write=False) as store:
            yield store

    @contextlib.asynccontextmanager
    async def history(self) -> AsyncGenerator[History]:
        """Open the log to read, here or there."""
        if self.there is None:
            async with self.log() as store:
                yield store.reader
        else:
            async with self.there.log() as log:
                yield log


def wait(work: Coroutine[Any, Any, _T]) -> _T:
    """Run a command's coroutine to its end."""
    return interrupt.run(work)


def as_json(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--json``."""
    option = click.option(
        "--json", "as_json", is_flag=True, help="Print one JSON document."
    )
    return update_wrapper(option(function), function)
