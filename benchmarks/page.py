"""The page of figures, with one section per benchmark."""

from __future__ import annotations

import re
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

_HEAD = """\
# Benchmarks

`python -m benchmarks --write docs/reference/benchmarks.md` writes this page. Each
figure is the median of its rounds; the spread is the lowest and the highest round. A
figure that misses its target is marked.
"""
_SECTION = re.compile(r"<!-- section (\w+) -->\n(.*?)(?=<!-- section |\Z)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Figure:
    """
    One measured quantity.

    Attributes:
        values: One per round.

        target: The bound, and whether it is a lower bound (or else an upper one).
    """

    what: str
    values: Sequence[float]
    unit: str
    target: tuple[float, bool] | None = None

    @property
    def middle(self) -> float:
        """The median."""
        return statistics.median(self.values)

    def cells(self) -> tuple[str, str, str, str]:
        """Return the cells of its row: what, median, spread, target."""
        spread = f"{_number(min(self.values))} to {_number(max(self.values))}"
        return (
            self.what,
            f"{_number(self.middle)} {self.unit}".rstrip(),
            spread if len(self.values) > 1 else "",
            self._judged(),
        )

    def _judged(self) -> str:
        if self.target is None:
            return ""
        bound, least = self.target
        short = self.middle < bound if least else self.middle > bound
        word = "at least" if least else "at most"
        return f"{word} {_number(bound)}{': **falls short**' if short else ''}"


@dataclass(frozen=True, slots=True)
class Section:
    """
    The results of one benchmark.

    Attributes:
        name: Its name on the command line: ``python -m benchmarks NAME``.

        fixture: What was measured, in a sentence or two.

        notes: Paragraphs below the figures.
    """

    name: str
    title: str
    fixture: str
    figures: Sequence[Figure]
    notes: Sequence[str] = field(default=())

    def to_text(self) -> str:
        """Return the section as text for a terminal."""
        rows = [figure.cells() for figure in self.figures]
        lines = [
            f"{what:<44}{value:>16}  {rest}"
            for what, value, *two in rows
            for rest in [" | ".join(filter(None, two))]
        ]
        return "\n".join([f"-- {self.title}", *lines, *self.notes])

    def to_markdown(self, machine: str) -> str:
        """Return the section as Markdown for the page."""
        table = ["| what | median | spread | target |", "| --- | --- | --- | --- |"]
        table += ["| " + " | ".join(figure.cells()) + " |" for figure in self.figures]
        parts = [
            f"<!-- section {self.name} -->",
            f"## {self.title}",
            "",
            self.fixture,
            "",
            *table,
            "",
            *(line for note in self.notes for line in (note, "")),
            f"`python -m benchmarks {self.name}` on {machine}.",
        ]
        return "\n".join(parts) + "\n\n"


def write(path: Path, sections: Sequence[Section], machine: str) -> None:
    """Write *sections* to the page; they replace those of the same names."""
    old = path.read_text("utf-8") if path.exists() else ""
    kept = {found[1]: found[0] for found in _SECTION.finditer(old)}
    new = {one.name: one.to_markdown(machine) for one in sections}
    text = "".join([_HEAD, "\n", *(kept | new).values()])
    path.write_text(text.rstrip() + "\n", encoding="utf-8")


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"  # noqa: PLR2004 -- three digits
