"""``HostApi`` on this machine: its configuration, its event store and its hosts."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shlex
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..core.analysis.checking import astray, missing
from ..core.calls import JSON
from ..core.grants.freezes import Freezes
from ..core.grants.tool_catalog import tool_document
from ..core.log.checkpoint import Note, checkpoint_document
from ..core.log.events import (
    Frozen,
    Recorded,
    RunErased,
    RunHeld,
    RunReleased,
    Thawed,
)
from ..core.log.holds import HOLDS, hold_document
from ..core.log.runs import EVERY, RunFilter, event_of_call
from ..core.names import meant_tool, nearest, stream_of
from ..core.text.redact import Redactor
from ..core.tools.servers import server_document, server_test_document
from ..errors import (
    BusyError,
    CaxtonError,
    ConfigError,
    NotKeptError,
    RestoredError,
    UsageError,
)
from ..lib.machine import SystemClock, local_actor
from .context import (
    SIGNED,
    STALE,
    AnswerOptions,
    DecideOptions,
    Exported,
    ForkOptions,
    HostApi,
    ResolveOptions,
    ResumeOptions,
    RunPage,
    StartOptions,
    check_known,
    wait,
)
from .output import note, patience
from .overrides import by_hand, tapped

if TYPE_CHECKING:
    from ..config import Config
    from ..core.grants.freezes import Kind
    from ..ports.history import History
    from ..runs.cancellation import Answer
    from ..runs.questions import Inbox
    from ..runs.recording import Recording
    from ..store.sql import SqlStore


_MOST = 10_000
#: Seconds between two checks whether a run has ended.
_PAUSE = 0.1
#: Commands that read the configuration or the log, so take ``--config`` and ``--db``.
_COMMAND = re.compile(
    r"\bcaxton (?=(?:approval|audit|config|db|events|freeze|grant|replay|run|runs|"
    r"schedule|serve|server|thaw|tool) |agent list\b)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalHost(HostApi):
    """
    This machine.

    Attributes:
        config: The file of ``--config``, or ``None``.

        db: The store of ``--db``, or ``None``.
    """

    config: str | None = None
    db: str | None = None

    def command(self) -> str:
        from ..config.sections import passwords

        given = {**self.given()}
        for secret in sorted(passwords(self.db or ""), key=len, reverse=True):
            given["--db"] = given["--db"].replace(secret, "***")
        words = [f"{option} {shlex.quote(text)}" for option, text in given.items()]
        return " ".join(["caxton", *words])

    def named(self, text: str) -> str:
        command = self.command()
        return _COMMAND.sub(lambda _: f"{command} ", text)

    def role_options(self, roles: Collection[object]) -> list[str]:
        return [f"--as {shlex.quote(str(role))}" for role in [*roles][:1]]

    def over(self, db: str) -> LocalHost:
        return replace(self, db=db)

    # -- the configuration and the log

    def check_local(self, command: str = "") -> None:
        del command

    def given(self) -> Mapping[str, str]:
        given = {"--config": self.config, "--db": self.db}
        return {option: text for option, text in given.items() if text}

    def load(self, *, quiet: bool = False) -> Config:
        from ..config import load

        config = load(
            Path(self.config) if self.config else None,
            environ=os.environ,
            cwd=Path.cwd(),
            store_url=self.db,
        )
        for warning in () if quiet else config.warnings:
            note(f"warning: {warning}")
        return config

    def look(self, *sections: str, guarded: bool = False) -> Config:
        from ..config import load_parts

        return load_parts(
            Path(self.config) if self.config else None,
            sections,
            environ=os.environ,
            cwd=Path.cwd(),
            store_url=self.db,
            guarded=guarded,
        )

    def settings(self, *sections: str) -> Config:
        return self.look(*sections)

    @contextlib.asynccontextmanager
    async def log(self) -> AsyncGenerator[SqlStore]:
        from ..app.bootstrap import open_store

        async with open_store(self.look(), write=False) as store:
            yield store

    @contextlib.asynccontextmanager
    async def history(self) -> AsyncGenerator[History]:
        async with self.log() as store:
            yield store.reader

    def misread(self, exc: Exception) -> CaxtonError | None:
        del exc
        return None

    # -- runs

    def runs(self, only: RunFilter, limit: int) -> RunPage:
        return wait(self._runs(only, limit))

    async def _runs(self, only: RunFilter, limit: int) -> RunPage:
        async with self.log() as store:
            known = await store.reader.runs(limit + 1, only)
            return RunPage(
                runs=known[:limit],
                more=len(known) > limit,
                nothing="" if known else await self._nothing(store, only),
                stale=await store.projections.is_stale(),
            )

    async def _nothing(self, store: SqlStore, only: RunFilter) -> str:
        """Return the hint for a list without runs."""
        if agent := only.agent:
            known = {row.agent for row in await store.reader.runs(_MOST)}
            with contextlib.suppress(UsageError):
                known |= self.look("agents").agents.keys()
            if agent not in known:
                meant = nearest(agent, sorted(known))
                hint = f"; did you mean {meant}?" if meant else ""
                return f"no agent {agent!r} is known{hint}"
        return "no such runs" if only != EVERY else "no runs yet; caxton demo makes one"

    def erasure(self, run_id: str) -> RunErased | None:
        async def find() -> RunErased | None:
            async with self.log() as store:
                return (await store.reader.erased()).get(stream_of(run_id))

        return wait(find())

    def hold_of(self, run_id: str) -> JSON:
        async def find() -> JSON:
            async with self.log() as store:
                holds = await store.reader.read(HOLDS + run_id)
                return hold_document(run_id, holds)["hold"]

        return wait(find())

    def explain_call(self, run: str, kind: str, number: int) -> Mapping[str, Any]:
        from ..runs.explain import told_astray

        try:
            config = self.look("tools", "agents")
        except ConfigError:  # What is wrong with the agents is no matter.
            config = self.look("tools")
        told = wait(self._explained(config, run, kind, number))
        if told["verdict"] != "not_granted":
            return told
        return told_astray(told, _astray(config, told))

    async def _explained(
        self, config: Config, run: str, kind: str, number: int
    ) -> Mapping[str, Any]:
        from ..app.bootstrap import open_store
        from ..runs.explain import checks_of, explanation
        from ..runs.recording import Recording

        try:
            async with open_store(config, write=False) as store:
                recording = await Recording.load(
                    await store.reader.find_run(run), store.reader
                )
                checks = await checks_of(recording, store, config)
            if recording.is_restored:
                error = RestoredError(recording.run_id)
                note(f"{error}. To fix: {self.named(error.fix)}")
            is_call = kind == "call"
            seq = event_of_call(recording.own, number) if is_call else number
            agent = config.agents.get(recording.started.agent)
            return explanation(recording, checks, seq, agent)
        except NotKeptError as exc:
            raise NotKeptError(str(exc), fix=f"caxton runs show {run}") from None

    def explain_grant(
        self, agent: str, tool: str, params: Sequence[str], after: Sequence[str]
    ) -> Mapping[str, Any]:
        from ..lib.json_schema import input_check
        from ..lib.params import Words, split
        from ..runs.explain import as_sent, judgement, told_astray
        from .judgement import agent_of
        from .server_probe import known

        config = self.load()
        one = agent_of(config, agent)
        server, name = split(tool)
        offered = known(config, start=False)
        schema = (offered.get(server) or {}).get(name)
        told = judgement(
            one,
            (server, name),
            Words.read(params).params(_loosened(schema)),
            after=map(split, after),
            schema=as_sent(config, server, name, input_check(schema))
            if isinstance(schema, dict)
            else None,
            now=SystemClock().now(),
        )
        return told_astray(told, missing(server, name, offered))

    def inbox(self, agent: str | None, limit: int) -> Inbox:
        return wait(self._inbox(agent, limit))

    async def _inbox(self, agent: str | None, limit: int) -> Inbox:
        from ..runs.questions import inbox

        def unread(run_id: str, exc: CaxtonError) -> None:
            note(f"warning: run {run_id} cannot be read: {exc}")

        only, now = RunFilter(agent=agent), SystemClock().now()
        async with self.log() as store:
            if await store.projections.is_stale():
                note(f"warning: {STALE}")
            return await inbox(store.reader, now, most=limit, only=only, unread=unread)

    def answer(self, options: AnswerOptions) -> None:
        wait(self._answer(options))

    async def _answer(self, options: AnswerOptions) -> None:
        from ..app.bootstrap import open_store
        from ..core.questions import Said
        from ..runs.questions import answer, meant
        from ..runs.recording import Recording
        from .local_runs import find_run

        config = self.look(guarded=True)
        redact = Redactor(config.secrets)
        said = Said(
            action="decline" if options.content is None else "accept",
            content=options.content,
            actor=local_actor(),
            reason=redact.text(options.reason),
            role=redact.text(options.role),
        )
        run_id = await find_run(config, options.run)
        async with open_store(config, write=True, state=self.paths().state) as store:
            recording = await Recording.load(run_id, store.reader)
            question = meant(recording, options.seq, SystemClock().now())
            await answer(store, question, said, redact)

    def hold(self, run: str, reason: str, *, release: bool) -> Mapping[str, JSON]:
        return wait(self._hold(run, reason, RunReleased if release else RunHeld))

    async def _hold(
        self, run: str, reason: str, event: type[RunHeld | RunReleased]
    ) -> Mapping[str, JSON]:
        from ..app.maintenance import keeping
        from .local_runs import find_run

        config = self.look(*SIGNED, guarded=True)
        run_id = await find_run(config, run)
        async with keeping(config, self.paths()) as keeper:
            said = keeper.redact.text(reason)
            await keeper.store.holding.record(
                event(run=run_id, actor=keeper.actor, reason=said)
            )
            return hold_document(run_id, await keeper.store.reader.read(HOLDS + run_id))

    def cancel(self, run: str, reason: str) -> tuple[str, list[Recorded]]:
        return wait(self._cancel(run, reason))

    async def _cancel(self, run: str, reason: str) -> tuple[str, list[Recorded]]:
        from ..app.bootstrap import open_store
        from .local_runs import find_run

        config = self.look(guarded=True)
        run_id = await find_run(config, run)
        reason = Redactor(config.secrets).text(reason)
        async with open_store(config, write=True, state=self.paths().state) as store:
            with patience(f"waiting for the host of {run_id}"):
                await _stop(store, run_id, reason)
            return run_id, await store.reader.read(stream_of(run_id))

    def start(self, options: StartOptions) -> tuple[int, Recording]:
        from .local_runs import start

        return start(self, options)

    def resume(self, options: ResumeOptions) -> int:
        from .local_runs import resume

        return resume(self, options)

    def fork(self, options: ForkOptions) -> int:
        from .local_runs import fork

        return fork(self, options)

    def resolve(self, options: ResolveOptions) -> int:
        from .local_runs import resolve

        return resolve(self, options)

    def decide(self, options: DecideOptions) -> int:
        from .local_runs import decide

        return decide(self, options)

    # -- agents, servers and tools

    def agents(self) -> Sequence[Mapping[str, Any]]:
        agents = sorted(self.load().executed.items())
        return [agent.to_document() for _, agent in agents]

    def servers(self) -> tuple[Sequence[Mapping[str, JSON]], bool]:
        from ..config import describe
        from .server_probe import history_of

        config = self.load()
        described = describe(config)["servers"]
        assert isinstance(described, dict)  # noqa: S101 -- a table
        known = history_of(config)
        found = [
            server_document(name, server) | known[name].document()
            for name, server in sorted(described.items())
        ]
        return found, not config.mcp

    def tools(
        self, server: str | None, variables: Sequence[str]
    ) -> Sequence[Mapping[str, JSON]]:
        from .server_probe import tools_of

        config = self.load()
        names: Collection[str] = config.granted_servers
        if server is None:
            return tools_of(config, names, variables, required=False)
        otherwise = f"there is no server {server!r}"
        check_known(server, names, otherwise, "caxton server list")
        return tools_of(config, [server], variables)

    def server_tools(
        self, server: str, variables: Sequence[str]
    ) -> Sequence[Mapping[str, JSON]]:
        from .server_probe import check_server, tools_of

        config = self.load()
        check_server(config, server)
        return tools_of(config, [server], variables)

    def test_server(
        self, name: str, variables: Sequence[str], wire_log: str | None
    ) -> tuple[Mapping[str, Any], Sequence[Mapping[str, JSON]]]:
        from ..mcp.transport.confining import confinement_of
        from .server_probe import check_server, tested

        config = self.load()
        check_server(config, name)
        config = tapped(config, wire_log)
        offered, found = wait(tested(config, name, by_hand(config, variables)))
        names = [offer.tool for offer in offered.offers]
        tools = [tool_document(offer, offered.accepted) for offer in offered.offers]
        facts = server_test_document(
            name,
            offered.servers[name],
            names,
            found,
            confinement=confinement_of(config.servers[name]),
        )
        return facts, tools

    # -- the hosts of this log

    def checkpoint(self) -> Mapping[str, JSON]:
        from ..app.bootstrap import open_signed
        from ..lib.signing import Keyring

        async def sign() -> Mapping[str, JSON]:
            state = self.paths().state
            async with open_signed(self.look(*SIGNED), Keyring(state), state) as store:
                signed = await store.seal()
            return checkpoint_document(signed.checkpoint, signed.text())

        return wait(sign())

    def export(self, run: str, since: Sequence[Note]) -> Exported:
        from ..app.maintenance import keeping
        from ..runs.recording import lacking

        async def sign() -> Exported:
            async with keeping(self.look(*SIGNED), self.paths()) as keeper:
                reader = keeper.store.reader
                run_id = await reader.find_run(run)
                lack = await lacking(run_id, reader)
                return Exported(
                    run_id=run_id,
                    data=await keeper.bundle(run_id, since),
                    not_kept=str(lack) if lack else None,
                    public_key=keeper.keys.public_key().hex(),
                )

        with patience("exporting"):
            return wait(sign())

    def reload(self, only: str | None, reason: str) -> Mapping[str, Answer]:
        # Load it here first: hosts are not asked to load a broken configuration.
        return wait(self._ask(self.load(), only, "reload", reason))

    def restart_server(
        self, name: str, only: str | None, reason: str
    ) -> Mapping[str, Answer]:
        from .server_probe import check_server

        config = self.load()
        check_server(config, name)
        return wait(self._ask(config, only, "restart", reason, name))

    def freezes(self) -> Sequence[Mapping[str, JSON]]:
        from ..runs.freezing import freezes_of

        async def find() -> Sequence[Mapping[str, JSON]]:
            async with self.log() as store:
                return (await freezes_of(store)).documents()

        return wait(find())

    def schedules(self) -> Sequence[Mapping[str, JSON]]:
        from ..runs.freezing import freezes_of
        from ..service.scheduling import schedule_documents
        from ..store.engine import file_of

        config, now = self.load(), SystemClock().now()

        async def find() -> Sequence[Mapping[str, JSON]]:
            file = file_of(config.store_url)
            if file and not file.exists():
                return await schedule_documents(config, None, Freezes(), now)
            async with self.log() as store:
                frozen = await freezes_of(store)
                return await schedule_documents(config, store.reader, frozen, now)

        return wait(find())

    def freeze(
        self, kind: Kind, name: str, reason: str, *, thaw: bool
    ) -> Sequence[Mapping[str, JSON]]:
        return wait(self._freeze(kind, name, reason, thaw=thaw))

    async def _freeze(
        self, kind: Kind, name: str, reason: str, *, thaw: bool
    ) -> Sequence[Mapping[str, JSON]]:
        from ..app.maintenance import keeping
        from ..runs import freezing

        config = self.load()
        async with keeping(config, self.paths()) as keeper:
            store, actor = keeper.store, keeper.actor
            said = keeper.redact.text(reason)
            if thaw:
                event = Thawed(kind=kind, name=name, actor=actor, reason=said)
                await freezing.thaw(store, event)
            else:
                await freezing.freeze(
                    store,
                    Frozen(kind=kind, name=name, actor=actor, reason=said),
                    agents=config.agents,
                    servers=config.granted_servers,
                    schedules=config.schedules,
                )
            return (await freezing.freezes_of(store)).documents()

    async def _ask(
        self,
        config: Config,
        only: str | None,
        kind: str,
        reason: str,
        subject: str | None = None,
    ) -> dict[str, Answer]:
        """Ask something of the hosts of the log, and return the answer of each."""
        from ..app.bootstrap import open_store
        from ..runs.cancellation import ask_hosts, asked_of
        from ..store.engine import file_of

        reason = Redactor(config.secrets).text(reason)
        file = file_of(config.store_url)
        if file is not None and not file.exists():
            # Do not create a missing database.
            asked_of((), only)
            return {}
        async with open_store(config, write=True, state=self.paths().state) as store:
            return await ask_hosts(
                store, kind, local_actor(), reason, subject=subject, only=only
            )


async def _stop(store: SqlStore, run_id: str, reason: str) -> None:
    """End a run, or wait until its host did so."""
    actor, asked = local_actor(), None
    while True:
        if await store.leases.owner(run_id) is None:
            if await _stopped_here(store, run_id, actor, reason, asked=bool(asked)):
                break
        elif asked is None:
            asked = await store.requests.ask_run(run_id, "cancel", actor, reason)
        elif (outcome := await store.requests.outcome(asked)) and outcome.startswith(
            "refused"
        ):
            raise CaxtonError(
                f"the host of run {run_id} {outcome}",
                fix="stop that host, and repeat the command",
            )
        await asyncio.sleep(_PAUSE)
    if asked is not None:
        await store.requests.answer(asked, "ended")


async def _stopped_here(
    store: SqlStore, run_id: str, actor: dict[str, JSON], reason: str, *, asked: bool
) -> bool:
    """Return whether the run has ended: by this, or because its host was asked."""
    from ..runs.cancellation import cancel_idle

    try:
        await cancel_idle(store, run_id, actor, reason)
    except BusyError:
        return False  # Another host has resumed it.
    except UsageError:
        if not asked:
            raise
    return True


def _astray(config: Config, told: Mapping[str, Any]) -> str | None:
    """Return why no grant helps a recorded call, if that is known."""
    from .server_probe import known

    target = told["server"], told["tool"]
    meant = meant_tool(told["name"], config.granted_servers)
    return astray(
        told["name"], target if all(target) else meant, known(config, start=False)
    )


def _loosened(schema: JSON) -> dict[str, JSON]:
    """Return the parts of a schema that parse words; rules check the rest."""
    known = schema if isinstance(schema, dict) else {}
    strict = ("required", "additionalProperties")
    return {key: value for key, value in known.items() if key not in strict}
