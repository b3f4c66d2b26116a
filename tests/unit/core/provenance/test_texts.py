"""The index of texts."""

from __future__ import annotations

from caxton_host.core.provenance.matching import token_keys, ways
from caxton_host.core.provenance.texts import Texts


def test_text_is_found_however_many_came_after_it() -> None:
    index = Texts[int](token_keys)
    for number in range(40):
        index.add(f"{'x ' * 8192} v{number}", number)

    assert [index.find(ways(f"v{n}") or ()) for n in range(41)] == [*range(40), None]
