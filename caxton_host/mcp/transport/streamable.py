"""
A server over streamable HTTP: each request is a POST, and its answer the reply.

Like `jsonrpc.Peer`, it takes the place of the SDK's dispatcher, in which one failed
POST ends the session for all callers. Here it fails its own caller only. State between
requests is a session id, in protocols of before 2026, and idle connections.

The tool list is read again after a notification, after a failure, and when it expires.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator, Coroutine, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from mcp.shared.dispatcher import CallOptions
from mcp.shared.inbound import encode_header_value
from mcp_types.jsonrpc import HEADER_MISMATCH, UNSUPPORTED_PROTOCOL_VERSION

from ...core.calls import JSON
from ...core.tools.servers import ServerConfig
from ...errors import FailureKind, ToolError
from ...lib.http_rules import Unreachable, status_text
from ..auth.oauth import Access
from .frames import Event, Events
from .http_transport import Posts, Reply, opened, status_error
from .messages import (
    Answer,
    Heard,
    Refusal,
    answers,
    cancelled,
    encode,
    message_of,
    notification,
    outcome,
    refusal_of,
)
from .questions import Asker
from .timing import Throttle
from .wire import Link, Wire, longest

_JSON, _EVENTS = "application/json", "text/event-stream"

_LONGEST_REFUSAL = 64 * 1024
_LONGEST_ID = 1024

#: Messages in the background: seconds for each, and their number.
_CHORE_SECONDS = 5.0
_CHORES = 64
_FAREWELL_SECONDS = 1.0

_UNSOLICITED_A_SECOND = 1000
_LINES_A_MESSAGE = 200

#: Attempts in a row to resume an answer without progress; seconds before each.
_RESUMPTIONS = 2
_SOONEST = 0.1


@dataclass(slots=True)
class Mark:
    """
    The position at which a broken stream of events is resumed.

    Attributes:
        wait: Seconds before that, as the server requires.
    """

    id: str = ""
    wait: float = 1.0

    def pass_by(self, event: Event) -> None:
        """Note the position of an event. An id that cannot be sent back is ignored."""
        if event.id and event.id.isascii() and len(event.id) <= _LONGEST_ID:
            text = event.id.decode()
            self.id = text if text.isprintable() else self.id
        if event.retry is not None:
            self.wait = event.retry / 1000


class HttpPeer(Wire):
    """A server over streamable HTTP. See `Wire`."""

    def __init__(self, posts: Posts, *, limit: int) -> None:
        super().__init__()
        self._posts = posts
        self._limit = limit
        # Requests under way, for whose answers connections stay open at the end.
        self._asking = 0
        self._closing = False
        self._session: str | None = None
        self._protocol: str | None = None
        self._legacy = True
        self._chores: set[asyncio.Task[None]] = set()
        self._throttle = Throttle(_UNSOLICITED_A_SECOND)

    # -- requests --------------------------------------------------------------

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
        Send a request, and return its answer. See `Wire.request`.

        If the caller gives up, the connection is closed; servers of before 2026 get a
        notification as well.
        """
        del standing  # Each request has a connection of its own.
        if self.lost:
            raise ToolError(self.lost.kind, "no", str(self.lost))
        number, message = self._numbered(method, params, on_progress)
        named = self._named(method, params) | dict(headers or {})
        self._asking += 1
        if asker:
            self._askers[number] = asker
        try:
            async with asyncio.timeout_at(deadline):
                return await self._ask(
                    number,
                    encode(message).encode(),
                    named,
                    deadline,
                    again=method != "tools/call",
                )
        except (TimeoutError, asyncio.CancelledError) as exc:
            if (
                cancellable and self._legacy
            ):  # Since 2026 the closed connection cancels it.
                self._cancel(number)
            if isinstance(exc, TimeoutError):
                raise ToolError(
                    "timeout", "unknown", "the server did not answer in time"
                ) from None
            raise
        except (ToolError, Refusal) as exc:
            self._note(exc)
            raise
        finally:
            self._asking -= 1
            self._heard.pop(number, None)
            self._askers.pop(number, None)
            await self._let_go()

    def _named(self, method: str, params: Mapping[str, Any] | None) -> dict[str, str]:
        if self._legacy:
            return {}
        if method == "tools/call" and params is not None:
            return {"mcp-method": method, "mcp-name": params["name"]}
        if method == "resources/read" and params is not None:
            name = encode_header_value(params["uri"])
            return {"mcp-method": method, "mcp-name": name}
        return {"mcp-method": method}

    def _note(self, exc: ToolError | Refusal) -> None:
        """Note what a failure says about the connection."""
        if isinstance(exc, Refusal):
            if exc.code == HEADER_MISMATCH:
                self.changes += 1
            elif exc.code == UNSUPPORTED_PROTOCOL_VERSION and self._protocol:
                self.lose("protocol", "the server speaks another protocol now")
        elif isinstance(exc, Unreachable):
            self.lose(exc.kind, str(exc))
        elif exc.kind == "transport":
            # It may have restarted, with other tools.
            self.changes += 1

    def _cancel(self, number: int) -> None:
        self._tell(cancelled(number))

    async def _ask(
        self,
        number: int,
        body: bytes,
        named: Mapping[str, str],
        deadline: float,
        *,
        again: bool,
    ) -> Answer:
        self.tap.sent(body)
        shown = self._headers(named)
        with self._posts.failures():
            reply = await self._posts.send("POST", shown, body, deadline, again=again)
            kept = False
            try:
                if reply.status != HTTPStatus.OK:
                    raise await self._turned_down(reply, shown)
                self._learn_session(reply)
                if reply.kind == _JSON:
                    data = await reply.body(self._limit)
                    self.tap.answered(data)
                    return outcome(message_of(data, self._limit), number, len(data))
                if reply.kind != _EVENTS:
                    raise ToolError(
                        "protocol", "yes", "the answer is neither JSON nor events"
                    )
                reply.refuse_encoding()
                mark = Mark()
                answer = await self._follow(reply, number, mark)
                if answer is not None:
                    kept = self._chore(reply.rest())
                    return answer
            finally:
                if not kept:
                    await reply.close()
            return await self._resume(number, mark, deadline)

    def _headers(self, more: Mapping[str, str]) -> dict[str, str]:
        found = {"accept": f"{_JSON}, {_EVENTS}", "content-type": _JSON}
        if self._protocol:
            found["mcp-protocol-version"] = self._protocol
        if self._session:
            found["mcp-session-id"] = self._session
        return found | dict(more)

    def _learn_session(self, reply: Reply) -> None:
        session = reply.headers.get("mcp-session-id")
        if self._session is None and self._protocol is None and session:
            if len(session) > _LONGEST_ID or not session.isascii():
                raise ToolError("protocol", "yes", "the session id is not valid")
            self._session = session

    # -- statuses --------------------------------------------------------------

    async def _turned_down(self, reply: Reply, shown: Mapping[str, str]) -> Exception:
        """Return the error for a status other than 200, to a request with headers."""
        # Another request may have learnt meanwhile that the session is forgotten.
        in_session = "mcp-session-id" in shown
        status = reply.status
        self.tap.answered(b"HTTP " + status_text(status).encode())
        error = status_error(status)
        if error.sent == "no":
            return error
        if status == HTTPStatus.NOT_FOUND and in_session:
            return self._forgotten()
        message: dict[str, JSON] = {}
        if status >= HTTPStatus.BAD_REQUEST and reply.kind == _JSON:
            with suppress(ToolError):
                data = await reply.body(_LONGEST_REFUSAL)
                self.tap.answered(data)
                message = message_of(data, self._limit)
        if status == HTTPStatus.BAD_REQUEST and in_session and not message.get("id"):
            # Some servers answer so if they do not know the session.
            self.lose("transport", "the server refuses the session")
        return refusal_of(message) or error

    def _forgotten(self) -> ToolError:
        # Not repeated here: the log has to record a second send (law 2).
        self._session = None
        why = "the server has forgotten the session"
        self.lose("transport", why)
        return ToolError("transport", "no", why)

    # -- events ----------------------------------------------------------------

    async def _follow(
        self, reply: Reply, number: int | None, mark: Mark
    ) -> Answer | None:
        """Return the answer to request *number* among the events, or ``None``."""
        events = Events(self._limit)
        while chunk := await reply.chunk():
            weight = -events.lines / _LINES_A_MESSAGE
            for event in events.feed(chunk):
                mark.pass_by(event)
                weight += 1
                if event.name == b"message" and event.data:
                    self.tap.heard(event.data)
                    message = message_of(event.data, self._limit)
                    if "method" in message:
                        self._unasked(message, number)
                    elif number is not None and answers(message, number):
                        return outcome(message, number, len(event.data))
                    elif self.strays.drop():
                        self.lose("protocol", self.strays.reason)
            weight += events.lines / _LINES_A_MESSAGE
            if wait := self._throttle.spend(weight, self._loop.time()):
                await asyncio.sleep(wait)
        return None

    async def overhear(self) -> bool:
        """Read the stream of notifications of a server of before 2026."""
        headers = self._headers({"accept": _EVENTS})
        with self._posts.failures():
            reply = await self._posts.send("GET", headers, None, math.inf)
            try:
                if reply.status != HTTPStatus.OK or reply.kind != _EVENTS:
                    return False
                reply.refuse_encoding()
                await self._follow(reply, None, Mark())
            finally:
                await reply.close()
        return True

    async def _resume(self, number: int, mark: Mark, deadline: float) -> Answer:
        """Resume a broken answer, which protocols of before 2026 allow."""
        tries = 0
        while self._legacy and mark.id and tries < _RESUMPTIONS:
            await asyncio.sleep(max(mark.wait, _SOONEST))
            seen, tries = mark.id, tries + 1
            headers = self._headers({"accept": _EVENTS, "last-event-id": seen})
            reply = await self._posts.send("GET", headers, None, deadline)
            try:
                if reply.status != HTTPStatus.OK or reply.kind != _EVENTS:
                    break
                reply.refuse_encoding()
                answer = await self._follow(reply, number, mark)
            finally:
                await reply.close()
            if answer is not None:
                return answer
            if mark.id != seen:
                tries = 0
        raise ToolError("transport", "unknown", "the answer broke off")

    def _unasked(self, message: dict[str, JSON], number: int | None) -> None:
        if "id" not in message:
            self._notified(message)
        elif not self._legacy:
            raise ToolError("protocol", "yes", "the server asks instead of answering")
        else:
            self._requested(message, self._tell, number)

    # -- background ------------------------------------------------------------

    def _tell(self, message: Mapping[str, Any]) -> None:
        self._chore(self._send(message))

    async def _send(
        self,
        message: Mapping[str, Any] | None,
        headers: Mapping[str, str] | None = None,
        method: str = "POST",
    ) -> None:
        """Send a message that has no answer, and ignore failures."""
        body = None if message is None else encode(message).encode()
        deadline = self._loop.time() + _CHORE_SECONDS
        self.tap.sent(body or method.encode())
        with suppress(ToolError, TimeoutError):
            async with asyncio.timeout_at(deadline):
                with self._posts.failures():
                    named = self._headers(headers or {})
                    reply = await self._posts.send(method, named, body, deadline)
                    await reply.rest()

    def _chore(self, work: Coroutine[Any, Any, None]) -> bool:
        """Run a task in the background, unless there are too many."""
        if self._closing or len(self._chores) >= _CHORES:
            work.close()
            return False
        task = asyncio.create_task(work)
        self._chores.add(task)
        task.add_done_callback(self._chores.discard)
        return True

    async def notify(
        self,
        method: str,
        params: Mapping[str, Any] | None,
        opts: CallOptions | None = None,
    ) -> None:
        """Send a notification on behalf of the SDK's session."""
        await self._send(notification(method, params), (opts or {}).get("headers"))

    def settled(self, protocol: str, *, legacy: bool) -> None:
        """Note the protocol, which every request carries from now on."""
        self._protocol, self._legacy = protocol, legacy
        if not legacy:
            self._session = None

    # -- the end ---------------------------------------------------------------

    def lose(self, kind: FailureKind, why: str) -> None:
        """Send no more requests. Those under way may still be answered."""
        if self.lost is None:
            self.lost = ToolError(kind, "unknown", why)
            self._over.set()

    async def close(self, *, now: bool) -> None:
        """End the session and the connections: *now*, or after the last answer."""
        if self._session and self.lost is None:
            with suppress(TimeoutError):
                async with asyncio.timeout(_FAREWELL_SECONDS):
                    await self._send(None, method="DELETE")
        self.lose("transport", "the host ends")
        self._closing = True
        chores = [*self._chores]
        for chore in chores:
            chore.cancel()
        await asyncio.gather(*chores, return_exceptions=True)
        if now:
            self._asking = 0
        await self._let_go()

    async def _let_go(self) -> None:
        if self._closing and self._asking <= 0:
            await self._posts.close()


@asynccontextmanager
async def connect(
    config: ServerConfig, url: str, proxy: str | None, access: Access | None = None
) -> AsyncGenerator[Link]:
    """
    Reach a server during the block. Nothing is sent yet.

    Raises:
        ServerUnavailable: Its address or a header cannot be used.
    """
    posts = await opened(config, url, proxy, access)
    peer = HttpPeer(posts, limit=longest(config))
    try:
        yield Link(peer, str)
    except BaseException:
        await peer.close(now=True)
        raise
    await peer.close(now=False)
