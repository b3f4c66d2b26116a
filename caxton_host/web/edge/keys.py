"""
The keys of an authorization server, fetched on demand and cached.

Anyone can send tokens with unknown keys, so fetches have a rate limit of their own. A
fetch goes on if the client that caused it disconnects.
"""

from __future__ import annotations

import asyncio
import logging
import math
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import jwt

from ...config import OAuth
from ...core.calls import JSON
from ...core.grants.principals import SIGNATURES
from ...core.text.urls import in_the_clear, origin
from ...errors import BadBytes, ToolError
from ...lib.codec import load_json
from ...lib.http import Client
from ...ports import Clock

logger = logging.getLogger("caxton_host")

#: Seconds until keys are fetched again, until they expire if that fails, and between
#: two fetches.
_FRESH, _STALE, _AGAIN = 600.0, 3600.0, 10.0
_TIMEOUT = 5.0
_SIZE = 256 * 1024
_OK = 200
_CONFIGURATION = "/.well-known/openid-configuration"
_SERVER = "/.well-known/oauth-authorization-server"


@dataclass(slots=True)
class Keys:
    """
    Known keys, and where to fetch others.

    Attributes:
        oauth: The configuration, with the address of the keys.
    """

    oauth: OAuth
    clock: Clock
    client: Client
    _known: list[dict[str, JSON]] = field(
        default_factory=list[dict[str, JSON]], init=False, repr=False
    )
    _got_at: float = field(default=-math.inf, init=False)
    _asked_at: float = field(default=-math.inf, init=False)
    _asking: asyncio.Task[None] | None = field(default=None, init=False)

    async def find(self, kid: str | None, algorithm: str) -> jwt.PyJWK | None:
        """
        Return the key that a token names, or ``None``.

        Args:
            kid: Its id; ``None``: the only key for the algorithm.

            algorithm: The algorithm of the signature.
        """
        if self._found(kid, algorithm) is None or self._age() >= _FRESH:
            await self._ask()
        found = self._found(kid, algorithm)
        if found is None or self._age() >= _STALE:
            return None
        try:
            return jwt.PyJWK(found, algorithm)
        except (jwt.PyJWTError, ValueError, TypeError):
            return None

    def _age(self) -> float:
        return self.clock.monotonic() - self._got_at

    def _found(self, kid: str | None, algorithm: str) -> dict[str, JSON] | None:
        fit = [
            key
            for key in self._known
            if _fits(key, algorithm) and kid in (None, key.get("kid"))
        ]
        return fit[0] if len(fit) == 1 else None

    async def _ask(self) -> None:
        now = self.clock.monotonic()
        if self._asking is None and now - self._asked_at >= _AGAIN:
            self._asked_at = now
            self._asking = asyncio.create_task(self._get())
        if self._asking is not None:
            await asyncio.shield(self._asking)

    async def _get(self) -> None:
        try:
            document = await self._document(self.oauth.jwks or await self._place())
            self._known = _listed(document)
            self._got_at = self.clock.monotonic()
        except (ToolError, BadBytes) as exc:
            logger.warning("no keys from %s: %s", self.oauth.issuer, exc)
        finally:
            self._asking = None

    async def _place(self) -> str:
        """Return the address of the keys, from the metadata of the issuer."""
        issuer = self.oauth.issuer
        there = urlsplit(issuer)
        path = there.path.rstrip("/")
        try:
            found = await self._document(issuer.rstrip("/") + _CONFIGURATION)
        except (ToolError, BadBytes):
            where = f"{there.scheme}://{there.netloc}{_SERVER}{path}"
            found = await self._document(where)
        place = found.get("jwks_uri")
        if found.get("issuer") != issuer or not isinstance(place, str):
            raise BadBytes("its metadata are those of another, or name no keys")
        if in_the_clear(place):
            raise BadBytes("its keys could be changed on the way")
        return place

    async def _document(self, url: str) -> dict[str, JSON]:
        said = {self.oauth.jwks, self.oauth.issuer}
        answer = await self.client.request(
            "GET",
            url,
            timeout=_TIMEOUT,
            max_bytes=_SIZE,
            headers={"accept": "application/json"},
            # The operator's own authorization server may have a private address.
            allow_private=origin(url) in {origin(one) for one in said if one},
        )
        if answer.status != _OK:
            raise BadBytes(f"the answer is {answer.status}")
        found = load_json(answer.body, limit=_SIZE)
        if not isinstance(found, dict):
            raise BadBytes("the answer is no JSON object")
        return found


def _listed(document: dict[str, JSON]) -> list[dict[str, JSON]]:
    keys = document.get("keys")
    if not isinstance(keys, list):
        raise BadBytes("the answer is not a list of keys")
    return [key for key in keys if isinstance(key, dict)]


def _fits(key: dict[str, JSON], algorithm: str) -> bool:
    """Return whether a key is meant to verify such signatures."""
    kind, curve = SIGNATURES[algorithm]
    uses = key.get("key_ops", ["verify"])
    return (
        key.get("kty") == kind
        and curve in (None, key.get("crv"))
        and key.get("use", "sig") == "sig"
        and key.get("alg", algorithm) == algorithm
        and (isinstance(uses, list) and "verify" in uses)
        and "d" not in key
    )
