"""
Tokens for one server (OAuth 2.1), from client credentials or a login.

The SDK implements the flows. They are driven by hand, apart from any call, because the
SDK holds a lock during every request. `exchange` limits where the requests go.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from ...core.text.redact import Redactor
from ...core.tools.servers import OAuth
from ...errors import TokenError, ToolError
from .exchange import LONGEST, Exchange, is_lacking, presentable, scopes
from .tokens import TokenFile

if TYPE_CHECKING:
    from mcp.shared.auth import OAuthToken

    from .providers import Provider, StoredProvider


#: Seconds between two requests for a token, so that refusals are not repeated at once.
_SOONEST = 1.0

#: Tokens that are redacted: a server may repeat one that was replaced.
_REMEMBERED = 8

_TURNED_AWAY = ToolError("transport", "no", "the server rejected it")

_BEARER = "Bearer "


class Access:
    """
    The tokens of one server.

    Args:
        owner: The key of its tokens in *redact*.

        name: The name of the server, for messages.

        file: The tokens of a login; other tokens are in memory only.

        caller: Returns the access token that is exchanged, if any is.
    """

    def __init__(  # noqa: PLR0913 -- whose tokens, and where they are
        self,
        config: OAuth,
        url: str,
        redact: Redactor,
        *,
        owner: str,
        proxy: str | None,
        name: str = "",
        file: TokenFile | None = None,
        caller: Callable[[], str] = str,
    ) -> None:
        self._config = config
        self._url = url
        self._redact = redact
        self._owner = owner
        self._proxy = proxy
        self._seen: deque[str] = deque(maxlen=_REMEMBERED)
        self._renewing = asyncio.Lock()
        self._name = name
        self._file = file
        self._caller = caller
        self._provider: Provider | StoredProvider | None = None
        self._kept: StoredProvider | None = None
        self._secret = ""
        self._challenge: str | None = None
        self._not_before = 0.0
        self._problem = _TURNED_AWAY

    async def header(self, deadline: float) -> dict[str, str]:
        """
        Return the authorization header, or nothing before the server requires one.

        Raises:
            ToolError: The token has expired, and cannot be replaced.
        """
        if self._file is not None:
            await self._look(self._file)
        token = self._token
        known = self._challenge is not None or (self._provider and self._provider.due)
        if token is None and known:
            await self.renew(self._challenge or "", {}, deadline)
            token = self._token
        return {} if token is None else _header(token)

    async def renew(
        self, challenge: str, used: Mapping[str, str], deadline: float
    ) -> None:
        """
        Replace the *used* token, which the server rejected.

        Args:
            challenge: The challenge of the server.

            used: See `header`.

            deadline: On the clock of the event loop.

        Raises:
            ToolError: There is no other token; nothing was sent to the server.
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
                self._challenge = challenge[:LONGEST]
                await self._get(used, deadline)
        except TimeoutError:
            self._problem = ToolError("timeout", "no", "none arrived in time")
            raise self._failed() from None

    async def lacking(
        self, challenge: str, used: Mapping[str, str]
    ) -> TokenError | None:
        """
        Return the error if the server requires more scope, or ``None``.

        More scope is never requested here: a person has to log in for it.
        """
        if self._file is None or not is_lacking(challenge):
            return None
        provider = await self._look(self._file)
        if self._token is not None and _header(self._token) != used:
            return another()
        scope = scopes(challenge)
        allowed = self._config.scope
        if scope is None or (allowed and not {*scope.split()} <= {*allowed.split()}):
            why = "the server requires a scope that oauth does not allow"
            return TokenError("transport", "no", f"{why}: {scope or 'it names none'}")
        if not await provider.want(scope):
            why = "the server requires a scope that the token has"
            return TokenError("transport", "no", f"{why}: {scope}")
        why = f"the server requires more scope, {scope}: log in again"
        return TokenError("transport", "no", why, fix=login_fix(self._name))

    @property
    def _token(self) -> str | None:
        return self._provider.token if self._provider else None

    async def _get(self, used: Mapping[str, str], deadline: float) -> None:
        if self._provider is None:
            self._provider = await asyncio.to_thread(self._make)
        provider = self._provider
        from ...lib.http import Client  # noqa: PLC0415 -- 50 ms, only once a token is got

        client = Client(proxy=self._proxy)
        exchange = Exchange(
            client, self._config, self._url, lambda: provider.issuer, deadline
        )
        shown = used.get("authorization", "").removeprefix(_BEARER)
        try:
            await provider.get(exchange, self._challenge or "", shown or None)
        except ToolError as exc:
            self._problem = exc
        except Exception:  # noqa: BLE001 -- its text may quote what was answered
            self._problem = ToolError(
                "transport",
                "no",
                f"its issuer answered {exchange.refusal}"
                if exchange.refusal
                else "the answers of its issuer cannot be used",
            )
        else:
            self._problem = _TURNED_AWAY
            return
        finally:
            await client.aclose()
        provider.forget()
        raise self._failed()

    def _failed(self) -> TokenError:
        it = self._problem
        why = f"there is no token for the server: {it}"
        return TokenError(it.kind, "no", why, fix=it.fix)

    def _make(self) -> Provider:
        from .providers import Provider  # noqa: PLC0415 -- a tenth of a second

        return Provider(self._config, self._url, self._learn, self._caller)

    async def _look(self, file: TokenFile) -> StoredProvider:
        """Read the tokens that logins wrote since."""
        if self._kept is None:
            self._provider = self._kept = await asyncio.to_thread(self._keep, file)
        try:
            self._kept.look()
        except ToolError as exc:
            self._problem = exc
            raise self._failed() from None
        return self._kept

    def _keep(self, file: TokenFile) -> StoredProvider:
        from .providers import StoredProvider  # noqa: PLC0415 -- a tenth of a second

        fix = login_fix(self._name)
        return StoredProvider(self._config, self._url, file, self._learn, fix)

    def _learn(self, tokens: OAuthToken, secret: str | None = None) -> None:
        found = [tokens.access_token, tokens.refresh_token or ""]
        self._secret = secret or self._secret
        self._seen.extend(filter(None, found))
        self._redact.hold(self._owner, [*self._seen, self._secret])
        if not presentable(tokens.access_token):
            raise ToolError("protocol", "no", "it cannot be sent")


def login_fix(name: str) -> str:
    """Return the command for a login."""
    return f"caxton server login {name}"


def another() -> TokenError:
    """Return the error of a call that is not repeated with the new token."""
    return TokenError(
        "transport",
        "no",
        "the server rejected the token; the next call has a new one",
    )


def _header(token: str) -> dict[str, str]:
    return {"authorization": _BEARER + token}
