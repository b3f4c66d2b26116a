"""Law 4, case by case: each line of docs/reference/decisions.md is judged."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest

from caxton_host.core.constraints import CONSTRAINTS
from caxton_host.core.decisions import Stage

from .table import PAGE, Row, judged, rows

ROWS = list(rows())


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_call_is_decided_as_the_page_says(row: Row) -> None:  # law 4
    verdict = judged(row.grant, row.schema, row.before, row.call)

    assert verdict == (row.verdict, row.rule, row.told)


def test_page_has_at_least_two_hundred_decisions() -> None:
    assert len(ROWS) >= 200


def test_page_shows_every_constraint_and_every_code() -> None:
    text = PAGE.read_text()
    shown = {row.verdict for row in ROWS}

    named = {"optional", "each", "some", "has", "keys", "other_params", *CONSTRAINTS}
    assert not [name for name in named if not re.search(rf"\b{name} =", text)]
    assert shown == {"allowed", "asked", "not_granted", "denied", *get_args(Stage)}


def test_page_of_grants_explains_every_constraint() -> None:
    text = Path(PAGE.with_name("grants.md")).read_text()

    assert not [name for name in CONSTRAINTS if f"`{name}" not in text]
