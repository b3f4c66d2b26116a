"""What a host says of what it was asked."""

from __future__ import annotations

import pytest

from caxton_host.core.log.requests import (
    FAILED,
    NOT_HERE,
    RESTARTED,
    UNKNOWN,
    is_failure,
)


@pytest.mark.parametrize(
    ("outcome", "failed"),
    [
        (f"{FAILED}no such file", True),
        (UNKNOWN, True),
        (RESTARTED, False),
        (NOT_HERE, False),
        ("generation 2", False),
    ],
)
def test_what_was_not_done_is_told_from_what_was(outcome: str, failed: bool) -> None:  # noqa: FBT001 -- a parameter of the test
    assert is_failure(outcome) is failed
