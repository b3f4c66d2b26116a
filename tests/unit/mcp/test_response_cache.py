"""An answer is given again for as long as its server promised, and no longer."""

from __future__ import annotations

import pytest

from caxton_host.core.calls import JSON
from caxton_host.mcp.response_cache import Kept, good_for
from caxton_host.mcp.transport.wire import Answer


def promising(ttl: JSON, size: int = 10) -> Answer:
    return Answer({"contents": [], "ttlMs": ttl}, size)


def test_an_answer_is_found_until_its_time_is_over() -> None:
    now = 0.0
    kept = Kept(lambda: now)
    answer = promising(2000)
    kept.keep("resources/read", {"uri": "a"}, answer)
    assert kept.find("resources/read", {"uri": "a"}) is answer
    assert kept.find("resources/read", {"uri": "b"}) is None
    assert kept.find("resources/list", {"uri": "a"}) is None
    now = 2.0
    assert kept.find("resources/read", {"uri": "a"}) is None


@pytest.mark.parametrize("ttl", [None, 0, -1, True, "9"])
def test_nothing_is_kept_without_a_promise(ttl: JSON) -> None:
    kept = Kept(lambda: 0.0)
    kept.keep("resources/read", {}, promising(ttl))
    assert kept.find("resources/read", {}) is None


def test_what_is_kept_is_bounded() -> None:
    # law 9
    kept = Kept(lambda: 0.0)
    kept.keep("resources/read", {}, promising(1000, size=1_000_000))
    assert kept.find("resources/read", {}) is None
    for number in range(1000):
        kept.keep("resources/read", {"uri": str(number)}, promising(1000))
    found = [n for n in range(1000) if kept.find("resources/read", {"uri": str(n)})]
    assert found == [*range(1000 - 256, 1000)]
    assert good_for({"ttlMs": 10**12}) == 24 * 3600
