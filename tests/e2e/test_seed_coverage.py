"""The page of what other systems do names each thing once, and a test that runs."""

from __future__ import annotations

import ast
import re
from collections import Counter
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "tests" / "seed-coverage.md"

#: How many numbers each source has.
NUMBERS = {"S1": 79, "S2": 87, "S3": 33, "S4": 34, "S5": 47}

SHOWN = {"there", "exceeded"}
NEITHER = {"no counterpart", "no counterpart (voice)", "MISSING"}

#: By what builds them together. It only shrinks: whoever builds one takes it off.
MISSING: dict[str, str] = {}
WITHOUT_COUNTERPART = 10

#: What keeps a test from running, always or on some machines.
DOUBTS = re.compile(r"pytest\.(?:mark\.)?(?:skip|skipif|xfail|importorskip|slow)")


class Row(NamedTuple):
    item: str
    what: str
    state: str
    where: str
    tests: list[str]


def rows() -> list[Row]:
    found: list[Row] = []
    for line in PAGE.read_text("utf-8").splitlines():
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        if cells and re.fullmatch(r"S\d.*", cells[0]):
            item, what, state, where, shown = cells
            tests = re.findall(r"`(tests/[^`]+)`", shown)
            assert shown == (" ".join(f"`{test}`" for test in tests) or "-"), item
            found.append(Row(item, what, state, where, tests))
    return found


ROWS = rows()


def test_every_number_stands_on_the_page_once() -> None:
    wanted = [
        f"{source}.{number}"
        for source, last in NUMBERS.items()
        for number in range(1, last + 1)
    ]
    assert [row.item for row in ROWS] == wanted


def test_every_state_is_one_that_the_page_explains() -> None:
    assert {row.state for row in ROWS} <= SHOWN | NEITHER
    for row in ROWS:
        assert row.what, row.item
        if row.state in SHOWN:
            assert row.tests, f"{row.item} is shown by nothing"
        elif row.state in NEITHER:
            assert row.where != "-", f"{row.item} does not say why"
            assert not row.tests, f"{row.item} is there after all"


def test_what_is_missing_only_becomes_less() -> None:
    missing = [row.item for row in ROWS if row.state == "MISSING"]
    assert sorted(missing) == sorted(" ".join(MISSING.values()).split())


def test_little_has_no_counterpart_here() -> None:
    states = Counter(row.state for row in ROWS)
    assert states["no counterpart"] <= WITHOUT_COUNTERPART


@pytest.mark.parametrize(
    "test", sorted({test for row in ROWS for test in row.tests}), ids=str
)
def test_every_test_that_the_page_names_is_one_that_runs(test: str) -> None:
    path, _, name = test.partition("::")
    functions, doubts = _tests_of(ROOT / path)
    assert name in functions, f"{path} has no {name}"
    assert not functions[name] | doubts, f"{test} may not run"


def test_every_module_that_the_page_names_is_there() -> None:
    for row in ROWS:
        for name in re.findall(r"`([\w./-]+(?:\.\w+|/))`", row.where):
            places = (ROOT / name, ROOT / "caxton_host" / name)
            assert any(place.exists() for place in places), f"{row.item}: {name}"


@cache
def _tests_of(path: Path) -> tuple[dict[str, set[str]], set[str]]:
    """Return the tests of a file, and what may keep each, and all, from running."""
    assert re.fullmatch(r"test_\w+\.py", path.name), path
    functions: dict[str, set[str]] = {}
    around: set[str] = set()
    for node in ast.parse(path.read_text("utf-8")).body:
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            around |= _doubts(node)
        elif node.name.startswith("test_"):
            functions[node.name] = _doubts(node)
    return functions, around


def _doubts(node: ast.AST) -> set[str]:
    names = {ast.unparse(x) for x in ast.walk(node) if isinstance(x, ast.Attribute)}
    return {name for name in names if DOUBTS.fullmatch(name)}
