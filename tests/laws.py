"""
The ten laws, and the tests that cite them.

``python -m tests.laws`` writes the lists of tests into docs/concepts/invariants.md.
"""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "concepts" / "invariants.md"

_LAW = re.compile(r"^## (\d+)\. ", re.MULTILINE)
_LIST = re.compile(r"<!-- tests of law (\d+) -->\n(?:- .*\n)*")
#: ``law 3``, ``laws 3, 7 and 10``.
_CITED = re.compile(r"\blaws? (\d+(?:(?:, | and )\d+)*)", re.IGNORECASE)


def laws() -> list[int]:
    """Return the numbers of the laws on the page."""
    return [int(number) for number in _LAW.findall(PAGE.read_text("utf-8"))]


def citations() -> dict[int, list[str]]:
    """Return the test files that cite each number, as paths from the root."""
    found: dict[int, set[str]] = {}
    for path in (ROOT / "tests").rglob("test_*.py"):
        for numbers in _CITED.findall(path.read_text("utf-8")):
            for number in re.findall(r"\d+", numbers):
                name = path.relative_to(ROOT).as_posix()
                found.setdefault(int(number), set()).add(name)
    return {number: sorted(paths) for number, paths in found.items()}


def written() -> str:
    """Return the page with its lists as the tests have them now."""
    cited = citations()

    def listed(mark: re.Match[str]) -> str:
        head, _, _ = mark[0].partition("\n")
        paths = cited.get(int(mark[1]), [])
        return "".join([head, "\n", *(f"- [{p}](../../{p})\n" for p in paths)])

    return _LIST.sub(listed, PAGE.read_text("utf-8"))


if __name__ == "__main__":
    PAGE.write_text(written(), "utf-8")
