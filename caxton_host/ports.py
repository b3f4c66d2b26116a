"""
What the application needs from the outside, as protocols.

Each is shipped twice: for real (`store`, `mcp` and `webhooks`, `sandbox`,
`telemetry`, `clock`), and as a fake that needs nothing and forgets everything
(`testing`, `store.memory`, `telemetry.NoTelemetry`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeAlias

from .core.calls import JSON, Completed, Outcome, Route, ToolCall
from .core.catalogue import Offered
from .core.events import Event, Recorded
from .core.limits import Limits
from .core.runs import Request, RunRow

__all__ = [
    "Answer",
    "Clock",
    "Door",
    "Ending",
    "EventLog",
    "Guest",
    "Hosts",
    "Prepared",
    "Refused",
    "Request",
    "Reservation",
    "RunRow",
    "Sandbox",
    "SharedStore",
    "Span",
    "Store",
    "Telemetry",
    "ToolClient",
    "ToolRequest",
    "Trace",
]

#: Returns ``(trace id, span id)`` in hex, for the event that is queued now.
Trace: TypeAlias = Callable[[], tuple[str | None, str | None]]


class Clock(Protocol):
    """Where time comes from."""

    def now(self) -> int:
        """Return microseconds since 1970, UTC."""
        ...

    def monotonic(self) -> float:
        """Return seconds from an arbitrary start. Never goes back."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """
    A budget that an append spends, or the append is refused.

    Attributes:
        key: Names the budget in the store.

        amount: What to spend.

        limit: What may be spent under this key in all.

        rule: The rule that set the limit.
    """

    key: str
    amount: int
    limit: int
    rule: str


@dataclass(frozen=True, slots=True)
class Refused:
    """
    An append spent too much, so none of it happened.

    Attributes:
        index: Which of its reservations.

        rule: The rule of that reservation.
    """

    index: int
    rule: str


class EventLog(Protocol):
    """The stream of one run. One writer: a second one is refused."""

    @property
    def recorded_at(self) -> int:
        """When the newest event was recorded: microseconds, never going back."""
        ...

    def holds(self) -> bool:
        """
        Return whether this host may still send for the stream.

        Its lease lasts a while yet, and no other host is known to have taken over.
        Looks at nothing but a clock: ask right before each send.
        """
        ...

    def queue(self, *events: Event, blobs: Mapping[str, bytes] | None = None) -> None:
        """
        Add *events* to the stream, in order, without waiting.

        They become durable together, with the next append or a few milliseconds
        later. Blobs are kept by digest, in the same transaction.

        Raises:
            StoreError: Something queued before could not be stored.
        """
        ...

    async def append(
        self,
        *events: Event,
        blobs: Mapping[str, bytes] | None = None,
        reserve: Sequence[Reservation] = (),
    ) -> Refused | None:
        """
        Add *events*, and return once they and all queued before are durable.

        Without events, wait for what is queued. If a reservation is refused,
        these events are dropped, and nothing else is. If the caller is cancelled,
        they are stored all the same.

        Raises:
            LeaseLost: Another host drives the run now. Stop it, and write no more.

            StoreError: Something could not be stored. The stream takes no more.
        """
        ...


class Store(Protocol):
    """Where streams are kept."""

    def create(self, stream: str, trace: Trace | None = None) -> EventLog:
        """Return the log of a stream that has no events yet."""
        ...

    async def claim(
        self, stream: str, *events: Event, after: int, trace: Trace | None = None
    ) -> EventLog:
        """
        Add *events* to a stream that no living host drives, and return its log.

        Args:
            stream: Of a run.

            events: What begins or is noted.

            after: The number of its last event, as it was read. If it is another by
                then, nothing happens.

            trace: As for `create`.

        Raises:
            BusyError: A living host drives it, or it has grown meanwhile.

            NotFoundError: It has no events.

            StoreError: They could not be stored.
        """
        ...

    async def read(self, stream: str) -> list[Recorded]:
        """Return all events of a stream, in order; none if there is no such."""
        ...

    async def blob(self, sha256: str) -> bytes:
        """
        Return the bytes with that digest.

        Raises:
            NotFoundError: They were never kept.
        """
        ...


class Hosts(Protocol):
    """Which hosts live and what they drive, where several share a store."""

    async def join(self, host: str) -> None:
        """
        Become known as the host with that stream, until the store is closed.

        Called once, before the first run: a run whose host has not joined, or is
        dead, is anybody's.

        Raises:
            StoreError: It cannot be.
        """
        ...

    async def owner(self, run_id: str) -> str | None:
        """Return the stream of the living host that drives a run, or ``None``."""
        ...

    async def idle(self) -> list[RunRow]:
        """
        Return the runs under way that no living host drives, oldest first.

        Those that are suspended wait for a person, and are not among them.
        """
        ...

    async def request(
        self, run_id: str, kind: str, actor: dict[str, JSON], reason: str
    ) -> int:
        """
        Ask something of the host that drives a run, and return the request's number.

        Args:
            run_id: The run.

            kind: ``cancel``.

            actor: Who asks.

            reason: Why.

        Raises:
            NotFoundError: There is no such run.

            StoreError: It could not be stored.
        """
        ...

    async def requests(self, host: str) -> list[Request]:
        """Return what is asked of *host* and has no outcome yet, oldest first."""
        ...

    async def answered(self, request_id: int, outcome: str) -> None:
        """
        Note what came of a request; what is noted first counts.

        Raises:
            StoreError: It could not be stored.
        """
        ...

    async def outcome(self, request_id: int) -> str | None:
        """Return what came of a request, or ``None`` as long as nothing did."""
        ...


class SharedStore(Store, Hosts, Protocol):
    """A store that knows its hosts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolRequest:
    """
    A permitted call on its way to a server.

    Attributes:
        run_id: The run that makes it.

        call: Its number in the run.

        params: What is sent: the agent's own, as they were judged.

        definition_sha256: The definition that the run was shown, or ``None``.
            Another one now is a failure of kind ``changed``.

        idempotency_key: The same over every attempt of this call.

        attempt: 1 for the first send.
    """

    run_id: str
    call: int
    server: str
    tool: str
    params: dict[str, JSON]
    definition_sha256: str | None
    idempotency_key: str
    attempt: int = 1


class ToolClient(Protocol):
    """A way to reach tool servers."""

    async def offered(self, servers: Collection[str]) -> Offered:
        """
        Return what *servers* offer, starting those that are not running.

        A server that cannot be reached is left out of the offers, with a warning.

        Raises:
            ServerUnavailable: One that is ``required`` cannot be reached.
        """
        ...

    async def call_tool(self, request: ToolRequest) -> Completed:
        """
        Send *request* once, and return the bounded, redacted answer.

        Raises:
            ToolError: There is none.
        """
        ...


class Span(Protocol):
    """One operation, while it is watched."""

    def settled(self, outcome: Outcome, route: Route | None) -> None:
        """Note how a call ended."""
        ...

    def ended(self, state: str, kind: str | None) -> None:
        """Note how a run ended, and the kind of its failure."""
        ...


class Telemetry(Protocol):
    """Watches runs and calls. Never takes part in them."""

    def run(
        self, agent: str, run_id: str, mode: Literal["live", "resume", "replay"]
    ) -> AbstractContextManager[Span]:
        """Watch a run from its first event to its last."""
        ...

    def call(self, call: ToolCall, run_id: str) -> AbstractContextManager[Span]:
        """Watch one call of a run."""
        ...

    def ids(self) -> tuple[str | None, str | None]:
        """Return trace and span id of what is being watched now, in hex."""
        ...


@dataclass(frozen=True, slots=True)
class Answer:
    """
    What a host function gives a guest.

    Attributes:
        status: 0 ok, 1 tool error, 2 denied, 3 failed, 4 bad request.

        reply: msgpack.

        at: When it was recorded; the guest's ``now()`` from here on. 0 if nothing
            was.

        seed: 32 bytes that ``random()`` grows from from here on, or none: as before.
    """

    status: int
    reply: bytes
    at: int
    seed: bytes = b""


class Door(Protocol):
    """The host's side of a guest's host functions. Whatever it raises ends the run."""

    async def call(self, name: bytes, params: bytes, fuel: int) -> Answer:
        """
        Carry out a tool call.

        Args:
            name: The exposed name, as the guest wrote it, at most 64 KiB.

            params: msgpack, of any quality. More than ``Limits.params`` allows
                arrives as that many bytes and the 32 of its SHA-256.

            fuel: What the guest has burnt so far.
        """
        ...

    async def call_many(self, batch: bytes, fuel: int) -> Answer:
        """
        Carry out a batch of tool calls.

        Args:
            batch: msgpack, of any quality. More than `codec.BATCH_BYTES` arrives
                as that many bytes and the 32 of its SHA-256.

            fuel: What the guest has burnt so far.
        """
        ...

    def log(self, level: int, text: bytes) -> None:
        """Take a log line. Levels are 0 debug, 1 info, 2 warning, 3 error."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """
    A module that the gate let pass and that is compiled.

    Attributes:
        sha256: Digest of the module's bytes, in hex.

        abi: ``core/1``.

        engine: Version and configuration it was compiled for. Fuel is exact
            between equal ones.

        key: Names the artifact within the sandbox.
    """

    sha256: str
    abi: str
    engine: str
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Guest:
    """
    What one execution of a module is given.

    Attributes:
        domain: Guests of different trust domains never share a worker.

        entry: The exported function to call.

        input: msgpack; what ``input()`` gives.

        context: Key to msgpack; what ``context(key)`` gives.

        tools: msgpack; what ``tools()`` gives.

        seed: 32 bytes; what ``random()`` grows from.

        seeds: What it grows from instead after that many calls: of a run that was
            forked there. The door hands them out.

        now: Microseconds; what ``now()`` gives before the first reply.
    """

    domain: str
    entry: str
    limits: Limits
    input: bytes
    context: Mapping[str, bytes] = field(default_factory=dict[str, bytes])
    tools: bytes = b"\x90"
    seed: bytes
    seeds: Mapping[int, bytes] = field(default_factory=dict[int, bytes])
    now: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """
    How a guest ended by itself, or by one of its own limits.

    Attributes:
        kind: ``returned``; ``trap``: it did what no guest may; ``limit``.

        code: What it returned.

        limit: Which limit: ``fuel``, ``compute``, ``host_calls``, ``memory``.

        message: The trap, in words.

        output: The last output it set, or ``None``.

        fuel: What it burnt; ``None`` where a clock ended it.
    """

    kind: Literal["returned", "trap", "limit"]
    code: int = 0
    limit: str = ""
    message: str = ""
    output: bytes | None = None
    fuel: int | None = None


class Sandbox(Protocol):
    """A place where a guest can do nothing but compute and use its door."""

    async def prepare(self, module: bytes, limits: Limits, entry: str) -> Prepared:
        """
        Check and compile a module, or find it compiled.

        Args:
            module: Its bytes, of any quality.

            limits: What it may ask for, and what compiling it may cost.

            entry: The function it must export, without parameters, giving an i32.

        Raises:
            ModuleRefused: It is not a module, or asks for too much.
        """
        ...

    async def run(self, prepared: Prepared, guest: Guest, door: Door) -> Ending:
        """
        Execute a guest once, from a fresh instance, and return how it ended.

        Cancelling this stops the guest, wherever it is, within 100 ms.

        Raises:
            SandboxError: Its worker died.

            Exception: Whatever the door raised; the guest is stopped.
        """
        ...
