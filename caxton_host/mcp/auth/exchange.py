"""
Requests for OAuth metadata and tokens, limited to two origins.

Metadata comes from the server and the issuer, tokens from the issuer alone and from the
endpoints that the operator lists, so nothing that a server or an issuer says can send
the host or its credentials elsewhere.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, TypeAlias

from ...core.text.urls import in_the_clear, origin
from ...errors import ToolError

if TYPE_CHECKING:
    import httpx2

    from ...core.tools.servers import OAuth
    from ...lib.http import Client


#: Bytes of a challenge that are read.
LONGEST: Final = 4096

_LONGEST_SCOPE = 2048
_LACKING = re.compile(r'\berror="?insufficient_scope\b')
_SCOPE = re.compile(r'\bscope=(?:"([^"]*)"|([^\s,"]+))')
_SCOPES = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+( [\x21\x23-\x5b\x5d-\x7e]+)*")

#: Sends one request of a flow, and returns its answer.
Send: TypeAlias = "Callable[[httpx2.Request], Awaitable[httpx2.Response]]"

#: Requests that one flow may make: metadata is looked for in several places.
STEPS: Final = 12

#: Makes the SDK name the server that a token is for (RFC 8707).
SPEAKS: Final = {"mcp-protocol-version": "2025-06-18"}

_LONGEST_ANSWER = 64 * 1024
_LONGEST_TOKEN = 8 * 1024


class Exchange:
    """
    Sends the requests of a flow.

    Args:
        config: Whether the issuer may have an address that is not public, and other
            addresses whose origins take what is posted.

        server: The configured address of the server.

        issuer: Returns the address of the issuer, as far as known.

        deadline: On the clock of the event loop.

    Attributes:
        deadline: On the clock of the event loop.

        refusal: The status of the last POST, if it was not a success, else 0.
    """

    def __init__(
        self,
        client: Client,
        config: OAuth,
        server: str,
        issuer: Callable[[], str],
        deadline: float,
    ) -> None:
        self._client = client
        self._server = origin(server)
        self._issuer = issuer
        self._endpoints = {*map(origin, config.endpoints)}
        self._allow_private = config.allow_private
        self.deadline = deadline
        self.refusal = 0

    async def __call__(self, wanted: httpx2.Request) -> httpx2.Response:
        """
        Send *wanted*, if its address is allowed.

        Raises:
            ToolError: It is not, or there is no answer.
        """
        import httpx2  # noqa: PLC0415 -- loaded by whoever made the request

        url = str(wanted.url)
        ours, gets = origin(url) == self._server, wanted.method == "GET"
        if origin(url) != origin(self._issuer()) and not (
            ours if gets else origin(url) in self._endpoints
        ):
            raise ToolError(
                "protocol",
                "no",
                "the request would leave the origins of server and issuer",
            )
        if in_the_clear(url):
            raise ToolError("protocol", "no", "the address of its issuer is not https")
        body = await wanted.aread()
        said = await self._client.request(
            wanted.method,
            url,
            timeout=max(self.deadline - asyncio.get_running_loop().time(), 0),
            max_bytes=_LONGEST_ANSWER,
            headers={
                name: wanted.headers[name]
                for name in ("accept", "authorization", "content-type")
                if name in wanted.headers
            },
            content=body or None,
            allow_private=self._allow_private or ours,
        )
        if wanted.method != "GET":
            self.refusal = 0 if said.status in {200, 201} else said.status
        return httpx2.Response(
            said.status, headers=said.headers, content=said.body, request=wanted
        )


def presentable(token: str) -> bool:
    """Return whether *token* can be sent in a header."""
    return len(token) <= _LONGEST_TOKEN and token.isascii() and token.isprintable()


def is_lacking(challenge: str) -> bool:
    """
    Return whether a valid token lacks scope.

    >>> is_lacking('Bearer error="insufficient_scope"'), is_lacking("Bearer")
    (True, False)
    """
    return _LACKING.search(challenge[:LONGEST]) is not None


def scopes(challenge: str) -> str | None:
    """
    Return the scope that a server requires, or ``None``.

    >>> scopes('Bearer error="insufficient_scope", scope="read write"')
    'read write'
    """
    found = _SCOPE.search(challenge[:LONGEST])
    said = (found[1] or found[2] or "") if found else ""
    return said if is_scope(said) else None


def is_scope(text: str) -> bool:
    """
    Return whether *text* is a valid scope.

    >>> is_scope("read mail:write"), is_scope('"read'), is_scope("")
    (True, False, False)
    """
    return len(text) <= _LONGEST_SCOPE and _SCOPES.fullmatch(text) is not None
