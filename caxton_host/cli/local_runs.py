"""Runs that this process drives: started, resumed, forked, resolved and decided."""

from __future__ import annotations

import asyncio
import contextlib
import shlex
from collections.abc import (
    AsyncGenerator,
    Callable,
    Collection,
    Generator,
    Mapping,
    Sequence,
)
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeAlias

from ..app.bootstrap import Running, open_store, running
from ..app.reload import granted
from ..config import Config
from ..config.narrowing import narrowings
from ..core.calls import JSON, Completed
from ..core.grants.approvals import Unapproved
from ..core.grants.forks import forking_point
from ..core.grants.freezes import Halted
from ..core.grants.grants import Grant
from ..core.log.events import RunCompleted, ToolInvoked
from ..core.log.projection import summarise
from ..core.log.requests import RESOLUTIONS, GiveResult, Resolution
from ..core.log.runs import RunFilter, RunSummary
from ..core.text.redact import Redactor
from ..core.tools.webhooks import SERVER as WEBHOOK
from ..errors import (
    BusyError,
    CaxtonError,
    ChildSuspended,
    ModuleRefused,
    NotFoundError,
    NotKeptError,
    RestoredError,
    Suspend,
    UsageError,
)
from ..lib.machine import SystemClock, local_actor
from ..runs.approvals import Word, open_questions, say
from ..runs.cancellation import tell_hosts
from ..runs.modules import files_of, output_mismatch, read_instead, shown
from ..runs.pinning import check_files
from ..runs.recording import Recording
from ..runs.run_request import ForkRequest, RunRequest, check_request
from . import interrupt
from .answers import Answers
from .approval_prompt import answerable, ask, can_ask, waiting
from .context import (
    DecideOptions,
    ForkOptions,
    HostApi,
    ResolveOptions,
    ResumeOptions,
    RunOptions,
    StartOptions,
)
from .interrupt import began, drive
from .output import (
    Doing,
    complain,
    counted,
    exit_code,
    note,
    patience,
    remedy,
    show,
    table,
)
from .overrides import narrowed, private_of
from .run_report import RunReport, code_of, decided, named
from .run_target import agent_of, request_of
from .server_probe import known

Compiling: TypeAlias = Callable[[], contextlib.AbstractContextManager[None]]

#: How many runs go on at a time.
_AT_ONCE = 16
_PAGE = 1000
#: Seconds between two checks of a run that another process drives.
_EVERY = 0.3


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalRuns:
    """
    Drives runs by one configuration.

    Attributes:
        options: What the command line says.

        config: The configuration, with the servers of the command line.

        private: Variables that only servers get to see.

        restored: A run goes on although its log was restored from a copy.
    """

    host: HostApi
    options: RunOptions
    config: Config
    private: Mapping[str, JSON] = field(default_factory=dict[str, JSON], repr=False)
    restored: bool = False

    @property
    def report(self) -> RunReport:
        """The report of the runs."""
        return RunReport(
            host=self.host,
            given=self.options.given,
            quiet=self.options.quiet or self.options.as_json,
            as_json=self.options.as_json,
            is_configured=self.config.agents.__contains__,
            servers=lambda _: self.config.granted_servers,
            known=partial(known, self.config, start=False),
        )

    # -- start

    async def start(self, request: RunRequest) -> Recording:
        """Start a run, see it to its end, and return what it did."""
        check_request(request, Redactor(self.config.secrets))
        needed = request.servers(self.config.servers)
        agent, program = request.agent, request.program
        what = f"the {program.runtime} runtime" if program else agent
        with contextlib.ExitStack() as shown:
            doing = shown.enter_context(self._patience(agent))
            compiling = partial(doing.part, f"compiling {what}, once on this machine")
            async with self._running({agent: needed}, compiling) as up:
                with servers_awaited(doing, up, needed) as listed:
                    run_id = await up.host.start(
                        request, on_started=self._started(agent, listed)
                    )
                shown.close()
                await warn_of_tools(up, self.options)
                recording = await Recording.load(run_id, up.store.reader)
                return await self._see_out(up, recording)

    def _patience(self, agent: str) -> contextlib.AbstractContextManager[Doing]:
        return patience(f"running {agent}", quiet=self.options.quiet)

    def _started(self, what: str, listed: Callable[[], None]) -> Callable[[str], None]:
        """Return the callback for the id of a run that starts."""

        def started(run_id: str) -> None:
            listed()
            began(run_id)
            if not self.report.quiet:
                note(f"run {run_id}  {what}")

        return started

    @contextlib.asynccontextmanager
    async def _running(
        self,
        start: Mapping[str, Collection[str]] | None = None,
        compiling: Compiling = contextlib.nullcontext,
    ) -> AsyncGenerator[Running]:
        async with running(
            self.config,
            self.host.paths(),
            start=start,
            watch=self.report.watch,
            load=self._again,
            compiling=compiling,
            granting=self._granted,
        ) as up:
            yield up

    def _again(self) -> Config:
        """Read the configuration again, with what the command line added."""
        return self.options.given.servers_in(self.host.load())

    def _granted(self, config: Config, name: str) -> Grant:
        """Return what a configuration and the command line grant an agent."""
        return self.options.given.added_to(granted(config, name), config, name)

    # -- to the end

    async def _see_out(self, up: Running, recording: Recording) -> Recording:
        """
        Ask at the terminal about the calls that a run waits for, and resume it.

        Calls of the runs that it has called are among them. Without a terminal, or
        without an answer, the run stays suspended.
        """
        while self._can_ask() and (asking := await self._asking(up, recording)):
            for one in asking:
                if waiting(up, await ask(up, one)):
                    return await Recording.load(recording.run_id, up.store.reader)
            recording = await self._resume_or_wait(up, recording.run_id)
        return recording

    async def _asking(self, up: Running, recording: Recording) -> list[Recording]:
        """Return those of a run and those below it that ask what this user may say."""
        found = [recording] if answerable(up, recording) else []
        for run_id in recording.callees.values():
            with contextlib.suppress(NotFoundError, NotKeptError):
                called = await Recording.load(run_id, up.store.reader)
                found += await self._asking(up, called)
        return found

    def _can_ask(self) -> bool:
        return not self.report.quiet and can_ask()

    async def _see_through(
        self, up: Running, run_id: str, *, shared: bool = False
    ) -> Recording:
        """
        Resume a run, and ask at the terminal about the calls that it waits for.

        Args:
            up: The host.

            run_id: The run.

            shared: Another process may let it go on as well: then wait for that one.
        """
        recording = await Recording.load(run_id, up.store.reader)
        if not (self._can_ask() and await self._asking(up, recording)):
            resume = self._resume_or_wait if shared else self._resume_in
            recording = await resume(up, run_id)
        return await self._see_out(up, recording)

    async def _resume_in(self, up: Running, run_id: str) -> Recording:
        """Resume a run, see it to its end, and return what it did."""
        recording = await Recording.load(run_id, up.store.reader)
        agent = recording.started.agent
        grant = Grant() if recording.end else self._grant_of(recording)
        try:
            with (
                self._patience(agent) as doing,
                servers_awaited(doing, up, recording.started.servers) as listed,
            ):
                await up.host.resume(
                    run_id,
                    actor=local_actor(),
                    grant=grant,
                    private=self.private,
                    on_started=self._started(f"{agent}, resumed", listed),
                    restored=self.restored,
                )
        except Unapproved as exc:
            # The calls that it waits for now: it may have progressed.
            waits = (await Recording.load(run_id, up.store.reader)).journal().waiting
            fixes = [
                self.report.deciding(run_id, asked, "approve")
                for asked in waits
                if asked.requested.call == exc.call
            ]
            fix = fixes[0] if fixes else exc.fix
            raise Suspend(exc.call, str(exc), fix=fix) from None
        except (Halted, ChildSuspended):
            raise
        except Suspend as exc:
            doubts = recording.journal().in_doubt
            seq = next(doubt.seq for doubt in doubts if doubt.invoked.call == exc.call)
            fix = self.report.resolving(run_id, seq)
            raise Suspend(exc.call, str(exc), fix=fix) from None
        return await Recording.load(run_id, up.store.reader)

    async def _resume_or_wait(self, up: Running, run_id: str) -> Recording:
        """Resume a run, or wait for its end if another process resumed it."""
        try:
            return await self._resume_in(up, run_id)
        except BusyError:
            note("another process goes on with the run")
        except UsageError:
            if (await Recording.load(run_id, up.store.reader)).end is None:
                raise
        while await up.store.leases.owner(run_id):  # noqa: ASYNC110 -- of another process
            await asyncio.sleep(_EVERY)
        return await Recording.load(run_id, up.store.reader)

    def _grant_of(self, recording: Recording) -> Grant:
        """Return what the configuration grants the agent of a run now."""
        name = recording.started.agent
        recorded = Grant.from_payload(recording.started.grants)
        allow = self.options.given.allow
        if name not in self.config.agents and recorded.allow and not allow:
            again = " ".join(
                f"--allow {shlex.quote(pattern.text)}"
                for rule in recorded.allow
                for pattern in rule.tools
            )
            raise UsageError(
                f"no agent {name!r} in the configuration: nothing is granted to it now",
                fix=f"{self.host.command()} runs resume {recording.run_id} {again} "
                "and the --server options of its start",
            )
        return self._granted(self.config, name)

    # -- resume

    async def resume(self, run: str) -> Recording:
        """Resume a run, see it to its end, and return what it did."""
        async with self._running() as up:
            return await self._see_through(up, await up.store.reader.find_run(run))

    async def resume_shared(self, run_id: str) -> Recording:
        """See a run to its end that another process may drive as well."""
        async with self._running() as up:
            return await self._see_through(up, run_id, shared=True)

    async def resume_all(self) -> int:
        """Resume every run that no host drives, and return the highest exit code."""
        places = asyncio.Semaphore(_AT_ONCE)
        async with self._running() as up:

            async def one(run_id: str) -> RunSummary | CaxtonError | None:
                async with places:
                    try:
                        recording = await Recording.load(run_id, up.store.reader)
                        if recording.started.parent or recording.is_session:
                            return None  # Its caller resumes it, or its client.
                        recording = await self._resume_in(up, run_id)
                    except CaxtonError as exc:
                        return exc
                run = summarise(run_id, recording.own)
                if run.state == "suspended":
                    self.report.suspension(recording)
                return run

            # Suspended runs may have been decided about.
            rows = await up.store.leases.idle()
            last, only = None, RunFilter(state="suspended")
            while page := await up.store.reader.runs(_PAGE, only, before=last):
                rows += page
                last = (page[-1].started_at, page[-1].run_id)
            done = await asyncio.gather(*(one(row.run_id) for row in rows))
        return self._resumed([item for item in done if item is not None])

    def _resumed(self, done: Sequence[RunSummary | CaxtonError]) -> int:
        """Print the results of several runs, and return the highest exit code."""
        waits = sum(isinstance(item, Suspend) for item in done)
        held = sum(isinstance(item, RestoredError) for item in done)
        done = [item for item in done if not isinstance(item, Suspend | RestoredError)]
        failed = [item for item in done if isinstance(item, CaxtonError)]
        runs = [item for item in done if isinstance(item, RunSummary)]
        if self.options.as_json:
            show([run.to_document() for run in runs])
        else:
            rows = ((run.run_id, run.agent, run.state) for run in runs)
            table(("run", "agent", "state"), rows)
        for error in failed:
            complain(str(error), remedy(error))
        if waits:
            note(
                f"{counted(waits, 'run')} suspended: caxton runs list --state suspended"
            )
        if held:
            note(
                f"{counted(held, 'run')} suspended since the log was restored from a "
                f"copy: {self.host.command()} runs resume --all --restored"
            )
        if not done:
            note("no run waits for a host")
        codes = [*map(exit_code, failed), *(code_of(run) for run in runs)]
        return max(codes, default=0)

    # -- fork

    async def fork(self, options: ForkOptions) -> Recording:
        """Fork a run, see the fork to its end, and return what it did."""
        async with self._running() as up:
            parent_id = await up.store.reader.find_run(options.run)
            parent = await Recording.load(parent_id, up.store.reader)
            agent = parent.started.agent
            if agent not in self.config.agents and not self.options.given.allow:
                note(
                    f"warning: no agent {agent!r} in the configuration: nothing is "
                    "granted to the fork; add --allow SERVER/TOOL"
                )
            module, program = None, None
            signatures: tuple[JSON, ...] = ()
            if options.module:
                module, program = read_instead(
                    options.module, parent.started, parent.limits.module
                )
            grant = self._granted(self.config, agent)
            known = self.config.agents.get(agent)
            if known and (replaced := program or module) and options.module:
                signatures = check_files(known, files_of(options.module, replaced))
            request = ForkRequest(
                run_id=parent_id,
                seq=options.seq,
                actor=local_actor(),
                grant=grant,
                module=module,
                program=program,
                signatures=signatures,
                edited=self._edited(up, parent, options),
                private=self.private,
                bounds=narrowings(
                    narrowed(options.narrow, grant),
                    trusted=known.trusted if known else (),
                ),
            )
            forked = f"{agent}, forked from run {parent_id}"
            with (
                self._patience(agent) as doing,
                servers_awaited(doing, up, parent.started.servers) as listed,
            ):
                run_id = await up.host.fork(
                    request, on_started=self._started(forked, listed)
                )
            await warn_of_tools(up, self.options)
            return await Recording.load(run_id, up.store.reader)

    def _edited(
        self, up: Running, parent: Recording, options: ForkOptions
    ) -> Completed | None:
        """Return the answer that replaces the one of the parent."""
        if options.result is None:
            return None
        point = forking_point(parent.history, options.seq, edit=True)
        answers = Answers(self.config, up.redact, parent.limits.result)
        return answers.read(options.result, "--set-result", point.edited)

    # -- resolve

    async def resolve(self, options: ResolveOptions, *, resumes: bool) -> Recording:
        """Resolve a call in doubt; if *resumes*, see its run to its end."""
        async with self._running() as up:
            run_id = await up.store.reader.find_run(options.run)
            recording = await Recording.load(run_id, up.store.reader)
            reason = up.redact.text(options.reason)
            await up.host.resolve(
                run_id,
                options.seq,
                self._resolution(up, recording, options),
                actor=local_actor(),
                reason=reason,
            )
            if resumes:
                return await self._see_through(up, run_id)
            await tell_hosts(up.store, run_id, local_actor(), reason)
            return await Recording.load(run_id, up.store.reader)

    def _resolution(
        self, up: Running, recording: Recording, options: ResolveOptions
    ) -> Resolution:
        if options.file is None:
            return RESOLUTIONS[options.choice]()
        # As if the tool had given the answer in the file.
        answers = Answers(self.config, up.redact, recording.limits.result)
        events = (item.event for item in recording.own if item.seq == options.seq)
        found = next(events, None)
        invoked = found if isinstance(found, ToolInvoked) else None
        return GiveResult(answers.read(options.file, "--result", invoked))


@contextlib.contextmanager
def servers_awaited(
    doing: Doing, up: Running, names: Collection[str]
) -> Generator[Callable[[], None]]:
    """Show which servers a run waits for, until the yielded function is called."""
    whole = doing.tell

    def waiting() -> str:
        listed = {one.server for one in up.status() if one.generation or one.problem}
        late = [
            name
            for name in up.tools.config.servers
            if name in names and name not in listed
        ]
        return f"waiting for the tools of {', '.join(late)}" if late else whole()

    with contextlib.ExitStack() as shown:
        shown.enter_context(doing.part(waiting))
        yield shown.close


async def warn_of_tools(up: Running, options: RunOptions) -> None:
    """Warn about tools that the command line grants and that no server offers."""
    if options.quiet or not options.given.allow:
        return
    known: dict[str, dict[str, JSON] | None] = dict.fromkeys(up.tools.servers)
    for server, tool in await up.store.definitions.accepted(up.tools.servers):
        known[server] = {**(known[server] or {}), tool: None}
    if WEBHOOK in known:
        known[WEBHOOK] = dict.fromkeys(up.tools.config.webhooks)
    options.given.warn_of_tools(known)


def start(host: HostApi, options: StartOptions) -> tuple[int, Recording]:
    """Start a run of an agent or a module; see `LocalRuns.start`."""
    config = options.given.servers_in(host.load())
    agent = agent_of(config, options.target, options.language)
    request = request_of(host, options, config, agent)
    runs = LocalRuns(host=host, options=options, config=config, private=request.private)
    try:
        recording = drive(runs.start(request), host.command())
    except ModuleRefused as exc:
        named = shown(agent.module or Path(options.target))
        raise ModuleRefused(f"{named}: {exc}", fix=exc.fix) from None
    report = runs.report
    code = report.ending(recording)
    if not report.quiet:
        _warn_of_output(request.module, recording)
    return code, recording


def _runs(
    host: HostApi, options: RunOptions, *, resumes: bool = True, restored: bool = False
) -> LocalRuns:
    """Return a driver for existing runs, with the current configuration."""
    config = options.given.servers_in(host.load())
    if options.variables and not resumes:
        raise UsageError(
            "--var is for a run that goes on", fix="leave out --var, or --no-resume"
        )
    return LocalRuns(
        host=host,
        options=options,
        config=config,
        private=private_of(config, options.variables) if resumes else {},
        restored=restored,
    )


def resume(host: HostApi, options: ResumeOptions) -> int:
    """Resume a run, or every run that no host drives."""
    runs = _runs(host, options, restored=options.restored)
    if options.run is None:
        return drive(runs.resume_all(), host.command())
    return runs.report.ending(drive(runs.resume(options.run), host.command()))


def fork(host: HostApi, options: ForkOptions) -> int:
    """Fork a run, and see the fork to its end."""
    runs = _runs(host, options)
    try:
        return runs.report.ending(drive(runs.fork(options), host.command()))
    except ModuleRefused as exc:
        named = f"{options.module.name}: " if options.module else ""
        raise ModuleRefused(f"{named}{exc}", fix=exc.fix) from None


def resolve(host: HostApi, options: ResolveOptions) -> int:
    """Resolve a call in doubt; if its run is resumed, see it to its end."""
    resumes = not options.no_resume and options.choice != "abort"
    runs = _runs(host, options, resumes=resumes)
    recording = drive(runs.resolve(options, resumes=resumes), host.command())
    if resumes:
        return runs.report.ending(recording)
    return runs.report.recorded(recording)


def decide(host: HostApi, options: DecideOptions) -> int:
    """Record a decision about a call, and see its run to its end."""
    runs = None if options.no_resume else _runs(host, options)
    config = runs.config if runs else host.look(guarded=True)
    recording = interrupt.run(_decided(host, config, options))
    if runs is None or recording.is_session:
        return decided(host, recording, as_json=options.as_json)
    if not open_questions(recording, SystemClock().now()):
        top = next(iter(recording.started.callers), recording.run_id)
        recording = drive(runs.resume_shared(str(top)), host.command())
    return runs.report.ending(recording)


async def _decided(host: HostApi, config: Config, options: DecideOptions) -> Recording:
    """Record a decision about a call, and return what its run did by then."""
    redact, now = Redactor(config.secrets), SystemClock().now()
    word = Word(
        verdict=options.verdict,
        actor=local_actor(),
        reason=redact.text(options.reason),
        role=redact.text(options.role),
        signed_in_at=now,
    )
    run_id = await find_run(config, options.run)
    async with open_store(config, write=True, state=host.paths().state) as store:
        call = await say(store, run_id, options.seq, word, now=now)
        note(f"{word.verdict} is recorded of {named(call)}")
        if options.no_resume:
            await tell_hosts(store, run_id, word.actor, word.reason)
        return await Recording.load(run_id, store.reader)


async def find_run(config: Config, run: str) -> str:
    """Return the id of a run, without making a database that is not there."""
    async with open_store(config, write=False) as store:
        return await store.reader.find_run(run)


def _warn_of_output(module: bytes, recording: Recording) -> None:

    end = recording.own[-1].event
    if isinstance(end, RunCompleted) and (wrong := output_mismatch(module, end.output)):
        note(f"warning: the output is not what the manifest promises: {wrong}")
