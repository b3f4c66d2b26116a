"""A serving host conforms to each revision of MCP as a tool server."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator

import pytest
import yaml

from tests.others import Programs

from .served import HERE, host


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with host(tmp_path_factory.mktemp("served")) as url:
        yield url


#: What else passes, though the suite does not count it: scenarios that are newer than a
#: revision, or pending, or of an extension.
_MORE = {
    "2025-11-25": ["json-schema-2020-12"],
    "2026-07-28": [
        "json-schema-2020-12",
        "http-header-validation",
        "tasks-lifecycle",
        "tasks-capability-negotiation",
        "tasks-wire-fields",
        "tasks-request-state-removal",
        "tasks-request-headers",
        "tasks-dispatch-and-envelope",
        "tasks-required-task-error",
    ],
}


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
def test_the_server_passes_the_official_suite_but_for_what_is_listed(
    programs: Programs, served: str, revision: str
) -> None:
    done = subprocess.run(
        [
            *programs("conformance"),
            *("server", "--url", served, "--requirements", revision),
            *("--expected-failures", HERE / "expected-failures.yml"),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=100,
        check=False,
        text=True,
    )
    *_, told = done.stdout.partition("=== SUMMARY ===")
    assert done.returncode == 0, told or done.stdout
    for more in _MORE[revision]:
        assert re.search(f"^✓ {more}:", told, re.MULTILINE), told


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


def test_the_documents_name_each_scenario_that_fails() -> None:
    expected = yaml.safe_load((HERE / "expected-failures.yml").read_text())
    page = (HERE.parents[1] / "docs" / "reference" / "mcp-server.md").read_text()
    *_, told = page.partition("Those that do not.")

    named = re.findall(r"`([a-z0-9-]+)`", told)
    assert sorted(named) == sorted(expected["server"])
