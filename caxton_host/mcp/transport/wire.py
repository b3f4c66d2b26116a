"""What a session needs of a way to a server, whatever the transport."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from anyio import TASK_STATUS_IGNORED

from ...core.calls import JSON
from ...core.tools.servers import Elicitation, ServerConfig
from ...errors import FailureKind, ToolError

if TYPE_CHECKING:
    from anyio.abc import TaskStatus
    from mcp.shared.dispatcher import (
        CallOptions,
        OnNotify,
        OnNotifyIntercept,
        OnRequest,
    )

    from .reports import Heard


logger = logging.getLogger(__name__)

_ENVELOPE = 64 * 1024
_PAGE = 1024 * 1024

#: Answers to nothing that a connection survives.
_STRAYS = 1000

#: How much longer an answer may be that is cut, and not refused.
_CUT = 4


class Answer(NamedTuple):
    """
    The result of a request.

    Attributes:
        size: Bytes of the message it came in.
    """

    result: dict[str, JSON]
    size: int


class Strays:
    """
    Answers that belong to no waiting call: with a wrong id, or sent twice.

    They are the fault of the server and of no call, so they are dropped. The log gets
    a line for the first one, the tenth and so on.

    Attributes:
        count: How many there were on this connection.
    """

    def __init__(self, server: str = "") -> None:
        self._server = server
        self.count = 0

    def drop(self) -> bool:
        """Count one, and return whether there are too many for the connection."""
        self.count += 1
        if self.count in {1, 10, 100, _STRAYS}:
            logger.warning(
                "MCP: %s answered a request that is not waiting; dropped, %d so far",
                *(self._server, self.count),
            )
        return self.count > _STRAYS

    @property
    def reason(self) -> str:
        """Why the connection is replaced, if there are too many."""
        return f"the server answered {self.count} requests that were not waiting"


class Tap:
    """Is told every message, and does nothing with it. See `wirelog`."""

    def sent(self, data: bytes) -> None:
        """Take a message to the server."""

    def answered(self, data: bytes) -> None:
        """Take what came as an answer."""

    def heard(self, data: bytes) -> None:
        """Take what came, whatever it is."""


class Wire(Protocol):
    """
    The other end of a connection; also a `Dispatcher` of the SDK's session.

    Attributes:
        lost: Why nothing can be asked any more, or ``None``.

        changes: How often the tools may have become others.

        elicitation: What the server gets that asks a person something.

        tap: Is told every message.

        strays: Answers so far that belong to no waiting call.
    """

    lost: ToolError | None
    changes: int
    elicitation: Elicitation
    tap: Tap
    strays: Strays

    @property
    def broken(self) -> bool:
        """Whether the bytes have ended; why, follows."""
        ...

    @property
    def ready(self) -> bool:
        """Whether the server has read what was sent before."""
        ...

    async def request(  # noqa: PLR0913 -- as the protocol has it
        self,
        method: str,
        params: Mapping[str, Any] | None,
        deadline: float,
        *,
        cancellable: bool = True,
        headers: Mapping[str, str] | None = None,
        on_progress: Heard | None = None,
        standing: bool = False,
    ) -> Answer:
        """
        Ask, and return the answer; *headers* are for HTTP alone.

        With *on_progress* the server is asked to tell how far it is.

        One that is *standing* is answered at the end, and nobody waits for it.
        """
        ...

    async def overhear(self) -> bool:
        """
        Hear what a server of before 2026 says unasked, until it stops.

        Return whether there was anything to hear on.
        """
        ...

    def settled(self, protocol: str, *, legacy: bool) -> None:
        """Take note that the handshake is over."""
        ...

    async def writable(self) -> None:
        """Wait until the server has read what was sent before."""
        ...

    async def ended(self) -> ToolError:
        """Wait until the connection ends, and return why."""
        ...

    def lose(self, kind: FailureKind, why: str) -> None:
        """End the connection."""
        ...

    async def send_raw_request(
        self,
        method: str,
        params: Mapping[str, Any] | None,
        opts: CallOptions | None = None,
    ) -> dict[str, Any]:
        """Ask on behalf of the SDK's session."""
        ...

    async def notify(
        self,
        method: str,
        params: Mapping[str, Any] | None,
        opts: CallOptions | None = None,
    ) -> None:
        """Tell, on behalf of the SDK's session."""
        ...

    async def run(
        self,
        on_request: OnRequest,
        on_notify: OnNotify,
        on_notify_intercept: OnNotifyIntercept | None = None,
        *,
        task_status: TaskStatus[None] = TASK_STATUS_IGNORED,
    ) -> None:
        """Stay until the connection ends."""
        ...


class Link(NamedTuple):
    """
    A way to a server.

    Attributes:
        last_words: Returns the end of what it wrote for people.
    """

    peer: Wire
    last_words: Callable[[], str]


def longest(config: ServerConfig) -> int:
    """Return the bytes of a message: a result and its envelope, or a page of tools."""
    # What is cut has to be read first.
    result = config.max_result * (_CUT if config.cuts else 1)
    return max(result, _PAGE) + _ENVELOPE
