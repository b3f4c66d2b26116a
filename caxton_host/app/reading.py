"""
The console over what is only read: a log, or the run of a bundle.

Its only visitor is an auditor, who changes nothing. No server, sandbox or key is
opened; there is no API, and no token is good.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from ..config import Config, Serve
from ..core.calls import JSON
from ..core.grants.principals import Principal
from ..lib.machine import SystemClock
from ..ports.serving import ServingStore
from ..runs.admission import RunQueue
from ..runs.freezing import FreezeWatch
from ..runs.host import Host
from ..service.run_service import Service
from ..service.run_tasks import RunTasks
from ..service.verifying import Verifying
from ..store.bundle_store import BundleStore, check_bundle
from ..store.memory import MemoryReader, MemoryStore
from ..telemetry import NoTelemetry
from ..web.api.operations import read_only
from ..web.app import Upkeep, application
from ..web.edge.authentication import Challenge
from ..web.edge.listen import bind, listening, stopping
from ..web.ui.visits import Visits, name_for
from .serve_app import local_user
from .verification import audit_document, verifying_of

if TYPE_CHECKING:
    from ..core.log.bundle import Bundle
    from ..core.log.checkpoint import Checkpoint
    from ..store.sql import SqlStore


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """
    What is read.

    Attributes:
        store: Has it.

        verifying: Verifies it.

        why: Why nothing can be changed.
    """

    store: ServingStore
    verifying: Verifying
    why: str


class _Reader(MemoryReader):
    """Knows of the log of a bundle what was signed."""

    signed: Checkpoint

    async def tree(self) -> tuple[int, bytes]:
        return self.signed.size, self.signed.root

    async def leaf(self, stream: str, seq: int) -> int | None:
        del stream, seq
        return None  # It has the events of one run alone.


def of_log(store: SqlStore, state: Path, trusted: Collection[bytes]) -> Source:
    """Return a log that is opened to read."""
    verifying = verifying_of(store, state, lambda: trusted, again=False)
    return Source(store=store, verifying=verifying, why="caxton ui reads a log")


def of_bundle(bundle: Bundle, trusted: Collection[bytes]) -> Source:
    """Return the run of a bundle that was found intact."""
    clock, checked = SystemClock(), check_bundle(bundle, trusted)
    store = MemoryStore(clock=clock, entropy=secrets.token_bytes)
    reader = store.reader = _Reader(store)
    assert checked.checkpoint is not None  # noqa: S101 -- it is intact
    reader.signed = checked.checkpoint
    note = bundle.header.checkpoint.decode()
    reader.notes[checked.checkpoint.size] = note
    store.load(BundleStore(bundle).recorded(), bundle.blobs)

    async def look(told: Callable[[int], None], *, full: bool) -> dict[str, JSON]:
        del told, full
        found = await asyncio.to_thread(check_bundle, bundle, trusted)
        return audit_document(found)

    verifying = Verifying(look=look, now=clock.now)
    verifying.start(local_user(), full=True)
    return Source(store=store, verifying=verifying, why="caxton ui shows a bundle")


async def serve_reading(
    config: Config,
    source: Source,
    *,
    port: int,
    told: Callable[[Visits, str], None],
    stops: Callable[[], None],
) -> None:
    """
    Show what is read until a signal arrives.

    Args:
        config: What today's agents are, for questions about their grants.

        source: What is read.

        port: On 127.0.0.1; 0: a free one.

        told: Called with the console and its URL, once it listens.

        stops: Called when a signal asks it to stop.
    """
    async with contextlib.AsyncExitStack() as stack:
        listener = stack.enter_context(bind("127.0.0.1", port))
        stack.push_async_callback(source.verifying.aclose)
        key, bound = secrets.token_bytes(32), listener.getsockname()[1]
        visits = Visits(
            key=key,
            identity=_Nobody(),
            clock=SystemClock(),
            local=replace(local_user(), scopes=frozenset({"auditor"})),
            name=name_for(key, bound),
        )
        app = application(
            _service(config, source),
            _Nobody(),
            Serve(api=False, mcp=False),
            visits=visits,
            upkeep=Upkeep(verifying=source.verifying, reading=source.why),
        )
        await stack.enter_async_context(listening(app, listener))
        with stopping(stops) as asked:
            told(visits, f"http://127.0.0.1:{bound}")
            await asked.wait()


def _service(config: Config, source: Source) -> Service:
    clock, nothing = SystemClock(), _Nothing(source.why)
    host = Host(
        store=source.store,
        tools=nothing,
        sandbox=nothing,
        clock=clock,
        entropy=secrets.token_bytes,
        telemetry=NoTelemetry(),
        freezes=FreezeWatch(source.store.reader),
    )
    line = RunQueue(places=0, queue=0, each=0, rate=0, now=clock.monotonic)
    return Service(
        host=host,
        store=source.store,
        config=lambda: config,
        background=RunTasks(line=line, under_way=host.under_way),
    )


@dataclass(frozen=True, slots=True)
class _Nothing:
    """Neither tools nor a sandbox."""

    why: str

    def _refuse(self, *_given: object, **_named: object) -> NoReturn:
        raise read_only(self.why)

    open = prepare = run = _refuse


@dataclass(frozen=True, slots=True)
class _Nobody:
    """Knows no token."""

    async def principal(self, authorization: str | None) -> Principal:
        """Refuse."""
        del authorization
        raise Challenge().refusal("only the link of this console opens it")
