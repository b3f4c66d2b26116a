"""
Sign-in of people: a sealed cookie that stands for the credentials of a caller.

The cookie holds the credentials that a person signed in with, sealed with a key of this
machine: a page can neither read nor make one. With each request they are checked again,
so a token that is revoked, or a scope that is taken away, counts at once. The cookie is
only taken at the pages; the API takes headers.

Cookies do not know ports, so on loopback the pages have a name of their own, below
``localhost``: what else listens on this machine does not get their cookie.
"""

from __future__ import annotations

import hmac
import json
import re
import secrets
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from urllib.parse import urlsplit

from ...core.calls import JSON
from ...core.grants.principals import Principal
from ...errors import BadBytes
from ...lib.codec import load_json
from ...lib.signing import opened, sealed
from ...ports.watch import Clock
from ..edge.authentication import Challenge, Identity
from ..edge.messages import Refusal
from .oauth_sign_in import OAuthSignIn

#: Where the cookie is sent to.
PATH = "/ui"
#: Seconds after the last request, and after the sign-in, until one signs in again.
IDLE_S, LONGEST_S = 3600, 12 * 3600
#: Seconds after which a cookie that is used is renewed.
_RENEWED_S = 60
_LONGEST = 24 * 1024
#: What browsers keep of a cookie.
_KEPT = 4096
_MOST_ENDED = 10_000
_COOKIE = re.compile(r"[A-Za-z0-9_=-]+", re.ASCII)
#: Begins what stands for an Authorization header after a sign-in by link.
_LINKED = "Link "
#: Begins it after a sign-in at the issuer, which may know the browser and ask nothing.
ISSUED = "Issued "

Headers = Mapping[str, Sequence[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Visit:
    """
    What a cookie holds.

    Attributes:
        authorization: The header that proves who it is; ``None``: callers need not.

        id: Random; forms and the sign-out refer to it.

        began: When the person signed in, in seconds since 1970.

        seen: When the cookie was made, in seconds since 1970.
    """

    authorization: str | None = field(repr=False)
    id: str = field(repr=False)
    began: int
    seen: int


@dataclass(slots=True, kw_only=True, eq=False)
class Visits:
    """
    Signs people in and out.

    Attributes:
        key: 32 bytes that only this machine knows.

        identity: Checks credentials.

        clock: Says when a visit ends.

        local: Who opens the link that `link` makes.

        name: The host name of the pages on loopback, or ``""``.

        others: Names of this host that are no addresses of loopback, such as a proxy's.

        secure: The cookie is for TLS only.

        oauth: Signs people in at the issuer of their tokens, if that is configured.
    """

    key: bytes = field(repr=False)
    identity: Identity
    clock: Clock
    local: Principal
    name: str = ""
    others: frozenset[str] = frozenset()
    secure: bool = False
    oauth: OAuthSignIn | None = None
    # Of links that were not opened yet, and of visits by one.
    _links: set[str] = field(default_factory=set[str], init=False, repr=False)
    _linked: str = field(default_factory=lambda: _LINKED + _random(), init=False)
    # Visits that were signed out of, in the order of that.
    _ended: dict[str, None] = field(default_factory=dict[str, None], init=False)

    def link(self, url: str) -> str:
        """Return a link that signs its first visitor in as `local`."""
        code = _random()
        self._links.add(code)
        there = urlsplit(url)
        home = f"{self.name}:{there.port}" if self.name else there.netloc
        return f"{there.scheme}://{home}{PATH}/link?code={code}"

    async def begin(self, authorization: str | None) -> Visit:
        """
        Sign a caller in.

        Raises:
            Unauthenticated, ForbiddenError, StoreError: These credentials do not do.
        """
        who = await self._principal(authorization)
        if who.is_client:
            raise Challenge().refusal("the token is for a session only")
        now = self._now()
        visit = Visit(authorization=authorization, id=_random(), began=now, seen=now)
        if len(self.cookie(visit)) > _KEPT:
            raise Challenge().refusal("the token is too long for a cookie")
        return visit

    async def enter(self, code: str) -> Visit:
        """
        Sign in who opens a link.

        Raises:
            Unauthenticated: It was opened before, or is not of this process.
        """
        if code not in self._links:
            raise Challenge().refusal("the link was used before")
        self._links.discard(code)
        return await self.begin(self._linked)

    def end(self, visit: Visit) -> None:
        """End a visit; copies of its cookie are refused, too."""
        self._ended[visit.id] = None
        if len(self._ended) > _MOST_ENDED:
            del self._ended[next(iter(self._ended))]

    def read(self, headers: Headers) -> Visit:
        """
        Return the visit of a request.

        Raises:
            Unauthenticated: It has no good cookie, or its visit has ended.
        """
        if not self.is_here(headers.get("host", [""])[0]):
            raise Challenge().refusal()
        found = [
            visit
            for header in headers.get("cookie", ())
            for part in header.split(";")
            if (visit := self._parsed(part.strip())) and self._goes_on(visit)
        ]
        if not found:
            raise Challenge().refusal()
        return max(found, key=lambda one: one.seen)

    def is_here(self, host: str) -> bool:
        """Return whether cookies are taken under the value of a ``Host`` header."""
        found = host.lower()
        names = {self.name, *self.others}
        return not self.name or not names.isdisjoint({found, found.partition(":")[0]})

    async def principal(self, visit: Visit) -> Principal:
        """
        Return who it is.

        Raises:
            Unauthenticated, ForbiddenError, StoreError: The credentials do not do now.
        """
        who = await self._principal(visit.authorization)
        # law 4: where callers need no token, a sign-in is nobody's
        at = None if visit.authorization is None else visit.began * 1_000_000
        if visit.authorization and visit.authorization.startswith(ISSUED):
            at = who.signed_in_at
        return replace(who, signed_in_at=at)

    def renewed(self, visit: Visit) -> str | None:
        """Return the ``Set-Cookie`` that keeps a visit going, if it is time for one."""
        now = self._now()
        if now - visit.seen < _RENEWED_S:
            return None
        return self.cookie(replace(visit, seen=now))

    def cookie(self, visit: Visit | None) -> str:
        """Return the ``Set-Cookie`` of a visit; ``None``: the cookie is removed."""
        value, age = "", 0
        if visit is not None:
            said: list[JSON] = [
                visit.authorization,
                visit.id,
                visit.began,
                visit.seen,
            ]
            box = sealed(self.key, json.dumps(said).encode(), b"visit")
            value, age = urlsafe_b64encode(box).decode(), LONGEST_S
        secure = "; Secure" if self.secure else ""
        return (
            f"{self._cookie}={value}; Path={PATH}; Max-Age={age}; HttpOnly; "
            f"SameSite=Strict{secure}"
        )

    def form_token(self, visit: Visit) -> str:
        """Return what each form of a visit says, which no other page can know."""
        return hmac.new(self.key, f"form {visit.id}".encode(), sha256).hexdigest()

    def check_form(self, visit: Visit, token: str) -> None:
        """
        Check what a form says.

        Raises:
            Refusal: It is not of this visit.
        """
        if not hmac.compare_digest(token.encode(), self.form_token(visit).encode()):
            raise Refusal(
                "forbidden",
                "the form is of another visit, or was made elsewhere",
                fix="load the page again, and send it from there",
            )

    @property
    def _cookie(self) -> str:
        # Browsers refuse such a name from what has no TLS.
        return "__Secure-caxton" if self.secure else "caxton"

    def _parsed(self, part: str) -> Visit | None:
        name, _, value = part.partition("=")
        if (
            name != self._cookie
            or len(value) > _LONGEST
            or not _COOKIE.fullmatch(value)
        ):
            return None
        try:
            data = opened(self.key, urlsafe_b64decode(value), b"visit")
            found = load_json(data, limit=_LONGEST) if data else None
        except (ValueError, BadBytes):
            return None
        match found:
            case [str() | None as said, str() as id_, int() as began, int() as seen]:
                return Visit(authorization=said, id=id_, began=began, seen=seen)
            case _:
                return None

    def _goes_on(self, visit: Visit) -> bool:
        now = self._now()
        return (
            visit.id not in self._ended
            and now - visit.began <= LONGEST_S
            and now - visit.seen <= IDLE_S
        )

    async def _principal(self, authorization: str | None) -> Principal:
        if authorization is not None and authorization.startswith(_LINKED):
            if hmac.compare_digest(authorization, self._linked):
                return self.local
            raise Challenge().refusal("the host was started again since")
        if authorization is not None and authorization.startswith(ISSUED):
            authorization = f"Bearer {authorization.removeprefix(ISSUED)}"
        return await self.identity.principal(authorization)

    def _now(self) -> int:
        return self.clock.now() // 1_000_000


def name_for(key: bytes, port: int) -> str:
    """Return the host name of the pages on loopback, which nobody can guess."""
    digest = hmac.new(key, f"name {port}".encode(), sha256).hexdigest()
    return f"caxton-{digest[:12]}.localhost"


def _random() -> str:
    return secrets.token_urlsafe(24)
