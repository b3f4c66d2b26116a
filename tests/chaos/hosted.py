"""
A host process of the kill loop: resume the runs of the log, and start new ones.

It also acts as the person: it resolves a call in doubt by the counter, and approves
most calls that need an approval.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import signal
import sys
from collections import deque

from caxton_host.app.bootstrap import Running, running
from caxton_host.core.calls import Completed
from caxton_host.core.grants.approvals import Verdict
from caxton_host.core.grants.freezes import FREEZES
from caxton_host.core.log.events import Frozen, Thawed
from caxton_host.core.log.requests import GiveResult, Resend, Resolution
from caxton_host.core.log.runs import RunFilter
from caxton_host.core.names import AGENTS, stream_of
from caxton_host.errors import (
    BusyError,
    LeaseLost,
    NotFoundError,
    Suspend,
    UsageError,
)
from caxton_host.runs.approvals import Word, say
from caxton_host.runs.freezing import freeze, freezes_of, thaw
from caxton_host.runs.recording import Recording

from .scene import GRANTS, RUNS, WHO, Place, happened, module, request

_MANY = 1_000_000
_PAUSE = 0.02
_FREEZE = 0.2
#: What is frozen, in turn.
FROZEN = (("agent", "child"), ("server", "world"), ("agent", "agent0"))


async def live(place: Place) -> None:
    """Drive runs until all have ended and no new ones are to start."""
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR2, _tell)
    async with running(place.config(), place.paths, {}) as up:
        idle = [
            row.run_id
            for state in ("running", "suspended")
            for row in await up.store.reader.runs(_MANY, RunFilter(state=state))
        ]
        waiting = deque(idle)
        numbers = itertools.count()
        code = module()
        await asyncio.gather(
            _freeze_and_thaw(up, place),
            *(_keep_busy(up, place, waiting, numbers, code) for _ in range(RUNS)),
        )


def _tell() -> None:
    for task in asyncio.all_tasks():
        task.print_stack(limit=8, file=sys.stderr)


async def _keep_busy(
    up: Running,
    place: Place,
    waiting: deque[str],
    numbers: itertools.count[int],
    code: bytes,
) -> None:
    while waiting or not place.stop.exists():
        owned = False
        if waiting:
            run_id = waiting.popleft()
            owned = not await _see_to_its_end(up, place, run_id)
            if owned:
                waiting.append(run_id)
                await asyncio.sleep(_PAUSE)
        if (owned or not waiting) and not place.stop.exists():
            # It may wait for an approval, or have to go on after its lease ran out.
            run_id = up.host.new_id()
            with contextlib.suppress(LeaseLost, UsageError):
                await up.host.start(request(next(numbers), code), run_id=run_id)
            if await up.store.reader.read(stream_of(run_id)):
                waiting.append(run_id)


async def _see_to_its_end(up: Running, place: Place, run_id: str) -> bool:
    """Return whether a run has ended; on PostgreSQL a dead host may still hold it."""
    while True:
        recording = await Recording.load(run_id, up.store.reader)
        if recording.end is not None:
            return True
        try:
            if recording.started.parent:
                return True  # Its caller goes on with it.
            await _decide(up, place, recording)
            grant = GRANTS[recording.started.agent]
            await up.host.resume(run_id, actor=WHO, grant=grant)
        except (BusyError, LeaseLost, Suspend):
            return False


async def _freeze_and_thaw(up: Running, place: Place) -> None:
    """Freeze something now and then, and thaw what hosts before left frozen."""
    turn = len(await up.store.reader.read(FREEZES))
    while True:
        for kind, name in (await freezes_of(up.store)).standing:
            well = Thawed(kind=kind, name=name, actor=WHO, reason="well")
            with contextlib.suppress(NotFoundError):
                await thaw(up.store, well)
        await up.host.freezes.look()
        await asyncio.sleep(_FREEZE)
        if place.stop.exists():
            return
        kind, name = FROZEN[turn // 2 % len(FROZEN)]
        event = Frozen(kind=kind, name=name, actor=WHO, reason="odd")
        await freeze(up.store, event, agents=GRANTS, servers={"world"})
        await up.host.freezes.look()
        turn += 2
        await asyncio.sleep(_FREEZE / 4)


async def _decide(up: Running, place: Place, recording: Recording) -> None:
    """Decide about the calls of a run, and of those that it called."""
    for callee in recording.callees.values():
        with contextlib.suppress(NotFoundError):
            below = await Recording.load(callee, up.store.reader)
            await _decide(up, place, below)
    if recording.state == "suspended":
        await _resolve(up, place, recording)
        await _say(up, recording)


async def _resolve(up: Running, place: Place, recording: Recording) -> None:
    for doubt in recording.journal().in_doubt:
        if doubt.resolved or doubt.invoked.server == AGENTS:
            continue
        key = doubt.invoked.idempotency_key
        seen = any(key == one for _, one in happened(place.counter))
        resolution: Resolution = (
            GiveResult(Completed(message=key)) if seen else Resend()
        )
        assert doubt.seq is not None
        await up.host.resolve(
            recording.run_id, doubt.seq, resolution, actor=WHO, reason="the counter"
        )


async def _say(up: Running, recording: Recording) -> None:
    now = up.host.clock.now()
    for asked in recording.journal().waiting:
        if asked.is_over(now):
            continue
        verdict: Verdict = "approve" if asked.requested.call % 3 else "deny"
        word = Word(verdict=verdict, actor=WHO, reason="by its number", role="counter")
        await say(up.store, recording.run_id, asked.seq, word, now=now)
