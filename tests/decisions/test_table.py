"""Law 4, case by case: each line of docs/reference/decisions.md is judged."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest

from caxton_host.config import load
from caxton_host.core.grants.constraints import CONSTRAINTS
from caxton_host.core.grants.decisions import Stage

from .table import PAGE, Row, judged, rows

ROWS = list(rows())
GRANTS = PAGE.with_name("grants.md")
_BLOCK = re.compile(r"```toml\n(.*?)```", re.DOTALL)


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
    told = {"allowed", "not_granted", "denied", "asked", "approval"}
    assert shown == {*told, *get_args(Stage)}


@pytest.mark.parametrize("block", _BLOCK.findall(GRANTS.read_text()))
def test_examples_of_the_page_of_grants_can_be_read(block: str, tmp_path: Path) -> None:
    (tmp_path / "caxton.toml").write_text(block)

    config = load(None, environ={"HOME": str(tmp_path)}, cwd=tmp_path)

    assert config.agents


def test_page_of_grants_explains_every_constraint() -> None:
    text = GRANTS.read_text()

    assert not [name for name in CONSTRAINTS if f"`{name}" not in text]
