"""
Simulate a fleet for many seeds, and print what it took; or two hosts, in detail.

    python -m tests.simulation --hosts 200 --seeds 5000 [--from 0] [--minutes 5]
    python -m tests.simulation --total seeds.json --until 100000
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections import Counter
from pathlib import Path

from tests import totals

from .fleet import Figures, told
from .hosts import Story

TESTS = Path(__file__).with_name("test_hosts.py")


def main() -> None:
    """Simulate each seed, until the time is over."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation")
    parser.add_argument("--hosts", type=int, default=20)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--from", type=int, default=0, dest="first")
    parser.add_argument("--minutes", type=float, default=float("inf"))
    totals.add_options(parser)
    asked = parser.parse_args()
    logging.disable()
    if asked.total:
        sys.exit(totals.go_on(asked.total, "seeds", asked.until, _part))
    figures, began, took = Figures(), time.monotonic(), 0.0
    for seed in range(asked.first, asked.first + asked.seeds):
        figures.add(told(seed, asked.hosts))
        took = time.monotonic() - began
        if took > asked.minutes * 60:
            break
    sys.stdout.write("\n".join([*figures.table(asked.hosts, took), ""]))


def _part(number: int) -> tuple[Counter[str], bool]:
    """Simulate the hundred seeds that end with that number of hundreds."""
    met: Counter[str] = Counter()
    for seed in range(100 * number - 100, 100 * number):
        story = Story(seed)
        try:
            story.run()
        except BaseException:
            sys.stderr.write(f"failed: CAXTON_SEEDS={seed} pytest -m long {TESTS}\n")
            raise
        met["seeds"] += 1
        met += story.world.met
    return met, True


if __name__ == "__main__":
    main()
