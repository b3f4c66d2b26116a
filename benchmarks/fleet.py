"""
Measure what a run costs where several hosts share a log, and what they cost at rest.

Each side is a fleet with a database of its own on one PostgreSQL, and all stay up: they
do the same runs in turns. Processor time is that of hosts, workers and tool servers, by
`/proc`.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING

import httpx

from caxton_host.building import find_shared

from .contestants import TEXT
from .page import Figure, Section
from .sides import CAXTON, Rounds, environment, ratio, served, token

if TYPE_CHECKING:
    from tests.postgres import Server

_CONFIG = """\
version = 1
[store]
url = "{url}"
[placement]
engine = "{engine}"
[serve]
runs = {places}
queue = 100000
concurrency = 100000
rate = "1000000/min"
[servers.demo]
command = "python"
args = ["-m", "caxton_host.demo_server"]
[agents.echo]
module = "echo.wasm"
[[agents.echo.allow]]
tools = ["demo/echo"]
"""
_BODY = {
    "agent": "echo",
    "input": {"tool": "mcp__demo__echo", "n": 2, "text": TEXT},
}
_CLIENTS, _FEW, _MANY = 24, 4, 256
_ONE, _THREE, _APART = "one host", "three hosts", "three hosts, a log each"
_HERE, _ENGINE = "in process, queued", "procrastinate, queued"
#: By side: the engine, places of each host, and how many hosts each log has.
_SIDES = {
    _ONE: (("procrastinate", _MANY), [1]),
    _THREE: (("procrastinate", _MANY), [3]),
    _APART: (("procrastinate", _MANY), [1, 1, 1]),
    _HERE: (("in process", _FEW), [1]),
    _ENGINE: (("procrastinate", _FEW), [1]),
}
_WHY = """\
Three hosts that share a log cost what three hosts cost that share nothing. The rest \
of the difference to one host is that of the machine: three times as many processes \
take turns on its cores, and each host does less at a time of what it does for several \
runs at once."""
_TICKS = os.sysconf("SC_CLK_TCK")
#: Seconds until a host rests, and in which it is watched then.
_SETTLES_S, _REST_S = 70.0, 60.0


@dataclass(frozen=True, slots=True)
class Host:
    """A host that is up: its process, its address, and a token for it."""

    pid: int
    url: str
    token: str


async def _work(hosts: Sequence[Host], runs: int) -> None:
    """Have so many runs done, by clients that go from host to host."""
    turns, left = cycle(hosts), iter(range(runs))
    async with httpx.AsyncClient(timeout=120) as http:

        async def client() -> None:
            for _ in left:
                host = next(turns)
                found = await http.post(
                    f"{host.url}/api/v1/runs?wait=60",
                    json=_BODY,
                    headers={"Authorization": f"Bearer {host.token}"},
                )
                if found.json().get("state") != "completed":
                    sys.exit(f"Error: {found.text}")

        await asyncio.gather(*(client() for _ in range(_CLIENTS)))


def section(folder: Path, options: argparse.Namespace) -> Section:
    """Measure runs in turns, then hosts at rest."""
    from tests.postgres import running  # noqa: PLC0415 -- starts a server

    with running(folder) as server, ExitStack() as stack:
        sides = {
            side: [
                host
                for each in logs
                for host in _hosts(folder, stack, server.make(), how, each)
            ]
            for side, (how, logs) in _SIDES.items()
        }
        figures = [*_turns(server, sides, options)]
    with running(folder) as server, ExitStack() as stack:
        embedded, shared = f"sqlite:///{folder}/log.db", server.make()
        here = [*_hosts(folder, stack, embedded, ("in process", _MANY))]
        there = [*_hosts(folder, stack, shared, _SIDES[_ONE][0])]
        figures += _at_rest(server, shared, here, there)
    return Section(
        "fleet",
        "What several hosts cost",
        "Processor time of hosts, workers and tool servers for a run with two calls of "
        f"`echo`: {options.runs} runs a round, {_CLIENTS} at a time, on PostgreSQL. "
        f"Sides take turns. Queued: a host has {_FEW} places, so that most runs wait "
        f"in the queue of its engine. At rest: from {_SETTLES_S:.0f} s after the last "
        f"run on, for {_REST_S:.0f} s.",
        figures,
        [_WHY],
    )


def _turns(
    server: Server, sides: Mapping[str, Sequence[Host]], options: argparse.Namespace
) -> Iterator[Figure]:
    spent: Rounds = {side: [] for side in sides}
    stored: Rounds = {side: [] for side in sides}
    for hosts in sides.values():
        asyncio.run(_work(hosts, 4 * _CLIENTS))
    for _ in range(options.rounds):
        for side, hosts in sides.items():
            both = (spent, [one.pid for one in hosts]), (stored, [server.pid])
            before = [_used(roots) for _, roots in both]
            asyncio.run(_work(hosts, options.runs))
            for (found, roots), was in zip(both, before, strict=True):
                found[side].append(1e3 * (_used(roots) - was) / options.runs)
    for side in sides:
        yield Figure(f"{side}: a run", spent[side], "ms")
        yield Figure(f"{side}: a run, PostgreSQL's", stored[side], "ms")
    yield Figure("three hosts / one", ratio(spent, _THREE, _ONE), "", (1.15, False))
    yield Figure("three hosts / a log each", ratio(spent, _THREE, _APART), "")
    pairs = zip(spent[_ENGINE], spent[_HERE], strict=True)
    added = [engine - here for engine, here in pairs]
    yield Figure("procrastinate adds to a queued run", added, "ms", (5.0, False))


def _at_rest(
    server: Server, url: str, here: Sequence[Host], there: Sequence[Host]
) -> Iterator[Figure]:
    for hosts in (here, there):
        asyncio.run(_work(hosts, _CLIENTS))
    # Its transactions are counted, too.
    server.execute("ALTER SYSTEM SET autovacuum = off")
    server.execute("SELECT pg_reload_conf()")
    time.sleep(_SETTLES_S)
    commits, *used = _commits(server, url), *map(_spent, (here, there))
    time.sleep(_REST_S)
    rate = (_commits(server, url) - commits) / _REST_S
    yield Figure("at rest: transactions", [rate], "/s", (0.5, False))
    for name, hosts, was in zip(
        ("SQLite", "PostgreSQL"), (here, there), used, strict=True
    ):
        took = 100 * (_spent(hosts) - was) / _REST_S
        yield Figure(f"at rest: of a processor, {name}", [took], "%")


def _commits(server: Server, url: str) -> int:
    from tests.postgres import name_of  # noqa: PLC0415 -- see above

    query = "SELECT xact_commit FROM pg_stat_database WHERE datname ="
    ((found,),) = server.execute(f"{query} '{name_of(url)}'")
    return int(found)


def _hosts(
    folder: Path, stack: ExitStack, url: str, how: tuple[str, int], count: int = 1
) -> Iterator[Host]:
    """Start hosts of one log, which are up until *stack* is closed."""
    (engine, places), made = how, ""
    for _ in range(count):
        here = Path(tempfile.mkdtemp(dir=folder))
        config = _CONFIG.format(url=url, engine=engine, places=places)
        (here / "caxton.toml").write_text(config, "utf-8")
        shutil.copy(find_shared("agents/echo/echo.wasm"), here)
        if not made:
            migrate = [CAXTON, "db", "migrate", "--json"]
            env, pipe = environment(here), subprocess.PIPE
            subprocess.run(migrate, cwd=here, env=env, check=True, stdout=pipe)
            made = token(here, "--scope", "run")
        said, program = stack.enter_context(served(here))
        yield Host(program.pid, str(said["url"]), made)


def _spent(hosts: Sequence[Host]) -> float:
    return _used([host.pid for host in hosts])


def _used(roots: Collection[int]) -> float:
    """Return the processor seconds of processes, and of all that they started."""
    parents, ticks = dict[int, int](), dict[int, int]()
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # It has ended.
            fields = entry.read_text().rpartition(")")[2].split()
            pid = int(entry.parent.name)
            # What has ended below it is counted in the last two.
            parents[pid], ticks[pid] = int(fields[1]), sum(map(int, fields[11:15]))
    tree = {*roots}
    while more := {pid for pid, parent in parents.items() if parent in tree} - tree:
        tree |= more
    return sum(ticks.get(pid, 0) for pid in tree) / _TICKS
