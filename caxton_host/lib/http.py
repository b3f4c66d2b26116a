"""
HTTP requests to hosts that may be hostile. The only owner of httpx.

One deadline covers a request from the look-up of its host to the last byte of its
answer. The answer has a byte cap and no encoding, and redirects are not followed. A
host is looked up once a connection, all its addresses are checked, and the checked
address is the one that is connected to, so a second look-up cannot change it. See
`http_rules` for the rules.
"""

from __future__ import annotations

import re
import socket
from collections.abc import (
    AsyncGenerator,
    Callable,
    Generator,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any, cast

import anyio
import httpcore
import httpx

from ..errors import Sent, ToolError
from .http_rules import (
    failure,
    is_address,
    read_body,
    redirected,
    refuse_encoding,
    refuse_private,
    tls_context,
)

_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_HEADER_VALUE = re.compile(r"[\t\x20-\x7e]*")
_IDLE, _IDLE_SECONDS = 16, 30.0

_NEXT_ADDRESS_AFTER = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """
    A complete answer.

    Attributes:
        headers: By lower-case name.
    """

    status: int
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """
    An answer that is read as it arrives.

    Attributes:
        headers: By lower-case name.
    """

    status: int
    headers: Mapping[str, str] = field(repr=False)
    _response: httpx.Response = field(repr=False)

    _progress: _Progress = field(repr=False)

    async def read(self, *, timeout: float, max_bytes: int) -> bytes:  # noqa: ASYNC109 -- the bound that this module is about
        """
        Return the whole body, with the limits of `Client.request`.

        Raises:
            ToolError: As there.
        """
        with _bounded(timeout, f"no whole answer within {timeout:g} s", self._progress):
            return await _read(self._response, self.headers, max_bytes)

    async def chunks(self, idle: float) -> AsyncGenerator[bytes]:
        """
        Yield the bytes as they arrive.

        Args:
            idle: Seconds that may pass between two chunks.

        Raises:
            ToolError: ``timeout``, ``transport`` or ``protocol``.
        """
        _refuse_redirect(self.status)
        refuse_encoding(self.headers)
        found = aiter(self._response.aiter_raw())
        while True:
            with _bounded(idle, f"nothing came for {idle:g} s", self._progress):
                chunk = await anext(found, b"")
            if not chunk:
                return
            yield chunk


class Client:
    """
    Sends requests over pooled connections, within one event loop.

    Args:
        proxy: The proxy for every request; the environment is ignored. A proxy looks
            up hosts itself, so it has to check their addresses.

        trace_context: Returns the W3C headers of a request's span.

        connections: The largest number of connections. A request waits for one within
            its timeout.

        client_cert: A PEM file: the certificate to show, and its key.
    """

    def __init__(
        self,
        *,
        proxy: str | None = None,
        trace_context: Callable[[], Mapping[str, str]] = dict,
        connections: int = 32,
        client_cert: str | None = None,
    ) -> None:
        self._proxy = proxy
        self._own = (client_cert,) if client_cert else ()
        self._connections = connections
        self._trace_context = trace_context
        self._clients: dict[tuple[bool, bool], httpx.AsyncClient] = {}

    async def request(  # noqa: PLR0913 -- each is a bound or a part of the request
        self,
        method: str,
        url: str,
        *,
        timeout: float,  # noqa: ASYNC109 -- the bound that this module is about
        max_bytes: int,
        headers: Mapping[str, str] | None = None,
        content: bytes | None = None,
        allow_private: bool = False,
    ) -> Response:
        """
        Send one request, once, and return its answer whatever the status.

        Args:
            method: In upper case.

            url: With scheme and host; its query is kept as it is.

            timeout: Seconds in all.

            max_bytes: The largest body of the answer.

            headers: In addition to the default ones.

            content: The body, if any.

            allow_private: The host may have an address that is not public.

        Raises:
            ToolError: There is no valid answer: ``timeout``,
                ``transport``, ``protocol`` or ``too_large``.
        """
        progress = _Progress()
        request = self._build(method, url, headers or {}, content, progress)
        with _bounded(timeout, f"no whole answer within {timeout:g} s", progress):
            client = self._client(request.url, allow_private=allow_private)
            response = await client.send(request, stream=True)
            progress.sent = "yes"
            headers = _headers(response)
            try:
                body = await _read(response, headers, max_bytes)
            finally:
                await response.aclose()
        return Response(status=response.status_code, headers=headers, body=body)

    @asynccontextmanager
    async def stream(
        self,
        method: str,
        url: str,
        *,
        timeout: float,  # noqa: ASYNC109 -- the bound that this module is about
        headers: Mapping[str, str] | None = None,
        allow_private: bool = False,
    ) -> AsyncGenerator[Stream]:
        """
        Send one request, once, and yield its answer, to be read as it arrives.

        Args:
            method: In upper case.

            url: With scheme and host; its query is kept as it is.

            timeout: Seconds until the answer begins.

            headers: In addition to the default ones.

            allow_private: The host may have an address that is not public.

        Raises:
            ToolError: As of `request`.
        """
        progress = _Progress()
        request = self._build(method, url, headers or {}, None, progress)
        with _bounded(timeout, f"no answer within {timeout:g} s", progress):
            client = self._client(request.url, allow_private=allow_private)
            response = await client.send(request, stream=True)
        progress.sent = "yes"
        try:
            yield Stream(
                status=response.status_code,
                headers=_headers(response),
                _response=response,
                _progress=progress,
            )
        finally:
            await response.aclose()

    async def aclose(self) -> None:
        """Close every connection."""
        clients, self._clients = self._clients, {}
        for client in clients.values():
            await client.aclose()

    def _build(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        content: bytes | None,
        progress: _Progress,
    ) -> httpx.Request:
        headers = {**headers, **self._trace_context()}
        for name, text in headers.items():
            if not _HEADER_NAME.fullmatch(name) or not _HEADER_VALUE.fullmatch(text):
                raise ToolError("protocol", "no", f"header {name!r} cannot be sent")
        sent = {"accept": "*/*", "user-agent": "caxton-host"}
        sent |= {name.lower(): text for name, text in headers.items()}
        sent["accept-encoding"] = "identity"
        try:
            address = httpx.URL(url)
        except httpx.InvalidURL:
            address = httpx.URL()
        if address.scheme not in {"http", "https"} or not address.host:
            raise ToolError("protocol", "no", "the address cannot be used")
        progress.host = address.host
        return httpx.Request(
            method,
            address,
            headers=sent,
            content=content,
            extensions={"trace": progress.on_event},
        )

    def _client(self, url: httpx.URL, *, allow_private: bool) -> httpx.AsyncClient:
        if self._proxy and not allow_private and is_address(url.host):
            refuse_private(url.host, [url.host])
        # Requests with and without `allow_private` must not share connections.
        key = url.scheme == "https", allow_private
        client = self._clients.get(key)
        if client is None:
            client = self._clients[key] = httpx.AsyncClient(
                transport=_Transport(
                    secure=key[0],
                    allow_private=allow_private,
                    proxy=self._proxy,
                    connections=self._connections,
                    own=self._own,
                ),
                trust_env=False,
                follow_redirects=False,
                timeout=None,  # noqa: S113 -- `_bounded` has the deadline
                cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),
            )
        return client


class _Progress:
    """
    Whether a byte of a request may have left the host.

    Attributes:
        host: The host, for messages.
    """

    def __init__(self) -> None:
        self.sent: Sent = "no"
        self.host = ""

    async def on_event(self, name: str, _: Mapping[str, Any]) -> None:
        if name == "http11.send_request_headers.started":
            self.sent = "unknown"


@contextmanager
def _bounded(seconds: float, late: str, progress: _Progress) -> Generator[None]:
    """Apply a timeout, and turn errors of httpx into `ToolError`."""
    try:
        with anyio.fail_after(seconds):
            yield
    except TimeoutError:
        raise ToolError("timeout", progress.sent, late) from None
    except httpx.HTTPError as exc:
        raise failure(exc, progress.host, progress.sent) from None


def _headers(response: httpx.Response) -> dict[str, str]:
    return {name.lower(): text for name, text in response.headers.items()}


def _refuse_redirect(status: int) -> None:
    if error := redirected(status):
        raise error


async def _read(
    response: httpx.Response, headers: Mapping[str, str], max_bytes: int
) -> bytes:
    _refuse_redirect(response.status_code)
    return await read_body(response.aiter_raw(), headers, max_bytes)


class _Network(httpcore.AsyncNetworkBackend):
    """Connects only to addresses that were checked."""

    def __init__(self, *, allow_private: bool) -> None:
        # httpcore declares it twice, once for machines without anyio.
        self._inner = cast("httpcore.AsyncNetworkBackend", httpcore.AnyIOBackend())
        self._allow_private = allow_private

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 -- httpcore's signature
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        try:
            found = await anyio.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError):
            raise httpcore.ConnectError from None
        *others, last = dict.fromkeys(str(entry[4][0]) for entry in found)
        if not self._allow_private:
            refuse_private(host, [*others, last])
        for address in others:
            try:
                return await self._inner.connect_tcp(
                    address, port, _NEXT_ADDRESS_AFTER, local_address, socket_options
                )
            except (httpcore.ConnectError, httpcore.ConnectTimeout):
                continue
        return await self._inner.connect_tcp(
            last, port, timeout, local_address, socket_options
        )


class _Transport(httpx.AsyncHTTPTransport):
    """httpx's transport with our pool: its arguments do not reach the look-up."""

    def __init__(
        self,
        *,
        secure: bool,
        allow_private: bool,
        proxy: str | None,
        connections: int,
        own: Sequence[str],
    ) -> None:
        network = _Network(allow_private=allow_private or proxy is not None)
        through = httpx.Proxy(proxy) if proxy else None
        bounds: dict[str, Any] = {
            "ssl_context": tls_context(*own) if secure else None,
            "max_connections": connections,
            "max_keepalive_connections": _IDLE,
            "keepalive_expiry": _IDLE_SECONDS,
            "network_backend": network,
        }
        self._pool = (
            httpcore.AsyncHTTPProxy(
                str(through.url),
                proxy_auth=through.raw_auth,
                proxy_ssl_context=tls_context()
                if through.url.scheme == "https"
                else None,
                **bounds,
            )
            if through
            else httpcore.AsyncConnectionPool(**bounds)
        )
