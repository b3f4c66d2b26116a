"""Each operator changes one place. By hand: `python -m tests.mutants`."""

from __future__ import annotations

import pytest

from .__main__ import MODULES, ROOT, equivalents
from .operators import mutants

SOURCE = """\
LIMIT = 8


def f(a: int | None, b: int) -> str:
    '''Return nothing of use.'''
    if a < b and not a:
        log(f"{a + 1}")
        raise ValueError
    return g(a - 1, flag=True)
"""


def test_each_operator_changes_one_place() -> None:
    found = [(one.function, one.was, one.now) for one in mutants(SOURCE)]

    assert found == [
        ("", "8", "9"),
        ("f", "a < b and not a", "(not (a < b and (not a)))"),
        ("f", "a < b and not a", "(a < b or not a)"),
        ("f", "a < b", "(a <= b)"),
        ("f", "not a", "(a)"),
        ("f", 'log(f"{a + 1}")', "pass"),
        ("f", "raise ValueError", "pass"),
        ("f", "return g(a - 1, flag=True)", "return None"),
        ("f", "a - 1", "(a + 1)"),
        ("f", "1", "2"),
        ("f", "True", "False"),
    ]
    assert mutants(SOURCE)[0].changed == "LIMIT = 9"


@pytest.mark.parametrize("name", MODULES)
def test_mutants_that_are_said_to_be_equivalent_are_there(name: str) -> None:
    path = ROOT / "caxton_host" / f"{name}.py"
    every = {(one.function, one.changed) for one in mutants(path.read_text())}

    assert equivalents(name) <= every
