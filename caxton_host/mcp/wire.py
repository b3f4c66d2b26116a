"""What a session needs of a way to a server, whatever the transport."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from anyio import TASK_STATUS_IGNORED

from ..core.calls import JSON, FailureKind
from ..core.servers import ServerConfig
from ..errors import ToolError

if TYPE_CHECKING:
    from anyio.abc import TaskStatus
    from mcp.shared.dispatcher import (
        CallOptions,
        OnNotify,
        OnNotifyIntercept,
        OnRequest,
    )

__all__ = ["Answer", "Link", "Tap", "Wire", "longest"]

_ENVELOPE = 64 * 1024
_PAGE = 1024 * 1024


class Answer(NamedTuple):
    """
    The result of a request.

    Attributes:
        size: Bytes of the message it came in.
    """

    result: dict[str, JSON]
    size: int


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

        tap: Is told every message.
    """

    lost: ToolError | None
    changes: int
    tap: Tap

    @property
    def broken(self) -> bool:
        """Whether the bytes have ended; why, follows."""
        ...

    @property
    def ready(self) -> bool:
        """Whether the server has read what was sent before."""
        ...

    async def request(  # noqa: PLR0913 -- what a request may be
        self,
        method: str,
        params: Mapping[str, Any] | None,
        deadline: float,
        *,
        cancellable: bool = True,
        headers: Mapping[str, str] | None = None,
        standing: bool = False,
    ) -> Answer:
        """
        Ask, and return the answer; *headers* are for HTTP alone.

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
    return max(config.max_result, _PAGE) + _ENVELOPE
