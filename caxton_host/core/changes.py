"""Where two values differ, all of it: what a person looks at before accepting one."""

from __future__ import annotations

from collections.abc import Iterator

from .calls import JSON
from .diff import Difference

__all__ = ["changes"]


def changes(old: JSON, new: JSON, path: str = "$") -> Iterator[Difference]:
    """
    Return every place where two values differ, outermost first.

    What only one of them has is ``None`` in the other. Lists of another length differ
    as a whole: nobody can say which item became which.

    >>> [one.path for one in changes({"a": 1, "b": [1]}, {"b": [2], "c": None})]
    ['$.a', '$.b[0]', '$.c']
    """
    if isinstance(old, dict) and isinstance(new, dict):
        for key in old | new:
            if key in old and key in new:
                yield from changes(old[key], new[key], f"{path}.{key}")
            else:
                yield Difference(f"{path}.{key}", old.get(key), new.get(key))
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for n, pair in enumerate(zip(old, new, strict=True)):
            yield from changes(*pair, f"{path}[{n}]")
    elif type(old) is not type(new) or old != new:
        yield Difference(path, old, new)
