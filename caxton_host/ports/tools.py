"""How tool servers are reached."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from ..core.calls import JSON, Completed
from ..core.grants.grants import Grant
from ..core.grants.tool_catalog import Offered
from ..core.tools.contexts import ServerResource


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """
    How far a call is.

    Attributes:
        progress: Grows with each report of a server; ``None`` where it is not the
            server that reports.

        total: What it grows to, if the server knows.
    """

    progress: float | None = None
    total: float | None = None
    message: str | None = None


def ignore(_: Progress) -> None:
    """Do nothing with a report that nobody waits for."""


async def unrecorded() -> None:
    """Do nothing before a further send: there is no log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunScope:
    """
    The run that tools are opened for.

    Attributes:
        context: Its variables, with those that are never recorded.

        private: The names of those.

        trigger: What began it: ``cli``, ``api``, ``mcp``, ``schedule``, ``agent``.
    """

    run_id: str
    agent: str
    context: Mapping[str, JSON] = field(default_factory=dict[str, JSON], repr=False)
    private: Collection[str] = ()
    trigger: str = "cli"


@dataclass(frozen=True, slots=True, kw_only=True)
class Asker:
    """
    Who asks for an answer that may be another call's: of the same asker alone.

    Attributes:
        grants: All that allowed the call.

        params_sha256: Digest of the agent's own bytes.
    """

    agent: str
    grants: tuple[Grant, ...]
    params_sha256: str


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

        timeout: Seconds until it fails, if its server is not less patient.

        quiet: What the tool says is not for others as it is.

        asker: Who asks, if the tool only reads.

        queued: Entered while the call waits for its turn and nothing of it has left
            the host; left when its turn comes.
        guessed: See `Route`.

        on_resend: Awaited before each send after the first that the server itself
            asked for. What it raises ends the run.

        on_progress: Called with each report, from the event loop.
    """

    run_id: str
    call: int
    server: str
    tool: str
    params: dict[str, JSON]
    definition_sha256: str | None
    idempotency_key: str
    attempt: int = 1
    timeout: float | None = None
    quiet: bool = False
    asker: Asker | None = field(default=None, compare=False)
    queued: Callable[[], AbstractContextManager[None]] = field(
        default=nullcontext, compare=False, repr=False
    )
    guessed: bool = False
    on_resend: Callable[[], Awaitable[None]] = field(
        default=unrecorded, compare=False, repr=False
    )
    on_progress: Callable[[Progress], None] = field(
        default=ignore, compare=False, repr=False
    )


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

    async def resources(
        self, servers: Collection[str], scope: RunScope
    ) -> Sequence[ServerResource]:
        """
        Read the resources of *servers*, of those that runs are to have.

        One that cannot be read has its error instead of a value.

        Raises:
            ServerUnavailable: One that is ``required`` cannot be read.
        """
        ...

    async def call_tool(self, request: ToolRequest) -> Completed:
        """
        Send *request* once, and return the bounded, redacted answer.

        Raises:
            ToolError: There is none.
        """
        ...


@runtime_checkable
class ToolSource(Protocol):
    """Where runs get their tools from."""

    def open(self, scope: RunScope) -> AbstractAsyncContextManager[ToolClient]:
        """
        Return the tools of one run, which are its own for as long as it is driven.

        What is configured meanwhile is for runs that begin later.
        """
        ...


class ToolService(ToolClient, ToolSource, Protocol):
    """Tools that can be used as they are, and for one run."""
