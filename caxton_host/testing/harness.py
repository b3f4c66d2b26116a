"""
Runs agents for tests: the real module, sandbox and gateway, and a log in memory.

    run      tools answer by a script
    record   tools are those of a configuration; the run becomes a cassette
    replay   the cassette answers, and no server is needed

Asynchronous code runs in a thread of its own, so tests may be of any kind.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar, Unpack

from anyio.from_thread import BlockingPortal, start_blocking_portal

from ..core.limits import Places
from ..errors import CaxtonError
from ..ports.sandbox import Sandbox
from .cassette import read, save
from .replaying import replayed
from .runs import AgentRun, Given, Module, Scene, Task, bytes_of, live, name_of, run_of
from .scripted import Answer, ScriptedTools, ScriptFailed, grant_of

if TYPE_CHECKING:
    from .golden import GoldenRuns

_T = TypeVar("_T")


class Harness:
    """
    Runs agents for tests. Use it as a context manager, and for many runs.

    Args:
        environ: Where the folders of this user are found. Compiled modules are kept
            there: only the first run of a module waits for the compiler.
    """

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        self._environ = environ
        self._stack = contextlib.ExitStack()
        self._opened: tuple[BlockingPortal, Sandbox] | None = None

    def __enter__(self) -> Self:
        from ..app.bootstrap import open_sandbox  # noqa: PLC0415 -- 300 ms
        from ..config import Paths  # noqa: PLC0415 -- the same

        with contextlib.ExitStack() as stack:
            portal = stack.enter_context(start_blocking_portal("asyncio"))
            opening = open_sandbox(Paths.of(self._environ), Places())
            sandbox = stack.enter_context(portal.wrap_async_context_manager(opening))
            self._opened = portal, sandbox
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._opened = None
        self._stack.__exit__(kind, exc, trace)

    def run(
        self,
        module: Module,
        *,
        tools: Mapping[str, Answer] | None = None,
        names: Mapping[str, str] | None = None,
        allow: Sequence[str] | None = None,
        strict: bool = True,
        **given: Unpack[Given],
    ) -> AgentRun:
        """
        Run an agent whose tools answer by a script.

        Args:
            module: The module, or its file.

            tools: What each tool answers; see `Answer`.

            names: The agent's own names for tools, to ``SERVER/TOOL``.

            allow: Its grants, as patterns of ``SERVER/TOOL``; by default all tools
                of the script that are not `DENIED`.

            strict: Fail if an answer of the script was not used.

            given: See `Task`.

        Raises:
            UnexpectedRun: It called a tool without a script, or did not use an answer
                of the script.

            UsageError: The module or the script is refused.
        """
        __tracebackhide__ = True
        task = Task(**given)

        async def work(sandbox: Sandbox) -> AgentRun:
            script = ScriptedTools(tools or {}, names)
            scene = Scene(
                agent=name_of(module),
                tools=script,
                servers=script.servers,
                grant=script.grant if allow is None else grant_of(allow),
                names=script.names,
            )
            history, _ = await live(sandbox, bytes_of(module, task.limits), scene, task)
            events = [recorded.event for recorded in history if recorded.event]
            run = run_of(events)
            script.check(run, events, strict=strict)
            return run

        return self._wait(work)

    def record(
        self,
        module: Module,
        cassette: Path,
        *,
        agent: str | None = None,
        config: Path | None = None,
        cwd: Path | None = None,
        **given: Unpack[Given],
    ) -> AgentRun:
        """
        Run an agent on real tool servers, and write a cassette.

        Its calls are made. It has the grants, names, limits and variables that the
        configuration gives it; the configured database is not used.

        Args:
            module: The module, or its file.

            cassette: The file to write.

            agent: Its name in the configuration; by default, that of the file.

            config: The configuration, or ``None`` to look for one.

            cwd: The folder to look in.

            given: See `Task`.

        Raises:
            UsageError: The configuration, the agent or the module is refused, or the
                run cannot be a cassette.

            ServerUnavailable: A required server is down.
        """
        __tracebackhide__ = True
        wanted = Task(**given)

        async def work(sandbox: Sandbox) -> AgentRun:
            from .recorder import Recorder  # noqa: PLC0415 -- 300 ms

            recorder = Recorder.of(
                config, agent or name_of(module), self._environ, cwd or Path.cwd()
            )
            task = recorder.whole(wanted)
            data = bytes_of(module, task.limits)
            text, made = await recorder.record(sandbox, data, task)
            # A run that cannot be replayed is not saved.
            run = await replayed(sandbox, data, made, task, cassette.name)
            save(cassette, text)
            return run

        return self._wait(work)

    def replay(
        self, module: Module, cassette: Path, **given: Unpack[Given]
    ) -> AgentRun:
        """
        Run an agent over a cassette, without any server.

        Args:
            module: The module, or its file. It need not be the recorded one.

            cassette: The file.

            given: See `Task`.

        Raises:
            UnexpectedRun: It differs from the recording; the first difference.

            UsageError: The cassette or the module is refused.
        """
        __tracebackhide__ = True
        task = Task(**given)

        async def work(sandbox: Sandbox) -> AgentRun:
            known = read(cassette)
            data = bytes_of(module, task.limits or known.limits)
            return await replayed(sandbox, data, known, task, cassette.name)

        return self._wait(work)

    def check(self, golden: GoldenRuns, bundle: Path) -> None:
        """
        Execute the agent of today over a golden run; see `GoldenRuns.check`.

        Args:
            golden: Says what it is.

            bundle: The file of the run.
        """
        __tracebackhide__ = True
        self._wait(partial(golden.check, bundle))

    def _wait(self, work: Callable[[Sandbox], Awaitable[_T]]) -> _T:
        __tracebackhide__ = True
        if self._opened is None:
            raise RuntimeError("a harness is a context manager: with Harness() as h")
        portal, sandbox = self._opened
        future = portal.start_task_soon(work, sandbox)
        try:
            return future.result()
        except ScriptFailed as exc:
            failed = exc.error
        except CaxtonError as exc:
            # A traceback of this package is of no use to the author of the test.
            failed = exc.with_traceback(None)
        except BaseException:
            future.cancel()
            raise
        if isinstance(failed, CaxtonError) and failed.fix:
            failed.add_note(f"To fix: {failed.fix}")
        raise failed


def run_agent(
    module: Module,
    *,
    tools: Mapping[str, Answer] | None = None,
    names: Mapping[str, str] | None = None,
    allow: Sequence[str] | None = None,
    strict: bool = True,
    **given: Unpack[Given],
) -> AgentRun:
    """Run one agent in a harness of its own; see `Harness.run`."""
    __tracebackhide__ = True
    with Harness() as harness:
        return harness.run(
            module, tools=tools, names=names, allow=allow, strict=strict, **given
        )
