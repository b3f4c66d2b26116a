"""
Tokens for one server, got with the credentials of a client (OAuth 2.1).

The SDK knows the flow; it is driven by hand here, apart from any call, for it holds
a lock over every request that it waits for. What it wants sent goes to two places
only: the origin of the server, for its metadata, and that of the issuer which the
operator named, for metadata and tokens. So nothing that a server says can lead the
host, or the credentials, elsewhere.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from ..core.calls import FailureKind
from ..core.redact import Redactor
from ..core.servers import OAuth
from ..errors import ToolError

if TYPE_CHECKING:
    import httpx2
    from mcp.shared.auth import OAuthToken

    from ..http import Client
    from .credentials import Provider

__all__ = ["Access"]

_LONGEST_ANSWER = 64 * 1024
_LONGEST_TOKEN = 8 * 1024
_LONGEST_CHALLENGE = 4096

#: Requests that one flow may make: each piece of metadata has a few places.
_STEPS = 12

#: Seconds between two requests for a token: one that is refused stays refused.
_SOONEST = 1.0

#: Tokens that are looked for in texts: a server may repeat one that it has replaced.
_REMEMBERED = 8

#: What tells the SDK to say which server a token is for (RFC 8707).
_SPEAKS = {"mcp-protocol-version": "2025-06-18"}


_TURNED_AWAY: tuple[FailureKind, str] = "transport", "the server has turned it away"


class Access:
    """
    The tokens of one server, in memory alone.

    Args:
        owner: What its tokens are held under in *redact*.
    """

    def __init__(
        self,
        config: OAuth,
        url: str,
        redact: Redactor,
        *,
        owner: str,
        proxy: str | None,
    ) -> None:
        self._config = config
        self._url = url
        self._redact = redact
        self._owner = owner
        self._proxy = proxy
        self._seen: deque[str] = deque(maxlen=_REMEMBERED)
        self._renewing = asyncio.Lock()
        self._provider: Provider | None = None
        self._challenge: str | None = None
        self._not_before = 0.0
        self._problem: tuple[FailureKind, str] = _TURNED_AWAY
        self._refusal = 0

    async def header(self, deadline: float) -> dict[str, str]:
        """
        Return what a request says about who asks; nothing before it was asked for.

        Raises:
            ToolError: The token has expired, and there is no other.
        """
        token = self._token
        if token is None and self._challenge is not None:
            await self.renew(self._challenge, {}, deadline)
            token = self._token
        return {} if token is None else _header(token)

    async def renew(
        self, challenge: str, used: Mapping[str, str], deadline: float
    ) -> None:
        """
        Get another token than the *used* one, which the server has turned away.

        Args:
            challenge: What the server said with that.

            used: See `header`.

            deadline: On the clock of the event loop.

        Raises:
            ToolError: There is none: nothing was sent to the server.
        """
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout_at(deadline), self._renewing:
                token = self._token
                if token is not None and _header(token) != used:
                    return
                if loop.time() < self._not_before:
                    raise self._failed()
                self._not_before = loop.time() + _SOONEST
                self._challenge = challenge[:_LONGEST_CHALLENGE]
                await self._get(deadline)
        except TimeoutError:
            self._problem = "timeout", "none came in time"
            raise self._failed() from None

    @property
    def _token(self) -> str | None:
        return self._provider.token if self._provider else None

    async def _get(self, deadline: float) -> None:
        if self._provider is None:
            self._provider = await asyncio.to_thread(self._make)
        provider = self._provider
        from ..http import Client  # noqa: PLC0415 -- 50 ms, only once a token is got

        client = Client(proxy=self._proxy)
        try:
            await self._drive(provider, client, deadline)
        except ToolError as exc:
            self._problem = exc.kind, str(exc)
        except Exception:  # noqa: BLE001 -- its text may quote what was answered
            self._problem = (
                "transport",
                (
                    f"its issuer answered {self._refusal}"
                    if self._refusal
                    else "the answers of its issuer cannot be used"
                ),
            )
        else:
            self._problem = _TURNED_AWAY
            return
        finally:
            await client.aclose()
        provider.forget()
        raise self._failed()

    def _failed(self) -> ToolError:
        kind, why = self._problem
        return ToolError(kind, "no", f"there is no token for the server: {why}")

    def _make(self) -> Provider:
        from .credentials import Provider  # noqa: PLC0415 -- a tenth of a second

        return Provider(self._config, self._url, self._learn)

    def _learn(self, tokens: OAuthToken) -> None:
        found = [tokens.access_token, tokens.refresh_token or ""]
        self._seen.extend(filter(None, found))
        self._redact.hold(self._owner, self._seen)
        token = tokens.access_token
        if (
            len(token) > _LONGEST_TOKEN
            or not token.isascii()
            or not token.isprintable()
        ):
            raise ToolError("protocol", "no", "it cannot be sent")

    async def _drive(self, provider: Provider, client: Client, deadline: float) -> None:
        """Go through the flow as if the server had just turned a request away."""
        import httpx2  # noqa: PLC0415 -- loaded by now

        before = provider.token
        ours = httpx2.Request("POST", self._url, headers=_SPEAKS)
        told = False
        flow = provider.async_auth_flow(ours)
        try:
            wanted = await anext(flow)
            for _ in range(_STEPS):
                if wanted is not ours:
                    answer = await self._fetch(client, wanted, deadline)
                elif told or provider.token not in {None, before}:
                    return
                else:
                    told = True
                    answer = httpx2.Response(
                        401,
                        headers={"www-authenticate": self._challenge or ""},
                        request=ours,
                    )
                wanted = await flow.asend(answer)
        finally:
            await flow.aclose()
        raise ToolError("protocol", "no", "it takes too many requests")

    async def _fetch(
        self, client: Client, wanted: httpx2.Request, deadline: float
    ) -> httpx2.Response:
        import httpx2  # noqa: PLC0415 -- loaded by now

        url = str(wanted.url)
        issuer = _origin(url) == _origin(self._config.issuer)
        if not issuer and (
            wanted.method != "GET" or _origin(url) != _origin(self._url)
        ):
            raise ToolError(
                "protocol", "no", "it was to be got from a place not agreed on"
            )
        body = await wanted.aread()
        said = await client.request(
            wanted.method,
            url,
            timeout=max(deadline - asyncio.get_running_loop().time(), 0),
            max_bytes=_LONGEST_ANSWER,
            headers={
                name: wanted.headers[name]
                for name in ("accept", "authorization", "content-type")
                if name in wanted.headers
            },
            content=body or None,
            # The address of the server is the operator's word.
            allow_private=self._config.allow_private or not issuer,
        )
        if wanted.method != "GET":
            self._refusal = 0 if said.status in {200, 201} else said.status
        return httpx2.Response(
            said.status, headers=said.headers, content=said.body, request=wanted
        )


def _header(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


def _origin(url: str) -> tuple[str, str | None, int | None]:
    parts = urlsplit(url)
    usual = {"http": 80, "https": 443}.get(parts.scheme)
    return parts.scheme, parts.hostname, parts.port or usual
