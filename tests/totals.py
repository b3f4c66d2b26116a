"""The total of a rig that is run by hand in parts, and goes on where it was."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

__all__ = ["Total", "add_options", "go_on"]


@dataclass(slots=True)
class Total:
    """
    What was done so far.

    Attributes:
        counts: Sums of what the parts counted.

        seconds: Time of the parts that ended.

        parts: How many began; each has this number as its seed.

        failed: Seeds of the parts that found something wrong.
    """

    counts: dict[str, int] = field(default_factory=dict[str, int])
    seconds: float = 0.0
    parts: int = 0
    failed: list[int] = field(default_factory=list[int])

    @classmethod
    def read(cls, path: Path) -> Total:
        """Return the total that a file has, or an empty one."""
        if not path.exists():
            return cls()
        return cls(**json.loads(path.read_text("utf-8")))

    def write(self, path: Path) -> None:
        """Replace the file."""
        new = path.with_suffix(".new")
        new.write_text(json.dumps(asdict(self), indent=1) + "\n", "utf-8")
        new.replace(path)

    def line(self, unit: str) -> str:
        """Return the total in words."""
        pace = 3600 * self.counts.get(unit, 0) / max(self.seconds, 0.001)
        return (
            f"total        {self.counts.get(unit, 0)} {unit}, {pace:.0f} an hour, in"
            f" {self.parts} parts, {len(self.failed)} failed {self.failed}"
        )


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of a rig that goes on."""
    group = parser.add_argument_group("in parts, each a process with the next seed")
    group.add_argument("--total", type=Path, help="file of the total, to go on with")
    group.add_argument("--until", type=int, default=0, help="end at this total")


def go_on(
    path: Path, unit: str, until: int, part: Callable[[int], tuple[Counter[str], bool]]
) -> int:
    """
    Do parts until the total is reached or a part fails; return the exit code.

    Args:
        part: Takes the number of a part, counted from 1; returns what it counted, one
            key of which is *unit*, and whether all was right.
    """
    while (total := Total.read(path)).counts.get(unit, 0) < until:
        sys.stdout.flush()
        if not (child := os.fork()):
            os._exit(_do(path, total, part))
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        total = Total.read(path)
        sys.stdout.write(f"{total.line(unit)}\n")
        if code:
            return 1
    return 0


def _do(
    path: Path, total: Total, part: Callable[[int], tuple[Counter[str], bool]]
) -> int:
    began, fine = time.monotonic(), False
    try:
        counts, fine = part(total.parts + 1)
        total.counts = dict(Counter(total.counts) + counts)
    except BaseException:  # noqa: BLE001 -- the process ends here
        traceback.print_exc()
    sys.stdout.flush()
    total.parts += 1
    total.seconds += time.monotonic() - began
    total.failed += [] if fine else [total.parts]
    total.write(path)
    return 0 if fine else 1
