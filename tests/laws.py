"""
The laws and the attacks that have numbers, and the tests that cite them.

``python -m tests.laws`` writes the lists of tests into docs/concepts/invariants.md, and
the tests of each attack into docs/concepts/threat-model.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "concepts" / "invariants.md"
THREATS = ROOT / "docs" / "concepts" / "threat-model.md"

_LAW = re.compile(r"^## (\d+)\. ", re.MULTILINE)
_LIST = re.compile(r"<!-- tests of law (\d+) -->\n(?:- .*\n)*")
#: ``| 17 | attack | result | what stays open | tests |``.
_ATTACK = re.compile(r"^(\| (\d+) \|(?: [^|]+ \|){3}) .* \|$", re.MULTILINE)
#: ``law 3``, ``laws 3, 7 and 10``, ``attacks 27 to 39``.
_CITED = r"\b{}s? (\d+(?:(?:, | and | to )\d+)*)"


def laws() -> list[int]:
    """Return the numbers of the laws on the page."""
    return [int(number) for number in _LAW.findall(PAGE.read_text("utf-8"))]


def attacks() -> list[int]:
    """Return the numbers of the attacks in the table of the threat model."""
    return [int(number) for _, number in _ATTACK.findall(THREATS.read_text("utf-8"))]


def citations(what: str = "law") -> dict[int, list[str]]:
    """Return the test files that cite each number, as paths from the root."""
    found: dict[int, set[str]] = {}
    cited = re.compile(_CITED.format(what), re.IGNORECASE)
    for path in (ROOT / "tests").rglob("test_*.py"):
        for numbers in cited.findall(path.read_text("utf-8")):
            for number in _numbers(numbers):
                name = path.relative_to(ROOT).as_posix()
                found.setdefault(number, set()).add(name)
    return {number: sorted(paths) for number, paths in found.items()}


def _numbers(text: str) -> Iterator[int]:
    for part in re.split(", | and ", text):
        first, _, last = part.partition(" to ")
        yield from range(int(first), int(last or first) + 1)


def written() -> dict[Path, str]:
    """Return each page with its tests as they are now."""
    cited, tried = citations(), citations("attack")

    def listed(mark: re.Match[str]) -> str:
        head, _, _ = mark[0].partition("\n")
        paths = cited.get(int(mark[1]), [])
        return "".join([head, "\n", *(f"- [{p}](../../{p})\n" for p in paths)])

    def linked(row: re.Match[str]) -> str:
        links = (
            f"[{Path(path).stem.removeprefix('test_')}](../../{path})"
            for path in tried.get(int(row[2]), ())
        )
        return f"{row[1]} {' '.join(links)} |"

    return {
        PAGE: _LIST.sub(listed, PAGE.read_text("utf-8")),
        THREATS: _ATTACK.sub(linked, THREATS.read_text("utf-8")),
    }


if __name__ == "__main__":
    for page, text in written().items():
        page.write_text(text, "utf-8")
