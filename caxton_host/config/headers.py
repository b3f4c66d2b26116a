"""Where the tables of a TOML text begin, which its parser does not tell."""

from __future__ import annotations

import tomllib
from typing import Any, cast


def header(line: str) -> tuple[str, ...] | None:
    """
    Return the keys of the table that *line* begins, or ``None`` if it begins none.

    >>> header('[servers."a.b".tools]  # ours'), header("args = []")
    (('servers', 'a.b', 'tools'), None)
    """
    if not line.lstrip().startswith("["):
        return None
    try:
        tree: Any = tomllib.loads(line)
    except tomllib.TOMLDecodeError:
        return None
    keys: list[str] = []
    while tree:
        [key] = tree
        keys.append(key)
        tree = tree[key]
        kind = type(cast("object", tree))
        if kind is list:
            tree = tree[0]
    return tuple(keys)
