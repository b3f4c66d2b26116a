"""Tokens: what those of this host look like, and what may stand in any."""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Self

#: So that programs that look for secrets in files know one.
PREFIX = "caxton_"

#: Signatures of others that are taken, each with the kind of its keys, and their curve.
#: Those that a shared secret makes are not: whoever could check could sign.
SIGNATURES: Mapping[str, tuple[str, str | None]] = {
    **dict.fromkeys(("RS256", "RS384", "RS512"), ("RSA", None)),
    **dict.fromkeys(("PS256", "PS384", "PS512"), ("RSA", None)),
    "ES256": ("EC", "P-256"),
    "ES384": ("EC", "P-384"),
    "ES512": ("EC", "P-521"),
    "EdDSA": ("OKP", "Ed25519"),
}

_PATTERN = re.compile(r"[A-Za-z0-9_.*-]{1,64}")
_FORM = re.compile(PREFIX + "([0-9a-f]{16})_([A-Za-z0-9_-]{43})")
_ID_SIZE, _SECRET_SIZE = 8, 32
#: Compared where there is no token: whoever asks learns nothing from the time it takes.
_NONE = "0" * 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """
    A token, as whoever calls has it. Only its id and its digest are kept.

    Attributes:
        id: Which one it is; not secret.

        secret: What makes it good.
    """

    id: str
    secret: str = field(repr=False)

    @classmethod
    def new(cls, random: Callable[[int], bytes]) -> Self:
        """Return one that nobody has; *random* gives that many bytes."""
        secret = base64.urlsafe_b64encode(random(_SECRET_SIZE)).rstrip(b"=")
        return cls(id=random(_ID_SIZE).hex(), secret=secret.decode())

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """
        Return what *text* is, or ``None`` if it is no token of a host.

        >>> Token.parse("caxton_0011223344556677_" + 43 * "x")
        Token(id='0011223344556677')
        """
        found = _FORM.fullmatch(text)
        return cls(id=found[1], secret=found[2]) if found else None

    @property
    def text(self) -> str:
        """What is sent."""
        return f"{PREFIX}{self.id}_{self.secret}"

    @property
    def digest(self) -> str:
        """What is kept: SHA-256 of the secret, which nobody can guess."""
        return hashlib.sha256(self.secret.encode()).hexdigest()

    def fits(self, digest: str | None) -> bool:
        """Return whether that is its digest; it takes as long if it is not."""
        same = hmac.compare_digest(self.digest.encode(), (digest or _NONE).encode())
        return same and digest is not None


def is_agent_pattern(text: str) -> bool:
    """
    Return whether *text* can mean agents: a name, with ``*`` for any characters.

    >>> is_agent_pattern("bank-*"), is_agent_pattern("bank/[a-z]")
    (True, False)
    """
    return _PATTERN.fullmatch(text) is not None
