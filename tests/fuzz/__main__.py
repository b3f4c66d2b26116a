"""
Give readers changed bytes for a while, and print what they raise.

    python -m tests.fuzz [TARGET ...] [--minutes 10] [--seed 1]
"""

from __future__ import annotations

import argparse
import random  # noqa: TID251 -- seeded: what to change
import sys
import time
import traceback
from collections.abc import Iterator
from pathlib import Path

from .targets import TARGETS

_ODD = (0, 1, 0x7F, 0x80, 0xC1, 0xD9, 0xDB, 0xDF, 0xFF)
_NUMBERS = (b"\xff" * 4, b"\xff" * 8, b"\x80" * 5, b"\x00" * 8, b"99999999999999999999")


def cases_of(name: str, seed: int) -> Iterator[bytes]:
    """Yield the cases of a target without end; the same ones for the same seed."""
    target = TARGETS[name]
    return target.cases(seed) if target.cases else changed(target.seeds(), seed)


def changed(seeds: list[bytes], seed: int) -> Iterator[bytes]:
    """Yield what becomes of *seeds* by one to four changes, without end."""
    chance = random.Random(seed)  # noqa: S311
    while True:
        data = bytearray(chance.choice(seeds))
        for _ in range(chance.choice((1, 1, 1, 2, 4))):
            _change(chance, data, chance.choice(seeds))
        yield bytes(data)


def _change(chance: random.Random, data: bytearray, other: bytes) -> None:
    # Heads are where lengths and kinds are.
    at = chance.randrange(min(len(data), chance.choice((64, 1 << 30))) + 1)
    size = chance.choice((1, 1, 2, 8, 64))
    match chance.randrange(7):
        case 0 if at < len(data):
            data[at] ^= 1 << chance.randrange(8)
        case 1 if at < len(data):
            data[at] = chance.choice(_ODD)
        case 2:
            del data[at : at + size]
        case 3:
            data[at:at] = data[at : at + size] * chance.choice((1, 2, 100))
        case 4:
            begin = chance.randrange(len(other) + 1)
            data[at : at + size] = other[begin : begin + size]
        case 5:
            data[at:at] = chance.choice(_NUMBERS)
        case _:
            del data[at:]


def main() -> int:
    """Fuzz each target, and say what was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("targets", nargs="*", metavar="TARGET")
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    found = 0
    for name in asked.targets or TARGETS:
        found += _fuzzed(name, asked.seed, asked.minutes * 60)
    return min(found, 1)


def _fuzzed(name: str, seed: int, seconds: float) -> int:
    target, until = TARGETS[name], time.monotonic() + seconds
    cases = cases_of(name, seed)
    count, slowest, kinds = 0, 0.0, set[str]()
    while time.monotonic() < until:
        data, count, began = next(cases), count + 1, time.process_time()
        try:
            target.check(data)
        except Exception as exc:  # noqa: BLE001 -- what is looked for
            last = traceback.extract_tb(exc.__traceback__)[-1]
            kind = f"{type(exc).__name__} at {last.filename}:{last.lineno}"
            if kind not in kinds:
                kinds.add(kind)
                kept = Path(f"{name}-{seed}-{count}.case")
                kept.write_bytes(data)
                sys.stdout.write(f"  {kind}: {exc!r:.300}; {kept}\n")
        slowest = max(slowest, time.process_time() - began)
    sys.stdout.write(
        f"{name}: {count:,} cases, {len(kinds)} findings, the slowest {slowest:.2f} s\n"
    )
    sys.stdout.flush()
    return len(kinds)


if __name__ == "__main__":
    sys.exit(main())
