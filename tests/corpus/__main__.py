"""
Write logs of the corpus.

    python -m tests.corpus write            those that are missing
    python -m tests.corpus write NAME...    these, once more
    python -m tests.corpus freeze           hold all to what they say now
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

from . import files
from .files import names
from .scenes import SCENES
from .studio import studio


async def _write(wanted: list[str]) -> None:
    with tempfile.TemporaryDirectory(prefix="corpus-") as folder:
        for name in wanted:
            async with studio(name, Path(folder)) as it:
                await SCENES[name](it)
            sys.stdout.write(f"{name}\n")


def main() -> None:
    """Write the requested logs."""
    parser = argparse.ArgumentParser(prog="python -m tests.corpus")
    parser.add_argument("command", choices=["write", "freeze"])
    parser.add_argument("names", nargs="*", metavar="NAME")
    given = parser.parse_args()
    if unknown := set(given.names) - set(SCENES):
        parser.error(f"no scene is called {', '.join(sorted(unknown))}")
    held = files.frozen()
    if given.command == "freeze":
        for name in names():
            if name not in held:
                files.freeze(name)
        return
    if old := sorted(set(given.names) & held.keys()):
        parser.error(f"{', '.join(old)}: a log that is frozen stays as it is")
    written = names()
    asyncio.run(_write(given.names or [n for n in SCENES if n not in written]))


if __name__ == "__main__":
    main()
