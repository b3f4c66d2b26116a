"""
``python -m tests.load``: make a thousand concurrent calls of one agent over HTTP.

Every answer must be a result or a refusal with a time to retry, and every accepted run
must be recorded and have ended. Printed are the answers, the latency of `/healthz`
during the load, and the memory of the host. `benchmarks.served` starts the host.

    python -m tests.load --slow 1000                  beside a thousand slow clients
    python -m tests.load --files 8 --memory 20        with so many more descriptors
                                                      and MiB than an idle host has

Where something is exhausted, a call may stay without an answer too. When there is
enough again, a call has to succeed, and each run has to have ended.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple

from benchmarks.served import ASKED, host
from benchmarks.sides import token as new_token

from .slow import slow
from .storm import Answers, storm


def main() -> None:
    """Run the load test and print its results."""
    parser = argparse.ArgumentParser(prog="python -m tests.load")
    parser.add_argument("--calls", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--serve", default="", help="further keys of [serve], as TOML")
    parser.add_argument(
        "--folder", type=Path, default=None, help="scratch folder, on a disk"
    )
    parser.add_argument("--slow", type=int, default=0, help="slow clients beside it")
    parser.add_argument("--files", type=int, default=None, help="free descriptors")
    parser.add_argument("--memory", type=int, default=None, help="free MiB")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = Path(name) / "host"
        with host(folder, f"[serve]\n{options.serve}\n") as (said, token, child):
            runs: list[str] = []
            other = new_token(folder, "--scope", "run") if options.slow else ""
            place = Place(said["url"], token, child.pid, options.slow, other)
            for _ in range(options.rounds):
                with _scarce(child.pid, options.files, options.memory) as scarce:
                    runs += _round(place, options.calls, scarce=scarce)
                if scarce:
                    time.sleep(1)
                    runs += _round(place, 1)
            child.send_signal(signal.SIGTERM)
            if child.wait():
                sys.exit(f"Error: the host ended with {child.returncode}")
        _check(folder / "served.db", runs)


class Place(NamedTuple):
    """
    A host.

    Attributes:
        slow: How many slow clients it has.

        other: Their token.
    """

    url: str
    token: str
    pid: int
    slow: int
    other: str


@contextmanager
def _scarce(pid: int, files: int | None, memory: int | None) -> Iterator[bool]:
    """Leave a host so many descriptors and MiB, and yield whether that is little."""
    limits: dict[int, int] = {}
    if files is not None:
        used = len([*Path(f"/proc/{pid}/fd").iterdir()])
        limits[resource.RLIMIT_NOFILE] = used + files
    if memory is not None:
        pages = int(Path(f"/proc/{pid}/statm").read_text("ascii").split()[0])
        limits[resource.RLIMIT_AS] = pages * resource.getpagesize() + memory * 2**20
    before = {kind: resource.prlimit(pid, kind) for kind in limits}
    for kind, soft in limits.items():
        resource.prlimit(pid, kind, (soft, before[kind][1]))
    yield bool(limits)
    for kind, both in before.items():
        resource.prlimit(pid, kind, both)


async def _calls(place: Place, calls: int) -> Answers:
    async with slow(place.url, place.other, place.slow):
        await asyncio.sleep(place.slow / 150)
        return await storm(f"{place.url}/mcp", [place.token], "echo", ASKED, calls)


def _round(place: Place, calls: int, *, scarce: bool = False) -> Sequence[str]:
    url, pid = place.url, place.pid
    probing = [sys.executable, "-m", "tests.load.probe", url]
    with subprocess.Popen(
        probing, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as probe:
        time.sleep(1)
        began = time.monotonic()
        answers = asyncio.run(_calls(place, calls))
        took = time.monotonic() - began
        out, _ = probe.communicate()
    if scarce:
        # An error that says so, or none at all: nothing was recorded of it, or all.
        answers.kinds["error, or no answer"] += len(answers.wrong)
        answers.wrong.clear()
    _tell(answers, took, sorted(json.loads(out)), _memory(pid))
    return answers.runs


def _tell(
    answers: Answers, took: float, health: Sequence[float], memory: float
) -> None:
    kinds = ", ".join(f"{kind}: {n}" for kind, n in sorted(answers.kinds.items()))
    _print(f"{kinds}; in {took:.1f} s")
    middle, late = (health[int(len(health) * at)] for at in (0.5, 0.99))
    worst = health[-1]
    _print(
        f"/healthz: {len(health)} x, median {middle:.1f} ms, p99 {late:.1f} ms, "
        f"longest {worst:.1f} ms"
    )
    _print(f"memory of the host: {memory:.0f} MB")
    if answers.wrong:
        sys.exit(f"Error: {len(answers.wrong)} wrong answers: {answers.wrong[:3]}")


def _print(text: str) -> None:
    sys.stdout.write(f"{text}\n")


def _memory(pid: int) -> float:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text("utf-8").splitlines()
    return sum(int(x.split()[1]) for x in lines if x.startswith("Pss:")) / 1e3


def _check(database: Path, runs: Sequence[str]) -> None:
    with closing(sqlite3.connect(database)) as connection:
        found = dict(connection.execute("SELECT run_id, state FROM runs").fetchall())
    if not {*found} >= {*runs} or {*found.values()} != {"completed"}:
        sys.exit(
            f"Error: {len(runs)} runs accepted, {len(found)} recorded, "
            f"states: {sorted({*found.values()})}"
        )
    _print(f"{len(runs)} runs recorded; all completed")


if __name__ == "__main__":
    main()
