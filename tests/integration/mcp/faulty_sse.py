"""
A tool server over the transport of 2024 that misbehaves as it is told.

Its modes are those of `FaultyHttp`. What is an answer there is an event on the stream
here; a status, or bytes that are no answer, come back to the POST itself. The modes of
`STARTS` are wrong before the first request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from .faulty_http import (
    EVENTS,
    INITIALIZED,
    JSON,
    Asked,
    FaultyHttp,
    Writer,
    _Done,
    answer,
    tool,
)

START = "start "

#: What the first events of a stream may be, and what is told of it then.
STARTS = {
    START + "elsewhere": "an address that is not its own",
    START + "other_port": "an address that is not its own",
    START + "no_address": "an address that is not its own",
    START + "long_address": "the address for requests is not valid",
    START + "other_events": "names no address for requests",
    START + "long_start": "an event of over",
    START + "nothing": "not ready within 1 s",
    START + "drips_start": "not ready within 1 s",
    START + "drips_start_head": "not ready within 1 s",
    START + "ends_at_once": "ended the stream",
    START + "status 401": r"401 \(Unauthorized\)",
    START + "status 405": r"405 \(Method Not Allowed\)",
    START + "redirects 307": r"307 \(Temporary Redirect\)",
    START + "html": "not an event stream",
    START + "gzip_events": "the answer is encoded",
    START + "closes": "the connection to 127.0.0.1 broke",
}


#: Their last word is an answer, and not the end of the stream.
_STAYING = {
    *("asks", "changes", "floods", "late_and_large", "reports", "twice"),
    "wrong_id_first",
}


class FaultySse(FaultyHttp):
    """The server, within the test's own event loop."""

    def __init__(self, mode: str = "sound", *, secret: str = "") -> None:
        super().__init__(mode.removeprefix(START), legacy=True, secret=secret)
        self._starts_wrong = mode.startswith(START)
        self._streams: dict[str, Writer] = {}
        self._late = 0

    def forget(self) -> None:
        self._streams.clear()

    @property
    def streams(self) -> int:
        """How many are open."""
        return len(self._streams)

    @property
    def connections(self) -> int:
        """How many are open, streams too."""
        return len(self._connections)

    def hang_up(self) -> None:
        for stream in self._streams.values():
            stream.abort()

    async def _serve(self, asked: Asked, to: Writer) -> None:
        if asked.verb == "GET":
            await self._open(f"s{len(self.asked)}", to)
            return
        session = asked.path.rpartition("=")[2]
        if session not in self._streams:
            await to.reply(b"Could not find session", "text/plain", status=404)
            return
        stays = self.mode in _STAYING
        through = Through(to, self._streams[session], stays=stays)
        message = asked.message
        method, number = message.get("method"), message.get("id")
        if method is None:
            self._refusals.put_nowait(message)
            await through.accept()
        elif number is None:
            await through.accept()
        elif method == "initialize":
            await through.result(
                number, INITIALIZED | {"protocolVersion": "2024-11-05"}
            )
        elif method == "ping":
            await through.result(number, {})
        elif method == "tools/list":
            tools = [tool("act", self.schema), tool("echo", {"type": "object"})]
            await through.result(number, {"tools": tools})
        else:
            await self._work(number, message["params"], through)

    async def _work(self, number: int, params: dict[str, Any], to: Through) -> None:
        """Go on with a call after its POST was answered, as such servers do."""

        async def call() -> None:
            try:
                await self._call(number, params, to)
            except (OSError, _Done):
                if not to.accepted.is_set():
                    raise

        work = asyncio.create_task(call())
        self._tasks.add(work)
        work.add_done_callback(self._tasks.discard)
        # Who asked may be gone by the time that it breaks.
        work.add_done_callback(lambda done: done.cancelled() or done.exception())
        accepted = asyncio.create_task(to.accepted.wait())
        try:
            await asyncio.wait([work, accepted], return_when=asyncio.FIRST_COMPLETED)
        finally:
            accepted.cancel()
            if not work.done() and not to.accepted.is_set():
                work.cancel()
        if work.done():
            work.result()

    async def _call(self, number: int, params: dict[str, Any], to: Writer) -> None:
        if self.mode == "mute" and isinstance(to, Through):
            # It answers, and leaves the POST open for good.
            await to.stream.event(answer(number, "fine"))
            await asyncio.Event().wait()
        if self.mode == "late_and_large":
            if params["name"] == "act":
                self._late = number
                await asyncio.Event().wait()
            await to.answer(self._late, "x" * 5_000_000)
        await super()._call(number, params, to)

    async def _open(self, session: str, to: Writer) -> None:
        if self._starts_wrong:
            await self._start(to)
            return
        await to.events()
        await to.chunk(b": welcome\r\n\r\n")
        self._streams[session] = to
        try:
            await to.chunk(
                b"event: endpoint\ndata: /post?session=%b\n\n" % session.encode()
            )
            await asyncio.Event().wait()
        finally:
            self._streams.pop(session, None)

    async def _start(self, to: Writer) -> None:
        address = {
            "elsewhere": self.elsewhere,
            "other_port": "//127.0.0.1:1/post",
            "no_address": "http://[",
            "long_address": "/" + "x" * 5000,
        }
        if self.mode.partition(" ")[0] in {"status", "redirects", "html", "closes"}:
            await self._act(0, to)
            return
        if self.mode == "drips_start_head":
            await to.raw(b"HTTP/1.1 200 OK\r\nx-slow: ")
            await to.drip(lambda: to.raw(b"x"))
        encoding = {"content-encoding": "gzip"} if self.mode == "gzip_events" else {}
        await to.head(200, EVENTS, {"transfer-encoding": "chunked"} | encoding)
        match self.mode:
            case "ends_at_once":
                await to.end()
                return
            case "drips_start":
                await to.drip(lambda: to.chunk(b":\n\n"))
            case "other_events":
                for _ in range(100):
                    await to.event(answer(1, "too early"))
            case "long_start":
                while True:
                    await to.chunk(b"data: ".ljust(65536))
            case "nothing" | "gzip_events":
                pass
            case mode:
                data = address[mode].encode()
                await to.chunk(b"event: endpoint\ndata: " + data + b"\n\n")
        await asyncio.Event().wait()

    async def _act(self, number: int, to: Writer) -> None:
        if self.mode == "late":
            await asyncio.sleep(0.5)
            await to.answer(number, "fine")
            return
        try:
            await super()._act(number, to)
        except _Done:
            if isinstance(to, Through) and to.accepted.is_set():
                to.stream.abort()
            raise


class Through(Writer):
    """What is said to one POST: to itself, or on the stream."""

    def __init__(self, post: Writer, stream: Writer, *, stays: bool) -> None:
        super().__init__(post._writer)
        self.stream = stream
        self._stays = stays
        self.accepted = asyncio.Event()

    async def accept(self) -> None:
        await super().reply(b"Accepted", "text/plain", status=202)
        self.accepted.set()

    async def reply(
        self,
        body: bytes,
        kind: str = JSON,
        *,
        status: int = 200,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        if (status, kind, headers) == (200, JSON, None):
            await self.accept()
            await self.stream.event(body)
        else:
            await super().reply(body, kind, status=status, headers=headers)

    async def end(self) -> None:
        if not self._stays:
            await super().end()

    async def events(self) -> None:
        await self.accept()
        self._writer = self.stream._writer

    async def chunk(self, data: bytes) -> None:
        if self.accepted.is_set():
            await self.stream.chunk(data)
        else:
            await super().chunk(data)
