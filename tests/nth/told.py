"""What is left of a scene after one of its writes has failed."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from caxton_host.core.log.events import (
    Event,
    RunCompleted,
    RunErased,
    ToolCompleted,
    ToolInvoked,
    outcome_of,
)
from caxton_host.errors import CaxtonError
from caxton_host.store.sql import SqlStore
from caxton_host.store.verify import verify
from caxton_host.testing import FakeClock

from .faults import Faults
from .scene import FORK, RUN, TICK, House, Watched, house

_HOSTS, _TRIES = 4, 3


@dataclass(slots=True)
class Told:
    """
    A scene that is over.

    Attributes:
        writes: How many statements it had that write.

        failed: The one that failed.

        errors: What the operator was told.

        wrong: Violations, one line each.
    """

    writes: int = 0
    failed: str = ""
    errors: list[str] = field(default_factory=list[str])
    wrong: list[str] = field(default_factory=list[str])


async def told(url: str, folder: Path, faults: Faults) -> Told:
    """Play the scene in an empty log, and fail one write."""
    tools, found = Watched(), Told()
    clock = FakeClock()
    with faults.installed():
        for _ in range(_HOSTS):
            try:
                with faults.armed():
                    async with house(url, folder, tools, clock) as it:
                        await _act(it, found)
            except CaxtonError as exc:
                found.errors.append(str(exc))
                await asyncio.sleep(0.3)  # On PostgreSQL a lease has to lapse.
            else:
                break
        else:
            found.wrong.append("no host finished it")
    found.writes, found.failed = faults.seen, faults.failed
    found.wrong += tools.wrong
    await _check(url, clock, tools, found)
    return found


async def _act(it: House, found: Told) -> None:
    """Let one host finish the scene, which may fail once, and still has to be alive."""
    for left in reversed(range(_TRIES)):
        try:
            await it.go_on()
        except CaxtonError as exc:
            found.errors.append(str(exc))
            if (state := await it.probe()) != "completed":
                found.wrong.append(f"the host is not alive: {state}")
            if not left:
                raise
        else:
            return


async def _check(url: str, clock: FakeClock, tools: Watched, found: Told) -> None:
    async with SqlStore.open(url, clock=clock, entropy=bytes) as store:
        verdict = await verify(store.reader)
        if verdict.first_bad:
            found.wrong.append(f"the log is broken: {verdict.first_bad}")
        _, differ = await store.projections.verify(lambda *_: None)
        found.wrong += [f"a list shows something else: {one}" for one in differ]
        erased = [
            one.event.run
            for stream in await store.reader.streams()
            for one in await store.reader.read(stream)
            if isinstance(one.event, RunErased)
        ]
    times = Counter(erased)
    for run_id in (RUN, FORK, TICK):
        if times[run_id] != 1:
            found.wrong.append(f"{run_id} was erased {times[run_id]} times")
            continue
        _check_run(run_id, tools.ended[run_id], tools, found)
    _check_effects(tools, found)


def _check_run(run_id: str, events: list[Event], tools: Watched, found: Told) -> None:
    keys = {e.call: e.idempotency_key for e in events if isinstance(e, ToolInvoked)}
    ends = Counter(end[0] for e in events if (end := outcome_of(e)))
    wanted = [3, 4, 5] if run_id == FORK else [1, 2, 3, 4, 5]
    if [*keys] != wanted or ends != Counter(wanted):
        found.wrong.append(f"{run_id} has the calls {[*keys]}, with the ends {ends}")
    if not isinstance(events[-1], RunCompleted):
        found.wrong.append(f"{run_id} ended as {type(events[-1]).__name__}")
    done = {key for _, key in tools.happened}
    found.wrong += [
        f"{run_id} call {event.call} did not happen"
        for event in events
        if isinstance(event, ToolCompleted) and keys[event.call] not in done
    ]


def _check_effects(tools: Watched, found: Told) -> None:
    twice = [one for one, count in Counter(tools.happened).items() if count > 1]
    found.wrong += [
        f"{one} happened twice" for one in twice if one[0] in {"send", "pay"}
    ]
