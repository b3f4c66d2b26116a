"""
Sessions: the runs whose agents are clients.

A principal has one stream at a time for each session, whatever number of connections it
has. It is found in the table of runs, goes on with the next call after the host was
restarted, and is followed by another one that carries its counts.

    call -> the seat that is driven, or the stream that goes on, or a new one -> outcome
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections import defaultdict
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial

from ..config import Agent, Config
from ..config.model import Session, private_variables, run_variables
from ..core.calls import JSON, Outcome
from ..core.clients import CHANGED, RESET, Client
from ..core.grants.budgets import period_of
from ..core.grants.grants import Grant
from ..core.grants.principals import Principal
from ..core.grants.tool_catalog import definitions, routes_from_payload
from ..core.log.events import RunStarted, RunSuspended, ToolProgress
from ..core.log.runs import GOING_ON, RunFilter
from ..core.names import stream_of
from ..core.tools.webhooks import SERVER
from ..errors import NotFoundError, NotKeptError
from ..lib import codec
from ..ports.serving import ServingStore
from ..runs.admission import Admission
from ..runs.cancellation import cancel_idle
from ..runs.host import Host
from ..runs.recording import Recording
from ..runs.run_request import RunRequest, grants_digest
from ..runs.seats import Ask, Seat, SeatGone, Seats, Waits
from .run_service import HOST
from .run_tasks import Driving
from .session_content import Content

logger = logging.getLogger("caxton_host")

#: Sessions that a host drives at a time.
_MOST = 10_000
#: Runs of one session that are looked through for the newest of a principal.
_PAGE = 200


@dataclass(frozen=True, slots=True)
class Asked:
    """
    A call waits for an approval.

    Attributes:
        run_id: The stream of the session.

        call: The number of the call.

        seq: The number of its `ApprovalRequested`.

        by: The roles that may approve it; empty: any.
    """

    run_id: str
    call: int
    seq: int
    by: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """
    A client that is connected to a session.

    Attributes:
        who: The principal that it authenticated as.

        session: The name of the session.

        client: What the client says of itself.
    """

    who: Principal
    session: str
    client: Client

    @property
    def key(self) -> tuple[str, str]:
        """Tells streams apart: a principal has one at a time for each session."""
        return self.who.key, self.session


@dataclass(slots=True, eq=False)
class _Open:
    """
    A stream that is driven here.

    Attributes:
        task: Drives it.

        started: Its first event.

        at: When that was recorded, in microseconds since 1970.

        shown: What decides which tools its client sees; see `Sessions.shown`.

        tools: The tools that its client may call, once they were asked for.

        content: What else its client may read, once that was asked for.
    """

    run_id: str
    seat: Seat
    task: asyncio.Task[None]
    started: RunStarted
    at: int
    shown: object
    tools: list[dict[str, JSON]] | None = None
    content: Content | None = None


@dataclass(slots=True, kw_only=True, eq=False)
class Sessions:
    """
    Serves the sessions of a configuration.

    Attributes:
        host: The host of runs, with `Seats` for a sandbox.

        seats: Its seats.

        store: Where sessions are recorded.

        config: Returns what is configured now.
    """

    host: Host
    seats: Seats
    store: ServingStore
    config: Callable[[], Config]
    _open: dict[tuple[str, str], _Open] = field(
        default_factory=dict[tuple[str, str], _Open], init=False
    )
    _opening: set[asyncio.Task[_Open]] = field(
        default_factory=set["asyncio.Task[_Open]"], init=False
    )
    _locks: defaultdict[tuple[str, str], asyncio.Lock] = field(
        default_factory=lambda: defaultdict(asyncio.Lock), init=False
    )

    @classmethod
    def of(
        cls, host: Host, store: ServingStore, config: Callable[[], Config]
    ) -> Sessions:
        """Return the sessions of a host that executes runs."""
        seats = Seats()
        here = replace(
            host,
            sandbox=seats,
            admission=Admission(_MOST),
            watch=seats.watch,
            client=seats.ask,
            sessions=True,
        )
        return cls(host=here, seats=seats, store=store, config=config)

    def agent(self, name: str) -> Agent:
        """
        Return what is configured of a session.

        Raises:
            NotFoundError: There is no such session.
        """
        agent = self.config().agents.get(name)
        if agent is None or agent.session is None:
            raise NotFoundError(
                f"no session {name!r}", fix=f"add [sessions.{name}] to caxton.toml"
            )
        return agent

    def shown(self) -> dict[str, object]:
        """
        Return what decides which tools the clients of each session see, by its name.

        A client is to list its tools again when that has changed.
        """
        config = self.config()
        return {name: _shown(agent, config) for name, agent in config.sessions.items()}

    async def started(self, by: Connection) -> RunStarted:
        """
        Return the first event of the stream that is driven, or of a new one.

        Raises:
            CaxtonError: None can be started.
        """
        return (await self._opened(by)).started

    async def tools(self, by: Connection) -> list[dict[str, JSON]]:
        """
        Return the tools that a client may call, as MCP has them.

        If the grant or a server was changed, the next stream begins, which has the
        tools of today.

        Raises:
            CaxtonError: No stream can be started.
        """
        it, grant = await self._of_today(by)
        if it.tools is None:
            it.tools = await self._definitions(it.started, grant)
        return it.tools

    async def content(self, by: Connection) -> Content:
        """
        Return what a client may read besides; see `tools`.

        Raises:
            CaxtonError: No stream can be started.
        """
        it, grant = await self._of_today(by)
        if it.content is None:
            wanted = it.seat.tools, it.task
            await asyncio.wait(wanted, return_when="FIRST_COMPLETED")
            frozen = self.host.freezes.now.on
            it.content = Content(
                grant=grant,
                run_id=it.run_id,
                tools=it.seat.tools.result(),
                now=self.host.clock.now,
                frozen=lambda name: bool(frozen(by.session, by.who.actor, name)),
            )
        return it.content

    async def _of_today(self, by: Connection) -> tuple[_Open, Grant]:
        """Return the stream that takes calls, with the grant and tools of today."""
        agent = self.agent(by.session)
        it = await self._opened(by)
        is_same = it.shown == _shown(agent, self.config())
        if not is_same or grants_digest(agent.grant) != it.started.grants_sha256:
            it.seat.close(CHANGED)
            it = await self._opened(by)
        return it, agent.grant

    async def _definitions(
        self, started: RunStarted, grant: Grant
    ) -> list[dict[str, JSON]]:
        read = self.store.reader.blob
        digests = {
            str(entry["definition_sha256"])
            for entry in started.catalogue.values()
            if isinstance(entry, dict) and entry.get("visible")
        }
        known = {key: codec.decode_trusted(await read(key)) for key in digests}
        found = definitions(started.catalogue, known)
        routes = routes_from_payload(started.catalogue)
        for tool in found:
            route = routes[str(tool["name"])]
            _, rules = grant.speaking(route.server, route.tool)
            if any(rule.redact_result for rule in rules):
                tool.pop("outputSchema", None)  # A mask may break it.
        return found

    async def call(  # noqa: PLR0913 -- each may be left out
        self,
        by: Connection,
        tool: str,
        params: Mapping[str, JSON],
        tell: Callable[[ToolProgress], None] = lambda _: None,
        *,
        begun: Callable[[str, int], None] = lambda _, __: None,
        ask: Ask | None = None,
    ) -> Outcome | Asked:
        """
        Make a call of a client, and return its outcome once that is durable.

        Args:
            by: Makes the call.

            tool: The exposed name of the tool.

            params: Its parameters.

            tell: Called with each progress report.

            begun: Called with its stream and number; see `Seat.call`.

            ask: Asks the user of the client; ``None``: it cannot.

        Raises:
            CaxtonError: See `Seat.call`; or no stream can be started.
        """
        with self.host.callers.kept(by.who):
            while True:
                it = await self._opened(by)
                with contextlib.suppress(SeatGone):
                    found = await it.seat.call(
                        tool, params, tell, partial(begun, it.run_id), ask
                    )
                    if isinstance(found, Waits):
                        return await self._asked(it.run_id, found.call)
                    return found

    async def close(self, key: tuple[str, str]) -> None:
        """End a stream, if it is driven here; see `Connection.key`."""
        if it := self._open.get(key):
            it.seat.close()
            await asyncio.wait([it.task])

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Suspend the streams that are driven when this is left."""
        try:
            yield
        finally:
            stopped = RunSuspended(reason="host_stopped")
            if self._opening:
                await asyncio.wait(self._opening)
            for it in [*self._open.values()]:
                await self.host.under_way.stop(it.run_id, stopped)
                await asyncio.wait([it.task])

    async def _opened(self, by: Connection) -> _Open:
        agent = self.agent(by.session)
        if it := self._current(agent, by):
            return it
        # A client that hangs up now must not cancel the stream: that would forget its
        # counts (law 4).
        opening = asyncio.create_task(self._open_now(agent, by))
        self._opening.add(opening)
        opening.add_done_callback(self._opening.discard)
        return await asyncio.shield(opening)

    async def _open_now(self, agent: Agent, by: Connection) -> _Open:
        """Return the stream that takes calls, once there is one."""
        with self.host.callers.kept(by.who):
            async with self._locks[by.key]:
                if it := self._current(agent, by):
                    return it
                if it := self._open.get(by.key):
                    it.seat.close(RESET)
                    await asyncio.wait([it.task])
                return await self._next(agent, by)

    def _current(self, agent: Agent, by: Connection) -> _Open | None:
        """Return the stream that takes calls now, if one does."""
        it = self._open.get(by.key)
        if it is None or it.seat.over or self._is_past(agent, it.at):
            return None
        return it

    async def _next(self, agent: Agent, by: Connection) -> _Open:
        """Let the newest stream of a principal go on, or start the next one."""
        before = await self._newest(by)
        if before and before.state in GOING_ON:
            run_id = before.run_id
            if not self._is_past(agent, before.own[0].recorded_at):
                return await self._drive(
                    agent,
                    by,
                    run_id,
                    lambda begun: self.host.resume(
                        run_id,
                        actor=by.who.actor,
                        grant=agent.grant,
                        reason="called",
                        private=private_variables(self.config()),
                        on_started=begun,
                    ),
                )
            why = "the period of the session is over"
            await cancel_idle(self.store, run_id, {**HOST}, why)
        request = self._request(agent, by, before)
        new = self.host.new_id()
        return await self._drive(
            agent,
            by,
            new,
            lambda begun: self.host.start(request, run_id=new, on_started=begun),
        )

    def _request(
        self, agent: Agent, by: Connection, before: Recording | None
    ) -> RunRequest:
        context, private = run_variables(self.config(), _session(agent).context)
        carried = None
        if before and not (
            before.state in {*GOING_ON, "cancelled"}
            or self._is_past(agent, before.own[0].recorded_at)
        ):
            carried = before.journal().tallies.recorded.carried
        return RunRequest(
            agent=agent.name,
            module=by.client.module,
            input=by.client.input,
            context=context,
            private=private,
            limits=agent.limits,
            grant=agent.grant,
            names=agent.names,
            actor=by.who.actor,
            trigger="mcp",
            carried=carried,
        )

    def _is_past(self, agent: Agent, at: int) -> bool:
        """Return whether the period is over in which a stream began."""
        reset = _session(agent).reset
        if reset is None:
            return False
        now = self.host.clock.now()
        return period_of(reset, at) != period_of(reset, now)

    async def _drive(
        self, agent: Agent, by: Connection, run_id: str, driving: Driving
    ) -> _Open:
        """Drive a stream in the background; return once it has begun."""
        seat = Seat(limits=agent.limits, idle=_session(agent).idle)
        shown = _shown(agent, self.config())
        begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def start(_run: str) -> None:
            if not begun.done():
                begun.set_result(None)

        async def drive() -> None:
            try:
                await driving(start)
            except Exception as exc:  # noqa: BLE001 -- told to who waits for the start
                if not begun.done():
                    begun.set_exception(exc)
                else:
                    logger.warning("session %s, run %s: %s", by.session, run_id, exc)
            finally:
                seat.over = True
                del self.seats.of[run_id]
                if (it := self._open.get(by.key)) and it.run_id == run_id:
                    del self._open[by.key]

        self.seats.of[run_id] = seat
        task = asyncio.create_task(drive())
        await begun
        first = (await self.store.reader.read(stream_of(run_id)))[0]
        assert isinstance(first.event, RunStarted)  # noqa: S101 -- as it was recorded
        it = _Open(run_id, seat, task, first.event, first.recorded_at, shown)
        if not task.done():
            self._open[by.key] = it
        return it

    async def _newest(self, by: Connection) -> Recording | None:
        """Return the newest stream of a principal; ``None``: none, or erased."""
        place: tuple[int, str] | None = None
        runs = self.store.reader.runs
        own = RunFilter(agent=by.session, tenant=by.who.tenant, actor=by.who.id)
        while rows := await runs(_PAGE, own, before=place):
            for row in rows:
                if by.who.is_actor(json.loads(row.actor)):
                    with contextlib.suppress(NotKeptError):
                        return await Recording.load(row.run_id, self.store.reader)
                    return None
            place = rows[-1].started_at, rows[-1].run_id
        return None

    async def _asked(self, run_id: str, call: int) -> Asked:
        recording = await Recording.load(run_id, self.store.reader)
        asked = recording.journal().question(call)
        assert asked is not None  # noqa: S101 -- it was recorded
        by = tuple(map(str, asked.requested.by))
        return Asked(run_id, call, asked.seq or 0, by)


def _shown(agent: Agent, config: Config) -> object:
    """Return what decides which tools the client of a session sees."""
    known: dict[str, object] = {**config.servers, SERVER: config.webhooks}
    servers = {name: known.get(name) for name in agent.grant.servers(known)}
    return grants_digest(agent.grant), agent.own_names, servers


def _session(agent: Agent) -> Session:
    assert agent.session is not None  # noqa: S101 -- see `Sessions.agent`
    return agent.session
