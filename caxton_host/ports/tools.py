"""How tool servers are reached."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias, runtime_checkable

from ..core.calls import JSON, Completed
from ..core.grants.bounds import Bound
from ..core.grants.grants import Grant
from ..core.grants.tool_catalog import Offered
from ..core.limits import Limits
from ..core.questions import To
from ..core.tools.contexts import ServerResource
from .log import Refused, Reservation
from .watch import Fields


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """
    A progress report of a call.

    Attributes:
        progress: Grows with each report of a server; ``None`` in reports of the host.

        total: Its final value, if the server knows it.
    """

    progress: float | None = None
    total: float | None = None
    message: str | None = None


def ignore(_: object) -> None:
    """Ignore a report."""


async def unrecorded() -> None:
    """Do nothing before a further send: there is no log."""


async def uncounted(_: Sequence[Reservation]) -> Refused | None:
    """Reserve nothing: there is no log."""
    return None


#: Puts a question of a server to people: its name and its parameters, which are not
#: trusted; who is asked; and for how many seconds. Returns the answer, as MCP has it.
Ask: TypeAlias = Callable[[str, JSON, To, float], Awaitable[dict[str, JSON]]]


async def decline(_: str, __: JSON, ___: To, ____: float) -> dict[str, JSON]:
    """Decline a question: there is nobody to ask."""
    return {"action": "decline"}


@dataclass(frozen=True, slots=True, kw_only=True)
class RunScope:
    """
    The run that tools are opened for.

    Attributes:
        context: Its variables, including private ones.

        private: The names of the variables that are never recorded.

        trigger: What started it: ``cli``, ``api``, ``mcp``, ``schedule``, ``agent``.

        actor: Who asked for it.

        callers: The runs that wait for it, the top one first.

        limits: Its bounds.

        unvouched: The names of variables that no operator gave.
    """

    run_id: str
    agent: str
    context: Mapping[str, JSON] = field(default_factory=dict[str, JSON], repr=False)
    private: Collection[str] = ()
    trigger: str = "cli"
    actor: Mapping[str, JSON] = field(default_factory=dict[str, JSON])
    callers: tuple[str, ...] = ()
    limits: Limits = field(default_factory=Limits)
    unvouched: Collection[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Asker:
    """
    Who makes a call. Answers are shared only between equal askers.

    Attributes:
        grants: The grants that allowed the call.

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

        params: The parameters, as they were judged.

        definition_sha256: The definition that the run was shown, or ``None``. If the
            current one differs, the call fails with kind ``changed``.

        idempotency_key: The same for every attempt of this call.

        attempt: 1 for the first send.

        timeout: Seconds until it fails, unless the timeout of its server is shorter.

        quiet: The answer must not be shown or traced as it is.

        asker: Who makes the call, if the tool only reads.

        queued: Entered while the call waits for its turn, before anything is sent.

        guessed: See `Route`.

        handed: The grants that bind a run that answers the call.

        reserve: Awaited to spend what all hosts share, before each send; see
            `EventLog.append`.

        on_resend: Awaited before each further send that the server asks for. An
            exception ends the run.

        on_progress: Called with each report, from the event loop.

        on_wire: Called with what the protocol says of the request and of its answer.

        on_question: Awaited with each question of the server.
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
    handed: tuple[Bound, ...] = field(default=(), compare=False, repr=False)
    reserve: Callable[[Sequence[Reservation]], Awaitable[Refused | None]] = field(
        default=uncounted, compare=False, repr=False
    )
    on_resend: Callable[[], Awaitable[None]] = field(
        default=unrecorded, compare=False, repr=False
    )
    on_progress: Callable[[Progress], None] = field(
        default=ignore, compare=False, repr=False
    )
    on_wire: Callable[[Fields], None] = field(default=ignore, compare=False, repr=False)
    on_question: Ask = field(default=decline, compare=False, repr=False)


class ToolClient(Protocol):
    """A client of tool servers."""

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
        Read the selected resources of *servers*; by default, there are none.

        One that cannot be read has its error instead of a value.

        Raises:
            ServerUnavailable: One that is ``required`` cannot be read.
        """
        del servers, scope
        return ()

    async def call_tool(self, request: ToolRequest) -> Completed:
        """
        Send *request* once, and return the bounded, redacted answer.

        Raises:
            ToolError: There is no valid answer.
        """
        ...


@runtime_checkable
class ToolSource(Protocol):
    """Where runs get their tools from."""

    def open(self, scope: RunScope) -> AbstractAsyncContextManager[ToolClient]:
        """
        Return the tools of one run, which stay the same while it is driven.

        A new configuration applies to runs that start later.
        """
        ...


class ToolService(ToolClient, ToolSource, Protocol):
    """Tools that can be used as they are, and for one run."""
