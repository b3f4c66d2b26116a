"""The other end of a connection, whatever the transport, and a log of its messages."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from anyio import TASK_STATUS_IGNORED

from ...core.calls import JSON
from ...core.text.redact import Redactor, plain
from ...core.tools.servers import Elicitation, ServerConfig
from ...errors import FailureKind, ToolError
from ...ports.watch import Clock
from .messages import ELICIT, Answer, Heard, Refusal, progress_of, reply_to, tokened
from .questions import Asker

if TYPE_CHECKING:
    from anyio.abc import TaskStatus
    from mcp.shared.dispatcher import (
        CallOptions,
        OnNotify,
        OnNotifyIntercept,
        OnRequest,
    )


logger = logging.getLogger(__name__)

_ENVELOPE = 64 * 1024
_PAGE = 1024 * 1024

#: Stray answers that a connection survives.
_STRAYS = 1000

#: The factor by which an answer may exceed its limit, if it is cut to it.
_CUT = 4

#: The path that means standard error.
STDERR = "-"

#: Characters of a message in the log of messages.
_LONGEST_LOGGED = 64 * 1024

#: Seconds for a request of the SDK's session, which has deadlines of its own.
_HANDSHAKE_S = 3600.0


class Strays:
    """
    Answers that belong to no waiting call: with a wrong id, or sent twice.

    They are dropped, since no call is at fault. The first, the tenth and so on are
    logged.

    Attributes:
        count: Their number on this connection.
    """

    def __init__(self, server: str = "") -> None:
        self._server = server
        self.count = 0

    def drop(self) -> bool:
        """Count one, and return whether the connection has to end."""
        self.count += 1
        if self.count in {1, 10, 100, _STRAYS}:
            logger.warning(
                "MCP: %s answered a request that is not waiting; dropped, %d so far",
                *(self._server, self.count),
            )
        return self.count > _STRAYS

    @property
    def reason(self) -> str:
        """Why the connection ends."""
        return f"the server answered {self.count} requests that were not waiting"


class Tap:
    """Ignores every message. See `WireTap`."""

    def sent(self, data: bytes) -> None:
        """Take a message that is sent."""

    def answered(self, data: bytes) -> None:
        """Take an answer."""

    def heard(self, data: bytes) -> None:
        """Take a message that arrived."""


class Wire(ABC):
    """
    The other end of a connection; also a `Dispatcher` of the SDK's session.

    Attributes:
        lost: Why the connection has ended, or ``None``.

        broken: The bytes have ended; the reason follows.

        changes: How often the tools may have changed.

        elicitation: How requests for input are answered.

        tap: Is given every message.

        strays: Answers so far that belong to no waiting call.
    """

    def __init__(self) -> None:
        self.lost: ToolError | None = None
        self.broken = False
        self.changes = 0
        self.elicitation: Elicitation = "refuse"
        self.tap = Tap()
        self.strays = Strays()
        self._loop = asyncio.get_running_loop()
        self._over = asyncio.Event()
        self._last_id = 0
        # By number of a request: the receiver of its progress reports.
        self._heard: dict[int, Heard] = {}
        # By number of a request: what answers the questions of the server.
        self._askers: dict[int, Asker] = {}

    @property
    def ready(self) -> bool:
        """Whether the server has read what was sent before."""
        return True

    @abstractmethod
    async def request(  # noqa: PLR0913 -- as the protocol has it
        self,
        method: str,
        params: Mapping[str, Any] | None,
        deadline: float,
        *,
        cancellable: bool = True,
        headers: Mapping[str, str] | None = None,
        on_progress: Heard | None = None,
        asker: Asker | None = None,
        standing: bool = False,
    ) -> Answer:
        """
        Send a request, and return the answer that comes before *deadline*.

        Args:
            method: The method.

            params: Its parameters.

            deadline: On the clock of the event loop.

            cancellable: Cancel the request at the server if the caller gives up.

            headers: For HTTP only.

            on_progress: Requests progress reports, and is called with each.

            asker: Answers the requests of the server that are about this one.

            standing: The answer comes at the end of the connection.

        Raises:
            ToolError: There is no answer, or none that is valid.

            Refusal: The server answered with an error.
        """

    @abstractmethod
    async def notify(
        self,
        method: str,
        params: Mapping[str, Any] | None,
        opts: CallOptions | None = None,
    ) -> None:
        """Send a notification on behalf of the SDK's session."""

    @abstractmethod
    def settled(self, protocol: str, *, legacy: bool) -> None:
        """Note that the handshake is over."""

    @abstractmethod
    def lose(self, kind: FailureKind, why: str) -> None:
        """End the connection."""

    async def overhear(self) -> bool:
        """
        Read the stream of notifications of a server of before 2026, until it ends.

        Return whether there was one. By default notifications arrive anyway.
        """
        return False

    async def writable(self) -> None:
        """Wait until the server has read what was sent before."""
        return

    async def ended(self) -> ToolError:
        """Wait until the connection ends, and return why."""
        await self._over.wait()
        return self.lost or ToolError("transport", "no", "")

    async def send_raw_request(
        self,
        method: str,
        params: Mapping[str, Any] | None,
        opts: CallOptions | None = None,
    ) -> dict[str, Any]:
        """Send a request on behalf of the SDK's session. See `request`."""
        options: CallOptions = opts or {}
        try:
            answer = await self.request(
                method,
                params,
                self._loop.time() + self._patience(options),
                cancellable=options.get("cancel_on_abandon", True),
                headers=options.get("headers"),
            )
        except Refusal as exc:
            raise exc.for_sdk() from None
        return answer.result

    def _patience(self, options: CallOptions) -> float:
        return options.get("timeout", _HANDSHAKE_S)

    async def run(
        self,
        on_request: OnRequest,
        on_notify: OnNotify,
        on_notify_intercept: OnNotifyIntercept | None = None,
        *,
        task_status: TaskStatus[None] = TASK_STATUS_IGNORED,
    ) -> None:
        """Wait until the connection ends; the session handles no message itself."""
        del on_request, on_notify, on_notify_intercept
        task_status.started()
        await self._over.wait()

    def _numbered(
        self, method: str, params: Mapping[str, Any] | None, heard: Heard | None
    ) -> tuple[int, dict[str, Any]]:
        """Return a new request, and its number."""
        self._last_id = number = self._last_id + 1
        message: dict[str, Any] = {"jsonrpc": "2.0", "id": number, "method": method}
        if heard:
            params = tokened(params, number)
            self._heard[number] = heard
            heard.numbered(number)
        if params is not None:
            message["params"] = params
        return number, message

    def _requested(
        self,
        message: Mapping[str, JSON],
        send: Callable[[Mapping[str, Any]], object],
        about: int | None = None,
    ) -> None:
        """Answer a request of the server, which is *about* one of the host if known."""
        if about is None and len(self._askers) == 1:
            (about,) = self._askers
        asker = self._askers.get(about or 0)
        if message["method"] == ELICIT and asker:
            asker.take(message, send)
        else:
            send(reply_to(message, self.elicitation))

    def _notified(self, message: Mapping[str, JSON]) -> None:
        """Handle a notification of the server."""
        if message["method"] == "notifications/tools/list_changed":
            self.changes += 1
        elif told := progress_of(message):
            number, params = told
            if heard := self._heard.get(number):
                heard(params)


class Link(NamedTuple):
    """
    A connection to a server.

    Attributes:
        last_words: Returns the end of its standard error.
    """

    peer: Wire
    last_words: Callable[[], str]


def longest(config: ServerConfig) -> int:
    """Return the largest message in bytes: a result with envelope, or a tool page."""
    # What is cut has to be read first.
    result = config.max_result * (_CUT if config.cuts else 1)
    return max(result, _PAGE) + _ENVELOPE


class WireTap(Tap):
    """
    Writes a line for each message of one server.

    Messages are written before they are parsed, so that secrets are found in any form.
    Of HTTP only bodies and statuses are written, never headers or addresses.

    Args:
        server: Its configured name.

        path: The file to append to, or `STDERR`.

        redact: Removes secrets.

        clock: For the time of a line.
    """

    def __init__(self, server: str, path: str, redact: Redactor, clock: Clock) -> None:
        self._server = server
        self._path = path
        self._redact = redact
        self._clock = clock
        self._failed = False

    def sent(self, data: bytes) -> None:
        """Write a message that is sent."""
        self._tell("POST", data)

    def answered(self, data: bytes) -> None:
        """Write an answer."""
        self._tell("RESP", data)

    def heard(self, data: bytes) -> None:
        """Write a message that arrived: an answer, or an unsolicited one."""
        self._tell("RESP" if _answers(data) else "RECV", data)

    def _tell(self, way: str, data: bytes) -> None:
        said = data.decode(errors="replace").strip()
        then = datetime.fromtimestamp(self._clock.now() / 1e6, UTC)
        stamp = f"{then:%Y-%m-%dT%H:%M:%S}.{then.microsecond // 1000:03}Z"
        text = plain(said, self._redact, _LONGEST_LOGGED)
        self._write(f"{stamp} MCP {way} {self._server} {text}\n")

    def _write(self, line: str) -> None:
        if self._path == STDERR:
            sys.stderr.write(line)
            return
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
        try:
            file = os.open(self._path, flags, 0o600)
            try:
                # One write, so that the lines of several servers do not mix.
                os.write(file, line.encode())
            finally:
                os.close(file)
        except OSError as exc:
            # A file that cannot be written must not fail a call.
            if not self._failed:
                said = "MCP: cannot write %s: %s. To fix: make it writable, and "
                said += "free disk space"
                logger.warning(said, self._path, exc.strerror)
            self._failed = True


def tap_of(config: ServerConfig, redact: Redactor, clock: Clock) -> Tap:
    """Return the tap that a server is configured with."""
    if config.wire_log is None:
        return Tap()
    return WireTap(config.name, config.wire_log, redact, clock)


def _answers(data: bytes) -> bool:
    try:
        message: Any = json.loads(data)
    except (ValueError, RecursionError):
        return False
    return isinstance(message, dict) and "method" not in message and "id" in message
