"""``HostApi`` by the control API of a host that serves: ``caxton --host URL``."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import secrets
import shlex
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Collection,
    Coroutine,
    Mapping,
    Sequence,
)
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import click

from ..core.calls import JSON
from ..core.limits import Limits
from ..core.log.checkpoint import Note
from ..core.log.events import Recorded, RunErased, ToolProgress
from ..core.log.runs import ENDS, RunFilter, event_of_call
from ..core.names import stream_of
from ..errors import (
    BusyError,
    CaxtonError,
    NotKeptError,
    ServerUnavailable,
    Suspend,
    UsageError,
)
from ..lib.machine import SystemClock
from ..lib.params import Words, split
from ..remote.address import Address, Token, token_of
from ..remote.client import Away, Remote, path
from ..remote.documents import mapping, mappings, stranger, text
from ..remote.log import RemoteLog, summary
from ..runs.approvals import meant, open_questions
from ..runs.questions import Inbox
from ..runs.questions import meant as one_question
from ..runs.recording import Recording, lacking
from .answers import read_answer
from .context import (
    AnswerOptions,
    DecideOptions,
    Exported,
    ForkOptions,
    HostApi,
    ResolveOptions,
    ResumeOptions,
    RunOptions,
    RunPage,
    StartOptions,
    wait,
)
from .interrupt import began, drive
from .output import note, patience
from .overrides import narrowed, typed
from .run_report import RunReport, decided, named

if TYPE_CHECKING:
    from ..config import Config
    from ..core.grants.freezes import Kind
    from ..runs.cancellation import Answer
    from ..store.sql import SqlStore


_T = TypeVar("_T")
_KEY_BYTES = 16
#: Seconds to wait for the id of an interrupted start, to cancel it.
_SOON = 10.0
#: Commands that can be typed with ``--host``.
_COMMAND = re.compile(
    r"\bcaxton (?=(run|runs|events|replay|approval|server|tool|agent|grant|config|"
    r"audit|freeze|thaw|schedule) )"
)


@dataclass(slots=True, kw_only=True)
class RemoteHost(HostApi):
    """
    A host that serves.

    Attributes:
        url: Where it is.

        token_file: Has the token, or ``None``: the environment has it.

        client_cert: A PEM file: the certificate to show, and its key.

        plain: The token may go unencrypted over a network.
    """

    url: str
    token_file: str | None = None
    client_cert: str | None = None
    plain: bool = False
    #: Read once: its warning is printed once.
    _token: Token | None = field(default=None, init=False, repr=False)

    def command(self) -> str:
        words = ["caxton --host", shlex.quote(self.url)]
        if self.token_file:
            words += ["--token-file", shlex.quote(self.token_file)]
        if self.client_cert:
            words += ["--client-cert", shlex.quote(self.client_cert)]
        return " ".join(words + ["--plain-http"] * self.plain)

    def named(self, text: str) -> str:
        """
        Return *text* with its commands as they are typed for this host.

        >>> RemoteHost(url="http://[::1]:8080").named("caxton runs list shows them")
        "caxton --host 'http://[::1]:8080' runs list shows them"
        """
        command = self.command()
        return _COMMAND.sub(lambda _: f"{command} ", text)

    def role_options(self, roles: Collection[object]) -> list[str]:
        del roles  # The host knows the role by the token.
        return []

    # -- what only this machine can do

    def check_local(self, command: str = "") -> NoReturn:
        raise UsageError(
            f"{command or click.get_current_context().command_path} does not work "
            "with --host",
            fix="type it on the machine of that host; leave out --host, and unset "
            "CAXTON_HOST, for this one",
        )

    def over(self, db: str) -> NoReturn:
        del db
        self.check_local()

    def given(self) -> NoReturn:
        self.check_local()

    def load(self, *, quiet: bool = False) -> NoReturn:
        del quiet
        self.check_local()

    def look(self, *sections: str, guarded: bool = False) -> NoReturn:
        del sections, guarded
        self.check_local()

    @contextlib.asynccontextmanager
    async def log(self) -> AsyncGenerator[SqlStore]:
        self.check_local()
        yield  # Makes it a generator.

    def settings(self, *sections: str) -> Config:
        from ..config import Config

        del sections
        return Config(store_url="")

    # -- the connection

    @contextlib.asynccontextmanager
    async def _reach(self) -> AsyncGenerator[Remote]:
        """
        Give what talks to the host.

        Raises:
            UsageError: It is named wrongly, or the token cannot be read.
        """
        address = Address.parse(self.url, plain=self.plain)
        if self._token is None:
            file = Path(self.token_file) if self.token_file else None
            self._token = token_of(file, os.environ)
            if self._token.warning:
                note(f"warning: {self._token.warning}")
        asking = Remote(address, self._token.text, note, self.client_cert)
        async with asking as remote:
            yield remote

    @contextlib.asynccontextmanager
    async def history(self) -> AsyncGenerator[RemoteLog]:
        async with self._reach() as remote:
            yield RemoteLog(remote)

    def _ask(self, question: Callable[[RemoteLog], Awaitable[_T]]) -> _T:
        """Return the answer to one question."""

        async def ask() -> _T:
            async with self.history() as log:
                return await question(log)

        return wait(ask())

    def _get(self, where: str, **query: str | int | None) -> JSON:
        return self._ask(lambda log: log.remote.get(where, **query))

    def _post(self, where: str, body: JSON, **query: str | None) -> JSON:
        return self._ask(lambda log: log.remote.post(where, body, **query))

    def misread(self, exc: Exception) -> CaxtonError:
        return stranger(f"what it sends cannot be read ({type(exc).__name__})")

    # -- reading

    def runs(self, only: RunFilter, limit: int) -> RunPage:
        found = self._ask(lambda log: log.runs(limit + 1, only))
        return RunPage(
            runs=found[:limit],
            more=len(found) > limit,
            nothing="no runs there that you may see",
        )

    def erasure(self, run_id: str) -> RunErased | None:
        return self._ask(lambda log: log.erasure(run_id))

    def hold_of(self, run_id: str) -> JSON:
        return mapping(self._get(path("runs", run_id))).get("hold")

    def explain_call(self, run: str, kind: str, number: int) -> Mapping[str, Any]:
        async def explain(log: RemoteLog) -> Mapping[str, Any]:
            run_id, seq = await log.find_run(run), number
            if kind == "call":
                seq = event_of_call(await log.read(stream_of(run_id)), number)
            return await log.explanation(run_id, seq)

        try:
            return self._ask(explain)
        except NotKeptError as exc:
            raise NotKeptError(str(exc), fix=f"caxton runs show {run}") from None

    def explain_grant(
        self, agent: str, tool: str, params: Sequence[str], after: Sequence[str]
    ) -> Mapping[str, Any]:
        body: dict[str, JSON] = {"agent": agent, "tool": "/".join(split(tool))}
        # The schema of the tool is known there: a word is JSON if it reads as JSON.
        body |= {"params": Words.read(params).params({}), "after": [*after]}
        return mapping(self._post("/grants/explain", body))

    def inbox(self, agent: str | None, limit: int) -> Inbox:
        return self._ask(lambda log: log.inbox(agent, limit))

    def answer(self, options: AnswerOptions) -> None:
        more = {"as": options.role}
        _refuse(None, **more)
        self._ask(lambda log: _answered(log, options))

    def agents(self) -> Sequence[Mapping[str, Any]]:
        return mappings(self._get("/agents"), "agents")

    def servers(self) -> tuple[Sequence[Mapping[str, JSON]], bool]:
        return mappings(self._get("/servers"), "servers"), False

    def tools(
        self, server: str | None, variables: Sequence[str]
    ) -> Sequence[Mapping[str, JSON]]:
        if variables:
            raise UsageError("--var cannot be used with --host", fix="leave it out")
        with patience("asking the host"):
            return mappings(self._get("/tools", server=server), "tools")

    def server_tools(
        self, server: str, variables: Sequence[str]
    ) -> Sequence[Mapping[str, JSON]]:
        return self.tools(server, variables)

    def test_server(
        self, name: str, variables: Sequence[str], wire_log: str | None
    ) -> tuple[Mapping[str, Any], Sequence[Mapping[str, JSON]]]:
        _refuse(wire_log=wire_log, var=variables)

        async def test(log: RemoteLog) -> tuple[JSON, JSON]:
            facts = mapping(await log.remote.post(path("servers", name, "test")))
            if facts["problem"] is not None:
                raise ServerUnavailable(
                    str(facts["problem"]),
                    fix=f"check the command or url of [servers.{name}] there",
                )
            return {**facts}, await log.remote.get("/tools", server=name)

        facts, tools = self._ask(test)
        return mapping(facts), mappings(tools, "tools")

    # -- changing

    def checkpoint(self) -> Mapping[str, JSON]:
        return mapping(self._get("/checkpoints/latest"))

    def export(self, run: str, since: Sequence[Note]) -> Exported:
        _refuse(since=since)

        async def fetch(log: RemoteLog) -> Exported:
            run_id = await log.find_run(run)
            data = await log.remote.fetch(path("runs", run_id, "bundle"))
            lack = await lacking(run_id, log)
            return Exported(
                run_id=run_id, data=data, not_kept=str(lack) if lack else None
            )

        with patience("exporting"):
            return self._ask(fetch)

    def reload(self, only: str | None, reason: str) -> Mapping[str, Answer]:
        return self._ask_hosts(path("config", "reload"), only, reason)

    def restart_server(
        self, name: str, only: str | None, reason: str
    ) -> Mapping[str, Answer]:
        return self._ask_hosts(path("servers", name, "restart"), only, reason)

    def _ask_hosts(
        self, where: str, only: str | None, reason: str
    ) -> Mapping[str, Answer]:
        """Have the host ask all that share its log; return the answer of each."""
        from ..runs.cancellation import answer_of

        page = self._post(where, {"reason": reason}, host=only)
        return {
            text(one, "host"): answer_of(text(one, "outcome"))
            for one in mappings(page, "hosts")
        }

    def freezes(self) -> Sequence[Mapping[str, JSON]]:
        return mappings(self._get("/freezes"), "freezes")

    def freeze(
        self, kind: Kind, name: str, reason: str, *, thaw: bool
    ) -> Sequence[Mapping[str, JSON]]:
        where = path("freezes", "thaw") if thaw else "/freezes"
        body: JSON = {"kind": kind, "name": name, "reason": reason}
        return mappings(self._post(where, body), "freezes")

    def schedules(self) -> Sequence[Mapping[str, JSON]]:
        return mappings(self._get("/schedules"), "schedules")

    def hold(self, run: str, reason: str, *, release: bool) -> Mapping[str, JSON]:
        async def ask(log: RemoteLog) -> JSON:
            way = "release" if release else "hold"
            where = path("runs", await log.find_run(run), way)
            return await log.remote.post(where, {"reason": reason})

        return mapping(self._ask(ask))

    def cancel(self, run: str, reason: str) -> tuple[str, list[Recorded]]:
        return self._ask(lambda log: _cancelled(log, run, reason))

    # -- runs, to their end

    def start(self, options: StartOptions) -> tuple[int, Recording]:
        _refuse(options, entry=options.entry)
        variables: JSON = {**typed(options.variables)}
        body: dict[str, JSON] = {
            "agent": options.target,
            "input": options.input(),
            "variables": variables,
        }
        if narrow := narrowed(options.narrow):
            body["narrow"] = narrow.tree
        report = self._report(options)
        recording = self._drive(lambda log: _start(report, log, body))
        return report.ending(recording), recording

    def resume(self, options: ResumeOptions) -> int:
        _refuse(options, var=options.variables, all=options.run is None)
        report = self._report(options)
        return report.ending(self._drive(lambda log: _resume(report, log, options)))

    def fork(self, options: ForkOptions) -> int:
        _refuse(options, agent=options.module, var=options.variables)
        report = self._report(options)
        body: dict[str, JSON] = {"seq": options.seq}
        if narrow := narrowed(options.narrow):
            body["narrow"] = narrow.tree
        if options.result is not None:
            limit = Limits().result
            body["result"] = read_answer(options.result, "--set-result", limit)
        return report.ending(
            self._drive(lambda log: _fork(report, log, options.run, body))
        )

    def resolve(self, options: ResolveOptions) -> int:
        _refuse(options, var=options.variables, no_resume=options.no_resume)
        body: dict[str, JSON] = {
            "seq": options.seq,
            "choice": options.choice,
            "reason": options.reason,
        }
        if options.file is not None:
            body["result"] = read_answer(options.file, "--result", Limits().result)
        report = self._report(options)
        recording = self._drive(lambda log: _resolve(report, log, options.run, body))
        if options.choice == "abort":
            return report.recorded(recording)
        return report.ending(recording)

    def decide(self, options: DecideOptions) -> int:
        more = {"as": options.role, "no_resume": options.no_resume}
        _refuse(options, **more, var=options.variables)
        report = self._report(options)
        recording = self._drive(lambda log: _decide(report, log, options))
        if recording.is_session:
            return decided(self, recording, as_json=options.as_json)
        return report.ending(recording)

    def _report(self, options: RunOptions) -> RunReport:
        quiet = options.quiet or options.as_json
        return RunReport(
            host=self, given=options.given, quiet=quiet, as_json=options.as_json
        )

    def _drive(
        self, work: Callable[[RemoteLog], Coroutine[Any, Any, Recording]]
    ) -> Recording:
        """Do something with a run: Ctrl-C cancels it."""

        async def driven() -> Recording:
            async with self.history() as log:
                return await work(log)

        return drive(driven(), self.command())


def _refuse(options: RunOptions | None = None, **more: object) -> None:
    """
    Return if no option is given that a host does not take.

    Raises:
        UsageError: One is.
    """
    given = options and options.given
    named: dict[str, object] = {
        "server": given and given.servers,
        "allow": given and given.allow,
        "wire_log": given and given.wire_log,
    }
    if said := [name for name, value in (named | more).items() if value]:
        names = " and ".join(f"--{name.replace('_', '-')}" for name in said)
        raise UsageError(
            f"{names} cannot be used with --host",
            fix="leave it out: the configuration there says what agents may do, and "
            "the token who you are",
        )


async def _start(report: RunReport, log: RemoteLog, body: JSON) -> Recording:
    key = secrets.token_urlsafe(_KEY_BYTES)
    starting = asyncio.create_task(log.remote.post("/runs", body, key=key))
    try:
        run = summary(await asyncio.shield(starting))
    except asyncio.CancelledError:
        # It may have begun, though its id is not known here yet.
        with contextlib.suppress(CaxtonError, TimeoutError):
            async with asyncio.timeout(_SOON):
                await _interrupt(log.remote, summary(await starting).run_id)
        raise
    return await _see_out(report, log, run.run_id, f"run {run.run_id}  {run.agent}")


async def _see_out(
    report: RunReport, log: RemoteLog, run_id: str, what: str, after: int = 0
) -> Recording:
    """Print the progress of a run behind event *after*, until it ends or suspends."""
    try:
        await _watch(report, log, run_id, what, after)
        return await Recording.load(run_id, log)
    except Away as exc:
        raise Away(
            f"{exc}; run {run_id} is recorded, and the next host goes on with it",
            fix=f"start the host again if it is yours; then caxton runs show {run_id}",
        ) from None


async def _watch(
    report: RunReport, log: RemoteLog, run_id: str, what: str, after: int
) -> None:
    began(run_id)
    if not report.quiet:
        note(what)
    try:
        with patience(f"waiting for {what}"):
            async with contextlib.aclosing(log.follow(run_id)) as found:
                async for recorded in found:
                    if recorded.seq <= after:
                        continue
                    if isinstance(recorded.event, ToolProgress):
                        report.watch(run_id, recorded.event)
                    if ENDS.get(recorded.type, "running") != "running":
                        break
    except asyncio.CancelledError:
        with contextlib.suppress(CaxtonError):
            await _interrupt(log.remote, run_id)
        raise


async def _interrupt(remote: Remote, run_id: str) -> None:
    await remote.post(path("runs", run_id, "cancel"), {"reason": "interrupted"})


async def _resume(
    report: RunReport, log: RemoteLog, options: ResumeOptions
) -> Recording:
    """Let a run go on, and see it to its end."""
    before = await Recording.load(await log.find_run(str(options.run)), log)
    run_id = before.run_id
    try:
        body: dict[str, JSON] | None = {"restored": True} if options.restored else None
        await log.remote.post(path("runs", run_id, "resume"), body)
    except Suspend as exc:
        fix = _next_command(report, before)
        raise Suspend(exc.call, str(exc), fix=fix) from None
    return await _go_on(report, log, before)


async def _go_on(report: RunReport, log: RemoteLog, before: Recording) -> Recording:
    what = f"run {before.run_id}  {before.started.agent}, resumed"
    return await _see_out(report, log, before.run_id, what, before.own[-1].seq)


def _next_command(report: RunReport, recording: Recording) -> str:
    """Return the command that ends the suspension of a run."""
    journal, run_id = recording.journal(), recording.run_id
    if callee := recording.waits_for:
        return f"{report.host.command()} runs show {callee}"
    if journal.in_doubt:
        return report.resolving(run_id, journal.in_doubt[0].seq)
    waiting = journal.waiting
    return report.deciding(run_id, waiting[0], "approve") if waiting else ""


async def _decide(
    report: RunReport, log: RemoteLog, options: DecideOptions
) -> Recording:
    """Record a decision about a call, and see its run to its end."""
    before = await Recording.load(await log.find_run(options.run), log)
    before.check_unended()
    run_id = before.run_id
    asked = meant(run_id, options.seq, before.journal().waiting)
    where = path("approvals", run_id, str(asked.seq), options.verdict)
    await log.remote.post(where, {"reason": options.reason})
    note(f"{options.verdict} is recorded of {named(asked.requested)}")
    now = await Recording.load(run_id, log)
    if now.end or now.is_session or open_questions(now, SystemClock().now()):
        return now
    return await _go_on(report, log, before)


async def _answered(log: RemoteLog, options: AnswerOptions) -> None:
    recording = await Recording.load(await log.find_run(options.run), log)
    seq = one_question(recording, options.seq, SystemClock().now()).seq
    where = path("approvals", recording.run_id, str(seq), "answer")
    body: dict[str, JSON] = {"reason": options.reason}
    if options.content is not None:
        body["content"] = options.content
    await log.remote.post(where, body)


async def _resolve(
    report: RunReport, log: RemoteLog, run: str, body: dict[str, JSON]
) -> Recording:
    """Record how a call in doubt ended, and see its run to its end."""
    before = await Recording.load(await log.find_run(run), log)
    await log.remote.post(path("runs", before.run_id, "resolve"), body)
    now = await Recording.load(before.run_id, log)
    return now if now.end else await _go_on(report, log, before)


async def _fork(
    report: RunReport, log: RemoteLog, run: str, body: dict[str, JSON]
) -> Recording:
    """Fork a run, and see the fork to its end."""
    parent = await log.find_run(run)
    new = summary(await log.remote.post(path("runs", parent, "fork"), body))
    what = f"run {new.run_id}  {new.agent}, forked from run {parent}"
    return await _see_out(report, log, new.run_id, what)


async def _cancelled(
    log: RemoteLog, run: str, reason: str
) -> tuple[str, list[Recorded]]:
    """End a run, and return its id and its events."""
    run_id = await log.find_run(run)
    with patience(f"waiting for the host of {run_id}"):
        try:
            body: JSON = {"reason": reason}
            await log.remote.post(path("runs", run_id, "cancel"), body)
        except BusyError as exc:
            note(str(exc))
            async with contextlib.aclosing(log.follow(run_id)) as found:
                async for _ in found:
                    pass
    return run_id, await log.read(stream_of(run_id))
