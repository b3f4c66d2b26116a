"""How a token is sent, and what is told to who sends none that is good: RFC 6750."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from ...config import OAuth
from ...core.calls import JSON
from ...core.grants.principals import SCOPES

#: Scopes of an authorization server that are ours begin so, or are just their names.
SCOPE_PREFIX = "caxton:"
_REALM = "caxton"
_WELL_KNOWN = "/.well-known/oauth-protected-resource"
#: Bytes of a token. Nothing of a longer one is looked at.
_LONGEST = 16 * 1024
_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")


class Unauthenticated(Exception):  # noqa: N818 -- a verdict, not a fault
    """
    Nobody knows who asks.

    Attributes:
        challenge: The value of ``WWW-Authenticate``, in an answer of 401.
    """

    def __init__(self, challenge: str, problem: str) -> None:
        super().__init__(problem)
        self.challenge = challenge


@dataclass(frozen=True, slots=True)
class Challenge:
    """
    What is told to who sends no token that is good.

    Attributes:
        oauth: Whose access tokens are taken, or ``None``.
    """

    oauth: OAuth | None = None

    def refusal(self, problem: str = "") -> Unauthenticated:
        """Return a refusal of a token, or of none if there is no problem with it."""
        said = {"realm": _REALM}
        if problem:
            said |= {"error": "invalid_token", "error_description": problem}
        if self.oauth and (address := _address(self.oauth)):
            said |= {"resource_metadata": address}
        text = ", ".join(f'{key}="{value}"' for key, value in said.items())
        return Unauthenticated(f"Bearer {text}", problem or "a token is needed")

    def token(self, authorization: str | None) -> str:
        """
        Return the token of a header.

        Raises:
            Unauthenticated: There is none, or it cannot be one.
        """
        if authorization is None:
            raise self.refusal()
        scheme, _, token = authorization[: _LONGEST + 8].partition(" ")
        if scheme.lower() != "bearer":
            raise self.refusal("send it like this: Authorization: Bearer TOKEN")
        if len(token) > _LONGEST:
            raise self.refusal("it is too long")
        if not _TOKEN.fullmatch(token):
            raise self.refusal("it is no token")
        return token


def metadata(oauth: OAuth | None) -> Mapping[str, JSON] | None:
    """
    Return the document that says whose tokens are taken, RFC 9728; or ``None``.

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
    Return where that document is found: for each of *paths*, and where a refusal says.

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
    """Return where that document is, if the audience is the address of a service."""
    there = urlsplit(oauth.audience)
    if there.scheme not in {"https", "http"}:
        return None
    path = there.path.rstrip("/")
    return f"{there.scheme}://{there.netloc}{_WELL_KNOWN}{path}"
