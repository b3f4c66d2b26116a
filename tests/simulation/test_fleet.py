"""
Simulate 20 hosts that share a log and a queue, with all faults, for 20 seeds.

More by hand: ``python -m tests.simulation --hosts 200 --seeds 100``.
"""

from __future__ import annotations

import functools
from collections import Counter

import pytest

from .fleet import Figures, Fleet, percentile, told

_HOSTS, _SEEDS = 20, 20

pytestmark = pytest.mark.no_cover


@functools.cache
def fleet(seed: int) -> Fleet:
    return told(seed, _HOSTS)


@functools.cache
def figures() -> Figures:
    found = Figures()
    for seed in range(_SEEDS):
        found.add(fleet(seed))
    return found


def test_each_accepted_run_of_a_fleet_ends_once() -> None:
    # laws 2, 3, 7 and 10
    assert figures().starts > _HOSTS * _SEEDS


def test_same_seed_tells_the_same_story() -> None:
    again = told(1, _HOSTS)
    assert again.world.met == fleet(1).world.met
    assert again.world.effects == fleet(1).world.effects


def test_all_that_can_go_wrong_does() -> None:
    found = sum((fleet(seed).world.met for seed in range(_SEEDS)), Counter[str]())
    assert {"crash", "hang", "stop", "lapsed", "conflict"} <= found.keys()
    assert {"lost", "doubled", "asked again", "cancelled", "revoked"} <= found.keys()
    assert {"refuses", "loses", "full", "worker"} <= found.keys()
    assert {"Resend", "GiveResult", "Fail"} & found.keys()


def test_the_runs_of_a_dead_host_are_taken_over_by_living_ones() -> None:
    # A lease of 15 s, and then a second each time that those asked are full, or dead.
    assert len(figures().takeovers["goes on"]) > 20
    assert max(figures().takeovers["noticed"]) < 16
    assert percentile(figures().takeovers["goes on"], 0.99) < 20


@pytest.mark.long
def test_a_flood_delays_its_own_tenant() -> None:
    waits = figures().waits
    others = [wait for name in ("bell", "corp") for wait in waits[name]]
    assert sum(others) / len(others) < sum(waits["acme"]) / len(waits["acme"])
