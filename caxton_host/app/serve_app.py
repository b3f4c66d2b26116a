"""
The composition root of a host that serves.

    start -> running -> service -> unfinished runs are resumed -> web or stdio
    stop  -> no new runs -> runs end, or are suspended -> everything is closed
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import resource
import select
import socket
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Literal

from ..config import Config, Paths, Serve
from ..core.calls import JSON
from ..core.grants.principals import Principal
from ..core.log.requests import Request
from ..core.text.urls import is_loopback
from ..errors import UsageError
from ..lib.machine import SystemClock, local_actor
from ..lib.signing import Keyring, secret
from ..runs.admission import RunQueue
from ..runs.agent_calls import CallingAgents
from ..runs.cancellation import GO_ON
from ..runs.modules import AgentDescription
from ..service.quotas import Quotas
from ..service.read_log import ReadLog
from ..service.resumer import Resumer
from ..service.run_service import Service
from ..service.run_tasks import RunTasks, Watchers
from ..service.scheduling import Scheduler
from ..service.verifying import Verifying
from .bootstrap import Running, announced, library_of, new_stream, running
from .maintenance import Maintenance, keeping_for
from .notifying import Notifier
from .placement import placement_of
from .retention import SERVICE, retaining
from .service_manager import notify, signs_of_life
from .verification import verifying_of
from .vitals import Vitals
from .witnessing import witnesses_of

if TYPE_CHECKING:
    from ..store.sql import SqlStore
    from ..web.edge.tls import Certificate
    from ..web.ui.visits import Visits


_STDOUT = 1
#: Seconds in which runs that are handed over may come to their next call.
HAND_OVER_S = 30.0
#: Seconds between two searches for runs that no host drives.
_OFTEN_S, _SELDOM_S = 5.0, 60.0
#: File descriptors that a host may need: connections, servers, workers, the database.
_FILES = 16_384


@dataclass(slots=True, kw_only=True)
class Serving:
    """
    A host that serves.

    Attributes:
        up: The running host, which drives the runs.

        service: Takes requests for runs.

        resumer: Resumes runs that no host drives.

        keeper: Maintains the log.

        verifying: Verifies it on request.

        visits: Who is signed in to the console; ``None``: it has none.

        notifier: Sends notices to people.
    """

    up: Running
    service: Service
    resumer: Resumer
    keeper: Maintenance = field(init=False)
    verifying: Verifying = field(init=False)
    visits: Visits | None = field(default=None, init=False)
    notifier: Notifier | None = field(default=None, init=False)
    _taking: list[asyncio.Task[None]] = field(
        default_factory=list[asyncio.Task[None]], init=False
    )

    def begin(self) -> None:
        """Start to resume runs and to start those that are due, and to send notices."""
        due, placer = Scheduler(service=self.service), self.service.placer
        watches = [self.resumer.watch, placer.watch, placer.look_after, due.watch]
        if self.notifier:
            watches.append(self.notifier.watch)
        for watch in watches:
            self._taking.append(asyncio.create_task(watch()))

    async def drain(self, drain: float | Literal["hand_over"]) -> int:
        """
        Stop accepting runs; return how many took longer than *drain* to end.

        Those are suspended for the next host. See `Serve`.
        """
        self.service.line.closed = True
        for task in self._taking:
            task.cancel()
        if self._taking:
            await asyncio.wait(self._taking)
        if drain == "hand_over":
            self.up.host.freezes.hand_over()
            drain = HAND_OVER_S
        return await self.service.background.drain(drain)

    def offered(self) -> list[AgentDescription]:
        """Return the agents that this host offers."""
        return self.service.agents(local_user())

    async def ready(self) -> Mapping[str, JSON]:
        """Return the document of a readiness check."""
        return {"runs": self.service.line.inside, "waiting": self.service.waiting}


@contextlib.asynccontextmanager
async def serving(
    config: Config,
    paths: Paths,
    *,
    load: Callable[[], Config] | None = None,
) -> AsyncGenerator[Serving]:
    """
    Start a host that serves once `Serving.begin` is called.

    Args:
        config: The configuration.

        paths: See `running`.

        load: See `running`.
    """
    from ..store.engine import file_of  # noqa: PLC0415 -- slow

    watchers = Watchers()
    resumers: list[Resumer] = []

    async def go_on(request: Request) -> str:
        return await resumers[0].asked(request) if resumers else "it looks by itself"

    async with contextlib.AsyncExitStack() as stack:
        up = await stack.enter_async_context(
            running(
                config,
                paths,
                watch=watchers.tell,
                load=load,
                served=True,
                kinds={GO_ON: go_on},
            )
        )
        witnesses = witnesses_of(config, up.store, paths.state)
        limits = config.serve
        service = Service(
            host=up.host,
            store=up.store,
            config=lambda: up.tools.config,
            background=RunTasks(
                line=RunQueue(
                    places=min(limits.runs, config.places.runs),
                    queue=limits.queue,
                    each=limits.each,
                    rate=limits.a_minute,
                    now=SystemClock().monotonic,
                    fleet=Quotas(store=up.store, serve=limits).check,
                ),
                under_way=up.host.under_way,
            ),
            watchers=watchers,
            library=library_of(paths),
            reads=ReadLog(queue=up.stream.queue),
            record=up.stream.append,
            placement=placement_of(config, up.store),
        )
        # Hosts that share a file do not tell each other that one has stopped.
        every = _OFTEN_S if file_of(config.store_url) else _SELDOM_S
        resumers.append(Resumer(service=service, every=every))
        up.store.leases.tell(resumers[0].search)
        service.decided = service.background.suspended = resumers[0].look
        up.host.freezes.thawed = resumers[0].look_again
        keeper = Maintenance(
            store=up.store,
            keys=Keyring(paths.state),
            stream=new_stream(SystemClock()),
            announced=announced(config, paths),
            actor=SERVICE,
            redact=up.redact,
            witnesses=await stack.enter_async_context(witnesses),
        )

        def trusted() -> tuple[bytes, ...]:
            return *up.tools.config.audit.trusted_keys, *keeper.keys.known()

        it = Serving(up=up, service=service, resumer=resumers[0])
        it.keeper = keeper
        it.verifying = verifying_of(up.store, paths.state, trusted)
        vitals = Vitals(
            store=up.store,
            sandbox=up.sandbox,
            service=service,
            verifying=it.verifying,
            clock=up.host.clock,
            tokens=paths.tokens,
            started_at=up.host.clock.now(),
        )
        it.verifying.record = up.stream.queue
        it.notifier = Notifier(
            store=up.store,
            host=str(up.host.stream),
            config=service.config,
            failed=up.telemetry.counts.notice_failed,
        )
        try:
            async with (
                retaining(keeper, lambda: up.tools.config),
                vitals.watched(up.telemetry.counts),
            ):
                yield it
        finally:
            await it.verifying.aclose()
            await service.code.aclose()
            await it.drain(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Web:
    """
    How a host is served over HTTP.

    Attributes:
        told: Called with the serving host and its URL, once it listens.

        stops: Called when a signal asks it to stop.

        certificate: For TLS.

        linked: The local user signs in by a link, so no token is needed.
    """

    told: Callable[[Serving, str], None]
    stops: Callable[[], None]
    certificate: Certificate | None = None
    linked: bool = False


async def serve_http(
    config: Config,
    paths: Paths,
    *,
    load: Callable[[], Config] | None = None,
    web: Web,
) -> int:
    """
    Serve over HTTP until a signal arrives; return how many runs were suspended.

    Args:
        config: The configuration; `Serve` has the address, the clients, and how long
            runs get in the end.

        paths: See `running`.

        load: See `running`.

        web: The callbacks, and the certificate.

    Raises:
        UsageError: It cannot listen there, or no client could authenticate.
    """
    from ..lib.http import Client  # noqa: PLC0415 -- only here
    from ..service.sessions import Sessions  # noqa: PLC0415 -- only here
    from ..web.app import Upkeep, application  # noqa: PLC0415 -- only here
    from ..web.edge.authentication import (  # noqa: PLC0415 -- only here
        ThawedIdentity,
        identity_of,
    )
    from ..web.edge.failures import CountedIdentity  # noqa: PLC0415 -- only here
    from ..web.edge.listen import bind, listening, stopping  # noqa: PLC0415 -- only here
    from ..web.mcp.http_router import agents_app, sessions_app  # noqa: PLC0415
    from ..web.ui.oauth_sign_in import OAuthSignIn  # noqa: PLC0415 -- only here
    from ..web.ui.visits import Visits, name_for  # noqa: PLC0415 -- only here

    limits, certificate = config.serve, web.certificate
    if certificate is not None:
        certificate = replace(certificate, client_ca=limits.client_ca)
        certificate.load()
    elif limits.client_ca:
        raise UsageError(
            "client_ca in [serve] is for HTTPS, and the host has no certificate",
            fix="add --tls-cert FILE and --tls-key FILE, or remove client_ca",
        )
    _more_files()
    async with contextlib.AsyncExitStack() as stack:
        listener = stack.enter_context(bind(limits.host, limits.port))
        it = await stack.enter_async_context(serving(config, paths, load=load))
        client = Client(proxy=config.proxy)
        stack.push_async_callback(client.aclose)
        clock = it.up.host.clock
        identity = CountedIdentity(
            identity_of(limits, it.up.store.tokens, clock, client), clock.monotonic
        )
        if not web.linked:
            await _check_clients(limits, it.up.store)
        agents = sessions = None
        if limits.mcp:
            of = Sessions.of(it.up.host, it.up.store, it.service.config)
            # Entered first: their streams are suspended once nobody calls any more.
            await stack.enter_async_context(of.running())
            agents = agents_app(it.service, body=limits.body)
            sessions = sessions_app(
                of, lambda: it.service.line.closed, body=limits.body
            )
            await stack.enter_async_context(agents.running())
            await stack.enter_async_context(sessions.running())
        url = _url(limits.host, listener, tls=certificate is not None)
        if limits.api and limits.ui:
            key = secret(paths.state / "console.key")
            on_loopback = is_loopback(limits.host)
            it.visits = Visits(
                key=key,
                identity=ThawedIdentity(identity, lambda: it.up.host.freezes.now),
                clock=it.up.host.clock,
                local=local_user(),
                name=name_for(key, listener.getsockname()[1]) if on_loopback else "",
                others=frozenset(map(str.lower, limits.allowed_hosts)),
                secure=certificate is not None,
                oauth=OAuthSignIn(
                    oauth=limits.oauth,
                    client=client,
                    key=key,
                    clock=it.up.host.clock,
                    origins=limits.allowed_origins,
                    secure=certificate is not None,
                )
                if limits.oauth and limits.oauth.client_id
                else None,
            )
        app = application(
            it.service,
            identity,
            limits,
            mcp=agents,
            sessions=sessions,
            scrape=it.up.telemetry.scrape,
            ready=it.ready,
            tools=CallingAgents(
                source=it.up.tools,
                config=it.service.config,
                library=it.service.library,
            ),
            environ=os.environ,
            visits=it.visits,
            requested=it.up.telemetry.counts.requested,
            upkeep=Upkeep(
                verifying=it.verifying, keeping=partial(keeping_for, it.keeper)
            ),
        )
        await stack.enter_async_context(listening(app, listener, certificate))
        with stopping(web.stops) as asked:
            it.begin()
            notify("READY=1")
            web.told(it, url)
            async with signs_of_life(it.up.store.health.beat):
                await asked.wait()
            notify("STOPPING=1")
            return await it.drain(limits.drain)


async def serve_stdio(
    config: Config,
    paths: Paths,
    *,
    load: Callable[[], Config] | None = None,
) -> int:
    """
    Serve agents over standard input and output until the client closes one of them.

    The user who started this process is the principal. See `serve_http`.
    """
    from ..web.mcp.server import serve_stdio as exchange  # noqa: PLC0415 -- only here

    async with serving(config, paths, load=load) as it:
        it.begin()
        talking = await _until_asked(exchange(it.service, local_user()))
        left = await it.drain(config.serve.drain)
    await _ended(talking)
    return left


async def connect_session(
    session: str,
    config: Config,
    paths: Paths,
    *,
    load: Callable[[], Config] | None = None,
) -> None:
    """
    Serve a session over standard input and output until the client closes one of them.

    The user who started this process is the principal. See `serve_http`.

    Raises:
        NotFoundError: There is no such session.
    """
    from ..service.sessions import Sessions  # noqa: PLC0415 -- only here
    from ..web.mcp.sessions import serve_stdio as exchange  # noqa: PLC0415 -- only here

    async with running(config, paths, load=load) as up:
        sessions = Sessions.of(up.host, up.store, lambda: up.tools.config)
        sessions.agent(session)
        async with sessions.running():
            talking = await _until_asked(exchange(sessions, local_user(), session))
    await _ended(talking)


async def _until_asked(exchange: Coroutine[None, None, None]) -> asyncio.Task[None]:
    """Talk to the client of a pipe until it closes it, or a signal arrives."""
    from ..web.edge.listen import stopping  # noqa: PLC0415 -- only here

    with stopping(lambda: None) as asked, _unread(asked.set):
        talking = asyncio.create_task(exchange)
        stopped = asyncio.create_task(asked.wait())
        await asyncio.wait([talking, stopped], return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
    return talking


async def _ended(talking: asyncio.Task[None]) -> None:
    """Return once the talk is over; end this process if a signal has ended it."""
    if not talking.done():
        # A thread reads stdin, and would keep this process alive until that ends.
        logging.shutdown()
        os._exit(0)
    await talking


@contextlib.contextmanager
def _unread(gone: Callable[[], None]) -> Generator[None]:
    """Call *gone* when nobody reads stdout any more; a write may come much later."""
    loop = asyncio.get_running_loop()

    def lost() -> None:
        loop.remove_reader(watched.fileno())
        gone()

    with select.epoll() as watched:
        # A file always has a reader, and cannot be watched.
        with contextlib.suppress(OSError):
            watched.register(_STDOUT, 0)  # Errors are reported unasked.
        loop.add_reader(watched.fileno(), lost)
        try:
            yield
        finally:
            loop.remove_reader(watched.fileno())


def local_user() -> Principal:
    """Return the user of this process, who may do everything."""
    actor = local_actor()
    return Principal(
        kind=str(actor["kind"]),
        id=str(actor["id"]),
        authenticated=False,
        scopes=frozenset({"admin"}),
    )


async def _check_clients(limits: Serve, store: SqlStore) -> None:
    """Refuse to serve if no client could authenticate: no token and no issuer."""
    if limits.allow_unauthenticated or limits.oauth:
        return
    now = SystemClock().now()
    if not any(token.is_good(now) for token in await store.tokens.all()):
        raise UsageError(
            "the host has no token, so no client could authenticate",
            fix="caxton serve token create --scope run; or, for users of this "
            "machine, --allow-unauthenticated",
        )


def _url(host: str, listener: socket.socket, *, tls: bool) -> str:
    named = f"[{host}]" if ":" in host else host
    return f"http{'s' * tls}://{named}:{listener.getsockname()[1]}"


def _more_files() -> None:
    """Raise the limit of open files to what a host needs."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _FILES if hard == resource.RLIM_INFINITY else min(_FILES, hard)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
