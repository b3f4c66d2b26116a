"""Provenance, case by case: each line of docs/reference/provenance.md is judged."""

from __future__ import annotations

import pytest

from caxton_host.core.provenance.matching import DELIMITERS, ENDINGS

from .table import PAGE, Row, judged, rows

ROWS = list(rows())


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_value_is_judged_as_the_page_says(row: Row) -> None:  # law 4
    assert judged(row) == row.result


def test_page_has_at_least_120_cases() -> None:
    assert len(ROWS) >= 120


def test_page_lists_every_delimiter() -> None:
    section = PAGE.read_text("utf-8").partition("## Texts in free texts")[2]

    listed = section.partition("| value |")[0]
    assert not [
        char
        for char in DELIMITERS + ENDINGS
        if f" {char} " not in f" {listed} "
        and f"`{char} " not in listed
        and f" {char}`" not in listed
    ]
