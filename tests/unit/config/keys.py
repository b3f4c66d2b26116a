"""The list of keys in docs/reference/configuration.md, made of the schema."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from caxton_host.config import json_schema

__all__ = ["listing"]

_KINDS = {
    "string": "a text",
    "boolean": "`true` or `false`",
    "integer": "a whole number",
    "number": "a number",
    "object": "a table",
    "": "any value",
}


def listing() -> str:
    """Return a row for each key: where it is, and what it takes."""
    rows = (f"| `{key}` | {takes} |" for key, takes in _rows(json_schema(), ""))
    return "\n".join(["| key | takes |", "|---|---|", *dict.fromkeys(rows)])


def _rows(shape: dict[str, Any], at: str) -> Iterator[tuple[str, str]]:
    for key, part in shape.get("properties", {}).items():
        yield from _key(part, f"{at}{key}")


def _key(part: dict[str, Any], at: str) -> Iterator[tuple[str, str]]:
    parts = part.get("anyOf", [part])
    if said := list(dict.fromkeys(filter(None, map(_takes, parts)))):
        yield at, ", or ".join(said)
    for one in parts:
        if at.endswith(("_schema", ".transport")):
            continue
        yield from _rows(one, f"{at}.")
        if isinstance(more := one.get("additionalProperties"), dict):
            yield from _key(more, f"{at}.NAME")
        yield from _rows(one.get("items", {}), f"{at}[].")


def _takes(part: dict[str, Any]) -> str:
    """Return what a key takes, or ``""`` of a table whose keys follow."""
    if "description" in part:
        return str(part["description"])
    values = part.get("enum", [part["const"]] if "const" in part else [])
    found = ", ".join(f"`{json.dumps(value)}`" for value in values)
    if "items" in part:
        inner = _takes(part["items"])
        found = inner and f"a list: {inner}"
    elif "$ref" in part:
        found = "[conditions](grants.md)"
    elif not {"properties", "additionalProperties"} & part.keys():
        found = found or _KINDS[part.get("type", "")]
    return found


if __name__ == "__main__":
    print(listing())  # noqa: T201 -- it is what this is for
