"""
The picture of the rooms, made from the import contract and the package tree.

``python -m tests.rooms`` writes docs/concepts/rooms.svg. One row is one floor of the
``layers`` contract in pyproject.toml; a box names a room, its inner packages, and the
third-party libraries that only this room may import.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator
from html import escape
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PICTURE = ROOT / "docs" / "concepts" / "rooms.svg"
PACKAGE = "caxton_host"

# Pixels.
_WIDTH = 920
_LEFT = 20
_BOX = 60
_FLOOR = 88
_GAP = 12
_TOP = 16

_STYLE = """
text { font: 12px ui-monospace, Menlo, Consolas, monospace; fill: #57606a; }
.room { font-size: 15px; font-weight: bold; fill: #1f2328; }
rect { fill: #f6f8fa; stroke: #8c959f; rx: 6px; }
path { stroke: #8c959f; fill: none; }
#head path { fill: #8c959f; }
@media (prefers-color-scheme: dark) {
  text { fill: #9198a1; }
  .room { fill: #f0f6fc; }
  rect { fill: #151b23; stroke: #656c76; }
  path { stroke: #656c76; }
  #head path { fill: #656c76; }
}
"""


def contracts() -> list[dict[str, Any]]:
    """Return the import contracts of the project."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    found: list[dict[str, Any]] = project["tool"]["importlinter"]["contracts"]
    return found


def floors() -> list[list[str]]:
    """Return the rooms of each floor, from the top down."""
    (layers,) = (one["layers"] for one in contracts() if one["id"] == "layers")
    return [[room.strip() for room in layer.split("|")] for layer in layers]


def owned() -> dict[str, list[str]]:
    """Return the libraries that only some rooms may import, by room."""
    found: dict[str, list[str]] = {}
    for one in contracts():
        if one["type"] == "protected":
            rooms = {name.split(".")[1] for name in one["allowed_importers"]}
            for room in sorted(rooms):
                found.setdefault(room, []).extend(one["protected_modules"])
    return found


def inner(room: str) -> list[str]:
    """Return the packages inside a room, as folders."""
    found = (ROOT / PACKAGE / room).glob("*/__init__.py")
    return sorted(f"{path.parent.name}/" for path in found)


def drawn() -> str:
    """Return the picture as SVG."""
    rows = floors()
    height = _TOP + _FLOOR * len(rows)
    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}"'
            f' width="{_WIDTH}" height="{height}" role="img">'
        ),
        f"<title>The rooms of {PACKAGE}: a room imports only from lower floors</title>",
        f"<style>{_STYLE}</style>",
        (
            '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4"'
            ' markerWidth="8" markerHeight="8" orient="auto">'
            '<path d="M0 0L8 4L0 8z"/></marker></defs>'
        ),
    ]
    for number, rooms in enumerate(rows):
        top = _TOP + number * _FLOOR
        parts.extend(_floor(rooms, top))
        if number + 1 < len(rows):
            middle, start = _WIDTH // 2, top + _BOX
            arrow = f"M{middle} {start}V{top + _FLOOR - 2}"
            parts.append(f'<path d="{arrow}" marker-end="url(#head)"/>')
    return "\n".join([*parts, "</svg>", ""])


def _floor(rooms: list[str], top: int) -> Iterator[str]:
    room_for_all = _WIDTH - 2 * _LEFT - _GAP * (len(rooms) - 1)
    libraries = owned()
    width = room_for_all // len(rooms)
    for number, room in enumerate(rooms):
        left = _LEFT + number * (width + _GAP)
        yield f'<rect x="{left}" y="{top}" width="{width}" height="{_BOX}"/>'
        lines = [_line(inner(room), width), _line(libraries.get(room, []), width)]
        yield _text(left + 10, top + 20, room, "room")
        for below, line in enumerate(filter(None, lines)):
            yield _text(left + 10, top + 37 + 15 * below, line)


def _line(names: Iterable[str], width: int) -> str:
    """Return as many names as fit into a box, and dots for the others."""
    most = (width - 20) // 7
    text = " ".join(names)
    while len(text) > most:
        text = text.removesuffix(" …").rpartition(" ")[0] + " …"
    return text


def _text(x: int, y: int, text: str, kind: str = "") -> str:
    named = f' class="{kind}"' if kind else ""
    return f'<text x="{x}" y="{y}"{named}>{escape(text)}</text>'


if __name__ == "__main__":
    PICTURE.write_text(drawn(), "utf-8")
