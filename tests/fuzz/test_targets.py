"""Readers read changed bytes or refuse them. By hand: `python -m tests.fuzz`."""

from __future__ import annotations

from itertools import islice

import pytest

from .__main__ import cases_of
from .targets import TARGETS


@pytest.mark.parametrize("name", TARGETS)
def test_changed_bytes_are_read_or_refused(name: str) -> None:  # law 9
    for data in islice(cases_of(name, 20261127), 40):
        TARGETS[name].check(data)
