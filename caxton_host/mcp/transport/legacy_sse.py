"""
A server over the first transport of MCP on HTTP, of 2024, deprecated since 2025.

One GET is a stream of events. Its first event names the address for requests, whose
answers come as events. So it is a connection of lines, and `jsonrpc.Peer` matches
answers to requests. A failed POST fails its own call; the end of the stream fails all.
A lost stream is not resumed: the next call opens a new one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from ...core.tools.servers import ServerConfig
from ...errors import ToolError
from ...lib.http_rules import status_text
from ..auth.oauth import Access
from .frames import DISCARD, Event, Events
from .http_transport import Posts, Reply, opened, status_error
from .jsonrpc import Peer
from .messages import encode, notification
from .timing import Throttle
from .wire import Link, longest

if TYPE_CHECKING:
    import httpcore2
    from mcp.shared.dispatcher import CallOptions


_JSON, _EVENTS = "application/json", "text/event-stream"

#: Events before the one that names the address for requests.
_EVENTS_AT_START = 50
_LONGEST_ADDRESS = 4096

#: Messages in the background: seconds for each, and their number.
_CHORE_SECONDS = 5.0
_CHORES = 64

_UNSOLICITED_A_SECOND = 1000
_LINES_A_MESSAGE = 200


class SsePeer(Peer):
    """A server over HTTP with server-sent events. See `Wire`."""

    def __init__(self, posts: Posts, *, limit: int, start_timeout: float) -> None:
        super().__init__(self._tell, limit=limit, on_lost=_nothing)
        self._posts = posts
        self._start_timeout = start_timeout
        self._events = Events(limit, discard=DISCARD)
        self._address: asyncio.Future[httpcore2.URL] = self._loop.create_future()
        self._protocol: str | None = None
        self._chores: set[asyncio.Task[None]] = set()
        self._throttle = Throttle(_UNSOLICITED_A_SECOND)
        self._post = self._ask
        self._reading = asyncio.create_task(self._read())

    # -- the stream ------------------------------------------------------------

    async def _read(self) -> None:
        try:
            with self._posts.failures():
                await self._stream()
        except ToolError as exc:
            self.lose(exc.kind, str(exc))
        finally:
            self.lose("transport", "the server ended the stream of its answers")

    async def _stream(self) -> None:
        deadline = self._loop.time() + self._start_timeout
        # The deadline is for the head; callers that wait for events have their own.
        reply = await self._posts.send("GET", {"accept": _EVENTS}, None, deadline)
        try:
            _check(reply)
            while self.lost is None and (chunk := await reply.chunk()):
                before = self._events.lines
                for event in self._events.feed(chunk):
                    self._event(event)
                weight = (self._events.lines - before) / _LINES_A_MESSAGE
                weight += self.unsolicited
                self.unsolicited = 0
                if wait := self._throttle.spend(weight, self._loop.time()):
                    await asyncio.sleep(wait)
        finally:
            await reply.close()

    def _event(self, event: Event) -> None:
        if not self._address.done():
            self._learn_address(event)
        elif event.overlong:
            self.take(event.overlong)
        elif event.name == b"message" and event.data:
            self.take(event.data)
        else:
            self.unsolicited += 1

    def _learn_address(self, event: Event) -> None:
        if event.name != b"endpoint":
            self.junk += 1
            if event.overlong or self.junk > _EVENTS_AT_START:
                raise ToolError(
                    "protocol", "no", "the server names no address for requests"
                )
            return
        if len(event.data) > _LONGEST_ADDRESS or not event.data.isascii():
            raise ToolError("protocol", "no", "the address for requests is not valid")
        self._address.set_result(self._posts.beside(event.data.decode()))

    # -- requests --------------------------------------------------------------

    def settled(self, protocol: str, *, legacy: bool) -> None:
        """Note the protocol, which every request carries from now on."""
        super().settled(protocol, legacy=legacy)
        self._protocol = protocol

    async def notify(
        self,
        method: str,
        params: Mapping[str, Any] | None,
        opts: CallOptions | None = None,
    ) -> None:
        """Send a notification for the SDK's session, before its next request."""
        del opts
        line = encode(notification(method, params)).encode()
        self.tap.sent(line)
        await self._send_chore(line)

    def _ask(self, number: int, line: bytes, deadline: float) -> None:
        task = asyncio.create_task(self._send_request(number, line, deadline))
        # Once the request is answered or given up, the reply to the POST is ignored.
        self._pending[number].add_done_callback(lambda _: self._linger(task))

    async def _send_request(self, number: int, line: bytes, deadline: float) -> None:
        try:
            status = await self._send_post(line, deadline)
        except ToolError as exc:
            self._spoil(number, exc)
            return
        if refused := _refusal(status):
            self._spoil(number, refused)
        if status == HTTPStatus.NOT_FOUND:
            self.lose("transport", "the server has forgotten the session")

    def _linger(self, task: asyncio.Task[None]) -> None:
        self._watch(task)
        timer = self._loop.call_later(_CHORE_SECONDS, task.cancel)
        task.add_done_callback(lambda _: timer.cancel())

    def _tell(self, line: bytes) -> None:
        # It may fail: nothing depends on it.
        self._watch(asyncio.create_task(self._send_chore(line)))

    async def _send_chore(self, line: bytes) -> None:
        """Send a message that has no answer, and ignore failures."""
        deadline = self._loop.time() + _CHORE_SECONDS
        with suppress(ToolError, TimeoutError):
            async with asyncio.timeout_at(deadline):
                await self._send_post(line, deadline)

    async def _send_post(self, line: bytes, deadline: float) -> int:
        address = await asyncio.shield(self._address)
        headers = {"content-type": _JSON}
        if self._protocol:
            headers["mcp-protocol-version"] = self._protocol
        with self._posts.failures():
            # After the handshake it may be a call, which is not repeated here.
            again = self._protocol is None
            reply = await self._posts.send(
                "POST", headers, line, deadline, address, again=again
            )
            await reply.rest()
        return reply.status

    def _watch(self, task: asyncio.Task[None]) -> None:
        """Keep a background task, unless there are too many."""
        if len(self._chores) >= _CHORES:
            task.cancel()
        self._chores.add(task)
        task.add_done_callback(self._chores.discard)

    # -- the end ---------------------------------------------------------------

    async def close(self) -> None:
        """End the stream, and every request."""
        self.lose("transport", "the host ends")
        # One turn of the loop, in which failed requests become chores.
        await asyncio.sleep(0)
        ending = [self._reading, *self._chores]
        for task in ending:
            task.cancel()
        await asyncio.gather(*ending, return_exceptions=True)
        await self._posts.close()


@asynccontextmanager
async def connect(
    config: ServerConfig, url: str, proxy: str | None, access: Access | None = None
) -> AsyncGenerator[Link]:
    """
    Open the stream of a server during the block.

    Raises:
        ServerUnavailable: Its address or a header cannot be used.
    """
    posts = await opened(config, url, proxy, access)
    peer = SsePeer(posts, limit=longest(config), start_timeout=config.start_timeout)
    try:
        yield Link(peer, str)
    finally:
        await peer.close()


def _check(reply: Reply) -> None:
    """Refuse an answer that is not an event stream."""
    if reply.status != HTTPStatus.OK:
        said = status_text(reply.status)
        raise ToolError("transport", "no", f"the server answered {said}")
    if reply.kind != _EVENTS:
        raise ToolError("protocol", "no", "the answer is not an event stream")
    reply.refuse_encoding()


def _refusal(status: int) -> ToolError | None:
    """Return the error for the status of a POST, or ``None``."""
    if status < HTTPStatus.MULTIPLE_CHOICES:
        return None
    if (
        status == HTTPStatus.NOT_FOUND
    ):  # The session is unknown, so nothing was executed.
        said = status_text(status)
        return ToolError("transport", "no", f"the server answered {said}")
    return status_error(status)


def _nothing(_why: ToolError) -> None:
    """Do nothing: the owner of the connection closes it."""
