"""
``python -m benchmarks.agentdojo``: measure grants on AgentDojo, without a model.

The first run makes a Python environment for AgentDojo from `lock.txt`. Results are kept
in the folder, so an interrupted measurement continues where it stopped.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
import venv
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from pathlib import Path

from .. import machine
from .replaying import Attacker, Case, Job, Outcome, perform
from .report import Results, page
from .settings import FROM_SET, SETS, SUITES

_LOCK = Path(__file__).with_name("lock.txt")
_ATTACKERS: Sequence[Attacker] = (
    *("none", "denied", "plain", "text"),
    *("reader", "launderer"),
)
_SECOND: Sequence[Attacker] = ("none", "denied", "plain")
_TASKS = ("agentdojo", "second")


def main() -> None:
    """Measure what has not been measured yet, and print the report."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.agentdojo")
    parser.add_argument("--suite", choices=SUITES, action="append")
    parser.add_argument("--setting", choices=SETS, action="append")
    parser.add_argument(
        "--set", choices=_TASKS, action="append", dest="tasks", help="of tasks"
    )
    parser.add_argument("--json", action="store_true", help="print each outcome")
    parser.add_argument("--write", type=Path, help="page to write")
    parser.add_argument("--folder", type=Path, default=Path.cwd() / ".agentdojo")
    parser.add_argument(
        "--report", action="store_true", help="measure nothing, show what there is"
    )
    parser.add_argument("--jobs", type=int, default=2, help="suites at once")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    python = options.folder / "venv" / "bin" / "python"
    if not options.report:
        _install(options.folder / "venv")
    jobs = [
        Job(kind, suite, setting, str(python), attacker, options.folder, second)
        for second in sorted(tasks == "second" for tasks in options.tasks or _TASKS)
        for kind, setting, attacker in _wanted(options.setting or SETS, second=second)
        for suite in reversed(options.suite or SUITES)
    ]
    if options.report:
        jobs = [job for job in jobs if _path(job).exists()]
    results: Results = {}
    others: Results = {}
    with ProcessPoolExecutor(options.jobs) as pool:
        for job, found in zip(jobs, pool.map(_kept, jobs), strict=True):
            key = job.kind, job.setting, job.attacker
            (others if job.second else results).setdefault(key, []).extend(found)
    if options.json:
        for tasks, measured in zip(_TASKS, (results, others), strict=True):
            for (kind, setting, _), found in measured.items():
                said = {"tasks": tasks, "set": kind, "setting": setting}
                for one in found:
                    print(json.dumps({**said, **asdict(one)}))
        return
    today = time.strftime("%Y-%m-%d", time.gmtime())
    text = page(results, others, machine.describe(), today)
    if options.write:
        options.write.write_text(text, encoding="utf-8")
    else:
        print(text)


def _wanted(
    kinds: Sequence[str], *, second: bool
) -> Iterator[tuple[str, str, Attacker]]:
    """Yield what is to be measured: a set, a setting of it, and an attacker."""
    if second:
        yield kinds[0], "open", "none"
        for attacker in _SECOND:
            for kind in kinds:
                yield kind, "full", attacker
        return
    for attacker in _ATTACKERS:
        for kind in kinds:
            yield kind, "full", attacker
    for setting in ("open", "order", "input", "paths"):
        for kind in kinds if setting in FROM_SET else kinds[:1]:
            yield kind, setting, "none"
            yield kind, setting, "plain"


def _kept(job: Job) -> list[Outcome]:
    """Return the outcomes of a job, from an earlier measurement if there is one."""
    path = _path(job)
    if not path.exists():
        found = json.dumps([asdict(one) for one in perform(job)])
        path.with_suffix(".part").write_text(found, encoding="utf-8")
        path.with_suffix(".part").rename(path)
        print(f"measured {path.stem}", file=sys.stderr, flush=True)
    return [
        Outcome(
            **{**one, "case": Case(**one["case"]), "blocked": tuple(one["blocked"])}
        )
        for one in json.loads(path.read_text("utf-8"))
    ]


def _path(job: Job) -> Path:
    name = f"{job.kind}-{job.suite}-{job.setting}-{job.attacker}.json"
    return job.folder / (f"second-{name}" if job.second else name)


def _install(folder: Path) -> None:
    """Make an environment with what the lock names."""
    done = folder / "complete"
    if not done.exists():
        venv.create(folder, with_pip=True, clear=True)
        python = folder / "bin" / "python"
        install = ["-m", "pip", "install", "--quiet", "--no-deps", "--require-hashes"]
        subprocess.run([python, *install, "-r", _LOCK], check=True, timeout=600)
        done.touch()


if __name__ == "__main__":
    main()
