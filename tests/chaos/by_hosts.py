"""The report of a fleet."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random  # noqa: TID251 -- drawn from the seed that is printed
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .database import Cluster, Database
from .faults import TO_DISK, TO_HOSTS, TO_QUEUE, TO_SERVER, Faults
from .fleet import Fleet

HISTORY = str(Path(__file__).with_name("history.py"))
_BOOKS = "SELECT key, used FROM budgets WHERE used > 0 ORDER BY key"
_SLOTS = "SELECT key, stream, call FROM slots ORDER BY key, stream, call"


def say(what: str, line: object) -> None:
    """Print a line of the report."""
    sys.stdout.write(f"{what:<13}{line}\n")


@contextlib.contextmanager
def _database(
    store: str, disk: Path | None
) -> Iterator[tuple[Database, dict[str, int]]]:
    weights = TO_HOSTS | TO_QUEUE
    if store.startswith("postgresql:"):
        yield Database(store), weights
    else:
        with Cluster.running(disk) as cluster:
            yield cluster, weights | TO_SERVER | (TO_DISK if disk else {})


async def _drive(fleet: Fleet, given: Any) -> float:  # noqa: ANN401 -- of argparse
    began = time.monotonic()
    keys = (f"{given.seed}-{number}" for number in range(given.runs))
    faults = Faults(fleet, given.weights, given.pace, given.cycles)

    def in_time() -> Iterator[str]:
        for key in keys:
            if given.minutes and time.monotonic() > began + 60 * given.minutes:
                return
            yield key

    async with fleet.running(given.hosts):
        doing = [asyncio.create_task(one) for one in (faults.go_on(), fleet.tell())]
        await fleet.work(in_time(), clients=given.hosts * 16)
        for one in doing:
            one.cancel()
        await faults.over()
        seconds = time.monotonic() - began
        say("calm after", f"{await fleet.settle():.1f} s without faults")
    return seconds


async def _check(fleet: Fleet) -> dict[str, Any]:
    """Ask the host what it thinks of its log, and the checker what it finds."""
    before = [await fleet.sql(one) for one in (_BOOKS, _SLOTS)]
    await fleet.caxton("db", "recount")
    if before != [await fleet.sql(one) for one in (_BOOKS, _SLOTS)]:
        fleet.wrong.append("a recount of the budgets differs")
    words = ("audit", "verify"), ("db", "verify-projections")
    await asyncio.gather(*(fleet.caxton(*each) for each in words))
    said, faults = fleet.folder / "said.json", fleet.folder / "faults.json"
    said.write_text(json.dumps(fleet.said))
    faults.write_text(json.dumps(fleet.faults))
    given = [fleet.database.url, str(fleet.counter), str(said), str(faults)]
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", HISTORY, *given), stdout=asyncio.subprocess.PIPE
    )
    out, _ = await child.communicate()
    if child.returncode:
        fleet.wrong.append(f"the checker failed: {child.returncode}")
        return {"counts": {}, "waits": {}}
    found: dict[str, Any] = json.loads(out)
    fleet.wrong += found["wrong"]
    return found


def _report(fleet: Fleet, found: dict[str, Any], seconds: float) -> None:
    kinds = Counter(kind for _, kind, _ in fleet.faults)
    say("faults", f"{kinds.total()} in {seconds:.0f} s  {dict(kinds)}")
    say("exits", dict(fleet.exits))
    say("answers", f"{fleet.answers.total()} that were not a run:")
    for what, times in fleet.answers.most_common(15):
        say("", f"{times} x {what}")
    counts = found["counts"] | {
        "double effects": found["counts"].get("double effects", 0)
    }
    for what in sorted(counts):
        say("", f"{counts[what]:>8} {what}")
    for what, each in sorted(found["waits"].items()):
        each.sort()
        parts = {
            name: each[int(len(each) * at)]
            for name, at in (("p50", 0.5), ("p99", 0.99))
        }
        say("ms", f"{what}: {len(each)} x, {parts}, most {each[-1]}")
    for line in fleet.wrong[:20]:
        say("WRONG", line)
    say("violations", len(fleet.wrong))


def chaos(given: Any) -> int:  # noqa: ANN401 -- of argparse
    """Run a fleet, and return 0 if nothing was wrong."""
    with contextlib.ExitStack() as stack:
        folder = given.folder or Path(tempfile.mkdtemp(prefix="fleet-"))
        database, weights = stack.enter_context(_database(given.store, given.disk))
        wanted = given.faults.split(",") if given.faults else weights
        given.weights = {kind: weights[kind] for kind in wanted}
        chance = random.Random(given.seed)  # noqa: S311 -- not for secrets
        fleet = Fleet(folder, database, chance, given.lease)
        say("seed", f"{given.seed}, {given.hosts} hosts, {folder}")

        async def all_of_it() -> None:
            seconds = await _drive(fleet, given)
            _report(fleet, await _check(fleet), seconds)

        asyncio.run(all_of_it())
        return 1 if fleet.wrong else 0
