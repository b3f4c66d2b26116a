"""The page of the ten laws, and the tests that hold them."""

from __future__ import annotations

from . import laws


def test_every_law_has_tests_that_cite_it() -> None:
    assert laws.laws() == list(range(1, 11))
    assert set(laws.laws()) <= set(laws.citations())


def test_no_test_cites_a_law_that_does_not_exist() -> None:
    assert set(laws.citations()) <= set(laws.laws())


def test_the_page_lists_the_tests_as_they_are() -> None:
    assert laws.PAGE.read_text("utf-8") == laws.written(), (
        "run python -m tests.laws to write docs/concepts/invariants.md anew"
    )
