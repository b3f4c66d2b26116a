"""
JSON-RPC over a stream of lines: match answers to requests, and check every line.

Takes the place of the SDK's own dispatcher below its session (the SDK's `Dispatcher`
protocol), because that one sees only what was parsed: a line that is not a message
leaves its caller waiting for the deadline. No I/O: bytes come in by `Peer.feed`, and
leave by the function it is given.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from ...core.calls import JSON
from ...errors import BadBytes, FailureKind, ToolError
from ...lib.codec import load_json
from .frames import Lines, Overlong
from .messages import Answer, Heard, Refusal, cancelled, encode, notification
from .questions import Asker
from .timing import Alarms
from .wire import Wire

if TYPE_CHECKING:
    from mcp.shared.dispatcher import CallOptions


#: Invalid lines that are tolerated: before the handshake, and later while idle.
_JUNK_AT_START = 50
_JUNK_IN_IDLE = 1000

#: Requests that were given up whose late answers are recognized.
_REMEMBERED = 1000


class Peer(Wire):
    """
    A server that speaks JSON-RPC in lines. See `Wire`.

    Attributes:
        strict: The handshake is over: an invalid line ends the connection if a request
            waits.

        unsolicited: Messages that answered nothing; the transport resets the count.

        junk: Invalid lines so far.

        late: Answers so far to requests that had been given up.
    """

    def __init__(
        self,
        write: Callable[[bytes], None],
        *,
        limit: int,
        on_lost: Callable[[ToolError], None],
    ) -> None:
        super().__init__()
        self._write = write
        # Sends a request, on transports that send each one separately.
        self._post: Callable[[int, bytes, float], None] | None = None
        self._limit = limit
        self._on_lost = on_lost
        self._alarms = Alarms()
        self._pending: dict[int, asyncio.Future[Answer]] = {}
        # The number of standing requests, which invalid lines do not fail.
        self._standing = 0
        self._given_up: dict[int, None] = {}
        self._lines = Lines(limit)
        self._writable = asyncio.Event()
        self._writable.set()
        self.strict = False
        self.unsolicited = 0
        self.junk = 0
        self.late = 0

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

        An invalid line is not taken for a broken answer to a *standing* request.
        """
        del headers  # There are no headers in lines.
        if self.lost or self.broken:
            why = await self.ended()
            raise ToolError(why.kind, "no", str(why))
        number, message = self._numbered(method, params, on_progress)
        line = _line_of(message)
        self.tap.sent(line)
        future: asyncio.Future[Answer] = self._loop.create_future()
        self._pending[number] = future
        self._standing += standing
        if asker:
            self._askers[number] = asker
        if self._post is None:
            self._write(line)
        else:
            self._post(number, line, deadline)
        alarm = self._alarms.at(deadline, partial(self._expire, number))
        try:
            return await future
        finally:
            self._alarms.off(alarm)
            self._heard.pop(number, None)
            self._askers.pop(number, None)
            self._standing -= standing
            if self._pending.pop(number, None):
                self._give_up(number)
                if cancellable:
                    self._cancel(number)

    @property
    def _awaiting(self) -> bool:
        return len(self._pending) > self._standing

    def _expire(self, number: int) -> None:
        why = "the server did not answer in time"
        self._spoil(number, ToolError("timeout", "unknown", why))

    def _spoil(self, number: int, error: ToolError) -> None:
        # Stays pending: the caller removes it when it wakes, and cancels the request.
        future = self._pending.get(number)
        if future is not None and not future.done():
            future.set_exception(error)

    def _give_up(self, number: int) -> None:
        self._given_up[number] = None
        if len(self._given_up) > _REMEMBERED:
            del self._given_up[next(iter(self._given_up))]

    def _cancel(self, number: int) -> None:
        if self.lost is None and self._writable.is_set():
            self._send(cancelled(number))

    def _send(self, message: Mapping[str, Any]) -> None:
        line = _line_of(message)
        self.tap.sent(line)
        self._write(line)

    def _reply(self, message: Mapping[str, Any]) -> None:
        if self.lost is None:
            self._send(message)

    @property
    def ready(self) -> bool:
        """Whether the server has read what was sent before."""
        return self._writable.is_set()

    async def writable(self) -> None:
        """Wait until the server has read what was sent before."""
        await self._writable.wait()

    def settled(self, protocol: str, *, legacy: bool) -> None:
        """Take note that the handshake is over."""
        del protocol, legacy  # Lines do not carry the protocol.
        self.strict = True

    def pause_writing(self) -> None:
        """Note that the server does not read."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """Note that the server reads again."""
        self._writable.set()

    def _patience(self, options: CallOptions) -> float:
        # Not the ten seconds of the session: a server that takes longer to start still
        # answers the newest handshake, and then refuses the old one.
        del options
        return 3600.0

    async def notify(
        self,
        method: str,
        params: Mapping[str, Any] | None,
        opts: CallOptions | None = None,
    ) -> None:
        """Send a notification on behalf of the SDK's session."""
        del opts  # Meant for other transports.
        if self.lost is None:
            self._send(notification(method, params))

    # -- input -----------------------------------------------------------------

    def feed(self, data: bytes) -> None:
        """Take bytes from the server."""
        for line in self._lines.feed(data):
            self.take(line)

    def take(self, line: bytes | Overlong) -> None:
        """Take one line from the server."""
        if self.lost:
            return
        if isinstance(line, Overlong):
            self._overlong(line)
        else:
            self._line(line)

    def _overlong(self, line: Overlong) -> None:
        what = f"a line of over {self._limit} bytes"
        error = ToolError("too_large", "yes", f"the server answered with {what}")
        if self._fail(line.number, error):
            return
        if line.number is not None and not line.endless:
            self._unclaimed(line.number)
        elif line.endless or self._awaiting:
            self.lose("too_large", f"the server wrote {what}")
        else:
            self._junk(what)

    def _line(self, raw: bytes) -> None:
        if not raw:
            self.unsolicited += 1
            return
        self.tap.heard(raw)
        try:
            message = load_json(raw.decode(), limit=self._limit)
        except UnicodeDecodeError:
            self._junk("a line that is not UTF-8")
        except BadBytes as exc:
            self._bad(raw, str(exc))
        else:
            if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
                self._junk("a line that is not a JSON-RPC message")
            elif "method" in message:
                self._unasked(message)
            else:
                self._answered(message, len(raw))

    def _bad(self, raw: bytes, reason: str) -> None:
        """Fail the call that an invalid line answers, else count the line as junk."""
        try:
            message: JSON = json.loads(raw)
        except (ValueError, RecursionError):
            message = None
        number = _id_of(message) if isinstance(message, dict) else None
        error = ToolError("protocol", "yes", f"the answer was refused: {reason}")
        if self._fail(number, error):
            return
        if isinstance(message, dict) and "id" in message and "method" not in message:
            self._unclaimed(number)
        else:
            self._junk(f"a line that was refused: {reason}")

    def _answered(self, message: dict[str, JSON], size: int) -> None:
        number = _id_of(message)
        future = self._pending.pop(number, None) if type(number) is int else None
        if future is None:
            self._unclaimed(number)
            return
        if future.done():
            self.late += 1
            return
        result, error = message.get("result"), message.get("error")
        if isinstance(result, dict) and error is None:
            future.set_result(Answer(result, size))
        elif isinstance(error, dict) and result is None:
            future.set_exception(Refusal(error))
        else:
            future.set_exception(
                ToolError("protocol", "yes", "the answer is neither result nor error")
            )

    def _unasked(self, message: dict[str, JSON]) -> None:
        self.unsolicited += 1
        if "id" not in message:
            self._notified(message)
        elif self._writable.is_set():
            self._requested(message, self._reply)

    def _unclaimed(self, number: JSON) -> None:
        """Drop an answer that belongs to no waiting call, without failing one."""
        self.unsolicited += 1
        if type(number) is int and number in self._given_up:
            del self._given_up[number]
            self.late += 1
        elif self.strays.drop() and not self._awaiting:
            self.lose("protocol", self.strays.reason)

    def _junk(self, what: str) -> None:
        self.junk += 1
        self.unsolicited += 1
        allowed = _JUNK_IN_IDLE if self.strict else _JUNK_AT_START
        if (self.strict and self._awaiting) or self.junk > allowed:
            self.lose("protocol", f"the server wrote {what}")

    # -- the end ---------------------------------------------------------------

    def _fail(self, number: object, error: ToolError) -> bool:
        future = self._pending.pop(number, None) if type(number) is int else None
        if future is None:
            return False
        if not future.done():
            future.set_exception(error)
        return True

    def lose(self, kind: FailureKind, why: str) -> None:
        """End the connection, and fail all waiting calls."""
        if self.lost is not None:
            return
        self.lost = ToolError(kind, "unknown", why)
        for number in list(self._pending):
            self._fail(number, ToolError(kind, "unknown", why))
        self._alarms.end()
        self._writable.set()
        self._over.set()
        self._on_lost(self.lost)


def _id_of(message: dict[str, JSON]) -> JSON:
    """Return the id of a message. Some servers turn numbers into strings."""
    number = message.get("id")
    if isinstance(number, str) and number.isascii() and number.isdecimal():
        return int(number[:18])
    return number


def _line_of(message: Mapping[str, Any]) -> bytes:
    return encode(message).encode() + b"\n"
