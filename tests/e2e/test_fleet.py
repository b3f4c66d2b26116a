"""Hosts of a fleet are killed and stopped, and each key is one run."""

from __future__ import annotations

import re

import pytest

from tests.postgres import Server

from .test_kill_loop import killed

_FAULTS = "kill,stop,backends,deleted"


@pytest.fixture
def store(postgres: Server) -> str:
    return postgres.make()


def test_every_accepted_key_is_one_run_whatever_dies(store: str) -> None:
    # laws 2, 3, 7 and 10; by hand: python -m tests.chaos --hosts 5
    words = ("--hosts", "3", "--runs", "40", "--lease", "3", "--cycles", "4")
    said = killed(*words, "--pace", "1", "--store", store, "--faults", _FAULTS)
    for kind in _FAULTS.split(","):
        assert f"'{kind}': " in said, said
    assert re.search(r" 40 runs\n", said), said
    assert re.search(r"[1-9]\d* effects\n", said), said
