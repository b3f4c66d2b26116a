"""
An event loop in virtual time that draws the order of callbacks from a seed.

Ready callbacks run in any order, without real waiting. Callbacks of a dead process
never run again: unlike a cancellation, a crash runs no cleanup. Those of a process that
hangs run when it wakes up.
"""

from __future__ import annotations

import asyncio
import contextlib
import random  # noqa: TID251 -- drawn from a seed that is printed
import selectors
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from contextvars import ContextVar
from types import SimpleNamespace
from typing import Any, cast

#: How often a coroutine that is closed may wait for something in its ``finally``.
_AWAITS = 10

__all__ = ["PROCESS", "Process", "SimLoop"]


class Process:
    """
    A simulated process, which can die or hang at any step.

    Attributes:
        held: The callbacks that wait until it wakes up; ``None``: it does not hang.
    """

    alive = True
    held: list[Any] | None = None

    def interrupt(self) -> None:
        """Cancel something that it does."""


#: The process whose code runs.
PROCESS: ContextVar[Process | None] = ContextVar("PROCESS", default=None)


#: A handle that the loop passes over.
_NOTHING = SimpleNamespace(_cancelled=True)


class _Ready(list[Any]):
    """The ready callbacks, returned in random order."""

    def __init__(
        self, chance: random.Random, on_step: Callable[[Process], None]
    ) -> None:
        super().__init__()
        self._chance = chance
        self._on_step = on_step

    def popleft(self) -> Any:  # noqa: ANN401 -- asyncio's own
        at = self._chance.randrange(len(self))
        self[at], self[-1] = self[-1], self[at]
        handle = self.pop()
        process = handle._context.get(PROCESS)
        if process is not None and not handle._cancelled:
            self._on_step(process)
            if not process.alive:
                handle.cancel()
            elif process.held is not None:
                process.held.append(handle)
                return _NOTHING
        return handle


class _NoWaiting(selectors.DefaultSelector):
    """Advances the virtual time instead of waiting."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None:
            raise AssertionError("deadlock: all tasks wait and no timer is set")
        self.now += max(timeout, 0)
        return []


class SimLoop(asyncio.SelectorEventLoop):
    """
    The loop.

    Args:
        chance: The generator that the order is drawn from.

        on_step: Called with the process of the next callback; it may kill it.
    """

    def __init__(
        self, chance: random.Random, on_step: Callable[[Process], None]
    ) -> None:
        self._waiting = _NoWaiting()
        self._chance = chance
        super().__init__(self._waiting)
        self._clock_resolution = 1e-9
        self._ready = _Ready(chance, on_step)
        self._all: list[asyncio.Task[Any]] = []
        self.set_task_factory(self._task)

    def time(self) -> float:
        return self._waiting.now

    def wake(self, process: Process) -> None:
        """Let a process that hangs go on."""
        self._ready.extend(process.held or ())
        process.held = None

    def run_in_executor(
        self, executor: object, work: Callable[..., Any], *args: object
    ) -> asyncio.Future[Any]:
        """Do some work in a thread, in virtual time."""
        del executor
        done = self.create_future()

        def do() -> None:
            try:
                result, failed = work(*args), None
            except Exception as exc:  # noqa: BLE001 -- raised to who waits for it
                result, failed = None, exc
            if done.done():
                return
            if failed:
                done.set_exception(failed)
                done.exception()  # Who waited may be dead.
            else:
                done.set_result(result)

        self.call_later(self._chance.uniform(0, 0.005), do)
        return done

    def _task(
        self,
        loop: asyncio.AbstractEventLoop,
        coro: Coroutine[Any, Any, Any] | Generator[Any, Any, Any],
        **options: Any,  # noqa: ANN401 -- asyncio's own
    ) -> asyncio.Task[Any]:
        task = asyncio.Task(
            cast("Coroutine[Any, Any, Any]", coro), loop=loop, **options
        )
        self._all.append(task)
        return task

    def _asyncgen_finalizer_hook(self, agen: AsyncGenerator[Any, Any]) -> None:
        # A dead process cannot close its generators.
        self._asyncgens.discard(agen)  # type: ignore[attr-defined]

    def forget(self) -> None:
        """Drop all unfinished tasks but the current one. Call it last, in the loop."""
        for task in self._all:
            if not task.done() and task is not asyncio.current_task():
                task._log_destroy_pending = False  # type: ignore[attr-defined]
                for _ in range(_AWAITS):
                    with contextlib.suppress(Exception, BaseExceptionGroup):
                        task.get_coro().close()
                        break
        self._ready.clear()
        self._scheduled.clear()  # type: ignore[attr-defined]
