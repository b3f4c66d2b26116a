"""
An authorization server: its metadata, and the keys that its tokens are signed with.

Both are fetched when they are asked for, and kept: an issuer that is away for a while
stops nobody.
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
from ...ports.watch import Clock

logger = logging.getLogger("caxton_host")

#: Seconds: until they are asked for again, until they are good no more without an
#: answer, and between two questions.
_FRESH, _STALE, _PAUSE = 600.0, 3600.0, 10.0
_TIMEOUT = 5.0
_SIZE = 256 * 1024
_OK = 200
_CONFIGURATION = "/.well-known/openid-configuration"
_SERVER = "/.well-known/oauth-authorization-server"


@dataclass(slots=True)
class Keys:
    """
    The signing keys of an authorization server, fetched on demand.

    Attributes:
        oauth: Says where they are.
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
    _told: dict[str, JSON] | None = field(default=None, init=False, repr=False)
    _told_at: float = field(default=-math.inf, init=False)
    _telling: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)

    async def find(self, kid: str | None, algorithm: str) -> jwt.PyJWK | None:
        """
        Return the key that signed a token, or ``None``.

        Args:
            kid: What the token calls it; ``None``: the only one of its kind.

            algorithm: Of the signature.
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
        if self._asking is None and now - self._asked_at >= _PAUSE:
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

    async def metadata(self) -> dict[str, JSON]:
        """
        Return the issuer's metadata, which are asked for as seldom as keys.

        Raises:
            ToolError: It does not answer.

            BadBytes: They are not its own, or it did not answer a moment ago.
        """
        async with self._telling:
            now = self.clock.monotonic()
            if now - self._told_at >= (_FRESH if self._told else _PAUSE):
                self._told_at, self._told = now, None
                self._told = await self._metadata()
        if self._told is None:
            raise BadBytes("it did not answer a moment ago")
        return self._told

    async def _metadata(self) -> dict[str, JSON]:
        issuer = self.oauth.issuer
        there = urlsplit(issuer)
        path = there.path.rstrip("/")
        try:
            found = await self._document(issuer.rstrip("/") + _CONFIGURATION)
        except (ToolError, BadBytes):
            where = f"{there.scheme}://{there.netloc}{_SERVER}{path}"
            found = await self._document(where)
        if found.get("issuer") != issuer:
            raise BadBytes("its metadata are those of another")
        return found

    async def _place(self) -> str:
        """Return the URL of the keys from the issuer's metadata."""
        place = (await self._metadata()).get("jwks_uri")
        if not isinstance(place, str):
            raise BadBytes("its metadata name no keys")
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
            # An operator may well have an authorization server of their own.
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
        raise BadBytes("the answer is no list of keys")
    return [key for key in keys if isinstance(key, dict)]


def _fits(key: dict[str, JSON], algorithm: str) -> bool:
    """Return whether a key can verify such signatures."""
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
