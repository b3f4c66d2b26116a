"""The pages of the laws and of the attacks, and the tests that cite them."""

from __future__ import annotations

from pathlib import Path

import pytest

from . import laws


def test_every_law_has_tests_that_cite_it() -> None:
    assert laws.laws() == list(range(1, 11))
    assert set(laws.laws()) <= set(laws.citations())


def test_no_test_cites_a_law_that_does_not_exist() -> None:
    assert set(laws.citations()) <= set(laws.laws())


def test_every_attack_has_tests_that_cite_it() -> None:
    assert laws.attacks() == list(range(1, 47))
    assert set(laws.attacks()) == set(laws.citations("attack"))


@pytest.mark.parametrize("page", [laws.PAGE, laws.THREATS], ids=lambda page: page.name)
def test_the_page_lists_the_tests_as_they_are(page: Path) -> None:
    assert page.read_text("utf-8") == laws.written()[page], (
        f"run python -m tests.laws to write {page} anew"
    )
