"""``caxton agent dev``: run a program or an agent again whenever it changes."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import Callable, Coroutine, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.exceptions import Exit

from ..core.calls import JSON
from ..core.log.diff import diff
from ..core.log.events import (
    LogWritten,
    Recorded,
    RunCancelled,
    RunCompleted,
    RunFailed,
    ToolDenied,
    ToolFailed,
    ToolInvoked,
)
from ..core.log.projection import summarise
from ..core.log.runs import call_list, event_of_call
from ..errors import CaxtonError
from ..lib.machine import local_actor
from .context import HostApi, StartOptions, on_host
from .dev_files import Stamps, Target, stamps, watch
from .dev_loop import HELP, KEYS, Action, Phase, Signal, step
from .differences import difference_line
from .explain import tell as tell_explanation
from .interrupt import began, drive, ended, restoring
from .options import overrides, variable_option
from .output import clipped, complain, exit_code, note, patience, plain, remedy, show
from .replay import tell as tell_replay
from .run_input import RunInput, run_input
from .run_report import RunReport, code_of
from .run_target import request_of

if TYPE_CHECKING:
    from ..app.bootstrap import Running
    from ..config import Config
    from ..runs.recording import Recording

_T = TypeVar("_T")

_STOPPED = "stopped by caxton agent dev"
#: Of a difference, in characters.
_WIDTH = 160


@on_host(click.command("dev"))
@click.argument("target", metavar="FILE|FOLDER", type=click.Path(path_type=Path))
@run_input
@variable_option
@overrides
@click.option("--once", is_flag=True, help="Run once, and exit as caxton run does.")
def command(
    host: HostApi,
    target: Path,
    input_: RunInput,
    once: bool,
    **more: Any,  # noqa: ANN401 -- the other fields of StartOptions
) -> None:
    """
    Run a program or an agent again whenever it changes.

    FILE is a program or a module; FOLDER is an agent, which is built first. Its files,
    the configuration and the file of --input are watched. Servers stay up between two
    runs, and a run that goes on is cancelled. An agent that is configured with that
    file has its own grants. On a terminal, keys run, replay and explain.

    \b
    Exit codes: 0 you quit; 2 usage or configuration; with --once those of caxton run.

    \b
    Examples:
      caxton agent dev report.py --allow 'crm/lookup_*'
      caxton agent dev hello -i '{"city": "Lima"}'
      caxton agent dev report.py --once --json
    """
    options = StartOptions(
        target=str(target),
        language=None,
        input=cache(input_.read) if input_.given == "-" else input_.read,
        entry=None,
        **more,
    )
    config = options.given.servers_in(host.load())
    also = [input_.file] if input_.file else []
    work = _develop(host, options, config, Target.of(target, config), also, once=once)
    raise Exit(drive(work, host.command()))


async def _develop(
    host: HostApi,
    options: StartOptions,
    config: Config,
    target: Target,
    also: Sequence[Path],
    *,
    once: bool,
) -> int:
    from ..app.bootstrap import running

    report = RunReport(
        host=host,
        given=options.given,
        quiet=False,
        as_json=options.as_json,
        is_configured=config.agents.__contains__,
        servers=lambda _: config.servers,
        known=lambda: dict.fromkeys(config.servers),
    )
    async with running(
        config,
        host.paths(),
        watch=report.watch,
        compiling=partial(_noted, f"compiling {target.file.name}, once"),
    ) as up:
        session = Session(
            up=up, options=options, target=target, config=config, report=report
        )
        if once:
            return await session.once()
        look = partial(_stamps, session, also)
        watching = asyncio.create_task(
            watch(look, partial(session.signals.put_nowait, "changed"))
        )
        try:
            with _keys(session.signals.put_nowait) as typed:
                if typed and not options.as_json:
                    note(HELP)
                await session.work()
        finally:
            watching.cancel()
    return 0


def _stamps(session: Session, also: Sequence[Path]) -> Stamps:
    return stamps([*session.target.files(), *session.config.files, *also])


@contextlib.contextmanager
def _noted(text: str) -> Generator[None]:
    note(text)
    yield


@contextlib.contextmanager
def _keys(put: Callable[[Signal], None]) -> Generator[bool]:
    """Pass on each key that means something; yield whether there is a terminal."""
    if not sys.stdin.isatty():
        yield False
        return
    import termios
    import tty

    fd, loop = sys.stdin.fileno(), asyncio.get_running_loop()

    def typed() -> None:
        key = os.read(fd, 1).decode(errors="replace")
        if not key:  # The terminal is gone.
            put("quit")
        elif signal := KEYS.get(key):
            put(signal)

    before = termios.tcgetattr(fd)
    with restoring(partial(termios.tcsetattr, fd, termios.TCSANOW, before)):
        tty.setcbreak(fd)
        loop.add_reader(fd, typed)
        try:
            yield True
        finally:
            loop.remove_reader(fd)


@dataclass(slots=True, kw_only=True)
class Session:
    """
    Runs a target again and again, on one host.

    Attributes:
        up: The host, which keeps its servers between two runs.

        options: What the command line says.

        target: What is run.

        config: The configuration of the next run.

        report: Prints how a run went.

        signals: What happened: changes, keys, and the end of what was under way.
    """

    up: Running
    options: StartOptions
    target: Target
    config: Config
    report: RunReport
    signals: asyncio.Queue[Signal] = field(
        default_factory=asyncio.Queue[Signal], init=False
    )
    _configured: Stamps = field(init=False)
    _task: asyncio.Task[None] | None = field(default=None, init=False)
    # The run under way, once it has begun.
    _run_id: str = field(default="", init=False)
    _last: Recording | None = field(default=None, init=False)
    _code: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self._configured = stamps(self.config.files)

    async def once(self) -> int:
        """Run the target once, and return its exit code."""
        await self._reported(self._run())
        return self._code

    async def work(self) -> None:
        """Run the target, and follow the signals until one of them is to quit."""
        phase: Phase = "idle"
        signal: Signal = "changed"
        try:
            while phase != "over":
                phase, action = step(phase, signal)
                if action == "stop":
                    await self._stop()
                elif action:
                    self._begin(action)
                if phase != "over":
                    signal = await self.signals.get()
                if signal == "ended" and self._task and not self._task.cancelled():
                    self._task.result()
        finally:
            if self._task is not None and not self._task.done():
                self._task.cancel()
                await asyncio.wait({self._task})

    def _begin(self, action: Action) -> None:
        doing: Mapping[Action, Callable[[], Coroutine[object, object, None]]] = {
            "run": self._run,
            "replay": self._replay,
            "explain": self._explain,
        }
        self._task = asyncio.create_task(self._reported(doing[action]()))
        self._task.add_done_callback(lambda _: self.signals.put_nowait("ended"))

    async def _stop(self) -> None:
        """End what is under way; a run is recorded as cancelled."""
        assert self._task is not None  # noqa: S101 -- something is under way
        if self._run_id:
            end = RunCancelled(actor=local_actor(), reason=_STOPPED)
            await self.up.host.under_way.stop(self._run_id, end)
        else:
            self._task.cancel()

    async def _reported(self, work: Coroutine[object, object, None]) -> None:
        """Await *work*; print its error, after which the next change may help."""
        try:
            await work
        except CaxtonError as exc:
            self._code = exit_code(exc)
            if self.options.as_json:
                said = {"$type": "caxton.dev-error/v1", "error": str(exc)}
                show({**said, "fix": remedy(exc)})
            complain(str(exc), remedy(exc))
        finally:
            if self._run_id:
                ended(self._run_id)
            self._run_id = ""

    # -- a run

    async def _run(self) -> None:
        from ..runs.recording import Recording
        from .local_runs import servers_awaited, warn_of_tools

        await self._reconfigured()
        if self.target.folder is not None:
            await _whole(partial(self._build, self.target.folder))
        agent = self.target.agent(self.config)
        host = self.report.host
        request = await _whole(
            partial(request_of, host, self.options, self.config, agent)
        )
        needed = request.grant.servers(self.config.servers)
        with (
            patience(f"running {agent.name}") as doing,
            servers_awaited(doing, self.up, needed) as listed,
        ):
            run_id = await self.up.host.start(
                request, on_started=partial(self._started, listed)
            )
        await warn_of_tools(self.up, self.options)
        recording = await Recording.load(run_id, self.up.store.reader)
        self._tell(recording, self._last)
        if summarise(run_id, recording.own).state != "cancelled":
            self._last = recording

    async def _reconfigured(self) -> None:
        """Use the configuration anew if one of its files changed."""
        now = stamps(self.config.files)
        if now != self._configured:
            self._configured = now
            config = self.options.given.servers_in(self.report.host.load())
            await self.up.tools.publish(config)
            self.config = config

    def _build(self, folder: Path) -> None:
        from ..building import build_agent

        note(f"building {folder}")
        cache = self.report.host.paths().cache / "build"
        build_agent(folder, into=self.target.file.parent, cache=cache)

    def _started(self, listed: Callable[[], None], run_id: str) -> None:
        listed()
        self._run_id = run_id
        began(run_id)
        if not self.options.as_json:
            note(f"run {run_id}  {self.target.file.name}")

    def _tell(self, recording: Recording, before: Recording | None) -> None:
        run = summarise(recording.run_id, recording.own)
        self._code = code_of(run)
        found = diff(before.history, recording.history) if before else None
        fuel = _fuel(recording)
        if self.options.as_json:
            logs: list[JSON] = [
                {"level": line.level, "text": line.text} for line in _lines(recording)
            ]
            show(
                {
                    "$type": "caxton.dev/v1",
                    "run": run.to_document(),
                    "call_list": call_list(recording.own),
                    "logs": logs,
                    "fuel": fuel,
                    "differences": found.to_document() if found else None,
                }
            )
            return
        for line in _lines(recording):
            if line.level != "error" or run.error is None:  # Else, they are reported.
                note(f"  {line.level}: {plain(line.text)}")
        self.report.ending(recording)
        if found is None or before is None or run.state == "cancelled":
            return
        told = [
            f"call {call.call} {plain(call.name)}: {difference_line(one)}"
            for call in found.calls
            for one in call.differences
        ]
        told += [f"the end: {difference_line(one)}" for one in found.end[:1]]
        note(
            "since the last run:" if told else "the last run had the same calls and end"
        )
        if (was := _fuel(before)) != fuel:
            told.append(f"fuel: {was or 0:,} became {fuel or 0:,}")
        for said in told:
            note(f"  {clipped(said, _WIDTH)}")

    # -- the last run

    async def _replay(self) -> None:
        from ..runs.replay import replay

        if self._last is None:
            note("there is no run yet")
            return
        found = await replay(
            self._last.run_id,
            store=self.up.store.reader,
            sandbox=self.up.sandbox,
            telemetry=self.up.telemetry,
        )
        if self.options.as_json:
            show(found.to_document())
        else:
            tell_replay(found)

    async def _explain(self) -> None:
        from ..runs.explain import checks_of, explanation

        number = _to_explain(self._last.own) if self._last else 0
        if self._last is None or not number:
            note("there is no call to explain")
            return
        checks = await checks_of(self._last, self.up.store, self.config)
        seq = event_of_call(self._last.own, number)
        agent = self.config.agents.get(self._last.started.agent)
        tell_explanation(explanation(self._last, checks, seq, agent))


async def _whole(work: Callable[[], _T]) -> _T:
    """Do *work* in a thread, to its end even if the caller is cancelled."""
    task = asyncio.create_task(asyncio.to_thread(work))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task})
        raise


def _lines(recording: Recording) -> list[LogWritten]:
    return [e.event for e in recording.own if isinstance(e.event, LogWritten)]


def _fuel(recording: Recording) -> int | None:
    end = recording.own[-1].event
    return end.fuel if isinstance(end, RunCompleted | RunFailed) else None


def _to_explain(history: Sequence[Recorded]) -> int:
    """Return the first call that was denied, or failed; the last one; or 0."""
    events = [recorded.event for recorded in history]
    for kinds in ((ToolDenied,), (ToolFailed,)):
        for event in events:
            if isinstance(event, kinds):
                return event.call
    calls = [event.call for event in events if isinstance(event, ToolInvoked)]
    return calls[-1] if calls else 0
