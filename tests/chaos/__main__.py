"""
Run the kill loop by hand.

    python -m tests.chaos --cycles 10000 --store sqlite --seed 7
    python -m tests.chaos --cycles 500 --total kills.json --until 10000
    python -m tests.chaos --sessions 200 --cycles 100 --pace 0.5
    python -m tests.chaos --hosts 5 --cycles 10000 --pace 4 --minutes 10 --seed 7
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import random  # noqa: TID251 -- drawn from the seed that is printed
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from caxton_host.web.edge.listen import bind
from tests import totals
from tests.postgres import running

from .by_hosts import chaos
from .check import Found, check
from .check_sessions import Ledger
from .check_sessions import check as check_sessions
from .conductor import Conductor
from .scene import Place
from .sessions import Answers, live, work


@contextlib.contextmanager
def _place(store: str) -> Iterator[Place]:
    with tempfile.TemporaryDirectory(prefix="chaos-") as name:
        folder = Path(name)
        if store == "sqlite":
            yield Place(folder=folder, store=f"sqlite:///{folder / 'log.db'}")
        elif store == "postgres":
            with running() as server:
                yield Place(folder=folder, store=server.make())
        else:
            yield Place(folder=folder, store=store)


def say(line: str) -> None:
    """Print a line of the report."""
    sys.stdout.write(f"{line}\n")


def _kills(conductor: Conductor) -> None:
    say(f"kills        {conductor.kills.total()}  {dict(conductor.kills)}")


def _report(found: Found, conductor: Conductor, seconds: float) -> None:
    kills = conductor.kills
    _kills(conductor)
    say(f"cycles/s     {kills.total() / seconds:.1f}  ({seconds:.1f} s)")
    say(f"runs         {dict(found.runs)}  {dict(found.failures)}")
    say(f"calls        {len(found.invoked)}  {dict(found.outcomes)}")
    say(f"denied       {dict(found.denials)}")
    say(f"masks        in {found.masked} runs")
    shared = sum(key.startswith("#") for key in found.spent)
    own = {key: n for key, n in found.spent.items() if key[0] != "#"}
    say(f"spent        {own}, and {shared} budgets that runs share")
    say(f"settled      {found.settled} calls")
    say(f"agents       {dict(found.agents)}")
    say(f"freezes      {found.frozen}")
    say(f"events       {found.events}, effects {found.effects}")
    say(f"retries      {found.retries}, resolutions {dict(found.words)}")
    each = 1000 * found.suspensions / max(kills.total(), 1)
    say(f"suspensions  {found.suspensions}, {each:.0f} per 1,000 kills")


def _report_sessions(found: Ledger, answers: Answers) -> None:
    said = Counter(one for each in answers.said.values() for one in each.elements())
    errors = sum(count for (is_error, _), count in said.items() if is_error)
    say(f"sessions     {len(answers.said)}, streams {dict(found.runs)}")
    say(f"answers      {said.total()}, of them {errors} errors")
    say(f"no answer    {dict(answers.refused)}")
    say(f"calls        {len(found.invoked)}  {dict(found.outcomes)}")
    say(f"in doubt     {found.doubts}")
    say(f"events       {found.events}, effects {found.effects}")


def _sessions(place: Place, count: int, conductor: Conductor, cycles: int) -> Ledger:
    """Kill hosts of sessions while their clients work, which this process has."""
    with bind("127.0.0.1", 0) as listener:
        conductor.live = partial(live, listener=listener, count=count)
        conductor.weights = {"host": 1, "server": 1}
        if not (killing := os.fork()):
            os._exit(_killing(conductor, cycles))
        port = listener.getsockname()[1]
        answers = asyncio.run(work(place, port, count))
    code = os.waitstatus_to_exitcode(os.waitpid(killing, 0)[1])
    found = asyncio.run(check_sessions(place, answers))
    if code:
        found.wrong.append(f"the hosts failed: {code}")
    _report_sessions(found, answers)
    return found


def _killing(conductor: Conductor, cycles: int) -> int:
    try:
        conductor.run(cycles)
    except BaseException:  # noqa: BLE001 -- the process ends here
        traceback.print_exc()
        return 1
    finally:
        conductor.place.stop.touch()
        _kills(conductor)
        sys.stdout.flush()
    return 0


def _is_fine(wrong: Sequence[str]) -> bool:
    for line in wrong[:20]:
        say(f"WRONG        {line}")
    say(f"{len(wrong)} violations" if wrong else "no violations")
    return not wrong


def main() -> int:
    """Run the kill loop, and return 0 if it found no violation."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos")
    parser.add_argument("--cycles", type=int, default=100, help="kills, or faults")
    parser.add_argument("--store", default="sqlite", help="sqlite, postgres or a URL")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--pace", type=float, default=0.06, help="mean seconds between kills, or faults"
    )
    parser.add_argument(
        "--sessions", type=int, default=0, help="clients that call; 0: agents do"
    )
    totals.add_options(parser)
    fleet = parser.add_argument_group("a fleet on one PostgreSQL and its queue")
    fleet.add_argument("--hosts", type=int, default=0, help="0: one host, killed often")
    fleet.add_argument("--runs", type=int, default=5000)
    fleet.add_argument("--minutes", type=float, default=0, help="0: until all have run")
    fleet.add_argument("--lease", type=float, default=15, help="seconds")
    fleet.add_argument("--faults", help="kinds, with commas; default: all")
    fleet.add_argument(
        "--folder", type=Path, help="for the logs of hosts; default: new"
    )
    fleet.add_argument("--disk", type=Path, help="a small file system, to be filled")
    given = parser.parse_args()
    if given.hosts:
        return chaos(given)
    if given.total:
        part = partial(_part, given)
        return totals.go_on(given.total, "kills", given.until, part)
    return 0 if _part(given, given.seed)[1] else 1


def _part(given: argparse.Namespace, seed: int) -> tuple[Counter[str], bool]:
    with _place(given.store) as place:
        chance = random.Random(seed)  # noqa: S311 -- not for secrets
        conductor = Conductor(place, chance, given.pace)
        say(f"seed         {seed}, {given.store.partition(':')[0]}")
        if given.sessions:
            ledger = _sessions(place, given.sessions, conductor, given.cycles)
            return Counter(), _is_fine(ledger.wrong)
        began = time.monotonic()
        conductor.run(given.cycles)
        seconds = time.monotonic() - began
        found = asyncio.run(check(place))
    _report(found, conductor, seconds)
    counts = Counter(
        kills=conductor.kills.total(),
        runs=found.runs.total(),
        calls=len(found.invoked),
        effects=found.effects,
        events=found.events,
    )
    return counts, _is_fine(found.wrong)


if __name__ == "__main__":
    sys.exit(main())
