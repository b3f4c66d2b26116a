"""
Who asks, by an access token of an authorization server: RFC 9068, RFC 8725.

Its signature is of a kind that is allowed here, with a key that its issuer publishes
where the operator says. Nothing else in its head is looked at: no address of keys, no
certificate, no key. It is never handed on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import jwt

from ...config import OAuth
from ...core.grants.principals import SCOPES, Principal, is_agent_pattern
from ...core.names import is_server_name
from ...lib.http import Client
from ...ports import Clock
from .bearer import SCOPE_PREFIX, Challenge
from .keys import Keys

#: Seconds by which clocks may differ.
_LEEWAY = 30
_LONGEST_NAME = 255
_MOST = 100
#: What is signed may be many things: a logout, an event, a proof.
_KINDS = {"jwt", "at+jwt", "application/at+jwt"}
_REQUIRED = ("exp", "iss", "aud", "sub")


@dataclass(slots=True)
class OAuthIdentity:
    """Knows who has an access token of an authorization server; see `Identity`."""

    oauth: OAuth
    clock: Clock
    client: Client
    challenge: Challenge
    _keys: Keys = field(init=False)

    def __post_init__(self) -> None:
        self._keys = Keys(self.oauth, self.clock, self.client)

    async def principal(self, authorization: str | None) -> Principal:
        """
        Return who asks.

        Raises:
            Unauthenticated: Nobody knows.
        """
        token = self.challenge.token(authorization)
        try:
            head = jwt.get_unverified_header(token)
        except jwt.PyJWTError:
            raise self.challenge.refusal("it is no token of this host") from None
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
        return found

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
                return "it has expired"
            if claim != "exp" and not said <= now + _LEEWAY:
                return "it is not valid yet"
        return None


def _principal(claims: Mapping[str, Any]) -> Principal | None:
    """Return whom the claims are of, or ``None`` if they cannot be of anybody."""
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
    return Principal(
        kind="oauth",
        id=subject,
        scopes=frozenset(scope for scope in SCOPES if scope in said),
        agents=agents,
        roles=tuple(roles)[:_MOST],
    )


def _words(value: object) -> tuple[str, ...]:
    """Return the words of a claim; what is none of them means nothing."""
    if isinstance(value, str):
        return tuple(value.split())
    if not isinstance(value, list):
        return ()
    return tuple(str(one) for one in cast("list[object]", value))
