"""
HTTP requests to one server, over a pool of connections.

On httpcore2, the base of the SDK's own client (httpx2): it has no redirects, no
decompression, no cookies and no settings from the environment. `lib.http_rules` has the
rules.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    Callable,
    Coroutine,
    Generator,
    Mapping,
    Sequence,
)
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any, cast

import httpcore2
import httpx2

from ...core.text.urls import origin
from ...core.tools.servers import ServerConfig
from ...errors import ServerUnavailable, ToolError
from ...lib.http_rules import (
    broken,
    failure,
    read_body,
    redirected,
    refuse_encoding,
    status_text,
    tls_context,
)
from ..auth.oauth import Access, another

#: Seconds that an idle connection is kept: servers close them after 5 s or more.
_IDLE_SECONDS = 4.0

#: Bytes and seconds for the rest of an answer, if its connection is to be kept.
_REST = 64 * 1024
_REST_SECONDS = 1.0

_OURS = frozenset(
    {
        "accept",
        "content-type",
        "content-length",
        "host",
        "last-event-id",
        "mcp-method",
        "mcp-name",
        "mcp-protocol-version",
        "mcp-session-id",
    }
)

#: Statuses of requests that were not executed.
_TURNED_AWAY = frozenset({401, 403, 407, 429})

_Headers = list[tuple[bytes, bytes]]


class Reply:
    """
    An answer of which only the head has been read.

    Attributes:
        headers: By lower-case name.
    """

    def __init__(
        self,
        response: httpcore2.Response,
        done: Callable[[], Coroutine[Any, Any, None]],
    ) -> None:
        self._done = done
        stream = cast("AsyncIterable[bytes]", response.stream)
        self._chunks = cast("AsyncGenerator[bytes]", aiter(stream))
        self.status = response.status
        self.headers = {
            name.decode("latin-1").lower(): text.decode("latin-1")
            for name, text in response.headers
        }

    @property
    def kind(self) -> str:
        """The content type, without its parameters."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    async def chunk(self) -> bytes:
        """Return the next bytes of the body; none at its end."""
        return await anext(self._chunks, b"")

    async def body(self, limit: int) -> bytes:
        """
        Return the whole body.

        Raises:
            ToolError: It is larger than allowed, or encoded.
        """
        return await read_body(self._chunks, self.headers, limit)

    def refuse_encoding(self) -> None:
        """See `http_rules.refuse_encoding`."""
        refuse_encoding(self.headers)

    async def rest(self) -> None:
        """Read the rest, if it is short and comes soon, and close."""
        size = 0
        try:
            async with asyncio.timeout(_REST_SECONDS):
                while size < _REST and (chunk := await self.chunk()):
                    size += len(chunk)
        except Exception:  # noqa: BLE001, S110 -- the answer was complete before
            pass
        finally:
            await self.close()

    async def close(self) -> None:
        """Read no more. If the body has not ended, the connection is closed."""
        try:
            await self._chunks.aclose()
        finally:
            await self._done()


class Posts:
    """
    Connections to one server, kept for the next request.

    A connection is made within *connect* seconds, and *idle* of them are kept.

    Attributes:
        host: The host, for messages.
    """

    def __init__(  # noqa: PLR0913 -- an address, and how it is reached
        self,
        url: str,
        headers: Mapping[str, str],
        *,
        idle: int,
        proxy: str | None,
        connect: float = 10.0,
        access: Access | None = None,
        own: Sequence[str] = (),
    ) -> None:
        address = httpx2.URL(url)
        self._address = address
        self._connect = connect
        self._access = access
        self.host = address.host
        self._target = _target(address)
        given = {name.lower(): text for name, text in headers.items()}
        self._base: _Headers = _encoded(
            {
                "host": address.netloc.decode("ascii"),
                "user-agent": "caxton-host",
                **{name: text for name, text in given.items() if name not in _OURS},
                # Nothing is unpacked, so 200 KB cannot become 200 MB.
                "accept-encoding": "identity",
            }
        )
        # Makes connections, and keeps none: it would probe the sockets of all idle
        # ones with each request, a third of a call's time with 64 at once.
        self._maker = httpcore2.AsyncConnectionPool(
            ssl_context=tls_context(*own) if address.scheme == "https" else None,
            proxy=_proxy(proxy) if proxy else None,
            keepalive_expiry=_IDLE_SECONDS,
        )
        self._most = idle
        self._idle: deque[httpcore2.AsyncConnectionInterface] = deque()
        self._busy: set[httpcore2.AsyncConnectionInterface] = set()

    async def send(  # noqa: PLR0913 -- the parts of a request, and its bounds
        self,
        method: str,
        headers: Mapping[str, str],
        content: bytes | None,
        deadline: float,
        target: httpcore2.URL | None = None,
        *,
        again: bool = True,
    ) -> Reply:
        """
        Send one request, and return its answer whatever the status.

        It goes to the address of the server, or to a *target* on the same origin. If
        the server rejects the token, a new one is requested, and the request is sent
        *again*, once; a call is not, because the log has to record its second send.

        Raises:
            ToolError: It cannot be sent, or there is no answer.
        """
        if self._access is None:
            return await self._send_once(method, headers, content, deadline, target)
        shown = await self._access.header(deadline)
        reply = await self._send_once(
            method, {**headers, **shown}, content, deadline, target
        )
        challenge = reply.headers.get("www-authenticate", "")
        if reply.status == HTTPStatus.FORBIDDEN:
            if lacking := await self._access.lacking(challenge, shown):
                await reply.close()
                raise lacking
            return reply
        if reply.status != HTTPStatus.UNAUTHORIZED:
            return reply
        await reply.close()
        await self._access.renew(challenge, shown, deadline)
        if not again:
            raise another()
        shown = await self._access.header(deadline)
        return await self._send_once(
            method, {**headers, **shown}, content, deadline, target
        )

    async def _send_once(
        self,
        method: str,
        headers: Mapping[str, str],
        content: bytes | None,
        deadline: float,
        target: httpcore2.URL | None,
    ) -> Reply:
        left = deadline - asyncio.get_running_loop().time()
        found = self._base + _encoded(headers)
        if content is not None:
            found.append((b"content-length", str(len(content)).encode()))
        request = httpcore2.Request(
            method,
            target or self._target,
            headers=found,
            content=content,
            # Earlier than the deadline, so that the error shows that nothing was sent.
            extensions={"timeout": {"connect": min(self._connect, left * 0.9)}},
        )
        connection = await self._connection()
        self._busy.add(connection)
        try:
            response = await connection.handle_async_request(request)
        except BaseException:
            await self._drop(connection)
            raise

        async def done() -> None:
            await self._take_back(connection, response)

        return Reply(response, done)

    def beside(self, reference: str) -> httpcore2.URL:
        """
        Resolve *reference* against the address of the server.

        Raises:
            ToolError: It is not valid, or on another origin.
        """
        try:
            found = self._address.join(reference)
        except (httpx2.InvalidURL, ValueError):
            found = None
        if found is None or _place(found) != _place(self._address):
            raise ToolError(
                "protocol", "no", f"{self.host} names an address that is not its own"
            )
        return _target(found)

    async def _connection(self) -> httpcore2.AsyncConnectionInterface:
        while self._idle:
            connection = self._idle.pop()
            if not connection.has_expired():
                return connection
            await connection.aclose()
        return self._maker.create_connection(self._target.origin)

    async def _take_back(
        self,
        connection: httpcore2.AsyncConnectionInterface,
        response: httpcore2.Response,
    ) -> None:
        try:
            await response.aclose()
        finally:
            if connection.is_idle() and connection in self._busy:
                self._busy.discard(connection)
                self._idle.append(connection)
            else:
                await self._drop(connection)
            await self._trim()

    async def _trim(self) -> None:
        """Close the oldest idle connection, if it expired or there are too many."""
        if self._idle and (len(self._idle) > self._most or self._idle[0].has_expired()):
            await self._idle.popleft().aclose()

    async def _drop(self, connection: httpcore2.AsyncConnectionInterface) -> None:
        self._busy.discard(connection)
        await connection.aclose()

    @contextmanager
    def failures(self) -> Generator[None]:
        """Turn errors of the library into `ToolError`."""
        try:
            yield
        except httpcore2.RemoteProtocolError as exc:
            # The server may have closed an idle connection while the request was sent.
            if "closed connection" in str(exc) or "disconnected" in str(exc):
                raise broken(self.host, "unknown") from None
            raise failure(exc, self.host, "unknown") from None
        except (
            httpcore2.LocalProtocolError,
            httpcore2.NetworkError,
            httpcore2.ProxyError,
            httpcore2.TimeoutException,
            OSError,
        ) as exc:
            raise failure(exc, self.host, "unknown") from None

    async def close(self) -> None:
        """Close every connection."""
        connections = [*self._idle, *self._busy]
        self._idle.clear()
        self._busy.clear()
        for connection in connections:
            await connection.aclose()


async def opened(
    config: ServerConfig, url: str, proxy: str | None, access: Access | None
) -> Posts:
    """
    Return the connections to a server. Nothing is sent yet.

    Raises:
        ServerUnavailable: Its address, a header or a certificate cannot be used.
    """
    try:
        return await asyncio.to_thread(
            Posts,
            url,
            config.headers,
            idle=config.places,
            proxy=proxy,
            connect=config.connect_timeout,
            access=access,
            own=[*filter(None, (config.client_cert, config.client_key))],
        )
    except ValueError:  # Its text quotes the header.
        raise ServerUnavailable(
            "its address or a header cannot be sent",
            fix=f"check url and headers of [servers.{config.name}]",
        ) from None


def _target(address: httpx2.URL) -> httpcore2.URL:
    return httpcore2.URL(
        scheme=address.raw_scheme,
        host=address.raw_host,
        port=address.port,
        target=address.raw_path,
    )


def _place(address: httpx2.URL) -> tuple[object, bytes]:
    return origin(str(address)), address.userinfo


def status_error(status: int) -> ToolError:
    """Return the error for a status that is not a success."""
    said = status_text(status)
    if status in _TURNED_AWAY:
        return ToolError("transport", "no", f"the server answered {said}")
    return redirected(status) or ToolError(
        "protocol",
        "unknown" if status >= HTTPStatus.INTERNAL_SERVER_ERROR else "yes",
        f"the server answered {said}",
    )


def _encoded(headers: Mapping[str, str]) -> _Headers:
    return [
        (name.encode("ascii"), text.encode("ascii")) for name, text in headers.items()
    ]


def _proxy(address: str) -> httpcore2.Proxy:
    found = httpx2.Proxy(address)
    where = found.url
    return httpcore2.Proxy(
        httpcore2.URL(
            scheme=where.raw_scheme,
            host=where.raw_host,
            port=where.port,
            target=b"/",
        ),
        auth=found.raw_auth,
        ssl_context=tls_context() if where.scheme == "https" else None,
    )
