"""
Tokens for one server (OAuth 2.1): got with the credentials of a client, or by a login.

The SDK knows the flows; they are driven by hand here, apart from any call, for it holds
a lock over every request that it waits for. See `exchange` for where they may lead.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ...core.text.redact import Redactor
from ...core.tools.servers import OAuth
from ...errors import ToolError
from .exchange import LONGEST, Exchange, is_lacking, presentable, scopes
from .tokens import TokenFile

if TYPE_CHECKING:
    from mcp.shared.auth import OAuthToken

    from .providers import Provider, StoredProvider


#: Seconds between two requests for a token: one that is refused stays refused.
_SOONEST = 1.0

#: Tokens that are looked for in texts: a server may repeat one that it has replaced.
_REMEMBERED = 8

_TURNED_AWAY = ToolError("transport", "no", "the server has turned it away")

_BEARER = "Bearer "


class Access:
    """
    The tokens of one server.

    Args:
        owner: What its tokens are held under in *redact*.

        name: That of the server, for people.

        file: Where a login leaves tokens; the others are in memory alone.
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
        self._provider: Provider | StoredProvider | None = None
        self._kept: StoredProvider | None = None
        self._secret = ""
        self._challenge: str | None = None
        self._not_before = 0.0
        self._problem = _TURNED_AWAY

    async def header(self, deadline: float) -> dict[str, str]:
        """
        Return what a request says about who asks; nothing before it was asked for.

        Raises:
            ToolError: The token has expired, and there is no other.
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
                self._challenge = challenge[:LONGEST]
                await self._get(used, deadline)
        except TimeoutError:
            self._problem = ToolError("timeout", "no", "none came in time")
            raise self._failed() from None

    @property
    def fix(self) -> str:
        """What a person can do about it that there is no token, if anything."""
        return self._problem.fix if self._token is None else ""

    async def lacking(
        self, challenge: str, used: Mapping[str, str]
    ) -> ToolError | None:
        """
        Return what to say if the server wants a token that is good for more.

        More is never asked for from here: it takes a person, each time.
        """
        if self._file is None or not is_lacking(challenge):
            return None
        provider = await self._look(self._file)
        if self._token is not None and _header(self._token) != used:
            return another()
        scope = scopes(challenge)
        allowed = self._config.scope
        if scope is None or (allowed and not {*scope.split()} <= {*allowed.split()}):
            why = "the server wants more than scope of oauth has"
            return ToolError("transport", "no", f"{why}: {scope or 'it says not what'}")
        if not await provider.want(scope):
            why = "the server wants what the token is said to be good for"
            return ToolError("transport", "no", f"{why}: {scope}")
        why = f"the server wants more scope, {scope}: somebody has to log in again"
        return ToolError("transport", "no", why, fix=login_fix(self._name))

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
            client,
            server=self._url,
            issuer=lambda: provider.issuer,
            allow_private=self._config.allow_private,
            deadline=deadline,
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

    def _failed(self) -> ToolError:
        it = self._problem
        why = f"there is no token for the server: {it}"
        return ToolError(it.kind, "no", why, fix=it.fix)

    def _make(self) -> Provider:
        from .providers import Provider  # noqa: PLC0415 -- a tenth of a second

        return Provider(self._config, self._url, self._learn)

    async def _look(self, file: TokenFile) -> StoredProvider:
        """Take what logins left since."""
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
    """Return what to type for a login."""
    return f"caxton server login {name}"


def another() -> ToolError:
    """Return what to say of a call that is not sent again with a better token."""
    return ToolError(
        "transport",
        "no",
        "the server wanted another token, and what is sent next has one",
    )


def _header(token: str) -> dict[str, str]:
    return {"authorization": _BEARER + token}
