"""
The composition root of a host that serves.

    running -> service -> runs of before are taken over -> web or stdio
    stop    -> nobody is let in -> runs end, or are suspended -> all is taken down
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import resource
import socket
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..config import Config, Paths, Serve
from ..core.calls import JSON
from ..core.grants.principals import Principal
from ..core.log.runs import Request
from ..errors import UsageError
from ..lib.clock import SystemClock
from ..lib.local_user import local_actor
from ..runs.admission import Line
from ..runs.cancellation import GO_ON
from ..runs.module_library import Card
from ..service.resumer import Waker
from ..service.run_service import Service
from ..service.run_tasks import Background, Watchers
from .bootstrap import Running, running

if TYPE_CHECKING:
    from ..store.sql import SqlStore
    from ..web.edge.listen import Certificate


#: Descriptors that a host may want: connections, servers, workers, the database.
_FILES = 16_384


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """
    A host that serves.

    Attributes:
        up: What drives the runs.

        waker: Has those go on that were suspended.
    """

    up: Running
    service: Service
    waker: Waker
    _taking: list[asyncio.Task[None]] = field(
        default_factory=list[asyncio.Task[None]], init=False
    )

    def begin(self) -> None:
        """Take over the runs that no host drives, and look after those suspended."""
        self._taking.append(asyncio.create_task(self.waker.watch()))

    async def drain(self, seconds: float) -> int:
        """
        Take nobody in any more; return how many runs took longer than *seconds*.

        Those are suspended, for the next host to take over.
        """
        for task in self._taking:
            task.cancel()
        if self._taking:
            await asyncio.wait(self._taking)
        return await self.service.background.drain(seconds)

    def offered(self) -> list[Card]:
        """Return the agents that this host offers."""
        return self.service.agents(_local())

    async def ready(self) -> Mapping[str, JSON]:
        """Return what is to be known of a host that is ready, or is not."""
        line = self.service.line
        return {"runs": line.inside, "waiting": line.waiting}


@contextlib.asynccontextmanager
async def serving(
    config: Config,
    paths: Paths,
    environ: Mapping[str, str] = os.environ,
    *,
    load: Callable[[], Config] | None = None,
) -> AsyncGenerator[Serving]:
    """
    Bring up a host that serves, as soon as it is told to begin.

    Args:
        config: What was loaded.

        paths: See `running`.

        environ: See `running`.

        load: See `running`.
    """
    watchers = Watchers()
    wakers: list[Waker] = []

    async def go_on(request: Request) -> str:
        return await wakers[0].asked(request) if wakers else "it looks by itself"

    async with running(
        config,
        paths,
        environ,
        watch=watchers.tell,
        load=load,
        served=True,
        kinds={GO_ON: go_on},
    ) as up:
        limits = config.serve
        service = Service(
            host=up.host,
            store=up.store,
            config=lambda: up.tools.config,
            background=Background(
                line=Line(
                    places=min(limits.runs, config.places.runs),
                    queue=limits.queue,
                    each=limits.concurrency,
                    rate=limits.rate,
                    now=SystemClock().monotonic,
                ),
                under_way=up.host.under_way,
            ),
            watchers=watchers,
        )
        wakers.append(Waker(service=service))
        service.decided = service.background.suspended = wakers[0].look
        it = Serving(up=up, service=service, waker=wakers[0])
        try:
            yield it
        finally:
            await it.drain(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Web:
    """
    How a host is served over HTTP.

    Attributes:
        told: Called with what serves, and its address, when it listens.

        stops: Called when it is asked to stop.

        certificate: For TLS.
    """

    told: Callable[[Serving, str], None]
    stops: Callable[[], None]
    certificate: Certificate | None = None


async def serve_http(
    config: Config,
    paths: Paths,
    environ: Mapping[str, str] = os.environ,
    *,
    load: Callable[[], Config] | None = None,
    web: Web,
) -> int:
    """
    Serve over HTTP until a signal comes, and return how many runs were suspended.

    Args:
        config: What was loaded; its `Serve` says where, for whom, and how long runs
            get in the end.

        paths: See `running`.

        environ: See `running`.

        load: See `running`.

        web: The rest.

    Raises:
        UsageError: It cannot listen there, or nobody could call it.
    """
    from ..lib.http import Client  # noqa: PLC0415 -- only here
    from ..web.app import application  # noqa: PLC0415 -- only here
    from ..web.edge.authentication import identity_of  # noqa: PLC0415 -- only here
    from ..web.edge.listen import bind, listening, stopping  # noqa: PLC0415 -- only here
    from ..web.mcp.http_router import agents_app  # noqa: PLC0415 -- only here

    limits, certificate = config.serve, web.certificate
    if certificate is not None:
        certificate.check()
    _more_files()
    async with contextlib.AsyncExitStack() as stack:
        listener = stack.enter_context(bind(limits.host, limits.port))
        it = await stack.enter_async_context(serving(config, paths, environ, load=load))
        client = Client(proxy=config.proxy)
        stack.push_async_callback(client.aclose)
        identity = identity_of(limits, it.up.store, it.up.host.clock, client)
        await _refuse_nobody(limits, it.up.store)
        agents = None
        if limits.mcp:
            agents = agents_app(it.service, body=limits.body)
            await stack.enter_async_context(agents.running())
        app = application(
            it.service,
            identity,
            limits,
            mcp=agents,
            scrape=it.up.telemetry.scrape,
            ready=it.ready,
            tools=it.up.tools,
            environ=environ,
        )
        await stack.enter_async_context(listening(app, listener, certificate))
        with stopping(web.stops) as asked:
            it.begin()
            notify("READY=1")
            web.told(it, _url(limits.host, listener, tls=certificate is not None))
            await asked.wait()
            notify("STOPPING=1")
            return await it.drain(limits.drain)


async def serve_stdio(
    config: Config,
    paths: Paths,
    environ: Mapping[str, str] = os.environ,
    *,
    load: Callable[[], Config] | None = None,
) -> int:
    """
    Serve agents over standard input and output until that ends; see `serve_http`.

    Whoever started this process is the principal.
    """
    from ..web.edge.listen import stopping  # noqa: PLC0415 -- only here
    from ..web.mcp.server import serve_stdio as exchange  # noqa: PLC0415 -- only here

    async with serving(config, paths, environ, load=load) as it:
        it.begin()
        talking = asyncio.create_task(exchange(it.service, _local()))
        with stopping(lambda: None) as asked:
            stopped = asyncio.create_task(asked.wait())
            await asyncio.wait([talking, stopped], return_when=asyncio.FIRST_COMPLETED)
            stopped.cancel()
            left = await it.drain(config.serve.drain)
    if not talking.done():
        # A thread reads stdin, and would hold this process until that ends.
        logging.shutdown()
        os._exit(0)
    await talking
    return left


def _local() -> Principal:
    actor = local_actor()
    return Principal(
        kind=str(actor["kind"]),
        id=str(actor["id"]),
        authenticated=False,
        scopes=frozenset({"admin"}),
    )


async def _refuse_nobody(limits: Serve, store: SqlStore) -> None:
    """Refuse to serve where nobody could call: there is neither token nor issuer."""
    if limits.allow_unauthenticated or limits.oauth:
        return
    now = SystemClock().now()
    if not any(token.is_good(now) for token in await store.tokens()):
        raise UsageError(
            "there is no token, so nobody could call this host",
            fix="caxton serve token create --scope run; or, for users of this "
            "machine, --allow-unauthenticated",
        )


def _url(host: str, listener: socket.socket, *, tls: bool) -> str:
    named = f"[{host}]" if ":" in host else host
    return f"http{'s' * tls}://{named}:{listener.getsockname()[1]}"


def _more_files() -> None:
    """Let this process have as many connections as it takes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _FILES if hard == resource.RLIM_INFINITY else min(_FILES, hard)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def notify(state: str) -> None:
    """Tell systemd how this service is, if that started it."""
    if not (where := os.environ.get("NOTIFY_SOCKET")):
        return
    if where.startswith("@"):  # No file: Linux spells that with a zero.
        where = f"\0{where[1:]}"
    with (
        contextlib.suppress(OSError),
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as to,
    ):
        to.sendto(state.encode(), where)
