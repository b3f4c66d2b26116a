"""
Fail each write of a scene, one at a time, and compare what is left.

    python -m tests.nth --store sqlite
    python -m tests.nth --store postgresql --first 40
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from caxton_host.store import migrate
from tests.postgres import running
from tests.shared import in_memory

from .faults import KINDS, Faults, Kind
from .told import told


def main() -> int:
    """Fail each write, and return 0 if nothing was wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.nth")
    parser.add_argument("--store", choices=[*KINDS], default="sqlite")
    parser.add_argument("--every", type=int, default=1, help="7: every seventh write")
    parser.add_argument("--first", type=int, default=1, help="the first to fail")
    given = parser.parse_args()
    logging.disable()
    began = time.monotonic()
    with (
        tempfile.TemporaryDirectory(dir=in_memory(), prefix="nth-") as name,
        _logs(given.store, Path(name)) as new,
    ):
        writes = range(given.first, 10**9, given.every)
        counts, fine = _all(Path(name), new, KINDS[given.store], writes)
    seconds = time.monotonic() - began
    pace = 3600 * counts["writes"] / seconds
    sys.stdout.write(f"{dict(counts)}, {pace:.0f} an hour\n")
    return 0 if fine else 1


def _all(
    folder: Path,
    new: Callable[[Path], str],
    kinds: Sequence[Kind],
    writes: Iterable[int],
) -> tuple[Counter[str], bool]:
    counts, fine = Counter[str](), True
    for kind in kinds:
        for at in writes:
            (at_folder := folder / f"{kind}-{at}").mkdir()
            found = asyncio.run(told(new(at_folder), at_folder, Faults(at, kind)))
            shutil.rmtree(at_folder)
            if not found.failed:
                break
            counts["writes"] += 1
            counts[f"{kind}, told"] += bool(found.errors)
            for line in found.wrong:
                fine = False
                sys.stdout.write(f"WRONG {kind} at {at}, {found.failed}: {line}\n")
    return counts, fine


@contextmanager
def _logs(store: str, folder: Path) -> Iterator[Callable[[Path], str]]:
    """Yield what makes an empty log, and returns its address."""
    if store == "postgresql":
        with running() as server:
            yield lambda _: server.make()
        return
    whole = folder / "empty.db"
    migrate.upgrade(f"sqlite:///{whole}")

    def new(where: Path) -> str:
        return f"sqlite:///{shutil.copy(whole, where / 'log.db')}"

    yield new


if __name__ == "__main__":
    sys.exit(main())
