"""
Measure what lists cost once a log has grown, on both databases.

The log is written through the store: every event is as a host would have written it,
and the rows of lists follow from them. Then each list is asked for in the store and as
a command, work is looked for, a host is started on the log, and events are appended to
it and, in turns, to a log of 10,000 events.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random  # noqa: TID251 -- the same log each time
import resource
import subprocess
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from caxton_host.core.log.events import (
    ApprovalRequested,
    Event,
    RunCompleted,
    RunFailed,
    RunStarted,
    RunSuspended,
    ToolCompleted,
    ToolDenied,
    ToolInvoked,
)
from caxton_host.core.log.runs import RunFilter
from caxton_host.core.names import uuid7
from caxton_host.runs.questions import inbox
from caxton_host.store import migrate
from caxton_host.store.sql import SqlStore

from .appends import Ours
from .page import Figure, Section
from .sides import CAXTON, environment, served, token

_EVENTS_EACH = 10
_AT_ONCE = 512
_SMALL = 1_000
_PAGE = 20
_CONFIG = """\
version = 1
[store]
url = "{url}"
"""
#: A list in the store takes at most so many milliseconds, as a command so many seconds,
#: and so long takes a host to be ready.
_IN_STORE_MS, _COMMAND_S, _READY_S = 20.0, 0.5, 2.0
_LISTS = {
    "all": RunFilter(),
    "an agent": RunFilter(agent="agent7"),
    "a state": RunFilter(state="suspended"),
    "a reason": RunFilter(reason="trap"),
    "a kind": RunFilter(kind="session"),
    "an actor": RunFilter(actor="actor77"),
    "a tenant": RunFilter(tenant="tenant7"),
    "a tool": RunFilter(tool="server3/tool"),
    "an outcome": RunFilter(outcome="tool_error"),
    "a tool and an outcome": RunFilter(tool="server3/tool", outcome="denied"),
    "an agent, a state and a time": RunFilter(
        agent="agent7", state="failed", since=1_000_000_000_000_000
    ),
    "two agents and the own": RunFilter(agents=("agent3", "agent9"), owner="actor1"),
}


class Ticking:
    """A clock that goes on a little with each look, so runs spread over months."""

    def __init__(self) -> None:
        self.time = 1_780_000_000_000_000

    def now(self) -> int:
        """Return the time, in microseconds."""
        self.time += 1_000_000
        return self.time

    def monotonic(self) -> float:
        """Return the same in seconds."""
        return self.time / 1e6


def section(folder: Path, options: argparse.Namespace) -> Section:
    """Measure lists, commands, the start of a host, and appends."""
    runs = options.grown
    return Section(
        "growth",
        "Lists of a log that has grown",
        f"A log of {runs:,} runs and {runs * _EVENTS_EACH:,} events: 2 % of the runs "
        "are suspended, 5 % failed, 1 % are sessions; 20 agents, 1,000 actors, 10 "
        "tools. A list has 20 runs. The targets are for `--grown 1000000`.",
        list(measure(folder, runs, options.rounds)),
    )


def measure(folder: Path, runs: int, rounds: int) -> Iterator[Figure]:
    """Yield the figures of each database."""
    from tests.postgres import running  # noqa: PLC0415 -- starts a server

    yield from _of("SQLite", f"sqlite:///{folder}/log.db", folder, runs, rounds)
    with running(folder) as server:
        yield from _of("PostgreSQL", server.make(), folder, runs, rounds)


def _of(name: str, url: str, folder: Path, runs: int, rounds: int) -> Iterator[Figure]:
    """Yield the figures of one database."""
    migrate.upgrade(url)
    began = time.perf_counter()
    asyncio.run(build(url, runs))
    took = time.perf_counter() - began
    yield Figure(f"{name}, built", [runs * _EVENTS_EACH / took], "events/s")
    for what, milliseconds in asyncio.run(_in_store(url, rounds)).items():
        yield Figure(f"{name}, {what}", milliseconds, "ms", (_IN_STORE_MS, False))
    here = folder / name
    here.mkdir()
    (here / "caxton.toml").write_text(_CONFIG.format(url=url), "utf-8")
    for words in ("runs list", "runs list --state suspended", "approval list"):
        wall, processor = _commands(here, words.split(), rounds)
        yield Figure(f"{name}, {words}", wall, "s", (_COMMAND_S, False))
        yield Figure(f"{name}, {words}, processor", processor, "s")
    yield Figure(f"{name}, serve", _starts(here, rounds), "s", (_READY_S, False))
    yield from _appends(name, url, here, rounds)


async def build(url: str, runs: int) -> None:
    """Write a log of so many runs."""
    clock, chance = Ticking(), random.Random(7)  # noqa: S311 -- no secret
    store = SqlStore.open(url, clock=clock, entropy=os.urandom)
    async with store:
        for first in range(0, runs, _AT_ONCE):
            count = min(_AT_ONCE, runs - first)
            await asyncio.gather(*(_run(store, clock, chance) for _ in range(count)))


async def _run(store: SqlStore, clock: Ticking, chance: random.Random) -> None:
    run_id = uuid7(clock.now(), chance.randbytes(10))
    await store.create(f"run/{run_id}").append(*_events(chance))


def _events(chance: random.Random) -> list[Event]:
    """Return the events of a run."""
    kind = chance.random()
    events: list[Event] = [started(chance, "client/1" if kind > 0.99 else "core/1")]  # noqa: PLR2004 -- a share
    for call in range(1, 5):
        server = f"server{chance.randrange(10)}"
        events += [invoked(call, server), answered(call, chance)]
    if kind < 0.018:  # noqa: PLR2004 -- a share
        return [*events[:-1], _asked(5), RunSuspended(reason="approval", call=5)]
    if kind < 0.02:  # noqa: PLR2004 -- a share
        return [*events[:-1], RunSuspended(reason="in_doubt", call=4)]
    if kind < 0.07:  # noqa: PLR2004 -- a share
        reason = chance.choice(["trap", "limit", "agent_error"])
        return [*events, RunFailed(kind=reason, message="it failed", fuel=1)]
    return [*events, RunCompleted(output="done", output_sha256="ab" * 32, fuel=1)]


def started(chance: random.Random, abi: str) -> RunStarted:
    """Return the start of a run."""
    return RunStarted(
        agent=f"agent{chance.randrange(20)}",
        actor={
            "kind": "token",
            "id": f"actor{chance.randrange(1_000)}",
            "authenticated": True,
            "tenant": f"tenant{chance.randrange(10)}",
        },
        module_sha256="ab" * 32,
        abi=abi,
        entry="run",
        input={"text": "x" * 50},
        context={},
        limits={},
        seed="00" * 32,
        grants={},
        grants_sha256="cd" * 32,
        catalogue={},
        servers={},
        host="host/1",
        engine="wasmtime",
    )


def invoked(call: int, server: str) -> ToolInvoked:
    """Return a call."""
    return ToolInvoked(
        call=call,
        name=f"mcp__{server}__tool",
        server=server,
        tool="tool",
        params={"text": "x" * 50},
        params_sha256="ab" * 32,
        effect="unsafe",
        rule="allow[0]",
        idempotency_key="cd" * 32,
        fuel=1,
    )


def answered(call: int, chance: random.Random) -> Event:
    """Return how a call ended."""
    word = chance.random()
    if word < 0.02:  # noqa: PLR2004 -- a share
        return ToolDenied(call=call, code="not_granted", rule=None, message="no")
    wrong = word < 0.05  # noqa: PLR2004 -- a share
    return ToolCompleted(call=call, is_error=wrong, message="x" * 50, data=None)


def _asked(call: int) -> ApprovalRequested:
    return ApprovalRequested(
        call=call,
        name="mcp__server3__tool",
        server="server3",
        tool="tool",
        params={},
        params_sha256="ab" * 32,
        rule="allow[0]",
        fuel=1,
        by=(),
        until=None,
    )


async def _in_store(url: str, rounds: int) -> dict[str, list[float]]:
    """Return the milliseconds of each list, and of looking for work."""
    store = SqlStore.open(url, clock=Ticking(), entropy=os.urandom, write=False)
    reader = store.reader
    middle = (await reader.runs(1, RunFilter(until=1_900_000_000_000_000)))[0]
    asked: dict[str, Callable[[], Awaitable[Any]]] = {}
    for what, only in _LISTS.items():
        asked[what] = lambda only=only: reader.runs(_PAGE, only)  # type: ignore[misc]
    place = middle.started_at // 2 + 890_000_000_000_000, "f"
    asked["a page in the middle"] = lambda: reader.runs(_PAGE, before=place)
    asked["approvals"] = lambda: inbox(reader, 0, most=_PAGE, unread=lambda *_: None)
    asked["looking for work"] = lambda: _work(store)
    found: dict[str, list[float]] = {}
    async with store:
        for what, ask in asked.items():
            await ask()
            found[what] = []
            for _ in range(10 * rounds):
                began = time.perf_counter()
                await ask()
                found[what].append((time.perf_counter() - began) * 1e3)
    return found


async def _work(store: SqlStore) -> None:
    await store.reader.due(1)
    await store.reader.next_due(1)
    await store.leases.idle()


def _commands(
    folder: Path, words: list[str], rounds: int
) -> tuple[list[float], list[float]]:
    """Return the seconds and the processor seconds of a command."""
    wall, processor = list[float](), list[float]()
    for _ in range(rounds):
        used, began = _children(), time.perf_counter()
        subprocess.run(
            [CAXTON, *words],
            cwd=folder,
            env=environment(folder),
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        wall.append(time.perf_counter() - began)
        processor.append(_children() - used)
    return wall, processor


def _children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _starts(folder: Path, rounds: int) -> list[float]:
    """Return the seconds until a host is ready."""
    token(folder, "--scope", "run")
    found = list[float]()
    for _ in range(rounds):
        began = time.perf_counter()
        with served(folder):
            found.append(time.perf_counter() - began)
    return found


def _appends(name: str, url: str, folder: Path, rounds: int) -> Iterator[Figure]:
    """Compare appends with those to a log of 10,000 events, in turns."""
    small = f"sqlite:///{folder}/small.db"
    if name != "SQLite":
        from sqlalchemy import make_url  # noqa: PLC0415 -- for this one

        parsed = make_url(url)
        small = parsed.set(database="postgres").render_as_string(hide_password=False)
    migrate.upgrade(small)
    asyncio.run(build(small, _SMALL))
    with ExitStack() as stack:
        large, few = Ours(url, stack), Ours(small, stack)
        for runs in (1, 64):
            pairs = [(large(runs, 1.0), few(runs, 1.0)) for _ in range(rounds)]
            yield Figure(f"{name}, {runs} runs, large log", [a for a, _ in pairs], "/s")
            ratios = [one / other for one, other in pairs]
            what = f"{name}, {runs} runs, large to small"
            yield Figure(what, ratios, "", (0.95, True))
