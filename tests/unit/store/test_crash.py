"""Kill the host at any instant: what was promised is there, and nothing in halves."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from caxton_host.store.verify import verify

from .fakes import open_store

GROUP = 7

HOST = f"""
import asyncio, sys
from pathlib import Path
from tests.unit.store.fakes import line, open_store

async def work(store, name):
    log, n = store.create("run/" + name), 0
    while True:
        log.queue(*(line(n + i) for i in range({GROUP})))
        n += {GROUP}
        if n % 2:
            await log.append(*(line(n + i) for i in range({GROUP})))
            n += {GROUP}
            print(name, n, flush=True)
        else:
            await asyncio.sleep(0.004)

async def main():
    store = open_store(Path(sys.argv[1]))
    await asyncio.gather(*(work(store, name) for name in sys.argv[2]))

asyncio.run(main())
"""


@pytest.mark.parametrize("runs", ["a", "abcd"])
async def test_killed_host_leaves_whole_groups_and_all_it_promised(
    tmp_path: Path, runs: str
) -> None:
    root = Path(__file__).parents[3]
    host = subprocess.Popen(  # noqa: ASYNC220 -- nothing else runs here
        [sys.executable, "-c", HOST, str(tmp_path), runs],
        stdout=subprocess.PIPE,
        cwd=root,
        text=True,
    )
    assert host.stdout is not None
    promised = dict.fromkeys(runs, 0)
    with host:
        for _ in range(60):
            name, count = host.stdout.readline().split()
            promised[name] = int(count)
        host.kill()
        rest = host.stdout.read().splitlines()
    for row in rest:
        if row[2:]:  # the last line may be cut
            promised[row[0]] = max(promised[row[0]], int(row[2:]))

    async with open_store(tmp_path) as store:  # law 10
        for run, least in promised.items():
            found = len(await store.reader.read(f"run/{run}"))
            assert found >= least
            assert found % GROUP == 0  # a group is never split over transactions
        assert (await verify(store.reader)).first_bad is None
