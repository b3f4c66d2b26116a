"""
A tool server over HTTP that misbehaves as it is told: the twin of `faulty_server`.

Plain asyncio, no SDK and no HTTP library. The mode says what is wrong with the first
call of the tool `act`; the next one answers. `echo` is always sound.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import ssl
from collections.abc import Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any, NamedTuple, Self

MODERN = "2026-07-28"
JSON, EVENTS = "application/json", "text/event-stream"
ESCAPE = "\x1b[31m"
ASKED = ("sampling/createMessage", "roots/list", "elicitation/create")


class Asked(NamedTuple):
    verb: str
    headers: dict[str, str]
    message: dict[str, Any]
    path: str = ""


class FaultyHttp:
    """
    The server, within the test's own event loop.

    Attributes:
        asked: Every request so far.

        gone: How many requests were left alone before they were answered.
    """

    def __init__(
        self, mode: str = "sound", *, legacy: bool = False, secret: str = ""
    ) -> None:
        self.mode, self.legacy, self.secret = mode, legacy, secret
        self.asked: list[Asked] = []
        self.gone = 0
        self.port = 0
        self.tls: ssl.SSLContext | None = None
        self.schema: dict[str, Any] = {"type": "object"}
        self.ttl: object = None
        self.capabilities: dict[str, Any] = {"tools": {}}
        self.heard = 0
        self.change = asyncio.Event()
        self.elsewhere = "http://127.0.0.1:1/"
        self._sessions: set[str] = set()
        self._acts = 0
        self._connections: set[asyncio.StreamWriter] = set()
        self._refusals: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        return f"http{'s' if self.tls else ''}://127.0.0.1:{self.port}/mcp"

    def told(self, method: str) -> list[dict[str, Any]]:
        """Return the parameters of every message of that method."""
        return [
            asked.message.get("params", {})
            for asked in self.asked
            if asked.message.get("method") == method
        ]

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()

    async def start(self) -> None:
        self._server = await asyncio.start_server(
            self._connected, "127.0.0.1", self.port, ssl=self.tls
        )
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """End as a process does: every connection with it, and what it knew."""
        self._server.close()
        self.forget()
        for writer in self._connections:
            writer.transport.abort()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    def forget(self) -> None:
        self._sessions.clear()

    # -- HTTP ------------------------------------------------------------------

    async def _connected(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        task = asyncio.current_task()
        assert task
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self._connections.add(writer)
        try:
            while True:
                await self._request(reader, writer)
        except (OSError, EOFError, _Done, asyncio.CancelledError):
            pass  # Python 3.11 logs a connection that `stop` cancels as a fault.
        finally:
            self._connections.discard(writer)
            with suppress(OSError):
                writer.close()

    async def _request(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        first, *lines = head.split("\r\n")
        headers = {
            name.lower(): text.strip()
            for name, _, text in (line.partition(":") for line in lines if line)
        }
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        verb, path, _ = first.split()
        asked = Asked(verb, headers, json.loads(body) if body else {}, path)

        async def serve() -> None:
            # Who waits for a request, and then forgets its session, finds it judged.
            self.asked.append(asked)
            await self._serve(asked, Writer(writer))

        serving = asyncio.create_task(serve())
        left = asyncio.create_task(_left(reader, writer))
        # A client that closes ends the request, as in any server.
        try:
            await asyncio.wait([serving, left], return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            # The server is closed: what this still raises is of interest to nobody.
            serving.cancel()
            left.cancel()
            await asyncio.gather(serving, left, return_exceptions=True)
            raise
        # It may notice by what it writes before `_left` notices by what it reads.
        if not serving.done() or isinstance(serving.exception(), ConnectionError):
            self.gone += 1
            serving.cancel()
            await asyncio.gather(serving, left, return_exceptions=True)
            raise _Done
        left.cancel()
        await asyncio.gather(left, return_exceptions=True)
        serving.result()
        if reader.at_eof() or writer.is_closing():
            raise _Done

    # -- MCP -------------------------------------------------------------------

    async def _serve(self, asked: Asked, to: Writer) -> None:  # noqa: C901, PLR0912
        message, session = asked.message, asked.headers.get("mcp-session-id")
        method, number = message.get("method"), message.get("id")
        if asked.verb == "GET" and "last-event-id" not in asked.headers:
            await self._tell_of_changes(to)
        elif asked.verb == "GET":
            await self._resumed(to)
        elif asked.verb == "DELETE":
            self._sessions.discard(session or "")
            await to.reply(b"", status=204)
        elif method is None:
            self._refusals.put_nowait(message)
            await to.reply(b"", status=202)
        elif method == "server/discover" and not self.legacy:
            await to.result(number, DISCOVERED | {"capabilities": self.capabilities})
        elif method == "initialize" and self.legacy:
            session = f"session-{len(self.asked)}"
            self._sessions.add(session)
            about = INITIALIZED | {"capabilities": self.capabilities}
            await to.result(number, about, {"mcp-session-id": session})
        elif method in {"server/discover", "initialize"}:
            await to.error(number, -32601, "no such method", status=400)
        elif self.legacy and session not in self._sessions:
            await to.error(None, -32600, "Session not found", status=404)
        elif number is None:
            await to.reply(b"", status=202)
        elif method == "ping":
            await to.result(number, {})
        elif method == "tools/list":
            tools = [tool("act", self.schema), tool("echo", {"type": "object"})]
            ttl = {} if self.ttl is None else {"ttlMs": self.ttl}
            await to.result(number, {"tools": tools, **ttl})
        elif method == "subscriptions/listen":
            await self._tell_of_changes(to, number)
        else:
            await self._call(number, message["params"], to)

    async def _call(self, number: int, params: dict[str, Any], to: Writer) -> None:
        if params["name"] == "act":
            self._acts += 1
            if self._acts == 1 and self.mode != "sound":
                await self._act(number, to)
                return
        await to.answer(number, str(params["arguments"].get("text", "fine")))

    async def _tell_of_changes(self, to: Writer, number: object = None) -> None:
        if self.mode == "deaf":
            await to.error(number, -32601, "no such method", status=405)
            return
        self.heard += 1
        await to.events()
        await self.change.wait()
        self.change.clear()
        note = {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}
        if self.mode != "silent":
            await to.event(compact(note))
        if self.mode in {"ends", "silent"}:
            await to.end()
            return
        await asyncio.Event().wait()

    async def _resumed(self, to: Writer) -> None:
        await to.events()
        if self.mode == "polls":
            await to.event(answer(self._polled, "later"))
        await to.end()

    async def _act(self, number: int, to: Writer) -> None:  # noqa: C901, PLR0912, PLR0915
        sound = answer(number, "fine")
        match self.mode.split():
            # Too much (attack 31).
            case ["large"]:
                await to.answer(number, "x" * 3_000_000)
            case ["unsized"]:
                await to.head(200, JSON, {"transfer-encoding": "chunked"})
                while True:
                    await to.chunk(b"x" * 65536)
            case ["gzip"]:
                bomb = gzip.compress(b" " * 50_000_000)
                await to.reply(bomb, headers={"content-encoding": "gzip"})
            case ["gzip_events"]:
                bomb = gzip.compress(b"data: " + b" " * 50_000_000)
                await to.reply(bomb, EVENTS, headers={"content-encoding": "gzip"})
            case ["long_line"]:
                await to.events()
                for _ in range(640):
                    await to.chunk(b"data: ".ljust(65536))
                await to.end()
            case ["long_event"]:
                await to.events()
                while True:
                    await to.chunk(b"data: x\n" * 8192)
            case ["long_head"]:
                await to.raw(b"HTTP/1.1 200 OK\r\n")
                while True:
                    await to.raw(b"x-filler: " + b"x" * 65536 + b"\r\n")
            # Too slow (attack 32).
            case ["never"]:
                await asyncio.sleep(3600)
            case ["half"]:
                await to.head(200, JSON, {"content-length": "500"})
                await to.raw(sound[:20])
                await asyncio.sleep(3600)
            case ["drips"]:
                await to.head(200, JSON, {"transfer-encoding": "chunked"})
                await to.drip(lambda: to.chunk(b" "))
            case ["drips_head"]:
                await to.raw(b"HTTP/1.1 200 OK\r\nx-slow: ")
                await to.drip(lambda: to.raw(b"x"))
            case ["drips_events"]:
                await to.events()
                await to.drip(lambda: to.chunk(b":\n\n"))
            case ["late"]:
                await asyncio.sleep(0.5)
                await to.raw(sound)
            # Gone.
            case ["closes"]:
                raise _Done
            case ["breaks"]:
                await to.head(200, JSON, {"content-length": "500"})
                await to.raw(sound[:20])
                raise _Done
            case ["breaks_events"]:
                await to.events()
                await to.chunk(b"data: {")
                raise _Done
            case ["resets"]:
                to.abort()
            case ["ends_events"]:
                await to.events()
                await to.end()
            case ["reports"]:
                await to.events()
                for token, said in [(number, "half"), (number + 1, "not mine")]:
                    params = {"progressToken": token, "progress": 1, "message": said}
                    method = "notifications/progress"
                    told = {"jsonrpc": "2.0", "method": method, "params": params}
                    await to.event(compact(told))
                await to.event(sound)
                await to.end()
            # No answer at all (attack 33).
            case ["garbage"]:
                await to.reply(b"Traceback (most recent call last):")
            case ["garbage_event"]:
                await to.events()
                await to.event(b"Traceback")
                await to.end()
            case ["not_utf8"]:
                await to.reply(b'{"jsonrpc":"2.0","id":1,"result":"\xff\xfe"}')
            case ["not_http"]:
                await to.raw(b"SSH-2.0-OpenSSH_9.2\r\n\r\n")
                raise _Done
            case ["batch"]:
                await to.reply(b"[" + sound + b"]")
            case ["other_json_rpc"]:
                await to.reply(sound.replace(b"2.0", b"1.0"))
            case ["deep"]:
                await to.reply(b"[" * 100_000)
            case ["deep_answer"]:
                deep = b'{"a":' * 100 + b"1" + b"}" * 100
                await to.reply(
                    b'{"jsonrpc":"2.0","id":%d,"result":%b}' % (number, deep)
                )
            case ["not_a_number"]:
                await to.reply(sound.replace(b'"fine"', b"NaN"))
            case ["two_ids"]:
                await to.reply(sound.replace(b'{"jsonrpc"', b'{"id":1,"jsonrpc"', 1))
            case ["wrong_id"]:
                await to.reply(answer(number + 1000, "for another"))
            case ["wrong_id_event"]:
                await to.events()
                await to.event(answer(number + 1, "for another"))
                await to.end()
            case ["wrong_id_first"]:
                await to.events()
                await to.event(answer(number + 1000, "for another"))
                await to.event(answer(number, "fine"))
                await to.end()
            case ["null_id"]:
                await to.reply(answer(None, "for nobody"))
            case ["true_id"]:
                await to.reply(answer(number=True, text="for one"))
            case ["string_id"]:
                await to.reply(answer(str(number), "fine"))
            case ["number_result"]:
                await to.result(number, 5)
            case ["no_content"]:
                await to.result(number, {"content": "text"})
            case ["empty"]:
                await to.reply(b"")
            case ["html"]:
                await to.reply(b"<p>Hello</p>", "text/html")
            case ["twice"]:
                await to.events()
                await to.chunk(b"data: " + sound + b"\n\n")
                await to.event(answer(number, "no, this"))
                await to.end()
            # Unasked (attack 34).
            case ["floods"]:
                await to.events()
                notice = b'data: {"jsonrpc":"2.0","method":"notifications/%b"}\n\n'
                notices = notice % b"message" * 99 + notice % b"tools/list_changed"
                for _ in range(30):
                    await to.chunk(notices)
                await to.event(sound)
                await to.end()
            case ["asks"]:
                await to.events()
                for method in (*ASKED, "ping"):
                    asking = {"jsonrpc": "2.0", "id": method, "method": method}
                    await to.event(json.dumps(asking).encode())
                refused = [await self._refusals.get() for _ in range(4)]
                await to.event(answer(number, json.dumps(refused)))
                await to.end()
            case ["changes"]:
                self.schema = {"type": "object", "title": "another one"}
                await to.events()
                changed = "notifications/tools/list_changed"
                await to.event(b'{"jsonrpc":"2.0","method":"%b"}' % changed.encode())
                await to.event(sound)
                await to.end()
            case ["polls" | "polls_in_vain"]:
                self._polled = number
                await to.events()
                await to.chunk(b"retry: 1\r\nid: one\r\ndata:\r\n\r\n")
                await to.end()
            # Refused (attacks 35 and 39).
            case ["redirects", status]:
                where = {"location": self.elsewhere}
                await to.reply(b"", status=int(status), headers=where)
            case ["refuses", status]:
                said = f"bad {self.secret} {ESCAPE}\n/etc/shadow " + "x" * 9000
                await to.error(number, -32602, said, status=int(status))
            case ["mismatch"]:
                await to.error(number, -32020, "other headers", status=400)
            case ["status", status]:
                said = f"{self.secret} {ESCAPE} at /etc/shadow line 5"
                await to.reply(said.encode(), "text/plain", status=int(status))
            case ["session_400"]:
                self.forget()
                await to.error(None, -32000, "no valid session", status=400)
            case _:
                raise AssertionError(self.mode)


async def _left(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while not reader.at_eof() and not writer.is_closing():  # noqa: ASYNC110 -- no event
        await asyncio.sleep(0.005)


class _Done(Exception):  # noqa: N818 -- ends a connection
    pass


class Writer:
    """What is said to one request."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer

    async def raw(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def head(self, status: int, kind: str, more: Mapping[str, str]) -> None:
        lines = [f"HTTP/1.1 {status} As it likes", f"content-type: {kind}"]
        lines += [f"{name}: {text}" for name, text in more.items()]
        await self.raw("\r\n".join([*lines, "", ""]).encode())

    async def reply(
        self,
        body: bytes,
        kind: str = JSON,
        *,
        status: int = 200,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        size = {} if status == 204 else {"content-length": str(len(body))}
        await self.head(status, kind, {**size, **(headers or {})})
        await self.raw(body)

    async def result(
        self, number: object, result: object, headers: Mapping[str, str] | None = None
    ) -> None:
        message = {"jsonrpc": "2.0", "id": number, "result": result}
        await self.reply(compact(message), headers=headers)

    async def answer(self, number: object, text: str) -> None:
        await self.reply(answer(number, text))

    async def error(self, number: object, code: int, text: str, *, status: int) -> None:
        error = {"code": code, "message": text}
        message = {"jsonrpc": "2.0", "id": number, "error": error}
        await self.reply(compact(message), status=status)

    async def events(self) -> None:
        await self.head(200, EVENTS, {"transfer-encoding": "chunked"})

    async def event(self, data: bytes) -> None:
        await self.chunk(b"event: message\ndata: " + data + b"\n\n")

    async def chunk(self, data: bytes) -> None:
        await self.raw(b"%x\r\n%b\r\n" % (len(data), data))

    async def end(self) -> None:
        await self.raw(b"0\r\n\r\n")

    async def drip(self, drop: Any) -> None:  # noqa: ANN401
        while True:
            await drop()
            await asyncio.sleep(0.01)

    def abort(self) -> None:
        self._writer.transport.abort()


DISCOVERED = {
    "supportedVersions": [MODERN],
    "capabilities": {"tools": {}},
    "resultType": "complete",
    "ttlMs": 0,
    "cacheScope": "private",
    "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "faulty", "version": "1"}},
}
INITIALIZED = {
    "protocolVersion": "2025-11-25",
    "capabilities": {"tools": {}},
    "serverInfo": {"name": f"faulty{ESCAPE}", "version": "1"},
}


def tool(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "description": "does it", "inputSchema": schema}


def compact(message: object) -> bytes:
    return json.dumps(message, separators=(",", ":")).encode()


def answer(number: object, text: str) -> bytes:
    result = {"content": [{"type": "text", "text": text}]}
    return compact({"jsonrpc": "2.0", "id": number, "result": result})
