"""Authentication: bearer tokens of this host, or of an authorization server."""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, cast
from urllib.parse import urlsplit

import jwt
from starlette.types import Message, Send

from ...config import OAuth, Serve
from ...core.calls import JSON
from ...core.grants.freezes import Freezes
from ...core.grants.principals import (
    PREFIX,
    SCOPES,
    SESSION,
    Principal,
    Token,
    is_agent_pattern,
    is_tenant,
    scopes_in,
)
from ...core.names import is_server_name
from ...core.text.urls import is_loopback
from ...errors import ForbiddenError, StoreError, UsageError
from ...lib.http import Client
from ...lib.machine import local_actor
from ...ports.serving import Tokens
from ...ports.watch import Clock
from .issuer import Keys

#: Scopes of an authorization server that are ours begin so, or are just their names.
SCOPE_PREFIX = "caxton:"
#: Scopes that name a session begin so.
_OF_SESSION = f"{SESSION}:"
_REALM = "caxton"
_WELL_KNOWN = "/.well-known/oauth-protected-resource"
#: Bytes of a token. Nothing of a longer one is looked at.
_LONGEST = 16 * 1024
_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")


class Unauthenticated(Exception):  # noqa: N818 -- a verdict, not a fault
    """
    The caller is not authenticated.

    Attributes:
        challenge: The value of ``WWW-Authenticate``, in an answer of 401.
    """

    def __init__(self, challenge: str, problem: str) -> None:
        super().__init__(problem)
        self.challenge = challenge


@dataclass(frozen=True, slots=True)
class Challenge:
    """
    The challenge sent to an unauthenticated caller (RFC 6750).

    Attributes:
        oauth: Whose access tokens are taken, or ``None``.
    """

    oauth: OAuth | None = None

    def refusal(self, problem: str = "") -> Unauthenticated:
        """Return the refusal of a token, or of a missing one."""
        said = {"realm": _REALM}
        if problem:
            said |= {"error": "invalid_token", "error_description": problem}
        if self.oauth and (address := _address(self.oauth)):
            said |= {"resource_metadata": address}
        text = ", ".join(f'{key}="{value}"' for key, value in said.items())
        return Unauthenticated(f"Bearer {text}", problem or "a token is required")

    def token(self, authorization: str | None) -> str:
        """
        Return the token of a header.

        Raises:
            Unauthenticated: It is missing or malformed.
        """
        if authorization is None:
            raise self.refusal()
        scheme, _, token = authorization[: _LONGEST + 8].partition(" ")
        if scheme.lower() != "bearer":
            raise self.refusal("send Authorization: Bearer TOKEN")
        if len(token) > _LONGEST:
            raise self.refusal("the token is too long")
        if not _TOKEN.fullmatch(token):
            raise self.refusal("not a token")
        return token


def metadata(oauth: OAuth | None) -> Mapping[str, JSON] | None:
    """
    Return the protected resource metadata (RFC 9728), or ``None``.

    >>> found = metadata(OAuth(issuer="https://id.test", audience="https://a.test/mcp"))
    >>> found["resource"], found["authorization_servers"]
    ('https://a.test/mcp', ['https://id.test'])
    """
    if oauth is None or _address(oauth) is None:
        return None
    return {
        "resource": oauth.audience,
        "authorization_servers": [oauth.issuer],
        "scopes_supported": [f"{SCOPE_PREFIX}{scope}" for scope in SCOPES],
        "bearer_methods_supported": ["header"],
        "resource_name": "Caxton Host",
    }


def documented(oauth: OAuth, *paths: str) -> list[str]:
    """
    Return the paths of that document: of each of *paths*, and of the audience.

    >>> oauth = OAuth(issuer="https://id.test", audience="https://a.test/agents")
    >>> [path.removeprefix(_WELL_KNOWN) for path in documented(oauth, "/mcp")]
    ['', '/agents', '/mcp']
    """
    told = urlsplit(oauth.audience).path.rstrip("/")
    # Braces would be a pattern.
    return [
        f"{_WELL_KNOWN}{path}"
        for path in sorted({"", told, *paths})
        if not {*"{}"} & {*path}
    ]


def _address(oauth: OAuth) -> str | None:
    """Return the URL of that document, if the audience is a URL."""
    there = urlsplit(oauth.audience)
    if there.scheme not in {"https", "http"}:
        return None
    path = there.path.rstrip("/")
    return f"{there.scheme}://{there.netloc}{_WELL_KNOWN}{path}"


logger = logging.getLogger("caxton_host")

#: Seconds by which clocks may differ.
_LEEWAY = 30
_LONGEST_NAME = 255
_MOST = 100
#: What is signed may be many things: a logout, an event, a proof.
_KINDS = {"jwt", "at+jwt", "application/at+jwt"}
_REQUIRED = ("exp", "iss", "aud", "sub")


@dataclass(slots=True)
class OAuthIdentity:
    """Authenticates access tokens (RFC 9068) of an authorization server."""

    oauth: OAuth
    clock: Clock
    client: Client
    challenge: Challenge
    _keys: Keys = field(init=False)

    def __post_init__(self) -> None:
        self._keys = Keys(self.oauth, self.clock, self.client)

    async def principal(self, authorization: str | None) -> Principal:
        """
        Return the principal of a request.

        Raises:
            Unauthenticated: The caller is not authenticated.
        """
        token = self.challenge.token(authorization)
        try:
            head = jwt.get_unverified_header(token)
        except jwt.PyJWTError:
            raise self.challenge.refusal("not a token of this host") from None
        if str(head.get("typ", "jwt")).lower() not in _KINDS:
            raise self.challenge.refusal("it is no access token")
        algorithm = head.get("alg")
        if algorithm not in self.oauth.algorithms:
            raise self.challenge.refusal("its kind of signature is not taken")
        key = await self._keys.find(head.get("kid"), algorithm)
        if key is None:
            raise self.challenge.refusal("its key is not known")
        claims = self._claims(token, key, algorithm)
        if "cnf" in claims:
            raise self.challenge.refusal("it is bound to a key, and nothing shows that")
        if problem := self._untimely(claims):
            raise self.challenge.refusal(problem)
        if (found := _principal(claims)) is None:
            raise self.challenge.refusal("what it says of its owner cannot be")
        found = replace(found, token=token, signed_in_at=self._signed_in_at(claims))
        return self._of_tenant(found, claims)

    def _of_tenant(self, who: Principal, claims: Mapping[str, Any]) -> Principal:
        if self.oauth.tenant_claim is None:
            return who
        tenant = claims.get(self.oauth.tenant_claim)
        # law 4: without a tenant it would see what all have
        if not isinstance(tenant, str) or not is_tenant(tenant):
            raise self.challenge.refusal("it names no tenant")
        return replace(who, tenant=tenant)

    def _signed_in_at(self, claims: Mapping[str, Any]) -> int | None:
        """Return when the issuer says that the person signed in, if it can be so."""
        said, now = claims.get("auth_time"), self.clock.now()
        if isinstance(said, bool) or not isinstance(said, (int, float)):
            return None
        return min(round(said * 1e6), now) if 0 <= said <= now / 1e6 + _LEEWAY else None

    def _claims(self, token: str, key: jwt.PyJWK, algorithm: str) -> dict[str, Any]:
        try:
            return jwt.decode(
                token,
                key,
                algorithms=[algorithm],
                audience=self.oauth.audience,
                issuer=self.oauth.issuer,
                options={
                    "require": [*_REQUIRED],
                    "enforce_minimum_key_length": True,
                    # By the clock of the host.
                    "verify_exp": False,
                    "verify_nbf": False,
                    "verify_iat": False,
                },
            )
        except jwt.InvalidAudienceError:
            raise self.challenge.refusal("it is for another service") from None
        except jwt.InvalidIssuerError:
            raise self.challenge.refusal("its issuer is another") from None
        except (jwt.PyJWTError, ValueError, TypeError):
            raise self.challenge.refusal("it is not valid") from None

    def _untimely(self, claims: Mapping[str, Any]) -> str | None:
        now = self.clock.now() / 1e6
        for claim in ("exp", "nbf", "iat"):
            said = claims.get(claim, now)
            if isinstance(said, bool) or not isinstance(said, (int, float)):
                return "it is not valid"
            if claim == "exp" and not said > now - _LEEWAY:
                return "the token has expired"
            if claim != "exp" and not said <= now + _LEEWAY:
                return "it is not valid yet"
        return None


def _principal(claims: Mapping[str, Any]) -> Principal | None:
    """Return the principal of the claims, or ``None`` if they are invalid."""
    subject = claims["sub"]
    agents = _words(claims.get("agents", ["*"]))
    if not subject or len(subject) > _LONGEST_NAME or not subject.isprintable():
        return None
    if len(agents) > _MOST or not all(map(is_agent_pattern, agents)):
        return None
    said = {
        one.removeprefix(SCOPE_PREFIX)
        for one in _words(claims.get("scope", claims.get("scp", [])))
    }
    roles = filter(is_server_name, _words(claims.get("roles", [])))
    sessions = [one.partition(":")[2] for one in said if one.startswith(_OF_SESSION)]
    return Principal(
        kind="oauth",
        id=subject,
        scopes=scopes_in(said),
        agents=agents,
        roles=tuple(roles)[:_MOST],
        sessions=tuple(sorted(sessions))[:_MOST],
        claims=claims,
    )


def _words(value: object) -> tuple[str, ...]:
    """Return the words of a claim; other types are ignored."""
    if isinstance(value, str):
        return tuple(value.split())
    if not isinstance(value, list):
        return ()
    return tuple(str(one) for one in cast("list[object]", value))


class Identity(Protocol):
    """Authenticates callers."""

    async def principal(self, authorization: str | None) -> Principal:
        """
        Return the principal of a request.

        Args:
            authorization: The value of the header, or ``None``.

        Raises:
            Unauthenticated: The caller is not authenticated.

            StoreError: It cannot be looked up now.
        """
        ...


@dataclass(frozen=True, slots=True)
class TokenIdentity:
    """Authenticates tokens of this host."""

    tokens: Tokens
    clock: Clock
    challenge: Challenge = field(default_factory=Challenge)

    async def principal(self, authorization: str | None) -> Principal:
        """See `Identity`."""
        token = Token.parse(self.challenge.token(authorization))
        if token is None:
            raise self.challenge.refusal("not a token of this host")
        row = await self.tokens.find(token.id)
        if not token.fits(row.digest if row else None) or row is None:
            raise self.challenge.refusal("the token is unknown")
        if row.revoked_at is not None:
            raise self.challenge.refusal("the token is revoked")
        if row.expires_at is not None and row.expires_at <= self.clock.now():
            raise self.challenge.refusal("the token has expired")
        return row.bearer


@dataclass(frozen=True, slots=True)
class _Either:
    """Authenticates tokens of this host, or of an authorization server."""

    own: TokenIdentity
    oauth: OAuthIdentity

    async def principal(self, authorization: str | None) -> Principal:
        token = self.own.challenge.token(authorization)
        one: Identity = self.own if token.startswith(PREFIX) else self.oauth
        return await one.principal(authorization)


@dataclass(frozen=True, slots=True)
class LocalIdentity:
    """
    Treats unauthenticated callers as the local user, who may do everything.

    Attributes:
        other: Authenticates callers with a token.
    """

    other: Identity

    async def principal(self, authorization: str | None) -> Principal:
        """See `Identity`."""
        if authorization is not None:
            return await self.other.principal(authorization)
        return Principal(
            kind="local",
            id=str(local_actor()["id"]),
            authenticated=False,
            scopes=frozenset({"admin"}),
        )


@dataclass(frozen=True, slots=True)
class ThawedIdentity:
    """
    Refuses callers whose token is frozen.

    Attributes:
        other: Authenticates callers.

        freezes: Returns what is frozen.
    """

    other: Identity
    freezes: Callable[[], Freezes]

    async def principal(self, authorization: str | None) -> Principal:
        """
        Return the principal of a request; see `Identity`.

        Raises:
            ForbiddenError: Its token is frozen.
        """
        who = await self.other.principal(authorization)
        if self.freezes().on("", who.actor):
            raise ForbiddenError(
                "the token is frozen", fix="ask the operator of the host to thaw it"
            )
        return who


def identity_of(
    serve: Serve, tokens: Tokens, clock: Clock, client: Client | None = None
) -> Identity:
    """
    Return the configured authentication.

    Args:
        serve: How the host is served.

        tokens: Those of this host.

        clock: Says what has expired.

        client: Gets the keys of an authorization server; close it at the end.

    Raises:
        UsageError: Everybody would be let in, from other machines too.
    """
    challenge = Challenge(serve.oauth)
    own = TokenIdentity(tokens, clock, challenge)
    identity: Identity = own
    if serve.oauth:
        oauth = OAuthIdentity(serve.oauth, clock, client or Client(), challenge)
        identity = _Either(own, oauth)
    if not serve.allow_unauthenticated:
        return identity
    if not is_loopback(serve.host):
        raise UsageError(
            f"{serve.host} can be reached from other machines, so callers need tokens",
            fix='leave --allow-unauthenticated out, or listen on "127.0.0.1"',
        )
    return LocalIdentity(identity)


#: Seconds between two checks of the caller during an answer.
_CHECK_EVERY = 5.0


@dataclass(slots=True)
class ReauthenticatedSend:
    """
    Sends a long answer, and ends it once the caller's token is no longer valid.

    Attributes:
        send: Sends it.

        still: Authenticates again; raises if the token is no longer valid.

        now: Returns seconds of a clock that never goes back.

        refused: Why there is no answer at all, for what was waited for too long.
    """

    send: Send
    still: Callable[[], Awaitable[object]]
    now: Callable[[], float]
    refused: Exception | None = field(default=None, init=False)
    _known_at: float = field(init=False)
    _is_over: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self._known_at = self.now()

    async def __call__(self, message: Message) -> None:
        """Send a message, or end the answer; ignore later messages."""
        if self._is_over:
            return
        begins = message["type"] == "http.response.start"
        if begins or message.get("more_body") or message.get("body"):
            try:
                await self._look()
            except (Unauthenticated, ForbiddenError, StoreError) as exc:
                self._is_over = True
                if begins:
                    self.refused = exc
                    return
                message = {"type": "http.response.body", "body": b""}
        await self.send(message)

    async def _look(self) -> None:
        if self.now() - self._known_at >= _CHECK_EVERY:
            self._known_at = self.now()
            await self.still()
