"""
Profile of a governed call by steps.

One agent calls ``echo`` repeatedly. The steps of a call are timed inside the host; each
instant is charged to the innermost step, so that the steps add up to the total. The
overhead of the timing is included: about half a microsecond per step.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import functools
import inspect
import time
from collections import Counter
from collections.abc import Callable, Generator
from operator import attrgetter
from pathlib import Path
from typing import Any
from unittest import mock

from caxton_host.app.bootstrap import Running
from caxton_host.gateway.gateway import Gateway
from caxton_host.gateway.guest_calls import GuestCalls
from caxton_host.gateway.judge import Judge
from caxton_host.gateway.tool_layers import ToolRouter
from caxton_host.sandbox.link import Link
from caxton_host.store.commit import Transactions
from caxton_host.store.drafts import Draft, Drafter

from . import scale
from .page import Figure, Section

_OUTSIDE = "outside"
_GUEST = "guest: worker, sockets, wake-ups"
_STEPS = {
    "read": (Link, "buffer_updated", "socket: read the frame"),
    "door": (GuestCalls, "call", "reply: build it; code between the steps"),
    "decode": (GuestCalls, "_tool_call", "decode: bytes to a call, digest"),
    "gateway": (Gateway, "call", "gateway: recall, record, settle"),
    "decide": (Judge, "_decide", "decide: the grant"),
    "draft": (Drafter, "draft", "seal: stamp, salt, pack"),
    "hash": (Draft, "hash", "hash: the chain"),
    "append": (Transactions, "commit", "append: insert the rows"),
    "forward": (ToolRouter, "call_tool", "forward: round trip to the tool server"),
    "send": (Link, "_send", "socket: write the reply"),
}


_WORKER = (
    "The worker takes {:.0f} us of processor time per call, for the guest and the host "
    "function; part of it overlaps with the steps of the host."
)
_COMMIT = "fsync: COMMIT"
_DONE = {
    "forward: round trip to the tool server": (
        "calls bypass the dispatcher of the SDK (decision 0005). A request is one "
        "write, and its answer is validated as its bytes arrive. Limits, deadline and "
        "progress included, this step costs about as much as the bare SDK call of the "
        "first section to the same server. A hand-written client needs about two "
        "thirds of the SDK's time there, so most of the rest is the server's."
    ),
    _COMMIT: (
        "a call has one commit, not two: the outcome of a call is written with the "
        "intent of the next (decision 0004). A single run commits on the event loop, "
        "without a switch to a thread."
    ),
}


def _largest(steps: list[tuple[str, float]]) -> list[str]:
    """Return what was done about the two largest steps."""
    return [
        f"What was done about the {rank} step, {what.partition(':')[0]}: "
        + _DONE.get(what, "nothing so far.")
        for rank, (what, _) in zip(("largest", "second"), steps, strict=False)
    ]


class Timer:
    """Charges each instant to the innermost active step."""

    def __init__(self) -> None:
        self.spent: Counter[str] = Counter()
        self._stack = [_OUTSIDE]
        self._since = time.perf_counter_ns()

    @contextlib.contextmanager
    def step(self, name: str) -> Generator[None]:
        """Charge what happens inside to that step."""
        self._charge()
        self._stack.append(name)
        try:
            yield
        finally:
            self._charge()
            self._stack.pop()

    def _charge(self) -> None:
        now = time.perf_counter_ns()
        self.spent[self._stack[-1]] += now - self._since
        self._since = now

    def around(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return *function*, timed."""
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def timed(*args: object, **named: object) -> object:
                with self.step(name):
                    return await function(*args, **named)

        else:

            @functools.wraps(function)
            def timed(*args: object, **named: object) -> object:
                with self.step(name):
                    return function(*args, **named)

        return timed


class _Driver:
    """A proxy of the committer's connection that times COMMIT as a separate step."""

    def __init__(self, driver: Any, timer: Timer) -> None:  # noqa: ANN401 -- any database
        self._driver = driver
        self._timer = timer

    def execute(self, statement: str, *rows: object) -> object:
        if statement != "COMMIT":
            return self._driver.execute(statement, *rows)
        with self._timer.step("fsync"):
            return self._driver.execute(statement)

    def executemany(self, statement: str, rows: object) -> object:
        return self._driver.executemany(statement, rows)


def section(folder: Path, options: argparse.Namespace) -> Section:
    """Measure the steps of a call, and return them with the largest first."""
    calls = 4 * options.calls
    found, worker = asyncio.run(measure(folder, calls=calls))
    steps = sorted(found.items(), key=lambda item: -item[1])
    whole = sum(found.values())
    return Section(
        "profile",
        "Profile of a call",
        f"{calls:,} sequential calls of `echo` by one agent, as in the first section. "
        f"{whole:.0f} us per call, including the timing of the steps.",
        [Figure(what, [spent], "us") for what, spent in steps],
        [_WORKER.format(worker), *_largest(steps)],
    )


async def measure(folder: Path, *, calls: int) -> tuple[dict[str, float], float]:
    """Return microseconds per call: of each step, and the worker's processor time."""
    async with scale.up(folder) as running:
        await running.host.start(scale.echo_request(running, "demo", "echo", 100))
        committer: Any = attrgetter("_writer._committer")(running.store)
        timer = Timer()
        before = worker_time(running)
        with contextlib.ExitStack() as stack:
            for name, (owner, method, _) in _STEPS.items():
                timed = timer.around(name, getattr(owner, method))
                stack.enter_context(mock.patch.object(owner, method, timed))
            driver = _Driver(committer._driver, timer)  # noqa: SLF001 -- no port exposes it
            stack.enter_context(mock.patch.object(committer, "_driver", driver))
            request = scale.echo_request(running, "demo", "echo", calls)
            await running.host.start(request)
        worker = (worker_time(running) - before) / calls * 1e6
    each = {name: spent / calls / 1e3 for name, spent in timer.spent.items()}
    outside = each.pop(_OUTSIDE)
    named = {what: each.pop(name, 0.0) for name, (_, _, what) in _STEPS.items()}
    named |= {_COMMIT: each.pop("fsync"), _GUEST: outside}
    return named, worker


def worker_time(up: Running) -> float:
    """Return the processor time of the workers in seconds."""
    total = 0.0
    for worker in up.sandbox._workers:  # noqa: SLF001 -- as above
        pid = worker.link.result()._process.pid  # noqa: SLF001 -- as above
        # See clock_getcpuclockid(3): exact, where /proc counts in ticks.
        total += time.clock_gettime(~pid << 3 | 2)
    return total
