"""
Runs: start one, and see it to its recorded end.

    request -> RunStarted -> guest and gateway -> RunCompleted, RunFailed, RunCancelled

Nothing of a run leaves the host before the events that it depends on are durable
(law 3): not its calls, which the gateway sees to, and not its result.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Callable, Collection, Mapping
from dataclasses import dataclass, field, replace

from . import codec
from .core.calls import JSON
from .core.catalogue import Catalogue, catalogue_for, listing
from .core.events import (
    ENDS,
    Event,
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunStarted,
)
from .core.grants import Grant
from .core.journal import Journal
from .core.limits import Limits
from .core.names import uuid7
from .core.places import Places
from .core.redact import Redactor
from .door import RunDoor, output_value
from .errors import (
    BadBytes,
    BusyError,
    NondeterminismError,
    RunStopped,
    SandboxError,
    StoreError,
    UsageError,
)
from .gateway import Gateway
from .ports import (
    Clock,
    Ending,
    EventLog,
    Guest,
    Prepared,
    Sandbox,
    Store,
    Telemetry,
    ToolClient,
)

__all__ = ["Admission", "Host", "RunRequest", "end_of", "guest_for"]

#: How many workers may die under a run that has company, and under one that has none:
#: that one is itself the cause.
_IN_COMPANY, _ALONE = 2, 3

logger = logging.getLogger("caxton_host")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """
    What a run is to be.

    Attributes:
        agent: Its name, also its trust domain.

        module: The bytes of the module.

        names: The agent's own names for tools, to ``(server, tool)``.

        actor: Who asks: ``{kind, id, authenticated}``.
    """

    agent: str
    module: bytes
    actor: dict[str, JSON]
    entry: str = "run"
    input: JSON = None
    context: dict[str, JSON] = field(default_factory=dict[str, JSON])
    limits: Limits = field(default_factory=Limits)
    grant: Grant = field(default_factory=Grant)
    names: Mapping[str, tuple[str, str]] = field(
        default_factory=dict[str, tuple[str, str]]
    )


@dataclass(slots=True)
class Admission:
    """
    Counts the runs of a host, and lets in no more than so many.

    One is held by ``with admission:``.
    """

    most: int = field(default_factory=lambda: Places().runs)
    inside: int = 0

    def __enter__(self) -> None:
        if self.inside >= self.most:
            raise BusyError(
                f"the host has {self.inside} runs under way, and takes no more",
                fix="wait for one to end, or raise runs in [sandbox]",
            )
        self.inside += 1

    def __exit__(self, *_: object) -> None:
        self.inside -= 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """
    Starts runs and drives them.

    Attributes:
        stream: The stream of this host process, named in the runs it drives.

        servers: Every server that a grant may speak of.

        entropy: Returns that many random bytes.
    """

    store: Store
    tools: ToolClient
    sandbox: Sandbox
    clock: Clock
    entropy: Callable[[int], bytes]
    telemetry: Telemetry
    stream: str | None = None
    servers: Collection[str] = ()
    redact: Redactor = field(default_factory=Redactor)
    admission: Admission = field(default_factory=Admission)

    async def start(
        self,
        request: RunRequest,
        *,
        on_started: Callable[[str], None] | None = None,
    ) -> str:
        """
        Run an agent to its end, and return the id of the run.

        The end is durable when this returns; read it from the store.

        Args:
            request: What is to run.

            on_started: Called with the run's id once its start is durable.

        Raises:
            UsageError: The module, the input or a name is refused; no event was
                written.

            ServerUnavailable: A required server is down; no event was written.

            BusyError: The host has as many runs as it takes; no event was written.

            StoreError: An event could not be stored.

            asyncio.CancelledError: The caller was cancelled; so was the run, and
                that is recorded.
        """
        with self.admission:
            return await self._start(request, on_started)

    async def _start(
        self, request: RunRequest, on_started: Callable[[str], None] | None
    ) -> str:
        prepared = await self.sandbox.prepare(
            request.module, request.limits, request.entry
        )
        wanted = request.grant.servers(self.servers)
        named = [server for server, _ in request.names.values()]
        offered = await self.tools.offered(
            [name for name in self.servers if name in {*wanted, *named}]
        )
        catalogue = catalogue_for(
            request.grant, request.names, offered.offers, offered.options
        )
        run_id = uuid7(self.clock.now(), self.entropy(10))
        with self.telemetry.run(request.agent, run_id, "live") as span:
            fallback = self.telemetry.ids()[0] or self.entropy(16).hex()

            def trace() -> tuple[str, str | None]:
                trace_id, span_id = self.telemetry.ids()
                return trace_id or fallback, span_id

            started = self._started(request, prepared, catalogue, offered.servers)
            definitions = {
                offer.definition_sha256: offer.definition
                for offer in catalogue.visible.values()
            }
            log = self.store.create(f"run/{run_id}", trace)
            async with _cancellable(log, request.actor):
                await log.append(
                    started, blobs={prepared.sha256: request.module, **definitions}
                )
                gateway = Gateway(
                    run_id=run_id,
                    grant=request.grant,
                    routes=catalogue.routes,
                    journal=Journal(),
                    log=log,
                    tools=self.tools,
                    redact=self.redact,
                    max_result=request.limits.result,
                )
                guest = guest_for(request.agent, started, definitions, log.recorded_at)
                end = await self._drive(prepared, guest, gateway, on_started)
            await log.append(end)
            span.ended(
                ENDS[type(end).__name__],
                end.kind if isinstance(end, RunFailed) else None,
            )
        return run_id

    def _started(
        self,
        request: RunRequest,
        prepared: Prepared,
        catalogue: Catalogue,
        servers: Mapping[str, dict[str, JSON]],
    ) -> RunStarted:
        grants = request.grant.to_payload()
        value = self.redact.value(request.input)
        try:
            size = len(codec.encode(value))
        except BadBytes as exc:
            raise UsageError(
                f"the input is {exc}", fix="pass what JSON can say"
            ) from None
        if size > request.limits.input:
            raise UsageError(
                f"the input has {size} bytes, of {request.limits.input} allowed",
                fix="pass less, or raise limits.input of the agent",
            )
        return RunStarted(
            agent=request.agent,
            actor=request.actor,
            module_sha256=prepared.sha256,
            abi=prepared.abi,
            entry=request.entry,
            input=value,
            context=self.redact.value(request.context),
            limits=request.limits.to_payload(),
            seed=self.entropy(32).hex(),
            grants=grants,
            grants_sha256=codec.sha256(codec.canonical(grants)),
            catalogue=catalogue.to_payload(),
            servers=dict(servers),
            host=self.stream,
            engine=prepared.engine,
        )

    async def _drive(
        self,
        prepared: Prepared,
        guest: Guest,
        gateway: Gateway,
        on_started: Callable[[str], None] | None,
    ) -> Event:
        """Return the event that ends the run. Every way but one is here."""
        wall = asyncio.timeout(guest.limits.wall)
        try:
            if on_started:
                on_started(gateway.run_id)
            async with wall:
                ending = await self._execute(prepared, guest, gateway)
            return end_of(ending, guest.limits, self.redact)
        except RunStopped as exc:
            return RunFailed(kind="limit", message=f"{exc.limit}: {exc}", fuel=None)
        except NondeterminismError as exc:
            return RunFailed(kind="diverged", message=str(exc), fuel=None)
        except SandboxError as exc:
            return RunFailed(kind="worker", message=str(exc), fuel=None)
        except StoreError:
            raise
        except Exception as exc:
            if isinstance(exc, TimeoutError) and wall.expired():
                message = f"wall: {guest.limits.wall:g} s"
                return RunFailed(kind="limit", message=message, fuel=None)
            logger.exception("the host failed in a run")
            return RunFailed(kind="host", message=type(exc).__name__, fuel=None)

    async def _execute(
        self, prepared: Prepared, guest: Guest, gateway: Gateway
    ) -> Ending:
        """Execute the guest; if its worker dies, again over the journal so far."""
        alone = replace(guest, domain=f"{guest.domain}/{gateway.run_id}")
        for life in range(1, _IN_COMPANY + _ALONE + 1):
            door = RunDoor(
                gateway=gateway, limits=guest.limits, telemetry=self.telemetry
            )
            try:
                return await self.sandbox.run(
                    prepared, guest if life <= _IN_COMPANY else alone, door
                )
            except SandboxError:
                if life == _IN_COMPANY + _ALONE:
                    raise
        raise AssertionError  # pragma: no cover -- the loop returns or raises


@contextlib.asynccontextmanager
async def _cancellable(log: EventLog, actor: dict[str, JSON]) -> AsyncGenerator[None]:
    """Record the run's end if it is cancelled: the one way that is not driven to."""
    try:
        yield
    except asyncio.CancelledError:
        await log.append(RunCancelled(actor=actor, reason="interrupted"))
        raise


def guest_for(
    domain: str, started: RunStarted, definitions: Mapping[str, bytes], at: int
) -> Guest:
    """
    Return what the guest of a run is given: what its log holds, and nothing else.

    Args:
        domain: The trust domain.

        started: The first event of the run.

        definitions: Digest to the bytes of every definition that the run may see.

        at: When *started* was recorded.
    """
    known = {key: codec.decode_trusted(data) for key, data in definitions.items()}
    return Guest(
        domain=domain,
        entry=started.entry,
        limits=Limits.from_payload(started.limits),
        input=codec.encode(started.input),
        context={key: codec.encode(value) for key, value in started.context.items()},
        tools=codec.encode(listing(started.catalogue, known)),
        seed=bytes.fromhex(started.seed),
        now=at,
    )


def end_of(ending: Ending, limits: Limits, redact: Redactor) -> Event:
    """Return the event that records how a guest ended."""
    if ending.kind == "limit":
        return RunFailed(
            kind="limit",
            message=f"{ending.limit}: {ending.message}",
            fuel=ending.fuel,
        )
    if ending.kind == "trap":
        return RunFailed(kind="trap", message=ending.message, fuel=ending.fuel)
    try:
        output, digest = output_value(ending.output, limits)
    except BadBytes as exc:
        return RunFailed(kind="agent_error", message=f"output: {exc}", fuel=ending.fuel)
    if ending.code:
        return RunFailed(
            kind="agent_error",
            message=f"the agent returned {ending.code}",
            fuel=ending.fuel,
        )
    return RunCompleted(
        output=redact.value(output), output_sha256=digest, fuel=ending.fuel
    )
