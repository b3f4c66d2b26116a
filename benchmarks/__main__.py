"""``python -m benchmarks``: every figure, side by side, in one run."""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
from pathlib import Path

from . import calls, machine, many, start
from .contestants import AT_ONCE, TRANSPORTS

_MOST = {"stdio": 1.6, "http": 1.4}


def main() -> None:
    """Measure, and print what was measured on what."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks")
    parser.add_argument("only", nargs="?", choices=["calls", "many", "start"])
    parser.add_argument("--transport", choices=TRANSPORTS, help="both, if not said")
    parser.add_argument("--folder", type=Path, default=Path.cwd(), help="on a disk")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--calls", type=int, default=500)
    parser.add_argument("--each", type=int, default=50, help="calls of many agents")
    parser.add_argument("--warm-up", type=int, default=100)
    options = parser.parse_args()
    kind = machine.refuse_memory(options.folder)
    print(f"machine   {machine.describe()}")
    print(f"disk      {kind}")
    with tempfile.TemporaryDirectory(dir=options.folder, prefix="bench-") as name:
        folder = Path(name)
        for transport in [options.transport] if options.transport else TRANSPORTS:
            for what, report in (("calls", _calls), ("many", _many)):
                if options.only in {None, what}:
                    place = folder / f"{what}-{transport}"
                    place.mkdir()
                    report(place, transport, options)
        if options.only in {None, "start"}:
            for what, seconds in start.measure(
                folder / "start", options.rounds
            ).items():
                print(f"{what:<24}{start.summary(seconds)}")


def _calls(folder: Path, transport: str, options: argparse.Namespace) -> None:
    found = asyncio.run(
        calls.measure(
            folder,
            transport=transport,
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
        (f"bare SDK call, {transport}", found.bare, bare),
        ("governed, durable call", found.governed, governed),
    ):
        spread = " ".join(f"{value:.0f}" for value in rounds)
        print(f"{what:<24}{median:.0f} us (rounds: {spread})")
    each = " ".join(f"{value:.2f}" for value in ratios)
    most = _MOST[transport]
    print(f"{'ratio':<24}{governed / bare:.2f} (rounds: {each}; at most {most})")


def _many(folder: Path, transport: str, options: argparse.Namespace) -> None:
    found = asyncio.run(
        many.measure(
            folder, transport=transport, rounds=options.rounds, calls=options.each
        )
    )
    bare, governed = map(statistics.median, (found.bare, found.governed))
    print(f"durable   {found.commits:.3f} commits a call")
    for what, rounds, median in (
        (f"bare SDK, {AT_ONCE}, {transport}", found.bare, bare),
        (f"governed, {AT_ONCE} agents", found.governed, governed),
    ):
        spread = " ".join(f"{value:.0f}" for value in rounds)
        print(f"{what:<24}{median:.0f} calls/s (rounds: {spread})")
    pairs = zip(found.bare, found.governed, strict=True)
    each = " ".join(f"{b / a:.2f}" for a, b in pairs)
    print(f"{'ratio':<24}{governed / bare:.2f} (rounds: {each}; at least 0.8)")


if __name__ == "__main__":
    main()
