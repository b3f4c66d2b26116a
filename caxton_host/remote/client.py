"""Requests to a host that serves: bounded, and repeated where that is safe."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Self
from urllib.parse import quote, urlencode

from ..core.calls import JSON
from ..errors import (
    BadBytes,
    CaxtonError,
    OverloadedError,
    ServerUnavailable,
    ToolError,
)
from ..lib.codec import DEPTH, load_json
from ..lib.http import Client, Response, Stream
from ..lib.http_rules import Lost, NoTls
from .address import Address
from .documents import is_of, problem, stranger

_DEADLINE = 60.0
MOST_BYTES = 64 * 1024 * 1024
_MOST_NODES = 4_000_000
#: The depth of a recorded value, plus that of the document around it.
_DEPTH = DEPTH + 8
_SUCCESS = range(200, 300)
_BYTES = "application/octet-stream"

#: Seconds before each new attempt after a lost connection.
_PAUSES = (0.2, 1.0, 3.0)
#: Seconds to wait in all for an overloaded host.
_PATIENCE = 60.0
_AT_LEAST = 0.1


def path(*parts: str) -> str:
    """
    Return the path of a resource, with each part quoted.

    >>> path("runs", "../agents")
    '/runs/..%2Fagents'
    """
    return "".join(f"/{quote(part, safe='')}" for part in parts)


class Remote:
    """
    Talks to one host, within one event loop.

    Args:
        address: Where it is.

        token: The bearer token, or ``None``.

        tell: Called with the reason for each wait.

        client_cert: A PEM file: the certificate to show, and its key.

    Attributes:
        received: How many bytes of answers were read.
    """

    def __init__(
        self,
        address: Address,
        token: str | None,
        tell: Callable[[str], None],
        client_cert: str | None = None,
    ) -> None:
        self.address = address
        self._headers = {"accept": "application/json, application/problem+json"}
        if token is not None:
            self._headers["authorization"] = f"Bearer {token}"
        self._tell = tell
        self._client = Client(client_cert=client_cert)
        self.received = 0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.aclose()

    async def get(self, where: str, **query: str | int | None) -> JSON:
        """
        Return the document of a resource.

        Args:
            where: See `path`.

            query: Parameters; ``None`` is left out.

        Raises:
            ServerUnavailable: The host cannot be reached, or is not a host.

            CaxtonError: The host reports an error.
        """
        url = self._url(where, query)
        return _json(await self._patiently("GET", url, self._headers, safe=True))

    async def fetch(self, where: str) -> bytes:
        """
        Return the bytes of a binary resource.

        Raises:
            ServerUnavailable, CaxtonError: As of `get`.
        """
        headers = self._headers | {"accept": _BYTES}
        url = self._url(where, {})
        answer = await self._patiently("GET", url, headers, safe=True)
        if not is_of(answer.headers, _BYTES):
            raise stranger("its answer is not the bytes that were asked for")
        return answer.body

    async def post(
        self,
        where: str,
        body: JSON = None,
        *,
        key: str | None = None,
        **query: str | int | None,
    ) -> JSON:
        """
        Send a request that changes something, and return the answer.

        Args:
            where: See `path`.

            body: The document to send.

            key: An idempotency key: repeated with it, the request takes effect only
                once. Without one, a request that may have arrived is not repeated.

            query: As for `get`.

        Raises:
            ServerUnavailable: The host cannot be reached, or is not a host.

            CaxtonError: The host reports an error.
        """
        headers = self._headers | {"content-type": "application/json"}
        if key is not None:
            headers["idempotency-key"] = key
        content = b"" if body is None else json.dumps(body).encode()
        url = self._url(where, query)
        safe = key is not None
        return _json(await self._patiently("POST", url, headers, content, safe=safe))

    @asynccontextmanager
    async def stream(
        self, where: str, headers: dict[str, str]
    ) -> AsyncGenerator[Stream]:
        """
        Yield the answer to a request as a stream.

        Raises:
            ToolError: There is no answer.

            CaxtonError: The host reports an error.
        """
        async with self._client.stream(
            "GET",
            self._url(where, {}),
            timeout=_DEADLINE,
            headers=self._headers | headers,
            allow_private=True,
        ) as stream:
            if stream.status not in _SUCCESS:
                body = await stream.read(timeout=_DEADLINE, max_bytes=MOST_BYTES)
                raise problem(
                    Response(status=stream.status, headers=stream.headers, body=body)
                )
            yield stream

    async def _patiently(
        self,
        method: str,
        url: str,
        headers: dict[str, str],
        content: bytes | None = None,
        *,
        safe: bool,
    ) -> Response:
        """Send a request; retry on overload, and if *safe* on a lost connection."""
        left, pauses = _PATIENCE, iter(_PAUSES)
        while True:
            try:
                answer = await self._client.request(
                    method,
                    url,
                    timeout=_DEADLINE,
                    max_bytes=MOST_BYTES,
                    headers=headers,
                    content=content,
                    allow_private=True,
                )
                self.received += len(answer.body)
                if answer.status in _SUCCESS:
                    return answer
                raise problem(answer)
            except OverloadedError as exc:
                wait = max(exc.retry_after, _AT_LEAST)
                if wait > left:
                    raise
                left -= wait
                self._tell(f"{exc}; asking again in {wait:g} s")
            except ToolError as exc:
                # The answer to a start comes when the run starts, which may take long.
                late = method == "POST" and exc.kind == "timeout" and exc.sent != "no"
                pause = next(pauses, None) if safe else None
                if not (isinstance(exc, Lost) or late) or pause is None:
                    raise unreached(exc, self.address) from None
                wait = pause
            await asyncio.sleep(wait)

    def _url(self, where: str, query: Mapping[str, str | int | None]) -> str:
        given = {key: value for key, value in query.items() if value is not None}
        return f"{self.address.api}{where}" + (f"?{urlencode(given)}" if given else "")


class TooMuch(ServerUnavailable):
    """An answer is larger than what is read."""


class Away(ServerUnavailable):
    """The host was not reached, or its answer was lost."""


def unreached(exc: ToolError, address: Address) -> CaxtonError:
    """Return the error for a request without a usable answer."""
    if exc.kind == "too_large":
        return TooMuch(f"{exc}: that is more than is read", fix="ask for less")
    if exc.kind == "protocol" and not isinstance(exc, Lost):
        return stranger(str(exc))
    scheme, _, place = address.url.partition(":")
    if isinstance(exc, NoTls):
        return Away(
            f"--host {address.url}: {exc}",
            fix=f"write --host http:{place}, if that is how caxton serve prints it",
        )
    if exc.kind == "protocol" and scheme == "http":
        return Away(
            f"--host {address.url}: {exc}, and its answer is lost",
            fix=f"if it speaks TLS, write --host https:{place}; if not, caxton runs "
            "list shows whether it took effect",
        )
    if exc.sent == "no":
        return Away(
            f"no host at {address.url}: {exc}",
            fix=exc.fix or "see that caxton serve runs there, and that --host names it",
        )
    return Away(
        f"the host at {address.url} was asked, and its answer is lost: {exc}",
        fix="caxton runs list shows whether it took effect",
    )


def _json(answer: Response) -> JSON:
    if not answer.body:
        return None
    if not is_of(answer.headers, "application/json"):
        raise stranger("its answer is not JSON")
    return read_json(answer.body)


def read_json(data: bytes) -> JSON:
    """
    Parse a document of the host within the bounds.

    Raises:
        ServerUnavailable: It is not JSON.
    """
    try:
        return load_json(data, limit=MOST_BYTES, nodes=_MOST_NODES, depth=_DEPTH)
    except BadBytes as exc:
        raise stranger(f"its answer is not to be read: {exc}") from None
