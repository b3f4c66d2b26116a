"""
Sign-in at the authorization server of the callers: an authorization code, with PKCE.

    sign-in page -> /ui/sign-in/oauth -> the issuer -> /ui/sign-in/done -> the pages

What is to come back is in a sealed cookie of the browser that went: a code that was
obtained in another browser, or for another host, signs nobody in. The access token is
then checked as any other is.
"""

from __future__ import annotations

import hmac
import json
import secrets
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from urllib.parse import urlencode, urlsplit

from ...config import OAuth
from ...core.calls import JSON
from ...core.grants.principals import SCOPES
from ...core.text.urls import in_the_clear, origin, parts_of
from ...errors import BadBytes, ToolError
from ...lib.codec import load_json
from ...lib.http import Client
from ...lib.signing import opened, sealed
from ...ports.watch import Clock
from ..edge.authentication import SCOPE_PREFIX, Challenge, metadata
from ..edge.issuer import Keys

#: Where a browser begins, and where the issuer sends it back to.
BEGIN, END = "/ui/sign-in/oauth", "/ui/sign-in/done"
#: Seconds that a sign-in may take, and an answer of the issuer.
_LASTS_S, _TIMEOUT_S = 600, 10.0
_SIZE = 64 * 1024
_COOKIE = "caxton-sign-in"
#: In its metadata: each of its answers says who it is.
_NAMES_ITSELF = "authorization_response_iss_parameter_supported"
_LONGEST = 4096
_OK = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pending:
    """What a browser that went to the issuer has to come back with."""

    state: str
    verifier: str = field(repr=False)
    redirect: str
    path: str
    began: int


@dataclass(slots=True, kw_only=True)
class OAuthSignIn:
    """
    Signs people in by a code of the authorization server.

    Attributes:
        oauth: Has a `client_id`.

        client: Sends requests to the issuer.

        key: 32 bytes that only this machine knows.

        clock: Says when a sign-in is too old.

        origins: Of this host, as browsers see it behind a proxy.

        secure: The cookie is for TLS only.
    """

    oauth: OAuth
    client: Client
    key: bytes = field(repr=False)
    clock: Clock
    origins: tuple[str, ...] = ()
    secure: bool = False
    _keys: Keys = field(init=False)

    def __post_init__(self) -> None:
        self._keys = Keys(self.oauth, self.clock, self.client)

    def redirect_uri(self, url: str) -> str:
        """Return where the issuer sends browsers back to, from a page at *url*."""
        there = urlsplit(url)
        known = [one for one in self.origins if urlsplit(one).netloc == there.netloc]
        return (known[0] if known else f"{there.scheme}://{there.netloc}") + END

    async def begin(
        self, url: str, path: str, *, again: bool = False
    ) -> tuple[str, str]:
        """
        Return where a browser goes, and the ``Set-Cookie`` that it needs to come back.

        Args:
            url: Of the page that it is at.

            path: Where it goes on once it is signed in.

            again: The issuer is to ask the person, even one whom it knows.

        Raises:
            Unauthenticated: The issuer does not answer, or offers no such sign-in.
        """
        there = await self._endpoint("authorization_endpoint")
        pending = _Pending(
            state=secrets.token_urlsafe(24),
            verifier=secrets.token_urlsafe(48),
            redirect=self.redirect_uri(url),
            path=path,
            began=self._now(),
        )
        asked = {
            "response_type": "code",
            "client_id": self.oauth.client_id,
            "redirect_uri": pending.redirect,
            "scope": self.oauth.scope or _every_scope(),
            "state": pending.state,
            "code_challenge": _digest(pending.verifier),
            "code_challenge_method": "S256",
            **self._resource(),
            **({"prompt": "login"} if again else {}),
        }
        mark = "&" if urlsplit(there).query else "?"
        said: list[JSON] = [
            pending.state,
            pending.verifier,
            pending.redirect,
            pending.path,
            pending.began,
        ]
        box = sealed(self.key, json.dumps(said).encode(), b"sign-in")
        return f"{there}{mark}{urlencode(asked)}", self._cookie(box)

    async def end(
        self, query: Mapping[str, str], cookies: Mapping[str, str]
    ) -> tuple[str, str]:
        """
        Return the access token of who came back, and where they go on.

        Args:
            query: What the issuer added to the address.

            cookies: Of the browser.

        Raises:
            Unauthenticated: The issuer refused, or this browser never asked for that.
        """
        pending = self._pending(cookies.get(self._name, ""))
        if pending is None or not hmac.compare_digest(
            pending.state.encode(), query.get("state", "").encode()
        ):
            raise Challenge().refusal(
                "this browser began no such sign-in, or too long ago"
            )
        # RFC 9207: an answer of another issuer is not taken for that of ours.
        always = (await self._metadata()).get(_NAMES_ITSELF) is True
        unsaid = "" if always else self.oauth.issuer
        if query.get("iss", unsaid) != self.oauth.issuer:
            raise Challenge().refusal("the answer is of another issuer")
        if "code" not in query:
            why = query.get("error_description") or query.get("error") or "no code"
            raise Challenge().refusal(f"the issuer refused: {why[:200]}")
        return await self._token(pending, query["code"]), pending.path

    def forget(self) -> str:
        """Return the ``Set-Cookie`` that removes the cookie."""
        return self._cookie(b"")

    async def _token(self, pending: _Pending, code: str) -> str:
        """Return the access token that a code stands for."""
        url = await self._endpoint("token_endpoint")
        given = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": pending.redirect,
            "client_id": self.oauth.client_id or "",
            "code_verifier": pending.verifier,
            **self._resource(),
        }
        try:
            answer = await self.client.request(
                "POST",
                url,
                timeout=_TIMEOUT_S,
                max_bytes=_SIZE,
                headers={
                    "accept": "application/json",
                    "content-type": "application/x-www-form-urlencoded",
                },
                content=urlencode(given).encode(),
                allow_private=origin(url) == origin(self.oauth.issuer),
            )
            found = load_json(answer.body, limit=_SIZE)
        except (ToolError, BadBytes):
            raise Challenge().refusal("the issuer gave no token") from None
        match found:
            case {"access_token": str() as token, "token_type": str() as kind} if (
                answer.status == _OK and kind.lower() == "bearer"
            ):
                return token
            case _:
                # What it says may quote the code.
                raise Challenge().refusal("the issuer gave no token")

    async def _endpoint(self, name: str) -> str:
        """Return the address that the metadata of the issuer has under a name."""
        found = (await self._metadata()).get(name)
        if not isinstance(found, str) or not parts_of(found) or in_the_clear(found):
            raise Challenge().refusal(f"the issuer has no {name}, or none over TLS")
        return found

    async def _metadata(self) -> Mapping[str, JSON]:
        try:
            return await self._keys.metadata()
        except (ToolError, BadBytes):
            raise Challenge().refusal("the issuer does not answer") from None

    def _resource(self) -> dict[str, str]:
        """Return which service the token is for (RFC 8707)."""
        # Issuers refuse one that is no URL.
        return {"resource": self.oauth.audience} if metadata(self.oauth) else {}

    @property
    def _name(self) -> str:
        return f"__Secure-{_COOKIE}" if self.secure else _COOKIE

    def _cookie(self, box: bytes) -> str:
        # Lax: it has to be sent when the issuer leads back. It is good for that only.
        age = _LASTS_S if box else 0
        secure = "; Secure" if self.secure else ""
        return (
            f"{self._name}={urlsafe_b64encode(box).decode()}; Path=/ui/sign-in; "
            f"Max-Age={age}; HttpOnly; SameSite=Lax{secure}"
        )

    def _pending(self, value: str) -> _Pending | None:
        if len(value) > _LONGEST:
            return None
        try:
            data = opened(self.key, urlsafe_b64decode(value), b"sign-in")
            found = load_json(data, limit=_LONGEST) if data else None
        except (ValueError, BadBytes):
            return None
        match found:
            case [
                str() as state,
                str() as verifier,
                str() as redirect,
                str() as path,
                int() as began,
            ] if 0 <= self._now() - began <= _LASTS_S:
                return _Pending(
                    state=state,
                    verifier=verifier,
                    redirect=redirect,
                    path=path,
                    began=began,
                )
            case _:
                return None

    def _now(self) -> int:
        return self.clock.now() // 1_000_000


def _digest(verifier: str) -> str:
    """
    Return the challenge of a verifier (RFC 7636).

    >>> _digest("dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk")
    'E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM'
    """
    return urlsafe_b64encode(sha256(verifier.encode()).digest()).rstrip(b"=").decode()


def _every_scope() -> str:
    return " ".join(["openid", *(f"{SCOPE_PREFIX}{scope}" for scope in SCOPES)])
