"""The files of a program or an agent under development, and their changes."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

from ..config import Agent, Config
from ..errors import UsageError
from ..runs.locked import lock_of
from .run_target import agent_of

#: Seconds between two looks at the files. A change counts once it is there twice.
EVERY = 0.1
#: Files of a folder that are watched.
_FILES = 2_000
Stamps: TypeAlias = Mapping[Path, tuple[int, int, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """
    What is developed.

    Attributes:
        folder: The sources of an agent that is built, or ``None``.

        file: The program or the module that is run.
    """

    folder: Path | None
    file: Path

    @classmethod
    def of(cls, path: Path, config: Config) -> Target:
        """
        Return the target at a path.

        Raises:
            UsageError: Nothing is there, or a folder without an agent.
        """
        if path.is_dir():
            from ..building import source_of

            source_of(path)
            name = f"{path.resolve().name}.wasm"
            modules = (agent.module for agent in config.agents.values())
            known = (module for module in modules if module and module.name == name)
            return cls(folder=path, file=next(known, Path.cwd() / name))
        if not path.is_file():
            raise UsageError(
                f"{path} is neither a file nor a folder",
                fix="name a program, a module, or the folder of an agent",
            )
        return cls(folder=None, file=path)

    def agent(self, config: Config) -> Agent:
        """Return the configured agent with that file; otherwise, one of its own."""
        file = self.file.resolve()
        for agent in config.agents.values():
            own = agent.program if isinstance(agent.program, Path) else agent.module
            if own is not None and own.resolve() == file:
                return agent
        return agent_of(replace(config, agents={}), str(self.file), None)

    def files(self) -> Iterable[Path]:
        """Return the files that a run is made of."""
        if self.folder is None:
            return self.file, lock_of(self.file)
        return sources(self.folder)


def sources(folder: Path) -> list[Path]:
    """Return the files in a folder without hidden ones, caches and modules."""
    found: list[Path] = []
    for where, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name[0] not in "._"]
        found += [
            Path(where, name)
            for name in names
            if name[0] != "." and not name.endswith(".wasm")
        ]
        if len(found) > _FILES:
            break
    return found[:_FILES]


def stamps(files: Iterable[Path]) -> Stamps:
    """Return a value that changes when one of *files* is written, made or removed."""
    found: dict[Path, tuple[int, int, int]] = {}
    for file in files:
        with contextlib.suppress(OSError):
            stat = file.stat()
            found[file] = stat.st_ino, stat.st_size, stat.st_mtime_ns
    return found


async def watch(
    look: Callable[[], Stamps], changed: Callable[[], None], every: float = EVERY
) -> None:
    """Call *changed* each time that *look* returns another value, twice in a row."""
    seen = last = look()
    while True:
        await asyncio.sleep(every)
        now = await asyncio.to_thread(look)
        if now == last and now != seen:
            seen = now
            changed()
        last = now
