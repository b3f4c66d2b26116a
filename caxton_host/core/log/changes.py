"""Where two values differ: the first place, or all of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..calls import JSON


@dataclass(frozen=True, slots=True)
class Difference:
    """A JSON path, and what stands there in the one run and in the other."""

    path: str
    a: JSON
    b: JSON

    def to_document(self) -> dict[str, JSON]:
        """Return it as JSON."""
        return {"path": self.path, "a": self.a, "b": self.b}


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


def first_difference(
    old: JSON, new: JSON, path: str = "$"
) -> tuple[str, JSON, JSON] | None:
    """
    Return path and values of the first place where two values differ.

    ``True``, ``1`` and ``1.0`` are three values here.

    >>> first_difference({"a": [1, 2]}, {"a": [1, 3]})
    ('$.a[1]', 2, 3)
    >>> first_difference({"n": 1}, {"n": True})
    ('$.n', 1, True)
    """
    if isinstance(old, dict) and isinstance(new, dict):
        for key in old | new:
            at = f"{path}{key}" if key.startswith("[") else f"{path}.{key}"
            if key not in old or key not in new:
                return at, old.get(key), new.get(key)
            if found := first_difference(old[key], new[key], at):
                return found
        return None
    if isinstance(old, list) and isinstance(new, list):
        return first_difference(
            {f"[{i}]": item for i, item in enumerate(old)},
            {f"[{i}]": item for i, item in enumerate(new)},
            path,
        )
    return None if type(old) is type(new) and old == new else (path, old, new)
