"""
``python -m tests.load``: make a thousand concurrent calls of one agent over HTTP.

Every answer must be a result or a refusal with a time to retry, and every accepted run
must be recorded and have ended. Printed are the answers, the latency of `/healthz`
during the load, and the memory of the host. `benchmarks.served` starts the host.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from benchmarks.served import ASKED, host

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
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = Path(name) / "host"
        with host(folder, f"[serve]\n{options.serve}\n") as (said, token, child):
            runs: list[str] = []
            for _ in range(options.rounds):
                runs += _round(said["url"], token, options.calls, child.pid)
            child.send_signal(signal.SIGTERM)
            child.wait()
        _check(folder / "served.db", runs)


def _round(url: str, token: str, calls: int, pid: int) -> Sequence[str]:
    probing = [sys.executable, "-m", "tests.load.probe", url]
    with subprocess.Popen(
        probing, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as probe:
        time.sleep(1)
        began = time.monotonic()
        answers = asyncio.run(storm(f"{url}/mcp", [token], "echo", ASKED, calls))
        took = time.monotonic() - began
        out, _ = probe.communicate()
    _tell(answers, took, sorted(json.loads(out)), _memory(pid))
    return answers.runs


def _tell(
    answers: Answers, took: float, health: Sequence[float], memory: float
) -> None:
    kinds = ", ".join(f"{kind}: {n}" for kind, n in sorted(answers.kinds.items()))
    _print(f"{kinds}; in {took:.1f} s")
    middle, worst = health[len(health) // 2], health[-1]
    _print(f"/healthz: median {middle:.1f} ms, longest {worst:.1f} ms")
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
    if {*found} != {*runs} or {*found.values()} != {"completed"}:
        sys.exit(
            f"Error: {len(runs)} runs accepted, {len(found)} recorded, "
            f"states: {sorted({*found.values()})}"
        )
    _print(f"{len(runs)} runs recorded; all completed")


if __name__ == "__main__":
    main()
