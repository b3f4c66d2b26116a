"""The host's client conforms to each revision of MCP."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.others import Programs

HERE = Path(__file__).parent
_LINES = re.MULTILINE | re.DOTALL


@pytest.fixture
def clients(tmp_path: Path) -> Iterator[Path]:
    """Return the socket that clients connect to."""
    path = tmp_path / "clients"
    command = [sys.executable, "-m", "tests.conformance.client", str(path)]
    with subprocess.Popen(command, cwd=HERE.parents[1]) as child:
        try:
            while not path.exists():
                assert child.poll() is None
                time.sleep(0.02)
            yield path
        finally:
            child.kill()


@pytest.mark.timeout(400)
@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
@pytest.mark.long
def test_the_client_passes_the_official_suite_but_for_what_is_listed(
    programs: Programs, clients: Path, tmp_path: Path, revision: str
) -> None:
    # The suite starts all clients at once. About two at a time do, by their number.
    launch = f"{sys.executable} -IS {HERE / 'launch.py'} {clients}"
    client = f"flock {tmp_path}/$(($$%2)) {launch}"
    done = subprocess.run(
        [
            *programs("conformance"),
            *("client", "--command", client),
            *("--requirements", revision),
            *("--expected-failures", HERE / "expected-failures.yml"),
            *("--timeout", "300000"),
        ],
        cwd=HERE.parents[1],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=380,
        check=False,
        text=True,
    )
    *_, told = done.stdout.partition("=== SUITE SUMMARY ===")
    assert done.returncode == 0, told or done.stdout
    # This check is newer than the newest revision, so the suite does not count it.
    assert re.search("^✓ json-schema-2020-12-preservation:", told, re.MULTILINE), told


def test_one_scenario_runs_as_contributing_shows(programs: Programs) -> None:
    page = (HERE.parents[1] / "CONTRIBUTING.md").read_text("utf-8")
    (shown,) = re.findall(r"^npm ci --prefix .*?(^\$node .*?)^```", page, _LINES)
    locked = "$node tests/npm/node_modules/@modelcontextprotocol/conformance/dist/"
    assert shown.startswith(locked)
    typed = shown.replace(f"{locked}index.js", shlex.join(programs("conformance")))
    typed = typed.replace("$PWD/.venv/bin/python", sys.executable)
    done = subprocess.run(
        ["/bin/sh", "-c", typed],
        cwd=HERE.parents[1],
        capture_output=True,
        timeout=60,
        check=False,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
