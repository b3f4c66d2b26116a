"""Hosts, workers and tool servers are killed at random, and nothing is lost by it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.postgres import Server

_CYCLES = 100


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest) -> str:
    if request.param == "sqlite":
        return "sqlite"
    server: Server = request.getfixturevalue("postgres")
    return server.make()


def test_nothing_is_lost_and_nothing_happens_twice(store: str) -> None:
    # laws 2, 3, 4, 7, 8 and 10; by hand: python -m tests.chaos --cycles 10000
    pace = "0.06" if store == "sqlite" else "0.2"  # a lease has to pass in between
    done = subprocess.run(
        [
            *(sys.executable, "-m", "tests.chaos", "--cycles", str(_CYCLES)),
            *("--store", store, "--seed", "4", "--pace", pace),
        ],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    assert "WRONG" not in said
    # It was not for nothing.
    effects = re.search(r"effects (\d+)", said)
    assert effects is not None
    assert int(effects[1]) > 0
    for kind in ("host", "worker", "server", "approve", "deny", "budget"):
        assert f"'{kind}'" in said, said
    assert re.search(r"masks +in [1-9]", said), said
    assert re.search(r"settled +[1-9]", said), said
    assert re.search(r"freezes +[1-9]", said), said
    assert re.search(r"agents .*'child': [1-9]", said), said
