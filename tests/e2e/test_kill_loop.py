"""Hosts, workers and tool servers are killed at random, and nothing is lost by it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.postgres import Server


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest) -> str:
    if request.param == "sqlite":
        return "sqlite"
    server: Server = request.getfixturevalue("postgres")
    return server.make()


@pytest.mark.long
def test_nothing_is_lost_and_nothing_happens_twice(store: str) -> None:
    # attack 45
    # laws 2, 3, 4, 7, 8 and 10; by hand: python -m tests.chaos --cycles 10000
    pace = "0.06" if store == "sqlite" else "0.2"  # a lease has to pass in between
    said = killed("--cycles", "100", "--store", store, "--seed", "4", "--pace", pace)
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


def test_sessions_get_no_answer_that_is_not_logged_and_nothing_happens_twice() -> None:
    # laws 2, 3, 4, 7, 8 and 10; by hand: python -m tests.chaos --sessions 200
    said = killed("--sessions", "8", "--cycles", "3", "--pace", "0.5", "--seed", "2")
    assert "{'server': 2, 'host': 1}" in said, said
    assert re.search(r"answers +[1-9]", said), said
    assert re.search(r"'ToolCompleted': [1-9]", said), said


def killed(*words: str) -> str:
    """Run the kill loop, which must find nothing wrong, and return its report."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.chaos", *words],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    assert "WRONG" not in said
    return said
