"""
Run the kill loop by hand.

    python -m tests.chaos --cycles 10000 --store sqlite --seed 7
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random  # noqa: TID251 -- drawn from the seed that is printed
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tests.postgres import running

from .check import Found, check
from .conductor import Conductor
from .scene import Place


@contextlib.contextmanager
def _place(store: str) -> Iterator[Place]:
    with tempfile.TemporaryDirectory(prefix="chaos-") as name:
        folder = Path(name)
        if store == "sqlite":
            yield Place(folder=folder, store=f"sqlite:///{folder / 'log.db'}")
        elif store == "postgres":
            with running() as server:
                yield Place(folder=folder, store=server.make())
        else:
            yield Place(folder=folder, store=store)


def say(line: str) -> None:
    """Print a line of the report."""
    sys.stdout.write(f"{line}\n")


def _report(found: Found, conductor: Conductor, seconds: float) -> None:
    kills = conductor.kills
    say(f"kills        {kills.total()}  {dict(kills)}")
    say(f"cycles/s     {kills.total() / seconds:.1f}  ({seconds:.1f} s)")
    say(f"runs         {dict(found.runs)}  {dict(found.failures)}")
    say(f"calls        {len(found.invoked)}  {dict(found.outcomes)}")
    say(f"denied       {dict(found.denials)}")
    say(f"masks        in {found.masked} runs")
    shared = sum(key.startswith("#") for key in found.spent)
    own = {key: n for key, n in found.spent.items() if key[0] != "#"}
    say(f"spent        {own}, and {shared} budgets that runs share")
    say(f"settled      {found.settled} calls")
    say(f"agents       {dict(found.agents)}")
    say(f"freezes      {found.frozen}")
    say(f"events       {found.events}, effects {found.effects}")
    say(f"retries      {found.retries}, resolutions {dict(found.words)}")
    each = 1000 * found.suspensions / max(kills.total(), 1)
    say(f"suspensions  {found.suspensions}, {each:.0f} per 1,000 kills")
    for line in found.wrong[:20]:
        say(f"WRONG        {line}")
    say(f"{len(found.wrong)} violations" if found.wrong else "no violations")


def main() -> int:
    """Run the kill loop, and return 0 if it found no violation."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos")
    parser.add_argument("--cycles", type=int, default=100)
    parser.add_argument("--store", default="sqlite", help="sqlite, postgres or a URL")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--pace", type=float, default=0.06, help="mean seconds between kills"
    )
    given = parser.parse_args()
    with _place(given.store) as place:
        chance = random.Random(given.seed)  # noqa: S311 -- not for secrets
        conductor = Conductor(place, chance, given.pace)
        began = time.monotonic()
        conductor.run(given.cycles)
        seconds = time.monotonic() - began
        found = asyncio.run(check(place))
    say(f"seed         {given.seed}, {given.store.partition(':')[0]}")
    _report(found, conductor, seconds)
    return 1 if found.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
