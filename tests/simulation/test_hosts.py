"""
Simulate two hosts and four runs with all faults, for 300 seeds.

To choose seeds, set CAXTON_SEEDS=17 or CAXTON_SEEDS=1000-2000.
"""

from __future__ import annotations

import os
from collections import Counter

import pytest

from .hosts import Story

_FIRST, _, _LAST = os.environ.get("CAXTON_SEEDS", "0-299").partition("-")
SEEDS = range(int(_FIRST), int(_LAST or _FIRST) + 1)
_PARTS = [SEEDS[n : n + 50] for n in range(0, len(SEEDS), 50)]


def tell(seed: int) -> Story:
    story = Story(seed)
    try:
        story.run()
    except BaseException as exc:
        exc.add_note(f"To repeat it: CAXTON_SEEDS={seed} pytest {__file__}")
        raise
    return story


@pytest.mark.parametrize("seeds", _PARTS, ids=str)
def test_nothing_is_lost_and_nothing_happens_twice(seeds: range) -> None:
    # laws 2, 3, 5, 7 and 10
    for seed in seeds:
        tell(seed)


def test_same_seed_tells_the_same_story() -> None:
    one, other = tell(1), tell(1)
    assert one.steps == other.steps
    assert one.world.effects == other.world.effects
    assert one.world.met == other.world.met


def test_all_that_can_go_wrong_does() -> None:
    met = Counter[str]()
    for seed in range(80):
        met += tell(seed).world.met
    assert {"crash", "refuses", "loses", "full", "locked", "worker"} <= met.keys()
    assert {"Resend", "GiveResult", "Fail", "BusyError", "StoreError"} <= met.keys()
    assert {"said approve", "said deny", "said None", "Unapproved"} <= met.keys()
