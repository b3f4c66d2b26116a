"""A page of figures: what each benchmark found, in a section of its own."""

from __future__ import annotations

import re
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

_HEAD = """\
# Figures

Written by `python -m benchmarks --write docs/reference/benchmarks.md`. Each figure is
the median of its rounds, with the lowest and the highest beside it; what falls short
of its target says so.
"""
_SECTION = re.compile(r"<!-- section (\w+) -->\n(.*?)(?=<!-- section |\Z)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Figure:
    """
    One thing that was measured.

    Attributes:
        values: One a round.

        target: The bound, and whether it is the least (or else the most) there may be.
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
        """Return what, median, spread and target, in words."""
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
    What one benchmark found.

    Attributes:
        name: The command: ``python -m benchmarks NAME``.

        fixture: What was measured, in a sentence or two.

        notes: Lines below the figures.
    """

    name: str
    title: str
    fixture: str
    figures: Sequence[Figure]
    notes: Sequence[str] = field(default=())

    def to_text(self) -> str:
        """Return it for a terminal."""
        rows = [figure.cells() for figure in self.figures]
        lines = [
            f"{what:<44}{value:>16}  {rest}"
            for what, value, *two in rows
            for rest in [" | ".join(filter(None, two))]
        ]
        return "\n".join([f"-- {self.title}", *lines, *self.notes])

    def to_markdown(self, machine: str) -> str:
        """Return it for the page."""
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
    """Write *sections* to the page, in place of those it has of the same names."""
    old = path.read_text("utf-8") if path.exists() else ""
    kept = {found[1]: found[0] for found in _SECTION.finditer(old)}
    new = {one.name: one.to_markdown(machine) for one in sections}
    text = "".join([_HEAD, "\n", *(kept | new).values()])
    path.write_text(text.rstrip() + "\n", encoding="utf-8")


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"  # noqa: PLR2004 -- digits enough
