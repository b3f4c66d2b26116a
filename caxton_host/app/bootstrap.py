"""
The composition root: builds a running host from a configuration.

Everything that `Host` needs from the outside is made here, and closed here in reverse
order. No other module knows which adapters exist.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
from collections.abc import (
    AsyncGenerator,
    Callable,
    Collection,
    Generator,
    Mapping,
    Sequence,
)
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING

from .. import __version__
from ..building.runtimes import RuntimeFolder
from ..config import Config, Paths
from ..core.calls import JSON
from ..core.limits import Places
from ..core.log.checkpoint import Note
from ..core.log.events import (
    AuditFailed,
    ConfigLoaded,
    Event,
    HostStarted,
    ToolProgress,
)
from ..core.names import uuid7
from ..core.text.redact import Redactor
from ..core.text.trace_context import trace_of
from ..errors import LogBrokenError, StoreError, UsageError
from ..lib.logs import of_host
from ..lib.machine import SystemClock, local_actor
from ..lib.signing import Keyring, Signer, secret
from ..runs.admission import Admission
from ..runs.agent_calls import CallingAgents
from ..runs.cancellation import OfHost, watching
from ..runs.executor import unwatched
from ..runs.freezing import FreezeWatch
from ..runs.host import Host
from ..runs.host_stream import HostLog
from ..runs.modules import Library
from ..runs.tool_pinning import Accepting
from ..telemetry import Observer, Point, Sink, observe
from ..telemetry.instruments import SINK_LAG
from .reload import Generations, Granting, Reloader, granted
from .tool_setup import LateServerProtocols, Tooling

if TYPE_CHECKING:
    from ..mcp.health import ServerStatus
    from ..sandbox import WasmSandbox
    from ..store.anchors import Anchor
    from ..store.incarnation import Marks
    from ..store.sql import SqlStore
    from ..store.writer import OnCommit


_log = logging.getLogger("caxton_host")

_COPY = (
    "the log is a copy, restored on this machine or opened here for the first time; it "
    "is now a separate log"
)

_NOTHING: Mapping[str, OfHost] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """
    A host that is up.

    Attributes:
        host: Starts runs.

        store: Where runs are recorded.

        tools: The tools of runs, and the newest configuration.

        sandbox: Where guests are executed.

        telemetry: Watches runs and calls.

        redact: Removes configured secrets from what is recorded.

        status: Returns the state of each MCP server. May be called in other threads.

        stream: What this host does.
    """

    host: Host
    store: SqlStore
    tools: Generations
    sandbox: WasmSandbox
    telemetry: Observer
    redact: Redactor
    status: Callable[[], Sequence[ServerStatus]]
    stream: HostLog


@contextlib.asynccontextmanager
async def running(  # noqa: PLR0913 -- what a host is made of
    config: Config,
    paths: Paths,
    environ: Mapping[str, str] = os.environ,
    *,
    start: Mapping[str, Collection[str]] | None = None,
    watch: Callable[[str, ToolProgress], None] = unwatched,
    load: Callable[[], Config] | None = None,
    served: bool = False,
    kinds: Mapping[str, OfHost] = _NOTHING,
    compiling: Callable[[], AbstractContextManager[None]] = contextlib.nullcontext,
    granting: Granting = granted,
) -> AsyncGenerator[Running]:
    """
    Start a host, and stop it in the end.

    Args:
        config: The configuration.

        paths: Where keys and compiled modules are kept.

        environ: Environment variables that configure telemetry.

        start: Servers that will be needed, by agent: they start concurrently with the
            rest. Otherwise a served host starts those that are ``eager``.

        watch: Called with a run and each progress report of a call of it.

        load: Reads the configuration again on request. SIGHUP is such a request too,
            unless a terminal would send it.

        served: The host serves others: its metrics are kept for ``telemetry.scrape``.

        kinds: What carries out further requests to the host, by kind.

        compiling: See `WasmSandbox`.

        granting: Returns what a configuration grants an agent.
    """
    redact = Redactor(config.secrets)
    async with contextlib.AsyncExitStack() as stack:
        clock = SystemClock()
        stream = new_stream(clock)
        telemetry = observe(
            config.telemetry.endpoint,
            environ,
            served=served,
            instance=stream.removeprefix("host/"),
            trace=partial(trace_of, names=config.telemetry.baggage, mask=redact.text),
        )
        stack.enter_context(of_host(redact, telemetry.ids))
        stack.callback(telemetry.close)
        counts = telemetry.counts
        waiting: list[Event] = []
        queue = waiting.append

        def tell(event: Event) -> None:
            counts.happened(event)
            queue(event)

        def outage(what: str) -> None:
            tell(AuditFailed(what=what, reason="it takes no checkpoint"))

        # Opened first and closed first, so it has a stack of its own: the last events
        # of a server are still stored.
        async with contextlib.AsyncExitStack() as servers:
            protocols = LateServerProtocols()
            tooling = Tooling(
                redact=redact,
                telemetry=telemetry,
                on_event=tell,
                start={} if start is None and not served else start,
                protocols=protocols,
                logs=paths.logs,
                tokens=paths.tokens,
            )
            counts.look_at(tooling.status)
            tools = await servers.enter_async_context(
                Generations(tooling.open, attrgetter("granted_servers"), granting)
            )
            # No server waits for a store that could not be opened.
            servers.callback(protocols.settle, None)
            library = library_of(paths)
            if served:
                check_pins(config, library)
            await tools.publish(config)
            store = await stack.enter_async_context(
                open_signed(
                    config,
                    Keyring(paths.state),
                    paths.state,
                    counts,
                    outage,
                )
            )
            protocols.settle(store.server_protocols)
            sandbox = await stack.enter_async_context(
                open_sandbox(paths, config.places, counts.worker, compiling)
            )
            with usable_store():
                await store.leases.join(stream)
            log = HostLog(store, stream)
            stack.push_async_callback(log.aclose)
            log.queue(*announced(config, paths), *waiting)
            queue = log.queue
            accepting = Accepting(
                source=tools,
                definitions=store.definitions,
                actor=local_actor(),
                on_event=log.queue,
            )
            calling = CallingAgents(
                source=accepting,
                config=lambda: tools.config,
                library=library,
            )
            host = calling.host = Host(
                store=store,
                tools=calling,
                sandbox=sandbox,
                clock=clock,
                entropy=secrets.token_bytes,
                telemetry=telemetry,
                stream=stream,
                servers=tools.servers,
                redact=redact,
                callers=tooling.callers,
                admission=Admission(config.places.runs),
                watch=watch,
                freezes=FreezeWatch(store.reader, store.bell),
                present=tools.grant,
            )
            await servers.enter_async_context(host.freezes.watching())
            doing = {**kinds, "restart": tooling.restart}
            if load is not None:
                reloader = Reloader(
                    load=lambda: check_pins(load(), library),
                    tools=tools,
                    on_event=log.queue,
                )
                await servers.enter_async_context(reloader.listening())
                doing["reload"] = reloader.asked
            async with watching(
                store, stream, host.under_way, kinds=doing, bell=store.bell
            ):
                yield Running(
                    host=host,
                    store=store,
                    tools=tools,
                    sandbox=sandbox,
                    telemetry=telemetry,
                    redact=redact,
                    status=tooling.status,
                    stream=log,
                )


def check_pins(config: Config, library: Library) -> Config:
    """
    Return a configuration whose pinned agents have the files that they should have.

    Raises:
        UsageError: One has another, or it cannot be read.
    """
    for agent in config.executed.values():
        if agent.pin:
            library.check_pin(agent)
    return config


def library_of(paths: Paths) -> Library:
    """Return the modules of agents, with the runtimes that are installed."""
    return Library(runtimes=RuntimeFolder(paths.cache / "runtimes").installed)


@contextlib.asynccontextmanager
async def open_signed(  # noqa: PLR0913 -- what a store takes from the outside
    config: Config,
    signer: Signer,
    state: Path,
    counts: Sink | None = None,
    outage: Callable[[str], None] = lambda _: None,
    *,
    accept: bool = False,
) -> AsyncGenerator[SqlStore]:
    """
    Open the event store to write, with signatures and anchored checkpoints.

    Args:
        config: Names the store, and where checkpoints are anchored.

        signer: Signs checkpoints.

        state: See `open_store`.

        counts: Takes transactions, and how checkpoints are delivered.

        outage: Called with ``anchor`` or ``witness`` once it has taken none for long.

        accept: See `open_store`.

    Raises:
        UsageError: See `open_store`.

        LogBrokenError: The same.
    """
    async with contextlib.AsyncExitStack() as stack:
        anchors: dict[str, Anchor] = {}
        counts = counts or Sink()

        def failing(what: str) -> Callable[[bool], None]:
            def failed(lasts: bool) -> None:  # noqa: FBT001 -- as it is called
                counts.anchor_failed()
                if lasts:
                    outage(what)

            return failed

        def lags() -> list[Point]:
            return [(SINK_LAG, one.behind_s, (name,)) for name, one in anchors.items()]

        if config.audit.anchor is not None:
            from ..store.anchors import anchor  # noqa: PLC0415 -- httpx, only with an anchor

            to = anchor(config.audit.anchor, failing("anchor"), proxy=config.proxy)
            anchors["anchor"] = await stack.enter_async_context(to)

        def on_seal(note: Note) -> None:
            for one in anchors.values():
                one.tell(note)

        store = await stack.enter_async_context(
            open_store(
                config,
                write=True,
                state=state,
                signer=signer,
                on_seal=on_seal,
                on_commit=counts.committed,
                accept=accept,
            )
        )
        if config.audit.witnesses:
            from .witnessing import cosigning  # noqa: PLC0415 -- httpx, only with witnesses

            asking = cosigning(config, store, state, failing("witness"))
            anchors["witnesses"] = await stack.enter_async_context(asking)
            # The last events are signed before the witnesses are left.
            stack.push_async_callback(sign, store)
        counts.look(lags, SINK_LAG)
        yield store


async def sign(store: SqlStore) -> None:
    """Sign the log, if that is possible."""
    from ..store.seals import UNSIGNED, unsigned  # noqa: PLC0415 -- with the store

    try:
        await store.seal()
    except StoreError as exc:
        _log.warning(UNSIGNED, *unsigned(exc))


@contextlib.asynccontextmanager
async def open_store(  # noqa: PLR0913 -- the same
    config: Config,
    *,
    write: bool,
    state: Path | None = None,
    signer: Signer | None = None,
    on_seal: Callable[[Note], None] | None = None,
    on_commit: OnCommit = lambda _seconds, _events: None,
    accept: bool = False,
) -> AsyncGenerator[SqlStore]:
    """
    Open the event store; to write, it is created and migrated as needed.

    If the store is a restored copy, its unfinished runs are suspended first.

    Args:
        config: Names the store.

        write: Open it to write.

        state: The folder of the keys, required to write: it keeps what was signed.

        signer: Signs the log.

        on_seal: Called with each checkpoint.

        on_commit: Called after each transaction.

        accept: Accept a copy that lacks events that were signed on this machine.

    Raises:
        UsageError: It cannot be used as it is. Nothing was started.

        LogBrokenError: It lacks events that were signed on this machine.
    """
    if write and state is None:
        raise TypeError("a store that is written needs the state folder")
    # In a thread: a server that was asked for starts in the meantime.
    store_type = await asyncio.to_thread(_store_type)
    with usable_store():
        opened = store_type.open(
            config.store_url,
            clock=SystemClock(),
            entropy=secrets.token_bytes,
            write=write,
            signer=signer,
            on_seal=on_seal or _ignore,
            on_commit=on_commit,
            marks=_marks(state) if state else None,
            accept=accept,
        )
    async with opened as store:
        if store.incarnation.copy is not None and state is not None:
            await _restore(store, state)
        yield store


def _marks(state: Path) -> Marks:
    from ..store.incarnation import Marks  # noqa: PLC0415 -- with the store

    return Marks.of(state)


async def _restore(store: SqlStore, state: Path) -> None:
    """Suspend the runs of a copy; see `SqlStore.restore`."""
    actor = local_actor()
    started = host_started(Keyring(state).public_key(), actor)
    await store.restore(new_stream(SystemClock()), started, actor=actor)
    held = store.incarnation.restored.runs if store.incarnation.restored else 0
    if not held:
        _log.warning("%s; no run was unfinished, so nothing is left to do", _COPY)
        return
    _log.warning(
        "%s; unfinished runs: %d, all suspended. What they did after it was copied is "
        "not in it, and may have taken effect. To fix: look at each of them, then "
        "caxton runs resume --restored RUN",
        *(_COPY, held),
    )


def _ignore(_: Note) -> None:
    """Ignore a checkpoint."""


def new_stream(clock: SystemClock) -> str:
    """Return a new name for the stream of a host process."""
    return f"host/{uuid7(clock.now(), secrets.token_bytes(10))}"


def host_started(public_key: bytes, actor: dict[str, JSON]) -> HostStarted:
    """Return the first event of the stream of a host process."""
    return HostStarted(
        version=__version__,
        engine=f"wasmtime-{version('wasmtime')}",
        public_key=public_key.hex(),
        actor=actor,
    )


def _store_type() -> type[SqlStore]:
    from ..store.sql import SqlStore  # noqa: PLC0415 -- 110 ms

    return SqlStore


@contextlib.contextmanager
def usable_store() -> Generator[None]:
    """Raise a `UsageError` if the configured store cannot be opened."""
    try:
        yield
    except LogBrokenError:
        raise
    except StoreError as exc:
        raise UsageError(str(exc), fix=exc.fix) from None


@contextlib.asynccontextmanager
async def open_sandbox(
    paths: Paths,
    places: Places,
    on_worker: Callable[[str], None] = lambda _: None,
    compiling: Callable[[], AbstractContextManager[None]] = contextlib.nullcontext,
) -> AsyncGenerator[WasmSandbox]:
    """
    Start the sandbox. Its workers can no longer read this process.

    See `WasmSandbox` for *on_worker* and *compiling*.
    """
    from ..sandbox import WasmSandbox  # noqa: PLC0415 -- 20 ms
    from ..sandbox.confine import harden_host  # noqa: PLC0415 -- 10 ms

    harden_host()
    key = secret(paths.state / "cache.key")
    async with WasmSandbox(
        paths.cache / "modules",
        key,
        workers=places.workers,
        guests=places.guests,
        compute=places.compute,
        on_worker=on_worker,
        compiling=compiling,
    ) as sandbox:
        yield sandbox


def announced(config: Config, paths: Paths) -> tuple[Event, ...]:
    """Return the first events of the host's stream, which the first run commits."""
    actor = local_actor()
    started = host_started(Keyring(paths.state).public_key(), actor)
    if not config.path or not config.sha256:
        return (started,)
    loaded = ConfigLoaded(path=config.path.name, sha256=config.sha256, actor=actor)
    return started, loaded
