"""Makes the examples in docstrings and pages run as tests; no test is timed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from hypothesis import settings
from sybil import Document, Example, Region, Sybil
from sybil.document import PythonDocStringDocument
from sybil.parsers.markdown import PythonCodeBlockParser
from sybil.parsers.rest import DocTestParser

ROOT = Path(__file__).parents[1]

settings.register_profile("caxton", deadline=None)
settings.load_profile("caxton")


class Whole:
    """
    Makes one test of all examples in a docstring or a page.

    Later ones need what earlier ones named, and tests run in any order.
    """

    def __init__(self, parser: Callable[[Document], Iterable[Region]]) -> None:
        self.parser = parser

    def __call__(self, document: Document) -> Iterator[Region]:
        if parts := sorted(self.parser(document), key=lambda part: part.start):
            yield Region(parts[0].start, parts[-1].end, parts, _evaluate)


def _evaluate(whole: Example) -> str | None:
    for part in whole.region.parsed:
        example = Example(
            whole.document, whole.line, whole.column, part, whole.namespace
        )
        if failure := part.evaluator(example):
            return str(failure)
    return None


pytest_collect_file = (
    Sybil(
        path=str(ROOT / "caxton_host"),
        parsers=[Whole(DocTestParser())],
        patterns=["*.py"],
        document_types={".py": PythonDocStringDocument},
    )
    + Sybil(
        path=str(ROOT / "docs"),
        parsers=[Whole(PythonCodeBlockParser())],
        patterns=["*.md"],
    )
).pytest()
