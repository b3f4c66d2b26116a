"""
Paths of files as texts: whether one is inside given folders.

The file system is not read. A path that two programs may read differently is in doubt:
one that is relative or has ``.``, ``..``, an empty segment, a backslash, an escape, or
a look-alike of these. Spaces around dots, and ``;`` with the text after it, do not
count. A ``file:`` URL is judged as its path.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import unquote

from ...errors import ConditionError
from ..calls import JSON
from .globs import dotted, plain_form

#: In characters; PATH_MAX of Linux.
_MAX_LENGTH = 4096
_MAX_ROOTS = 100
_ESCAPE = re.compile(r"%(?:[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4})")
_HIDDEN = re.compile(r"%(?:2[EeFf]|5[Cc]|25|0|1|7[Ff])")
_FILE = "file:"
_SPECIAL = frozenset("./\\%")


@dataclass(frozen=True, slots=True)
class Roots:
    """
    Folders, with all files inside them.

    Attributes:
        inside: Absolute paths, without a slash at the end.
    """

    inside: tuple[str, ...]

    @classmethod
    def parse(cls, said: JSON, at: tuple[str, ...]) -> Roots:
        """
        Parse ``{ inside = [...] }``.

        Raises:
            ConditionError: It is not such a table, or a path is not absolute.
        """
        if not isinstance(said, dict) or said.keys() != {"inside"}:
            raise ConditionError(
                at, "names no folders", fix='write { inside = ["/srv/data"] }'
            )
        listed, at = said["inside"], (*at, "inside")
        if not isinstance(listed, list) or not 0 < len(listed) <= _MAX_ROOTS:
            raise ConditionError(
                at, "is not a list of folders", fix='write it like: ["/srv/data"]'
            )
        roots: list[str] = []
        for number, root in enumerate(listed, 1):
            path = plain_path(root) if isinstance(root, str) else None
            if path is None or str(root).startswith(_FILE):
                raise ConditionError(
                    (*at, str(number)),
                    "is not a canonical absolute path",
                    fix="write it like: /srv/data",
                )
            roots.append(path.rstrip("/"))
        return cls(tuple(roots))

    def hold(self, text: str) -> bool | None:
        """
        Return whether the path *text* is inside a folder; ``None``: it is in doubt.

        >>> roots = Roots(("/srv/data",))
        >>> roots.hold("/srv/data/a.txt"), roots.hold("/srv/database")
        (True, False)
        >>> roots.hold("/srv/data/../x"), roots.hold("file:///srv/data/%2e%2e/x")
        (None, None)
        """
        path = plain_path(text)
        if path is None:
            return None
        folder = f"{path.rstrip('/')}/"
        return any(folder.startswith(f"{root}/") for root in self.inside)


def plain_path(text: str) -> str | None:
    """Return the absolute path that *text* means, or ``None`` if it is in doubt."""
    if len(text) > _MAX_LENGTH:
        return None
    if text[: len(_FILE)].lower() == _FILE:
        path = _of_url(text[len(_FILE) :])
    else:
        # A digit of an escape may be a look-alike, too (U+FF12 is a 2).
        path = None if _ESCAPE.search(plain_form(text)) else text
    if path is None or not path.startswith("/") or not path.isprintable():
        return None
    if "\\" in path or not (path.isascii() or _clear(path)):
        return None
    return None if "//" in path or dotted(plain_form(path)) else path


def _of_url(rest: str) -> str | None:
    """Return the path of a ``file:`` URL (RFC 8089), with escapes decoded once."""
    if rest.startswith("//"):
        host, slash, path = rest[2:].partition("/")
        if host.lower() not in {"", "localhost"}:
            return None
        rest = slash + path
    if _HIDDEN.search(rest) or "?" in rest or "#" in rest:
        return None
    try:
        path = unquote(rest, errors="strict")
    except UnicodeDecodeError:
        return None
    # A remaining one is no escape, or one that another program decodes again.
    return None if "%" in path else path


def _clear(text: str) -> bool:
    """Return whether no character folds to a special one (U+FF0F is a slash)."""
    return not any(
        _SPECIAL.intersection(plain_form(char)) for char in text if not char.isascii()
    )
