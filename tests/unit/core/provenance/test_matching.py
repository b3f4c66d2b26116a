"""Values in texts: what docs/reference/provenance.md leaves out."""

from __future__ import annotations

import pytest

from caxton_host.core.provenance import stands


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("on 4 March at 1 pm", True),
        ("on 4 March at 13:00", True),
        ("on 4 March at 13 pm", False),
        ("on 4 March at 1 pmx", False),
        ("on 4 March at 13:", False),
    ],
)
def test_time_is_what_a_clock_can_show(text: str, *, found: bool) -> None:
    assert (stands("2022-03-04 13:00", text) >= 0) is found
