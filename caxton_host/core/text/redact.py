"""
Redaction: every form of each secret is replaced before a value leaves the host.

A secret is replaced in plain, JSON-escaped, URL-encoded, hex and base64 form. Secrets
shorter than eight bytes are not replaced, since they would match almost anywhere.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar, cast
from urllib.parse import quote, quote_plus, unquote

from ..calls import JSON
from .globs import fits

MASK = "[redacted]"
MIN_LENGTH = 8

_LINE = 24
#: At most this many released secrets are still replaced.
_LATE = 8
_ROUNDS = 3
# Of more decoding rounds than that. Without a bound, a text could take for ever.
_SLASHES = r"\\{1,8}"
_SHORT = {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f"}
_SHORTENED = {char: letter for letter, char in _SHORT.items()}
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)

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
        self._forms: frozenset[str] = frozenset()
        self._passing: dict[str, frozenset[str]] = {}
        self._late: list[str] = []
        self._find: Callable[[str], str] | None = None
        self.learn(secrets)

    def learn(self, secrets: Iterable[str]) -> None:
        """Replace these secrets from now on. A secret is never removed."""
        forms = _all_forms(secrets)
        if not forms <= self._forms:
            self._forms |= forms
            self._build()

    def hold(self, owner: str, secrets: Iterable[str]) -> None:
        """Replace these secrets as well, until *owner* holds others, such as tokens."""
        self._passing.pop(owner, None)
        if owner in self._late:
            self._late.remove(owner)
        if forms := _all_forms(secrets):
            self._passing[owner] = forms
        self._build()

    def let_go(self, owner: str) -> None:
        """Release the secrets of *owner*; they are dropped after later releases."""
        if owner in self._passing:
            self._late.append(owner)
        if len(self._late) > _LATE:
            del self._passing[self._late.pop(0)]
            self._build()

    def _build(self) -> None:
        forms = self._forms.union(*self._passing.values())
        self._find = _Finder(forms) if forms else None

    def as_now(self) -> Callable[[JSON], JSON]:
        """Return a function like `value` with the secrets of this moment."""
        find = self._find
        return lambda value: _walk(value, find) if find else value

    def text(self, text: str) -> str:
        """Return *text* with secrets replaced."""
        return self._find(text) if self._find else text

    def value(self, value: _T) -> _T:
        """Return *value* with secrets replaced in every key, text and number."""
        return cast("_T", _walk(value, self._find)) if self._find else value


def same_but_masked(redacted: str, plain: str, *, cut: bool = False) -> bool:
    """
    Return whether *plain* may have been recorded as *redacted*.

    Args:
        redacted: A text with masks in place of secrets that are not known now.

        plain: The text to compare.

        cut: *redacted* was cut after redaction, so that only the text before its first
            mask is certain.

    >>> same_but_masked("key [redacted], sent", "key hunter2hunter2, sent")
    True
    >>> same_but_masked("key [redacted], sent", "key hunter2hunter2, kept")
    False
    """
    first, *others = parts = tuple(redacted.split(MASK))
    if cut:
        return plain.startswith(first if others else _without_half_a_mask(first))
    return fits(parts, plain)


def _all_forms(secrets: Iterable[str]) -> frozenset[str]:
    known = [s for s in secrets if len(s.encode()) >= MIN_LENGTH]
    known += [line for secret in known for line in _lines(secret)]
    return frozenset(form for secret in known for form in _forms(secret))


def _without_half_a_mask(text: str) -> str:
    halves = (MASK[:size] for size in range(len(MASK) - 1, 0, -1))
    return text.removesuffix(next(filter(text.endswith, halves), ""))


class _Finder:
    r"""
    Replaces secrets in a text, in plain or with some characters escaped.

    Programs escape different characters: some keep ``~``, others write ``\u003c``. So a
    text with escapes is searched without them too; only if that finds more, the slow
    pattern matches every character in every escaped form.
    """

    def __init__(self, forms: Iterable[str]) -> None:
        self._forms = [(form, form.lower()) for form in forms]
        self._shortest = min(len(form) for form, _ in self._forms)

    def __call__(self, text: str) -> str:
        if len(text) < self._shortest:
            return text
        text = _without(text, self._in(text), re.escape)
        for plain in _unescaped(text):
            if found := self._in(plain):
                text = _without(text, found, _spellings)
        # What cannot be cut out is omitted as a whole.
        return MASK if any(map(self._in, _unescaped(text))) else text

    def _in(self, text: str) -> list[str]:
        # A search for each is five times as fast as one pattern for all.
        lower = text.lower()
        return [form for form, low in self._forms if low in lower or form in text]


def _without(text: str, forms: Iterable[str], pattern_of: Callable[[str], str]) -> str:
    longest_first = sorted(forms, key=lambda form: (-len(form), form))
    if not longest_first:
        return text
    patterns = map(pattern_of, longest_first)
    return re.sub("|".join(patterns), MASK, text, flags=re.IGNORECASE)


def _unescaped(text: str) -> Iterator[str]:
    """Yield *text* with its escapes decoded, round after round."""
    for _ in range(_ROUNDS):
        before = text
        if "%" in text:
            text = unquote(text)
            yield text
        if "\\" in text:
            text = _ESCAPE.sub(_character, text)
            text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
            yield text
        if text == before:
            return


def _character(found: re.Match[str]) -> str:
    if found[1]:
        return chr(int(found[1], 16))
    return _SHORT.get(found[2], found[2])


def _spellings(form: str) -> str:
    """Return a pattern of *form* in which any character may be escaped."""
    return "".join(f"(?:{'|'.join(dict.fromkeys(_spelt(char)))})" for char in form)


def _spelt(char: str) -> Iterator[str]:
    yield re.escape(char)
    units = char.encode("utf-16-be")
    pairs = [units[at : at + 2].hex() for at in range(0, len(units), 2)]
    yield "".join(rf"{_SLASHES}u{pair}" for pair in pairs)
    yield "".join(f"%{byte:02x}" for byte in char.encode())
    yield rf"{_SLASHES}{re.escape(_SHORTENED.get(char, char))}"
    if char == " ":
        yield r"\+"


def _lines(secret: str) -> Iterator[str]:
    """Yield the lines of a multi-line key: a server may print a single one."""
    lines = secret.split("\n")
    if len(lines) > 1:
        for line in map(str.strip, lines):
            if len(line) >= _LINE and not re.search(r"\s|^-----", line):
                yield line


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
    for safe in ("", "/", "!'()*"):  # the last: encodeURIComponent keeps these
        yield quote(secret, safe=safe)
    yield quote_plus(secret)
    yield quote_plus(secret, safe="*").replace("~", "%7E")  # as HTML forms do
    yield raw.hex()
    # Inside a longer text, a secret starts at one of three offsets of a base64
    # group; the characters that it shares with its neighbours are omitted.
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        yield encode(raw).decode()
        for skip in range(3):
            body = encode(bytes(skip) + raw).decode()
            first = -(-skip * 8 // 6)
            last = (skip + len(raw)) * 8 // 6
            yield body[first:last]


_LONGEST = 4096


def plain(text: str, redact: Redactor, longest: int = _LONGEST) -> str:
    r"""
    Return *text* on one line: redacted, cut, with control characters escaped.

    >>> print(plain("a\x1b[31m\nb", Redactor()))
    a\x1b[31m\nb
    """
    shown = redact.text(text)
    if len(shown) > longest:
        shown = shown[:longest] + "..."
    if shown.isprintable():
        return shown
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode()
        for char in shown
    )
