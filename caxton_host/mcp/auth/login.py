"""
Log in at a server: OAuth 2.1, authorization code with PKCE.

The SDK implements the flow, and is driven by hand, as in `providers`. Before a client
is registered and a person is sent anywhere, this module checks what the SDK does not:
the issuer has metadata, its endpoints share its host, it supports PKCE, and it is the
issuer of the last login.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final, NoReturn, Protocol
from urllib.parse import parse_qs, urlsplit

import httpx2
from mcp.client.auth import OAuthClientProvider, OAuthFlowError
from mcp.client.auth.utils import extract_scope_from_www_auth, issuers_match
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientMetadata,
    OAuthToken,
)
from pydantic import AnyUrl

from ...core.calls import JSON
from ...core.text.redact import Redactor, plain
from ...core.text.urls import in_the_clear, origin
from ...core.tools.servers import OAuth, ServerConfig
from ...errors import ServerUnavailable, ToolError, UsageError
from ...lib.http import Client
from ..run_headers import refers_to_run
from .exchange import LONGEST, SPEAKS, STEPS, Exchange, is_scope, presentable
from .providers import Memory, StoredProvider, registered
from .tokens import Login, TokenFile

_PROBE: Final[dict[str, JSON]] = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "tools/list",
    "params": {},
}
_LONGEST_ADDRESS = 8 * 1024
_LONGEST_ANSWER = 64 * 1024
_ACCEPT = "application/json, text/event-stream"

#: Seconds for all requests of a login; the person has a time of their own.
_SECONDS = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """
    A request for consent.

    Attributes:
        address: The page of the issuer to open.

        issuer: Who issues the tokens.

        scope: The scope of the tokens; ``None``: the issuer's default.

        state: The answer has to repeat it.
    """

    address: str
    issuer: str
    scope: str | None
    state: str


class Person(Protocol):
    """
    A person who can log in.

    Attributes:
        redirect_uri: Where the issuer sends the answer.
    """

    redirect_uri: str

    async def allow(self, asked: Asked) -> AuthorizationCodeResult:
        """Return the answer of the issuer."""
        ...


async def log_in(
    config: ServerConfig,
    person: Person,
    file: TokenFile,
    *,
    redact: Redactor,
    proxy: str | None = None,
) -> Login:
    """
    Get tokens for a server, and write them to *file*.

    Raises:
        ServerUnavailable: The login failed.

        UsageError: The server is not configured for logins.
    """
    if config.oauth is None or config.oauth.flow != "code" or config.url is None:
        raise UsageError(
            f"there is no login for {config.name}",
            fix=f'write flow = "code" in [servers.{config.name}.oauth]',
        )
    client = Client(proxy=proxy)

    def learn(tokens: OAuthToken, secret: str | None) -> None:
        found = (tokens.access_token, tokens.refresh_token, secret)
        redact.hold(f"login {config.name}", filter(None, found))
        if not presentable(tokens.access_token):
            raise ToolError("protocol", "no", "the token cannot be sent")

    provider = _LoginProvider(config.name, config.oauth, config.url, person, learn)
    exchange = Exchange(
        client, config.oauth, config.url, lambda: provider.issuer, _soon()
    )
    try:
        challenge = await _challenge(client, config)
        login = await provider.obtain(exchange, challenge, _last(file))
        async with file.locked():
            file.write(login)
    except Exception as exc:  # noqa: BLE001 -- its text may quote what was answered
        raise _failed(config, exc, exchange.refusal, redact) from None
    finally:
        await client.aclose()
    return login


async def log_out(
    config: ServerConfig, file: TokenFile, *, proxy: str | None = None
) -> tuple[bool, str]:
    """
    Revoke the tokens of a login at their issuer, and delete them in any case.

    Returns:
        Whether there was a login; and why its tokens may still be valid, or ``""``.
    """
    if config.oauth is None or config.url is None:
        return False, ""
    client = Client(proxy=proxy)
    kept = StoredProvider(config.oauth, config.url, file, _ignore, "")
    exchange = Exchange(client, config.oauth, config.url, lambda: kept.issuer, _soon())
    async with file.locked():
        try:
            problem = await kept.revoke(exchange)
        except Exception as exc:  # noqa: BLE001 -- its text may quote what was answered
            known = isinstance(exc, ToolError)
            problem = str(exc) if known else "its issuer cannot be asked"
        finally:
            forgotten = file.remove()
            await client.aclose()
    return forgotten, problem


def _ignore(_tokens: OAuthToken, _secret: str | None) -> None:
    """Learn nothing: no text of an issuer is shown."""


class _LoginProvider(OAuthClientProvider):
    """
    The SDK's provider, with further checks.

    Attributes:
        issuer: The issuer, as far as the server has named it.
    """

    def __init__(
        self,
        name: str,
        config: OAuth,
        url: str,
        person: Person,
        learn: Callable[[OAuthToken, str | None], None],
    ) -> None:
        where = AnyUrl(person.redirect_uri)
        super().__init__(
            url,
            OAuthClientMetadata(client_name="caxton-host", redirect_uris=[where]),
            Memory(self._got),
            self._go,
            self._come_back,
            config.client_metadata,
        )
        self._name = name
        self._config = config
        self._url = url
        self._person = person
        self._learn = learn
        self._address = ""
        self._named = False
        self._before: Login | None = None
        self._exchange: Exchange | None = None
        self._tokens: OAuthToken | None = None
        self._initialized = True
        self.context.auth_server_url = config.issuer or None
        if config.client_id:
            self.context.client_info = registered(config, [where])

    @property
    def issuer(self) -> str:
        parts = urlsplit(self._url)
        return self.context.auth_server_url or f"{parts.scheme}://{parts.netloc}"

    async def obtain(
        self, exchange: Exchange, challenge: str, before: Login | None
    ) -> Login:
        """Run the flow as if the server had rejected a request."""
        self._exchange, self._before = exchange, before
        status, said = HTTPStatus.UNAUTHORIZED, challenge
        if before and before.wanted:
            status = HTTPStatus.FORBIDDEN
            lacks = f'Bearer error="insufficient_scope", scope="{before.wanted}"'
            said = f"{lacks}, {challenge}"
            # The required scope is added to the granted one.
            granted = OAuthToken(access_token="-", scope=before.scope)  # noqa: S106
            self.context.current_tokens = granted
        ours = httpx2.Request("POST", self._url, headers=SPEAKS)
        refusal = httpx2.Response(
            status, headers={"www-authenticate": said}, request=ours
        )
        self._named = extract_scope_from_www_auth(refusal) is not None
        flow = self.async_auth_flow(ours)
        try:
            wanted = await anext(flow)
            for _ in range(STEPS):
                if wanted is ours and self._tokens:
                    return self._login(self._tokens)
                if wanted.method == "POST" and wanted is not ours:
                    self._check()
                wanted = await flow.asend(
                    refusal if wanted is ours else await exchange(wanted)
                )
        finally:
            await flow.aclose()
        raise ToolError("protocol", "no", "it takes too many requests")

    # -- what the SDK leaves open ------------------------------------------------

    def _select_authorization_server(self, advertised: list[str]) -> str:
        wanted, before = self._config.issuer, self._before
        known = wanted or (before.issuer if before else "")
        for one in advertised:
            if issuers_match(one, known):
                return one
        if wanted:
            _refuse("the server names another issuer than oauth does")
        return advertised[0]

    def _check(self) -> None:
        """Check the issuer before anything is sent to it."""
        context, before = self.context, self._before
        metadata = context.oauth_metadata
        if before and not issuers_match(before.issuer, self.issuer):
            fix = f"caxton server logout {self._name}, if that is right, and log in"
            why = f"its issuer is {self.issuer}, and was {before.issuer}"
            raise ToolError("protocol", "no", why, fix=fix)
        if metadata is None:
            if context.auth_server_url is not None:
                _refuse("its issuer has no metadata")
            return
        ends = [metadata.authorization_endpoint, metadata.token_endpoint]
        if metadata.registration_endpoint is not None:
            ends.append(metadata.registration_endpoint)
        allowed = {*map(origin, (self.issuer, *self._config.endpoints))}
        if any(origin(str(end)) not in allowed for end in ends):
            _refuse("an endpoint is not on the issuer's host, nor in oauth.endpoints")
        if "S256" not in (metadata.code_challenge_methods_supported or ()):
            _refuse("its issuer does not announce PKCE (S256)")

    async def _perform_authorization_code_grant(self) -> tuple[str, str]:
        self._check()
        asked, resource = self.context.client_metadata, self.context
        described = resource.protected_resource_metadata
        if self._config.scope is not None:
            asked.scope = self._config.scope
        elif not self._named and not (described and described.scopes_supported):
            # The SDK would request every scope of the issuer.
            asked.scope = None
        if asked.scope and not is_scope(asked.scope):
            _refuse("the scope is not valid")
        return await super()._perform_authorization_code_grant()

    # -- the person ------------------------------------------------------------

    async def _go(self, url: str) -> None:
        # An endpoint may have a query of its own.
        place, _, query = url.rpartition("?")
        self._address = f"{place}{'&' if '?' in place else '?'}{query}"
        if len(url) > _LONGEST_ADDRESS or not (url.isascii() and url.isprintable()):
            _refuse("the login address is not valid")
        if in_the_clear(url):
            _refuse("the login address is not https")

    async def _come_back(self) -> AuthorizationCodeResult:
        query = parse_qs(urlsplit(self._address).query)
        asked = Asked(
            address=self._address,
            issuer=self.issuer,
            scope=self.context.client_metadata.scope,
            state=query["state"][-1],
        )
        result = await self._person.allow(asked)
        assert self._exchange is not None  # noqa: S101 -- see `obtain`
        self._exchange.deadline = _soon()
        return result

    # -- what comes of it ------------------------------------------------------

    def _got(self, tokens: OAuthToken) -> None:
        client = self.context.client_info
        self._learn(tokens, client.client_secret if client else None)
        self._tokens = tokens

    def _login(self, tokens: OAuthToken) -> Login:
        context = self.context
        metadata, client = context.oauth_metadata, context.client_info
        assert client is not None  # noqa: S101 -- it got tokens
        base = context.get_authorization_base_url(self._url)
        issuer = str(metadata.issuer) if metadata else self.issuer
        where = f"{base}/authorize", f"{base}/token"
        if metadata:
            where = str(metadata.authorization_endpoint), str(metadata.token_endpoint)
        revokes = metadata.revocation_endpoint if metadata else None
        return Login(
            issuer=issuer,
            resource=context.get_resource_url(),
            metadata={
                "issuer": issuer,
                "authorization_endpoint": where[0],
                "token_endpoint": where[1],
                **({"revocation_endpoint": str(revokes)} if revokes else {}),
            },
            client=client.model_dump(
                mode="json",
                exclude_none=True,
                # A configured secret is not copied into the file.
                exclude={"client_secret"} if self._config.client_id else None,
            ),
            access_token=tokens.access_token,
            refresh_token=tokens.refresh_token,
            expires_at=context.token_expiry_time,
            scope=tokens.scope,
        )


async def _challenge(client: Client, config: ServerConfig) -> str:
    """Return the challenge of the server to a request without a token."""
    assert config.url is not None  # noqa: S101 -- see `log_in`
    stream = config.transport == "sse"
    said = await client.request(
        "GET" if stream else "POST",
        config.url,
        timeout=_SECONDS,
        max_bytes=_LONGEST_ANSWER,
        headers={
            **({} if refers_to_run(config) else config.headers),
            **SPEAKS,
            "accept": "text/event-stream" if stream else _ACCEPT,
            "content-type": "application/json",
        },
        content=None if stream else json.dumps(_PROBE).encode(),
        allow_private=True,
    )
    if said.status != HTTPStatus.UNAUTHORIZED:
        return ""
    challenge = said.headers.get("www-authenticate", "")
    if len(challenge) > LONGEST:
        _refuse("the server's challenge is too long")
    return challenge


def _last(file: TokenFile) -> Login | None:
    try:
        return file.read()
    except ToolError:
        return None  # It is replaced.


def _soon() -> float:
    return asyncio.get_running_loop().time() + _SECONDS


def _refuse(why: str) -> NoReturn:
    raise ToolError("protocol", "no", why)


def _failed(
    config: ServerConfig, exc: Exception, refusal: int, redact: Redactor
) -> ServerUnavailable:
    fix = f"check oauth of [servers.{config.name}]"
    if isinstance(exc, ToolError):
        why, fix = str(exc), exc.fix or fix
    elif refusal:
        why = f"its issuer answered {refusal}"
    elif type(exc) is OAuthFlowError:  # Its subclasses quote whole answers.
        why = plain(str(exc), redact)
    else:
        why = "the answers of its issuer cannot be used"
    return ServerUnavailable(f"no login at {config.name}: {why}", fix=fix)
