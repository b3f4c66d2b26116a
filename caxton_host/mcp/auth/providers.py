"""
The SDK's providers of tokens, limited to what the operator configured.

`Provider` gets tokens with the credentials of a client, for itself or for the access
token of a caller (RFC 8693). `StoredProvider` uses, refreshes and revokes those of a
login.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable
from dataclasses import replace
from http import HTTPStatus
from typing import Final, Literal
from urllib.parse import parse_qsl

import httpx2
import jwt
from mcp.client.auth import OAuthClientProvider
from mcp.client.auth.extensions.client_credentials import ClientCredentialsOAuthProvider
from mcp.client.auth.utils import union_scopes
from mcp.shared.auth import (
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthMetadata,
    OAuthToken,
    ProtectedResourceMetadata,
)
from pydantic import AnyUrl, ValidationError

from ...core.tools.servers import OAuth
from ...errors import ToolError
from ...lib.machine import SystemClock
from ...lib.signing import jwt_algorithm
from ..run_headers import NO_CALLER
from .exchange import SPEAKS, STEPS, Send, is_scope
from .tokens import Login, TokenFile

METHODS: dict[str, Literal["client_secret_basic", "client_secret_post"]] = {
    "basic": "client_secret_basic",
    "post": "client_secret_post",
}

_ACCESS_TOKEN: Final = "urn:ietf:params:oauth:token-type:access_token"  # noqa: S105 -- a type
_EXCHANGE: Final = "urn:ietf:params:oauth:grant-type:token-exchange"
_SIGNED: Final = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"

#: Seconds that an assertion is valid, before and after it is made: clocks differ.
_VALID, _EARLIER = 300, 30

#: A token is replaced that many seconds before it expires, or a tenth of its time.
_BEFORE = 30.0

#: The expiry time that marks a token as expired.
_OVER: Final = 1.0

# It logs the answers of authorization servers, tokens included (law 8).
logging.getLogger("mcp.client.auth").setLevel(logging.CRITICAL)


def registered(
    config: OAuth, redirect_uris: list[AnyUrl] | None
) -> OAuthClientInformationFull:
    """Return the client that the operator registered for logins."""
    return OAuthClientInformationFull(
        client_id=config.client_id,
        client_secret=config.client_secret or None,
        redirect_uris=redirect_uris,
        token_endpoint_auth_method=(
            METHODS[config.method] if config.client_secret else "none"
        ),
    )


class Memory:
    """
    A `TokenStorage` of the SDK that stores nothing.

    Args:
        learn: Called with each token before it is used.
    """

    def __init__(self, learn: Callable[[OAuthToken], None]) -> None:
        self._learn = learn

    async def get_tokens(self) -> OAuthToken | None:
        """Return nothing: tokens do not outlive their provider."""
        return None

    async def set_tokens(self, tokens: OAuthToken) -> None:
        """Pass the tokens on."""
        self._learn(tokens)

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        """Return nothing: the client is configured."""
        return None

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        """Store nothing."""


class Provider(ClientCredentialsOAuthProvider):
    """
    Gets tokens for a client that the operator registered.

    *learn* is called with every token before it is used. *caller* returns the access
    token that is exchanged, if any is.
    """

    due = False

    def __init__(
        self,
        config: OAuth,
        url: str,
        learn: Callable[[OAuthToken, str | None], None],
        caller: Callable[[], str] = str,
    ) -> None:
        super().__init__(
            url,
            Memory(self._take),
            config.client_id,
            config.client_secret,
            METHODS[config.method],
            config.scope,
            config.issuer,
        )
        self._url = url
        self._config = config
        self._learn = learn
        self._caller = caller
        self.issuer = config.issuer
        # For servers that do not name their issuer.
        self.context.auth_server_url = config.issuer

    async def _exchange_token_client_credentials(self) -> httpx2.Request:
        if self._config.scope is not None:
            # The flow has set the scope that the server requires.
            self.context.client_metadata.scope = self._config.scope
        request = await super()._exchange_token_client_credentials()
        form = dict(parse_qsl(request.content.decode())) | self._more()
        del request.headers["content-length"]
        return httpx2.Request("POST", request.url, data=form, headers=request.headers)

    def _more(self) -> dict[str, str]:
        """Return what the SDK does not send: a signature, and the caller's token."""
        found: dict[str, str] = {}
        if self._config.private_key:
            found["client_id"] = self._config.client_id
            found["client_assertion_type"] = _SIGNED
            found["client_assertion"] = _assertion(self._config)
        if self._config.flow == "exchange":
            if not (token := self._caller()):
                raise ToolError("transport", "no", NO_CALLER)
            kinds = "subject_token_type", "requested_token_type"
            found |= dict.fromkeys(kinds, _ACCESS_TOKEN)
            found |= {"grant_type": _EXCHANGE, "subject_token": token}
        return found

    def _take(self, tokens: OAuthToken) -> None:
        if self._config.private_key or self._config.flow == "exchange":
            # It would be used without a signature, or after the caller has gone.
            tokens.refresh_token = None
        self._learn(tokens, self._caller() or None)
        if tokens.expires_in and self.context.token_expiry_time:
            self.context.token_expiry_time -= min(_BEFORE, tokens.expires_in / 10)

    @property
    def token(self) -> str | None:
        """The valid token, or ``None``."""
        tokens = self.context.current_tokens
        if tokens is None or not self.context.is_token_valid():
            return None
        return tokens.access_token

    def forget(self) -> None:
        """Drop the tokens."""
        self.context.clear_tokens()

    async def get(self, send: Send, challenge: str, used: str | None) -> None:
        """Run the flow as if the server had rejected a request."""
        del used
        before = self.token
        ours = httpx2.Request("POST", self._url, headers=SPEAKS)
        told = False
        flow = self.async_auth_flow(ours)
        try:
            wanted = await anext(flow)
            for _ in range(STEPS):
                if wanted is not ours:
                    answer = await send(wanted)
                elif told or self.token not in {None, before}:
                    return
                else:
                    told = True
                    said = {"www-authenticate": challenge}
                    answer = httpx2.Response(401, headers=said, request=ours)
                wanted = await flow.asend(answer)
        finally:
            await flow.aclose()
        raise ToolError("protocol", "no", "it takes too many requests")


def _assertion(config: OAuth) -> str:
    """Return what authenticates a client with a key (RFC 7523), for its issuer."""
    now = SystemClock().now() // 1_000_000
    claims = dict.fromkeys(("iss", "sub"), config.client_id)
    claims |= {"aud": config.issuer, "jti": secrets.token_hex(16)}
    when = {"iat": now - _EARLIER, "exp": now + _VALID}
    key = config.private_key
    named = {"kid": config.key_id} if config.key_id else None
    return jwt.encode({**claims, **when}, key, jwt_algorithm(key), headers=named)


class StoredProvider(OAuthClientProvider):
    """
    Uses and refreshes the tokens of a file, together with other hosts.

    *learn* is called with every secret before it is used.

    Attributes:
        issuer: Who issued the tokens, and refreshes them.
    """

    def __init__(
        self,
        config: OAuth,
        url: str,
        file: TokenFile,
        learn: Callable[[OAuthToken, str | None], None],
        fix: str,
    ) -> None:
        metadata = OAuthClientMetadata(redirect_uris=None)
        super().__init__(url, metadata, Memory(self._replaced))
        self._config = config
        self._file = file
        self._learn = learn
        self._fix = fix
        self._state: object = None
        self._broken: str | None = None
        self._login: Login | None = None
        self._initialized = True
        self.issuer = ""

    @property
    def due(self) -> bool:
        """Whether there was a login, so that requests carry a token from the start."""
        return self._login is not None

    @property
    def token(self) -> str | None:
        """The valid token, or ``None``."""
        tokens = self.context.current_tokens
        if tokens is None or not self.context.is_token_valid():
            return None
        return tokens.access_token

    def look(self) -> None:
        """
        Read the file if it changed: by a login, or by the refresh of another host.

        Raises:
            ToolError: It cannot be used.
        """
        state = self._file.state()
        if state != self._state:
            self._state, self._broken, self._login = state, None, None
            self.context.clear_tokens()
            try:
                self._login = login = self._file.read()
                if login is not None:
                    self._take(login)
            except ToolError as exc:
                self._broken = str(exc)
            except ValidationError:  # It quotes what it was given.
                self._broken = "the tokens of its login cannot be used"
        if self._broken:
            self.context.clear_tokens()
            raise self._nobody(self._broken)

    def _take(self, login: Login) -> None:
        client = OAuthClientInformationFull.model_validate(login.client)
        if self._config.client_id:
            client = registered(self._config, client.redirect_uris)
        tokens = OAuthToken(
            access_token=login.access_token,
            refresh_token=login.refresh_token,
            scope=login.scope,
        )
        self._learn(tokens, client.client_secret)
        self.issuer = login.issuer
        context = self.context
        context.client_info = client
        context.oauth_metadata = OAuthMetadata.model_validate(login.metadata)
        context.protected_resource_metadata = ProtectedResourceMetadata.model_validate(
            {"resource": login.resource, "authorization_servers": [login.issuer]}
        )
        context.current_tokens = tokens
        context.token_expiry_time = login.expires_at

    def forget(self) -> None:
        """Treat the token as expired, until the file has another."""
        self.context.token_expiry_time = _OVER

    async def get(self, send: Send, challenge: str, used: str | None) -> None:
        """
        Replace the *used* token, from the file or by the issuer.

        Raises:
            ToolError: A new login is needed, or the issuer failed.
        """
        del challenge
        async with self._file.locked():
            self.look()
            if self.token is not None and self.token != used:
                return
            self.forget()
            if self._login is None:
                raise self._nobody("there is no login")
            if not self.context.can_refresh_token():
                raise self._nobody("the login has expired")
            answer = await send(await self._refresh_token())
            if (
                answer.status_code >= HTTPStatus.INTERNAL_SERVER_ERROR
                or answer.status_code == HTTPStatus.TOO_MANY_REQUESTS
            ):
                raise ToolError(
                    "transport", "no", f"its issuer answered {answer.status_code}"
                )
            if not await self._handle_refresh_response(answer):
                raise self._nobody("the login has expired")

    async def revoke(self, send: Send) -> str:
        """
        Revoke the tokens at their issuer (RFC 7009). The caller holds the lock.

        Returns:
            Why they may still be valid, or ``""``.

        Raises:
            ToolError: There is no answer.
        """
        self.look()
        if self._login is None:
            return ""
        where = self._login.metadata.get("revocation_endpoint")
        if where is None:
            return "its issuer named no revocation endpoint at the login"
        problem, name = "", str(self._login.client["client_id"])
        for kind in ("refresh_token", "access_token"):
            if token := getattr(self._login, kind):
                asked = {"token": token, "token_type_hint": kind, "client_id": name}
                form, headers = self.context.prepare_token_auth(asked)
                request = httpx2.Request("POST", where, data=form, headers=headers)
                status = (await send(request)).status_code
                if status != HTTPStatus.OK:
                    problem = f"its issuer answered {status}"
        return problem

    def _nobody(self, why: str) -> ToolError:
        return ToolError("transport", "no", why, fix=self._fix)

    async def want(self, scope: str) -> bool:
        """Store a missing scope for the next login; return whether it is missing."""
        async with self._file.locked():
            self.look()
            login = self._login
            if login is None or {*scope.split()} <= {*(login.scope or "").split()}:
                return False
            wanted = union_scopes(login.wanted, scope) or scope
            if not is_scope(wanted):  # The union is too long.
                wanted = scope
            if login.wanted != wanted:
                self._write(replace(login, wanted=wanted))
            return True

    def _write(self, login: Login) -> None:
        self._file.write(login)
        self._state, self._login = self._file.state(), login

    def _replaced(self, tokens: OAuthToken) -> None:
        self._learn(tokens, None)
        assert self._login is not None  # noqa: S101 -- it is what was refreshed
        self._write(
            replace(
                self._login,
                access_token=tokens.access_token,
                refresh_token=tokens.refresh_token,
                expires_at=self.context.token_expiry_time,
                scope=tokens.scope,
            )
        )
