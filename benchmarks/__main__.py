"""``python -m benchmarks``: run the benchmarks and print their figures."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from . import (
    agents,
    appends,
    calls,
    console,
    decisions,
    evidence,
    fleet,
    growth,
    history,
    judging,
    machine,
    many,
    page,
    profile,
    programs,
    provenance,
    resume,
    scale,
    served,
    sessions,
    slow,
    start,
)

SECTIONS: Mapping[str, Callable[[Path, argparse.Namespace], page.Section]] = {
    "calls": partial(calls.section, transport="stdio"),
    "calls_http": partial(calls.section, transport="http"),
    "many": partial(many.section, transport="stdio"),
    "many_http": partial(many.section, transport="http"),
    "transports": many.transports_section,
    "serve": served.section,
    "sessions": partial(sessions.section, transport="stdio"),
    "sessions_http": partial(sessions.section, transport="HTTP"),
    "sessions_many": sessions.many_section,
    "start": start.section,
    "slow": slow.section,
    "runs": scale.runs_section,
    "waiting": scale.waiting_section,
    "replay": scale.replay_section,
    "resume": resume.section,
    "agents": agents.section,
    "programs": programs.section,
    "appends": appends.section,
    "evidence": evidence.section,
    "growth": growth.section,
    "fleet": fleet.section,
    "console": console.section,
    "what_if": judging.section,
    "decisions": decisions.section,
    "provenance": provenance.section,
    "history": history.section,
    "profile": profile.section,
}


def main() -> None:
    """Run the benchmarks and print the figures and the machine."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks")
    parser.add_argument(
        "only", nargs="*", help=f"sections to run: {', '.join(SECTIONS)}"
    )
    parser.add_argument(
        "--folder", type=Path, default=Path.cwd(), help="scratch folder, on a disk"
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--calls", type=int, default=500)
    parser.add_argument("--each", type=int, default=50, help="calls per agent")
    parser.add_argument("--warm-up", type=int, default=100)
    parser.add_argument("--runs", type=int, default=500, help="runs per round")
    parser.add_argument("--waiting", type=int, default=1000, help="waiting agents")
    parser.add_argument("--recorded", type=int, default=5000, help="calls to replay")
    parser.add_argument("--prefix", type=int, default=10_000, help="calls to resume")
    parser.add_argument("--suspended", type=int, default=1000, help="suspended runs")
    parser.add_argument("--events", type=int, default=200_000, help="events to verify")
    parser.add_argument("--grown", type=int, default=100_000, help="runs of a log")
    parser.add_argument("--judged", type=int, default=200_000, help="calls to rejudge")
    parser.add_argument("--seed", type=int, default=1, help="draws mutants")
    parser.add_argument("--idle", type=int, default=500, help="idle sessions")
    parser.add_argument("--servers", type=int, default=50, help="slow servers")
    parser.add_argument("--seconds", type=float, default=0.7, help="length of a round")
    parser.add_argument("--write", type=Path, help="page to update")
    options = parser.parse_args()
    if unknown := {*options.only} - {*SECTIONS}:
        parser.error(f"unknown benchmark: {', '.join(sorted(unknown))}")
    options.folder.mkdir(parents=True, exist_ok=True)
    kind = machine.refuse_memory(options.folder)
    where = f"{machine.describe()}, {kind}"
    print(f"machine   {where}")
    found: list[page.Section] = []
    with tempfile.TemporaryDirectory(dir=options.folder, prefix="bench-") as name:
        for one in options.only or SECTIONS:
            folder = Path(name) / one
            folder.mkdir()
            found.append(SECTIONS[one](folder, options))
            print(found[-1].to_text(), flush=True)
    if options.write:
        page.write(options.write, found, where)


if __name__ == "__main__":
    main()
