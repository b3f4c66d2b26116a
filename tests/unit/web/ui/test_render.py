"""Whatever a value holds becomes text, and all of it can be seen."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caxton_host.web.ui.render import visible

UNSEEN = [
    "\0", "\x1b[31m", "\x7f", "\x85", "\xa0", "\xad", "\u034f", "\u061c", "\u115f",
    "\u1680", "\u17b4", "\u180e", "\u2000", "\u2007", "\u200b", "\u200d", "\u200e",
    "\u2028", "\u2029", "\u202a", "\u202e", "\u202f", "\u205f", "\u2060", "\u2066",
    "\u2069", "\u206a", "\u2800", "\u3000", "\u3164", "\ufe0f", "\ufeff", "\uffa0",
    "\ufff9", "\ue000", "\U000e0041", "\U000e0100", "\U000f0000", "\ud800", "\U0001d173"
]  # fmt: skip


@pytest.mark.parametrize("text", UNSEEN, ids=ascii)
def test_what_cannot_be_seen_is_shown_by_number(text: str) -> None:
    shown = visible(f"a{text}b")
    assert shown.startswith(f"a\\u{{{ord(text[0]):04x}}}")
    assert shown.isprintable()


@pytest.mark.parametrize(
    "text", ["d'accord, 12 °C", "日本語", "naïve 😀", "a\n\tb", "é"]
)
def test_what_can_be_seen_stays(text: str) -> None:
    assert visible(text) == text


@given(st.text())
def test_no_text_hides_anything(text: str) -> None:
    shown = visible(text).replace("\n", "").replace("\t", "")
    assert shown.isprintable()
    assert visible(visible(text)) == visible(text)
