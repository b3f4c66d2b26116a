"""
Who asks: by a token of this host, by one of an authorization server, or by nothing.

Every request is asked anew, so that a token that is revoked is good for nothing from
that moment. What cannot be looked up is refused.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from ...config import Serve
from ...core.grants.principals import PREFIX, Principal, Token
from ...core.text.urls import is_loopback
from ...errors import UsageError
from ...lib.http import Client
from ...lib.machine import local_actor
from ...ports import Clock, Tokens
from .bearer import Challenge
from .oauth import OAuthIdentity


class Identity(Protocol):
    """Knows who asks."""

    async def principal(self, authorization: str | None) -> Principal:
        """
        Return who asks.

        Args:
            authorization: The value of the header, or ``None`` if there is none.

        Raises:
            Unauthenticated: Nobody knows.

            StoreError: It cannot be looked up now.
        """
        ...


@dataclass(frozen=True, slots=True)
class TokenIdentity:
    """Knows who has a token of this host."""

    tokens: Tokens
    clock: Clock
    challenge: Challenge = field(default_factory=Challenge)

    async def principal(self, authorization: str | None) -> Principal:
        """See `Identity`."""
        token = Token.parse(self.challenge.token(authorization))
        if token is None:
            raise self.challenge.refusal("it is no token of this host")
        row = await self.tokens.find(token.id)
        if not token.fits(row.digest if row else None) or row is None:
            raise self.challenge.refusal("it is not known here")
        if row.revoked_at is not None:
            raise self.challenge.refusal("it is revoked")
        if row.expires_at is not None and row.expires_at <= self.clock.now():
            raise self.challenge.refusal("it has expired")
        return Principal(
            kind="token",
            id=row.id,
            scopes=frozenset(row.scopes),
            agents=row.agents,
            roles=row.roles,
        )


@dataclass(frozen=True, slots=True)
class _Either:
    """Knows who has a token of this host, or of an authorization server."""

    own: TokenIdentity
    oauth: OAuthIdentity

    async def principal(self, authorization: str | None) -> Principal:
        token = self.own.challenge.token(authorization)
        one: Identity = self.own if token.startswith(PREFIX) else self.oauth
        return await one.principal(authorization)


@dataclass(frozen=True, slots=True)
class LocalIdentity:
    """
    Takes whoever has no token for the user of this machine, who may do everything.

    Attributes:
        other: Knows who has one.
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


def identity_of(
    serve: Serve, tokens: Tokens, clock: Clock, client: Client | None = None
) -> Identity:
    """
    Return what knows who may call, as it is configured.

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
