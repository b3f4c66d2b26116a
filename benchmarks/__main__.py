"""``python -m benchmarks``: every figure, side by side, in one run."""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
from pathlib import Path

from . import appends, calls, machine, start


def main() -> None:
    """Measure, and print what was measured on what."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks")
    parser.add_argument("only", nargs="?", choices=["appends", "calls", "start"])
    parser.add_argument("--folder", type=Path, default=Path.cwd(), help="on a disk")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--calls", type=int, default=500)
    parser.add_argument("--warm-up", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=0.7, help="an append round")
    options = parser.parse_args()
    kind = machine.refuse_memory(options.folder)
    print(f"machine   {machine.describe()}")
    print(f"disk      {kind}")
    with tempfile.TemporaryDirectory(dir=options.folder, prefix="bench-") as name:
        folder = Path(name)
        if options.only in {None, "calls"}:
            _calls(folder, options)
        if options.only in {None, "start"}:
            for what, seconds in start.measure(
                folder / "start", options.rounds
            ).items():
                print(f"{what:<24}{start.summary(seconds)}")
        if options.only in {None, "appends"}:
            for row in appends.measure(folder, options.rounds, options.seconds):
                print(row)


def _calls(folder: Path, options: argparse.Namespace) -> None:
    found = asyncio.run(
        calls.measure(
            folder,
            rounds=options.rounds,
            calls=options.calls,
            warm_up=options.warm_up,
        )
    )
    bare, governed = map(statistics.median, (found.bare, found.governed))
    ratios = [b / a for a, b in zip(found.bare, found.governed, strict=True)]
    print(
        f"durable   PRAGMA synchronous = {found.synchronous} (2 is FULL), "
        f"{found.commits:.3f} commits a call"
    )
    for what, rounds, median in (
        ("bare SDK call, stdio", found.bare, bare),
        ("governed, durable call", found.governed, governed),
    ):
        spread = " ".join(f"{value:.0f}" for value in rounds)
        print(f"{what:<24}{median:.0f} us (rounds: {spread})")
    each = " ".join(f"{value:.2f}" for value in ratios)
    print(f"{'ratio':<24}{governed / bare:.2f} (rounds: {each}; at most 1.6)")


if __name__ == "__main__":
    main()
