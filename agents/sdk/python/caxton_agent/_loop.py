"""
The event loop of an agent: calls of tools that wait together are sent together.

It has no threads, sockets or pipes. The loop sends the calls that wait once no task can
go on. If only timers wait, its clock jumps to the next one. So the order of everything
follows from the replies alone.
"""

from __future__ import annotations

import asyncio
import errno
import os
import weakref
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, NoReturn

from . import _clock
from ._bridge import decode, encode, host
from ._calls import AgentError, Reply, read_reply

__all__ = ["DeadlockError", "Loop", "finish", "send"]

#: Of one batch.
_CALLS = 64
#: Characters of the params in one batch. The host takes 1 MiB of msgpack, in which a
#: number may be more than twice as long as in JSON.
_TEXT = 400_000
_NO_SOCKETS = "an agent has no network: call a tool that has access"
_NO_THREADS = "an agent has one thread: call the function directly"
_NO_PROCESSES = "an agent cannot start processes: call a tool that can"
_SHOWN = 5


class DeadlockError(RuntimeError):
    """Every task waits, and no call or timer is left that could wake one."""


class Calls:
    """Calls of tools that wait for being sent, each with the future of its outcome."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[asyncio.Future[Reply | AgentError], str, str]] = (
            deque()
        )

    def add(
        self, loop: asyncio.AbstractEventLoop, name: str, params: str
    ) -> asyncio.Future[Reply | AgentError]:
        """Add a call, with its *params* as JSON."""
        future: asyncio.Future[Reply | AgentError] = loop.create_future()
        self._waiting.append((future, name, params))
        return future

    def send(self) -> bool:
        """Send one batch, and settle its futures. Return False if no call waits."""
        batch = self._take()
        if len(batch) == 1:
            ((_, name, params),) = batch
            replies = [decode(host().mcp_call(name, params))]
        elif batch:
            items = (f"[{encode(name, 'name')},{text}]" for _, name, text in batch)
            replies = decode(host().mcp_call_many(f"[{','.join(items)}]"))
            if not isinstance(replies, list):  # The batch was refused as one.
                replies = [replies] * len(batch)
        else:
            return False
        for (future, _, _), reply in zip(batch, replies, strict=True):
            future.set_result(read_reply(reply))
        return True

    def _take(self) -> list[tuple[asyncio.Future[Reply | AgentError], str, str]]:
        batch: list[tuple[asyncio.Future[Reply | AgentError], str, str]] = []
        size = 0
        while self._waiting and len(batch) < _CALLS:
            future, _, params = self._waiting[0]
            if not future.done():  # Otherwise it was cancelled.
                size += len(params)
                if batch and size > _TEXT:
                    break
                batch.append(self._waiting[0])
            self._waiting.popleft()
        return batch


_foreign: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Calls] = (
    weakref.WeakKeyDictionary()
)


async def send(name: str, params: str) -> Reply | AgentError:
    """Call a tool with the calls that wait at the same time."""
    loop = asyncio.get_running_loop()
    if isinstance(loop, Loop):
        return await loop.calls.add(loop, name, params)
    # A test's own loop on the author's machine: send what its next step leaves waiting.
    calls = _foreign.setdefault(loop, Calls())
    future = calls.add(loop, name, params)
    loop.call_soon(calls.send)
    return await future


def finish(work: Coroutine[Any, Any, object]) -> object:
    """Run *work* to its end in a loop of its own."""
    with asyncio.Runner(loop_factory=Loop) as runner:
        return runner.run(work)


class Loop(asyncio.BaseEventLoop):
    """An event loop whose only events are replies of tools and timers."""

    def __init__(self) -> None:
        super().__init__()
        self._selector = self
        self._clock_resolution = 1e-6
        self.calls = Calls()

    def time(self) -> float:
        return _clock.seconds()

    def select(self, timeout: float | None) -> list[object]:
        """Do what the tasks wait for, once none of them can go on."""
        if timeout == 0 or self.calls.send():
            return []
        if timeout is None:
            raise DeadlockError(_deadlock(asyncio.all_tasks(self)))
        _clock.sleep(timeout)
        return []

    def _process_events(self, _events: list[object]) -> None: ...

    def _write_to_self(self) -> None:
        """Do nothing: no other thread wakes the loop."""

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:  # noqa: ASYNC109 -- as in asyncio
        """Do nothing: there is none."""


def _deadlock(tasks: set[asyncio.Task[Any]]) -> str:
    named = sorted((task.get_name(), _where(task)) for task in tasks)
    shown = "; ".join(f"{name} waits {where}" for name, where in named[:_SHOWN])
    more = f"; and {len(named) - _SHOWN} more" if len(named) > _SHOWN else ""
    return f"deadlock: no call or timer is left that could wake a task: {shown}{more}"


def _where(task: asyncio.Task[Any]) -> str:
    stack = task.get_stack()
    if not stack:
        return "somewhere"
    code = stack[-1].f_code
    name = os.path.basename(code.co_filename)  # noqa: PTH119 -- each import is in every agent
    return f"in {code.co_name} ({name}:{stack[-1].f_lineno})"


def _refuse(*names: str, error: Callable[[], Exception]) -> None:
    def refuse(*_: object, **__: object) -> NoReturn:
        raise error()

    for name in names:
        setattr(Loop, name, refuse)


_refuse(
    *("add_reader", "add_writer", "connect_read_pipe", "connect_write_pipe"),
    *("create_connection", "create_datagram_endpoint", "create_server", "start_tls"),
    *("create_unix_connection", "create_unix_server", "getaddrinfo", "getnameinfo"),
    *("sendfile", "sock_accept", "sock_connect", "sock_recv", "sock_recv_into"),
    *("sock_recvfrom", "sock_recvfrom_into", "sock_sendall", "sock_sendfile"),
    *("sock_sendto", "connect_accepted_socket"),
    error=lambda: PermissionError(errno.EPERM, _NO_SOCKETS),
)
_refuse(
    *("run_in_executor", "set_default_executor"),
    error=lambda: RuntimeError(_NO_THREADS),
)
_refuse(
    *("subprocess_exec", "subprocess_shell"),
    error=lambda: PermissionError(errno.EPERM, _NO_PROCESSES),
)
