"""
Globs over texts, and patterns of tools: ``*`` matches any characters of one segment.

Segments are separated by slashes. ``**`` alone matches any number of whole segments.
Matching has three results: a text with a segment ``.`` or ``..``, or with an
unprintable character, is in doubt, since another reader may read it differently. A
backslash separates such segments too. Spaces around the dots, and ``;`` with the text
after it, do not count: servers and file systems drop these.

The value of a parameter may become part of a URL or a path. So a star does not match a
character that ends a path there (``?``, ``#``), nor one that may be read as a dot or a
slash: a backslash, an escape (``%2e``), or a look-alike such as U+FF0E. A text that
matches only in its compatibility form (NFKC) is in doubt as well.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass

from ...errors import UsageError

_MAX_STARS = 3
_MAX_LENGTH = 1000
_ENDS = "\\?#"
_ESCAPE = re.compile(r"%(?:[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4})")
_DOTS = re.compile(r"/ *+\.\.?+ *+[;/]")
_SPECIAL = "./%"
#: They look like a slash, and NFKC does not change them.
_FRACTION, _DIVISION = "\u2044", "\u2215"


@dataclass(frozen=True, slots=True)
class Glob:
    """
    A glob for values of parameters.

    >>> glob = Glob.parse("acme/*")
    >>> glob.matches("acme/site"), glob.matches("acme/site/x")
    (True, False)
    >>> glob.matches("acme/..")

    Attributes:
        head: The parts between stars of each segment before ``**``, or of all.

        tail: The same after ``**``, or ``None`` if there is no ``**``.
    """

    text: str
    head: tuple[tuple[str, ...], ...]
    tail: tuple[tuple[str, ...], ...] | None

    @classmethod
    def parse(cls, text: str) -> Glob:
        """
        Parse a glob.

        Raises:
            UsageError: It is empty, too long, or has too many stars.
        """
        if not text or len(text) > _MAX_LENGTH or not text.isprintable():
            raise UsageError(
                "is not a glob", fix=f"write 1 to {_MAX_LENGTH} printable characters"
            )
        if text.replace("**", "*").count("*") > _MAX_STARS:
            raise UsageError(
                f"has more than {_MAX_STARS} stars", fix="write several narrower rules"
            )
        segments = text.split("/")
        deep = [n for n, segment in enumerate(segments) if "**" in segment]
        if len(deep) > 1 or any(segments[n] != "**" for n in deep):
            raise UsageError(
                "may have ** only once, as a whole segment",
                fix="write ** alone between slashes, once",
            )
        parts = tuple(tuple(segment.split("*")) for segment in segments)
        if not deep:
            return cls(text, parts, None)
        return cls(text, parts[: deep[0]], parts[deep[0] + 1 :])

    def matches(self, text: str) -> bool | None:
        """Return whether *text* matches, in linear time; ``None``: it is in doubt."""
        if not text.isprintable() or dotted(text):
            return None
        if self.tail is None and len(self.head) == 1:
            return "/" not in text and fits(self.head[0], text)
        if self.tail is None:
            count = len(self.head) - 1
            return text.count("/") == count and _all(self.head, text.split("/"))
        # Split no more than is compared.
        first = text.split("/", len(self.head))
        if len(first) <= len(self.head):
            return False
        last = first.pop().rsplit("/", len(self.tail))
        behind = last[len(last) - len(self.tail) :]
        return (
            len(behind) == len(self.tail)
            and _all(self.head, first)
            and _all(self.tail, behind)
        )

    def holds(self, text: str) -> bool | None:
        r"""
        Return whether the value of a parameter matches; ``None``: it is in doubt.

        A character that a star does not match may be part of the glob itself.

        >>> Glob.parse("acme/*").holds("acme/site"), Glob.parse("acme/*").holds("b/x")
        (True, False)
        >>> Glob.parse("acme/*").holds(r"acme/..\evil"), Glob.parse("*?").holds("so?")
        (None, True)
        >>> Glob.parse("acme/secret").holds("\uff41cme/secret")
        """
        fit, plain = self.matches(text), plain_form(text)
        other = fit if plain == text else self.matches(plain)
        if fit is None or other is None:
            return None
        odd = _odd(text, plain)
        if fit and odd == _odd(self.text, plain_form(self.text)):
            return True
        return None if odd or other else False


def plain_form(text: str) -> str:
    """Return *text* with look-alike characters folded (NFKC, and two slashes)."""
    if text.isascii():
        return text
    slashed = text.replace(_FRACTION, "/").replace(_DIVISION, "/")
    return unicodedata.normalize("NFKC", slashed)


def _odd(text: str, plain: str) -> int:
    """
    Count the characters that another reader may take for the end of a segment.

    A text that matches a glob has those of the glob; it has more only under a star.
    """
    hidden = 0
    if plain != text:
        hidden = sum(plain.count(char) - text.count(char) for char in _SPECIAL)
    return sum(map(plain.count, _ENDS)) + len(_ESCAPE.findall(plain)) + hidden


def dotted(text: str) -> bool:
    r"""
    Return whether another reader may read a segment of *text* as ``.`` or ``..``.

    >>> dotted("a/..;x/b"), dotted(r"a\.. "), dotted("a/..b")
    (True, True, False)
    """
    return "." in text and bool(_DOTS.search(f"/{text}/".replace("\\", "/")))


def _all(patterns: tuple[tuple[str, ...], ...], segments: list[str]) -> bool:
    return all(map(fits, patterns, segments))


def fits(parts: tuple[str, ...], text: str) -> bool:
    """
    Return whether *text* consists of *parts*, with any characters between them.

    One pass: between stars, the leftmost match is as good as any other.
    """
    if len(parts) == 1:
        return text == parts[0]
    first, *middle, last = parts
    at, end = len(first), len(text) - len(last)
    if at > end or not text.startswith(first) or not text.endswith(last):
        return False
    for part in middle:
        found = text.find(part, at, end)
        if found < 0:
            return False
        at = found + len(part)
    return True


@dataclass(frozen=True, slots=True)
class Pattern:
    """
    A ``server/tool`` pattern: case-sensitive, and ``*`` never crosses the slash.

    >>> pattern = Pattern.parse("github/get_*")
    >>> pattern.matches("github", "get_issue"), pattern.matches("githubx", "get_a")
    (True, False)
    """

    text: str
    server: tuple[str, ...]
    tool: tuple[str, ...]

    @classmethod
    def parse(cls, text: str) -> Pattern:
        """
        Parse a pattern.

        Raises:
            UsageError: It has no slash or an empty side, names every server, or
                has more than three stars.
        """
        server, slash, tool = text.partition("/")
        if not slash or not server or not tool:
            raise UsageError(
                f"{text!r} is not a tool pattern",
                fix="write it as SERVER/TOOL, for example demo/get_weather",
            )
        if not server.strip("*"):
            raise UsageError(
                f"{text!r} names every server", fix="name the server before the slash"
            )
        if text.count("*") > _MAX_STARS:
            raise UsageError(
                f"{text!r} has more than {_MAX_STARS} stars",
                fix="write several narrower patterns",
            )
        return cls(text, tuple(server.split("*")), tuple(tool.split("*")))

    def matches(self, server: str, tool: str) -> bool:
        """Return whether the pattern matches this tool of this server."""
        return fits(self.server, server) and fits(self.tool, tool)

    def covers(self, other: Pattern) -> bool:
        """
        Return whether the pattern matches every tool that *other* matches.

        >>> Pattern.parse("demo/get_*").covers(Pattern.parse("demo/get_*_by_id"))
        True
        """
        # No name contains a star, so a star of the other matches only a star.
        return self.matches("*".join(other.server), "*".join(other.tool))

    def meets(self, other: Pattern) -> bool:
        """
        Return whether some tool may match both patterns.

        >>> Pattern.parse("demo/get_*").meets(Pattern.parse("demo/*_all"))
        True
        >>> Pattern.parse("demo/get_*").meets(Pattern.parse("demo/set_*"))
        False
        """
        sides = (self.server, other.server), (self.tool, other.tool)
        return all(_meet(one, two) for one, two in sides)

    def covers_server(self, server: str) -> bool:
        """Return whether the pattern may match tools of this server."""
        return fits(self.server, server)

    @property
    def literal(self) -> tuple[str, str] | None:
        """The only ``(server, tool)`` it matches, or ``None`` if it has a star."""
        if len(self.server) == len(self.tool) == 1:
            return self.server[0], self.tool[0]
        return None


def _meet(one: tuple[str, ...], two: tuple[str, ...]) -> bool:
    if len(one) == 1 or len(two) == 1:
        return fits(one, "*".join(two)) or fits(two, "*".join(one))
    starts = one[0].startswith(two[0]) or two[0].startswith(one[0])
    return starts and (one[-1].endswith(two[-1]) or two[-1].endswith(one[-1]))
