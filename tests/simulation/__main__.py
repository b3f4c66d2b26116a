"""
Simulate a fleet for many seeds, and print what it took.

    python -m tests.simulation --hosts 200 --seeds 5000 [--from 0] [--minutes 5]
"""

from __future__ import annotations

import argparse
import logging
import sys
import time

from .fleet import Figures, told


def main() -> None:
    """Simulate each seed, until the time is over."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation")
    parser.add_argument("--hosts", type=int, default=20)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--from", type=int, default=0, dest="first")
    parser.add_argument("--minutes", type=float, default=float("inf"))
    asked = parser.parse_args()
    logging.disable()
    figures, began, took = Figures(), time.monotonic(), 0.0
    for seed in range(asked.first, asked.first + asked.seeds):
        figures.add(told(seed, asked.hosts))
        took = time.monotonic() - began
        if took > asked.minutes * 60:
            break
    sys.stdout.write("\n".join([*figures.table(asked.hosts, took), ""]))


if __name__ == "__main__":
    main()
