"""Where events are kept, and which hosts share the place."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from ..core.calls import JSON
from ..core.grants.budgets import Period
from ..core.grants.settlement import Correction
from ..core.log.events import Event
from ..core.log.requests import Request
from ..core.log.runs import RunRow
from .history import Streams
from .placement import Within

#: Takes the number of the first of the events that are queued now, and these events;
#: returns ``(trace id, span id)`` of each, in hex.
Trace: TypeAlias = Callable[
    [int, Sequence[Event]], Sequence[tuple[str | None, str | None]]
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """
    An amount of a budget that an append spends; if it cannot, the append is refused.

    Attributes:
        key: Names the budget in the store.

        amount: What to spend.

        limit: The most to spend under this key: in all, or in each period.

        rule: The rule that set the limit.

        per: The period after which the limit is available again, by the store's clock.

        every: Microseconds in which the limit becomes available again, gradually.

        call: The call that holds a place until it is closed, or the run has ended. It
            takes one, whatever the *amount*, and none if it has one.

        tries: How often a call that waits for its place was refused it; ``None``: it
            does not wait.
    """

    key: str
    amount: int
    limit: int
    rule: str
    per: Period | None = None
    every: int | None = None
    call: int | None = None
    tries: int | None = None


@dataclass(frozen=True, slots=True)
class Refused:
    """
    The refusal of an append that would spend too much.

    Attributes:
        index: Of the reservation that was refused.

        rule: The rule of that reservation.

        retry_after: Seconds after which the budget has room again, if that is known.
    """

    index: int
    rule: str
    retry_after: float | None = None


def was_refused(cancelled: BaseException) -> bool:
    """Return whether an append stored nothing whose caller was cancelled."""
    return any(isinstance(one, Refused) for one in cancelled.args)


class EventLog(Protocol):
    """The stream of one run. It has one writer; a second one is refused."""

    @property
    def recorded_at(self) -> int:
        """When the newest event was recorded: microseconds, never going back."""
        ...

    @property
    def head(self) -> tuple[int, bytes]:
        """Number and hash of the newest durable event."""
        ...

    def holds(self) -> bool:
        """
        Return whether this host may still send for the stream.

        Its lease has not lapsed, and no other host is known to have taken over. This
        reads only a clock: call it right before each send.
        """
        ...

    def leave(self) -> None:
        """Drive the stream no more: a host may claim it, this one too."""
        ...

    def queue(
        self,
        *events: Event,
        blobs: Mapping[str, bytes] | None = None,
        correct: Sequence[Correction] = (),
    ) -> None:
        """
        Add *events* to the stream, in order, without waiting.

        They become durable together, with the next append or a few milliseconds
        later. Blobs are kept by digest, and budgets are corrected, in the same
        transaction.

        Raises:
            StoreError: An event that was queued before could not be stored.
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

        Without events, reserve, and wait for those that are queued. If a reservation
        is refused, only these events are dropped. A cancellation of the caller takes
        effect once that is known.

        Raises:
            asyncio.CancelledError: The caller was cancelled. Its argument is `Refused`
                if a reservation is refused; otherwise the events are stored.

            LeaseLost: Another host drives the run now. Stop it, and write no more.

            StoreError: An event could not be stored. The stream takes no more.
        """
        ...


class Store(Protocol):
    """Where streams are kept."""

    @property
    def reader(self) -> Streams:
        """Reads the streams."""
        ...

    def create(self, stream: str, trace: Trace | None = None) -> EventLog:
        """Return the log of a stream that has no events yet."""
        ...

    async def enter(
        self,
        stream: str,
        *events: Event,
        blobs: Mapping[str, bytes] | None = None,
        within: Within | None = None,
    ) -> None:
        """
        Begin a stream that nobody drives yet.

        Args:
            stream: Of a run; it has no events.

            events: The first.

            blobs: Kept by digest in the same transaction.

            within: Called in that transaction; if it raises, nothing is stored.

        Raises:
            StoreError: They could not be stored.
        """
        ...

    async def claim(
        self,
        stream: str,
        *events: Event,
        after: int,
        trace: Trace | None = None,
        blobs: Mapping[str, bytes] | None = None,
    ) -> EventLog:
        """
        Add *events* to a stream that no living host drives, and return its log.

        Args:
            stream: Of a run.

            events: The first of the new driver, or a note.

            after: The number of its last event when it was read. If it has changed,
                nothing is stored.

            trace: As for `create`.

            blobs: Kept by digest in the same transaction.

        Raises:
            BusyError: A living host drives it, or it has grown since it was read.

            NotFoundError: It has no events.

            StoreError: They could not be stored.
        """
        ...


class Leases(Protocol):
    """Which hosts are alive and what they drive, where several share a store."""

    async def join(self, host: str) -> None:
        """
        Take the lease of the host with that stream, until the store is closed.

        Called once, before the first run: any host may take over a run whose host has
        not joined, or is dead.

        Raises:
            StoreError: The lease cannot be taken.
        """
        ...

    async def owner(self, run_id: str) -> str | None:
        """Return the stream of the living host that drives a run, or ``None``."""
        ...

    async def idle(self) -> list[RunRow]:
        """
        Return the runs under way that no living host drives, oldest first.

        Those are among them that no living host has in its queue. Suspended runs wait
        for a person, and are not among them.
        """
        ...

    async def hosts(self) -> list[str]:
        """Return the streams of the hosts that are alive, oldest first."""
        ...


class Requests(Protocol):
    """Requests to hosts, and their outcomes."""

    async def ask_run(
        self,
        run_id: str,
        kind: str,
        actor: dict[str, JSON],
        reason: str,
        subject: str | None = None,
    ) -> int:
        """
        Send a request to the host that drives a run, and return its number.

        Args:
            run_id: The run.

            kind: ``cancel``, or ``answer``.

            actor: The sender.

            reason: Why.

            subject: The answer, as JSON.

        Raises:
            NotFoundError: There is no such run.

            StoreError: It could not be stored.
        """
        ...

    async def ask_host(
        self,
        host: str,
        kind: str,
        actor: dict[str, JSON],
        reason: str,
        subject: str | None = None,
    ) -> int:
        """
        Send a request to a host, and return its number.

        Args:
            host: Its stream.

            kind: See `Request`.

            actor: The sender.

            reason: Why.

            subject: The part of the host that it concerns.

        Raises:
            StoreError: It could not be stored.
        """
        ...

    async def waiting(self, host: str) -> list[Request]:
        """Return the requests to *host* without an outcome, oldest first."""
        ...

    async def answer(self, request_id: int, outcome: str) -> None:
        """
        Store the outcome of a request, unless it has one.

        Raises:
            StoreError: It could not be stored.
        """
        ...

    async def outcome(self, request_id: int) -> str | None:
        """Return the outcome of a request, or ``None`` while it has none."""
        ...


class Definitions(Protocol):
    """Accepted definitions of tools, shared by all hosts."""

    async def accepted(self, servers: Collection[str]) -> dict[tuple[str, str], str]:
        """Return the digests of the accepted ones, by ``(server, tool)``."""
        ...

    async def accept(
        self,
        definitions: Mapping[tuple[str, str], bytes],
        actor: dict[str, JSON],
        *,
        anew: bool = False,
    ) -> None:
        """
        Accept *definitions* of tools, and keep them by digest.

        Args:
            definitions: By ``(server, tool)``.

            actor: Who accepts them.

            anew: Replace accepted definitions. Otherwise they stay, and only
                definitions of unknown tools are accepted.

        Raises:
            StoreError: They could not be stored.
        """
        ...


@dataclass(frozen=True, slots=True)
class ServerProtocol:
    """
    The protocol version that a server spoke last.

    Attributes:
        protocol: The version.

        legacy: Whether it is older than 2026, with a handshake.
    """

    protocol: str
    legacy: bool


class ServerProtocols(Protocol):
    """The protocol versions of servers, shared by all hosts."""

    async def protocol_of(self, key: str) -> ServerProtocol | None:
        """
        Return what the server with that *key* spoke lately, if it was met.

        Raises:
            StoreError: They cannot be read.
        """
        ...

    async def learn_protocol(self, key: str, protocol: ServerProtocol) -> None:
        """
        Remember what a server speaks.

        Raises:
            StoreError: It could not be stored.
        """
        ...


class SharedStore(Store, Protocol):
    """A store that several hosts share."""

    @property
    def leases(self) -> Leases:
        """Which hosts are alive and what they drive."""
        ...

    @property
    def requests(self) -> Requests:
        """Requests to hosts."""
        ...

    @property
    def definitions(self) -> Definitions:
        """Accepted definitions of tools."""
        ...

    @property
    def server_protocols(self) -> ServerProtocols:
        """The protocol versions of servers."""
        ...
