"""
Run the soak test by hand.

    python -m tests.soak --minutes 20
    python -m tests.soak --minutes 60 --rate 500 --total calls.json --until 1728000
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random  # noqa: TID251 -- drawn from the seed that is printed
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import NamedTuple

from caxton_host.app.bootstrap import Running, running
from caxton_host.config import Config, Paths
from caxton_host.config import load as load_config
from caxton_host.core.calls import JSON
from caxton_host.runs.run_request import RunRequest
from caxton_host.store.verify import verify
from tests import totals

from .load import CALLS, WARM, WARM_CALLS, agents, config, web_servers
from .watch import Reading, Tally, family, grown, leaked

_WHO: dict[str, JSON] = {"kind": "service", "id": "soak", "authenticated": False}
_SOONEST_RELOAD, _LATEST_RELOAD = 5.0, 20.0
_MANY = 10_000_000
#: More than the longest pause before the restart of a failing server: a minute.
_PATIENCE = 150.0


class Load(NamedTuple):
    """
    What a host has to do.

    Attributes:
        rate: Calls per second of all agents together.

        at_once: Runs at a time.

        moody: The share of the calls of the server that misbehaves.
    """

    seconds: float
    rate: float
    at_once: int
    moody: float
    seed: int


@dataclass(slots=True, kw_only=True)
class Soak:
    """
    A host under load.

    Attributes:

        open: Set while agents may start runs.
    """

    up: Running
    folder: Path
    urls: dict[str, str]
    load: Load
    tally: Tally = field(default_factory=Tally)
    generation: int = 1
    under_way: int = 0
    open: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self, module: bytes, calls: int = CALLS) -> bool:
        """Run an agent, and return whether all its calls succeeded as expected."""
        run_id = await self.up.host.start(
            RunRequest(
                agent="soak",
                module=module,
                actor=_WHO,
                grant=self.up.tools.config.agents["soak"].grant,
            )
        )
        history = await self.up.store.reader.read(f"run/{run_id}")
        events = [one.event for one in history if one.event]
        return self.tally.fold(run_id, events, calls)

    async def work(self, number: int) -> None:
        """Run agents in sequence, at a share of the rate."""
        modules = agents(self.load.seed, self.load.moody)
        chance = random.Random(self.load.seed + number)  # noqa: S311 -- not for secrets
        while True:
            await self.open.wait()
            began = time.monotonic()
            self.under_way += 1
            try:
                await self.run(chance.choice(modules))
            finally:
                self.under_way -= 1
            due = began + self.load.at_once * CALLS / self.load.rate
            await asyncio.sleep(max(0.0, due - time.monotonic()))

    async def reconfigure(self) -> None:
        """Request reloads of the configuration, as another process would."""
        chance = random.Random(self.load.seed)  # noqa: S311 -- as above
        (host,) = await self.up.store.leases.hosts()
        while True:
            await asyncio.sleep(chance.uniform(_SOONEST_RELOAD, _LATEST_RELOAD))
            await self.open.wait()
            text = config(self.urls, self.generation + 1)
            (self.folder / "caxton.toml").write_text(text)
            number = await self.up.store.requests.ask_host(
                host, "reload", _WHO, "another generation"
            )
            while (came := await self.up.store.requests.outcome(number)) is None:  # noqa: ASYNC110 -- of another task
                await asyncio.sleep(0.05)
            self.generation += 1
            if came != f"generation {self.generation}":
                self.tally.wrong.append(f"reload {self.generation}: {came}")

    async def rest(self, *, again: bool = True) -> Reading:
        """Block new runs until all have ended, and return a reading."""
        self.open.clear()
        try:
            async with asyncio.timeout(_PATIENCE):
                await self._quiet()
                # The moody server may have to restart first.
                while not await self.run(WARM, WARM_CALLS):  # noqa: ASYNC110 -- another process
                    await asyncio.sleep(0.2)
        except TimeoutError:
            self.tally.wrong.append(f"no rest, or no good call, in {_PATIENCE:.0f} s")
        reading = await Reading.taken()
        if again:
            self.open.set()
        return reading

    async def _quiet(self) -> None:
        while self.under_way:  # noqa: ASYNC110 -- other tasks
            await asyncio.sleep(0.05)


@asynccontextmanager
async def _soaking(folder: Path, load: Load) -> AsyncGenerator[Soak]:
    def read() -> Config:
        return load_config(folder / "caxton.toml", environ=os.environ, cwd=folder)

    async with AsyncExitStack() as stack:
        urls = stack.enter_context(web_servers())
        (folder / "caxton.toml").write_text(config(urls, 1))
        paths = Paths(config=folder, data=folder, state=folder, cache=folder)
        up = await stack.enter_async_context(running(read(), paths, load=read))
        soak = Soak(up=up, folder=folder, urls=urls, load=load)
        # Run each kind once, so that everything is loaded.
        await asyncio.gather(*map(soak.run, agents(load.seed, load.moody)))
        work = [soak.work(number) for number in range(load.at_once)]
        tasks = [asyncio.create_task(one) for one in (*work, soak.reconfigure())]
        try:
            yield soak
        finally:
            for task in tasks:
                task.cancel()
            ended = await asyncio.gather(*tasks, return_exceptions=True)
            soak.tally.wrong += [
                f"it ended with {one!r}" for one in ended if isinstance(one, Exception)
            ]


async def soaked(folder: Path, load: Load) -> Tally:
    """Run the soak test, print its progress, and return the tally of the calls."""
    every = min(60.0, load.seconds / 8)
    readings: list[Reading] = []
    async with _soaking(folder, load) as soak:
        tally = soak.tally
        readings.append(await soak.rest())
        say(f"   0 s: {readings[0]}")
        began = time.monotonic()
        while (left := began + load.seconds - time.monotonic()) > 0:
            await asyncio.sleep(min(every, left))
            readings.append(await soak.rest(again=left > every))
            at = f"{time.monotonic() - began:4.0f} s: {readings[-1]}, {_sizes(folder)}"
            say(f"{at}; {tally.calls} calls {dict(tally.ends.most_common())}")
        tally.wrong += grown(readings[1:]) + leaked(readings[1], readings[-1])
        rows = await soak.up.store.reader.runs(_MANY)
        if len(rows) != tally.runs:
            tally.wrong.append(
                f"the log has {len(rows)} runs, {tally.runs} were started"
            )
        verdict = await verify(soak.up.store.reader)
        if verdict.first_bad:
            tally.wrong.append(f"the chain is broken: {verdict.first_bad}")
        say(f"runs         {tally.runs}, {soak.generation} generations")
        say(f"chain        {verdict.events} events")
    left_over = family() - {os.getpid()}
    tally.wrong += [f"process {pid} still runs" for pid in left_over]
    return tally


def say(line: str) -> None:
    """Print and flush a line of the report."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _sizes(folder: Path) -> str:
    sizes = (
        f"{path.name} {path.stat().st_size / 1e6:.1f} MB"
        for path in sorted(folder.glob("soak.db*"))
    )
    return ", ".join(sizes)


def main() -> int:
    """Run the soak test, and return 0 if it found no violation."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak")
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--rate", type=float, default=40.0, help="calls per second")
    parser.add_argument("--at-once", type=int, default=6, help="runs at a time")
    parser.add_argument(
        "--moody", type=float, default=20.0, help="%% of calls of the bad server"
    )
    parser.add_argument("--seed", type=int, default=1)
    totals.add_options(parser)
    given = parser.parse_args()
    if given.total:
        return totals.go_on(given.total, "calls", given.until, partial(_part, given))
    return 0 if _part(given, given.seed)[1] else 1


def _part(given: argparse.Namespace, seed: int) -> tuple[Counter[str], bool]:
    load = Load(60 * given.minutes, given.rate, given.at_once, given.moody / 100, seed)
    with tempfile.TemporaryDirectory(prefix="soak-") as name:
        tally = asyncio.run(soaked(Path(name), load))
    for line in tally.wrong[:20]:
        say(f"WRONG        {line}")
    say(f"{len(tally.wrong)} violations" if tally.wrong else "no violations")
    return Counter(calls=tally.calls, runs=tally.runs, **tally.ends), not tally.wrong


if __name__ == "__main__":
    sys.exit(main())
