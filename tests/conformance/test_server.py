"""A serving host conforms to each revision of MCP as a tool server."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import yaml

from tests.others import Programs

from .served import HERE, SESSION, host

PAGE = (HERE.parents[1] / "docs" / "reference" / "mcp-server.md").read_text("utf-8")
EXPECTED = yaml.safe_load((HERE / "expected-failures.yml").read_text("utf-8"))
REVISIONS = ("2025-11-25", "2026-07-28")
_RESULT = re.compile(r"^(✓|✗) ([a-z0-9-]+): [1-9]", re.MULTILINE)
_FAILURE = re.compile(r"^  ✗ ([a-z0-9-]+)$", re.MULTILINE)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with host(tmp_path_factory.mktemp("served")) as url:
        yield url


def run(suite: Sequence[str | Path], url: str, revision: str) -> tuple[set[str], ...]:
    """Return the scenarios that pass at an address, and those that count and fail."""
    done = subprocess.run(
        [
            *(*suite, "server", "--url", url, "--requirements", revision),
            *("--expected-failures", HERE / "no-failures.yml"),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=200,
        check=False,
        text=True,
    )
    *_, told = done.stdout.partition("=== SUMMARY ===")
    # Warnings count as well: they are in the second list only.
    failed = {*_FAILURE.findall(told)}
    passed = {name for mark, name in _RESULT.findall(told) if mark == "✓"} - failed
    assert passed, done.stdout
    return passed, failed


def documented(revision: str, where: str) -> set[str]:
    """Return what the page says that passes at an address."""
    (row,) = re.findall(rf"^\| {revision} \| {where} \| (.*) \|$", PAGE, re.MULTILINE)
    return {*re.findall(r"`([a-z0-9-]+)`", row)}


@pytest.mark.timeout(400)
@pytest.mark.parametrize("revision", REVISIONS)
@pytest.mark.long
def test_agents_and_a_session_pass_the_official_suite_but_for_what_is_listed(
    programs: Programs, served: str, revision: str
) -> None:
    suite = programs("conformance")
    by_agents, not_by_agents = run(suite, served, revision)
    by_session, not_by_session = run(suite, f"{served}/{SESSION}", revision)

    failing = not_by_agents & not_by_session
    ran = by_agents | not_by_agents
    assert failing == ran & {*EXPECTED["server"]}
    assert by_agents == documented(revision, "`/mcp`")
    assert by_session - by_agents == documented(revision, "`/mcp/NAME`")


def test_the_official_client_has_tasks_of_the_older_revision(
    programs: Programs, served: str
) -> None:
    done = subprocess.run(
        [*programs.script(HERE / "tasks.mjs"), served],
        capture_output=True,
        timeout=100,
        check=False,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    computed, failed = found["slow_compute"], found["failing_job"]
    assert (computed["kind"], computed["said"]) == ("task", "computed")
    assert computed["ttl"] == 60_000
    assert (computed["states"][0], computed["states"][-1]) == ("working", "completed")
    assert found["greet"]["kind"] == "immediate"
    assert failed["states"][-1] == "failed"
    assert "the agent returned 1" in failed["said"]
    assert found["listed"][:2] == ["failed", "completed"]


def test_few_scenarios_fail_and_the_documents_name_each() -> None:
    *_, told = PAGE.partition("Those that do not.")

    named = re.findall(r"`([a-z0-9]+-[a-z0-9-]+)`", told)
    assert sorted(named) == sorted(EXPECTED["server"])
    assert len(named) <= 10
