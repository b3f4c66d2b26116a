"""
Secrets never leave the host: every form of each is replaced before anyone sees it.

A secret is known in plain, JSON-escaped, URL-encoded, hex and base64 form. Shorter
than eight bytes it would be found everywhere, so it is not looked for.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar, cast
from urllib.parse import quote, quote_plus

from .calls import JSON

__all__ = ["MASK", "MIN_LENGTH", "Redactor", "same_but_masked"]

MASK = "[redacted]"
MIN_LENGTH = 8

_T = TypeVar("_T", bound=JSON)


class Redactor:
    """
    Replaces the configured secrets in texts and values.

    >>> redact = Redactor(["hunter2hunter2"])
    >>> redact.text("password=hunter2hunter2")
    'password=[redacted]'
    >>> redact.value({"header": ["aHVudGVyMmh1bnRlcjI="]})
    {'header': ['[redacted]']}
    """

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        forms = {f for s in secrets if len(s.encode()) >= MIN_LENGTH for f in _forms(s)}
        ordered = sorted(forms, key=lambda form: (-len(form), form))
        self._find: Callable[[str], str] | None = None
        if ordered:
            pattern = re.compile("|".join(map(re.escape, ordered)), re.IGNORECASE)
            self._find = lambda text: pattern.sub(MASK, text)

    def text(self, text: str) -> str:
        """Return *text* without a secret."""
        return self._find(text) if self._find else text

    def value(self, value: _T) -> _T:
        """Return *value* without a secret in any key, text or number of it."""
        return cast("_T", _walk(value, self._find)) if self._find else value


def same_but_masked(redacted: str, plain: str, *, cut: bool = False) -> bool:
    """
    Return whether *plain* can be what was recorded as *redacted*.

    Args:
        redacted: A text with masks in the place of secrets that are not known now.

        plain: The same without, or another one.

        cut: *redacted* was cut after its secrets were taken out, so that only what
            stands before the first of them is known.

    >>> same_but_masked("key [redacted], sent", "key hunter2hunter2, sent")
    True
    >>> same_but_masked("key [redacted], sent", "key hunter2hunter2, kept")
    False
    """
    first, *others = redacted.split(MASK)
    if cut:
        return plain.startswith(first if others else _without_half_a_mask(first))
    if not others:
        return plain == redacted
    *middle, last = others
    at, end = len(first), len(plain) - len(last)
    if at > end or not (plain.startswith(first) and plain.endswith(last)):
        return False
    for part in middle:
        found = plain.find(part, at, end)
        if found < 0:
            return False
        at = found + len(part)
    return True


def _without_half_a_mask(text: str) -> str:
    halves = (MASK[:size] for size in range(len(MASK) - 1, 0, -1))
    return text.removesuffix(next(filter(text.endswith, halves), ""))


def _walk(value: JSON, find: Callable[[str], str]) -> JSON:
    if isinstance(value, str):
        return find(value)
    if isinstance(value, dict):
        return {find(key): _walk(item, find) for key, item in value.items()}
    if isinstance(value, list):
        return [_walk(item, find) for item in value]
    if isinstance(value, (int, float)) and find(text := str(value)) != text:
        return MASK
    return value


def _forms(secret: str) -> Iterator[str]:
    raw = secret.encode()
    yield secret
    for ascii_only in (True, False):
        escaped = json.dumps(secret, ensure_ascii=ascii_only)[1:-1]
        yield from (escaped, escaped.replace("/", "\\/"))
    for safe in ("", "/", "!'()*"):  # the last: what encodeURIComponent leaves alone
        yield quote(secret, safe=safe)
    yield quote_plus(secret)
    yield raw.hex()
    # Inside a longer text, a secret starts at one of three places of a base64
    # group; the characters it shares with its neighbours are left out.
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        yield encode(raw).decode()
        for skip in range(3):
            body = encode(bytes(skip) + raw).decode()
            first = -(-skip * 8 // 6)
            last = (skip + len(raw)) * 8 // 6
            yield body[first:last]
