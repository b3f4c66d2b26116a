"""
Which tools a grant speaks of: ``server/tool``.

Case-sensitive, whole segments, and ``*`` never crosses the slash.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...errors import UsageError
from .globs import fits

_MAX_STARS = 3


@dataclass(frozen=True, slots=True)
class Pattern:
    """
    A ``server/tool`` glob.

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
        Return the pattern that *text* spells.

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
        """Return whether the pattern covers this tool of this server."""
        return fits(self.server, server) and fits(self.tool, tool)

    def covers(self, other: Pattern) -> bool:
        """
        Return whether every tool that *other* covers is one of these as well.

        >>> Pattern.parse("demo/get_*").covers(Pattern.parse("demo/get_*_by_id"))
        True
        """
        # A star of the other is a letter that no name has: only a star takes it.
        return self.matches("*".join(other.server), "*".join(other.tool))

    def meets(self, other: Pattern) -> bool:
        """
        Return whether both may cover one tool; false only if none can be.

        >>> Pattern.parse("demo/get_*").meets(Pattern.parse("demo/*_all"))
        True
        >>> Pattern.parse("demo/get_*").meets(Pattern.parse("demo/set_*"))
        False
        """
        sides = (self.server, other.server), (self.tool, other.tool)
        return all(_meet(one, two) for one, two in sides)

    def covers_server(self, server: str) -> bool:
        """Return whether the pattern speaks of this server at all."""
        return fits(self.server, server)

    @property
    def literal(self) -> tuple[str, str] | None:
        """The one ``(server, tool)`` it names, or ``None`` if it has a star."""
        if len(self.server) == len(self.tool) == 1:
            return self.server[0], self.tool[0]
        return None


def _meet(one: tuple[str, ...], two: tuple[str, ...]) -> bool:
    if len(one) == 1 or len(two) == 1:
        return fits(one, "*".join(two)) or fits(two, "*".join(one))
    starts = one[0].startswith(two[0]) or two[0].startswith(one[0])
    return starts and (one[-1].endswith(two[-1]) or two[-1].endswith(one[-1]))
