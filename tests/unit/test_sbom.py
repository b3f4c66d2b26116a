"""What is shipped is listed, and has licences that are allowed."""

from __future__ import annotations

import json
import re

from tests.sbom import ROOT, TARGET, document, is_allowed, licence_of, locked, text

LISTED = document()["components"]


def test_the_document_is_the_one_that_the_lock_and_the_metadata_make() -> None:
    assert TARGET.read_text() == text(), "run python -m tests.sbom"


def test_everything_that_is_shipped_has_a_licence_that_is_allowed() -> None:
    said = {
        one["name"]: licence["expression"]
        for one in LISTED
        for licence in one["licenses"]
    }
    assert {name: one for name, one in said.items() if not is_allowed(one)} == {}
    assert not is_allowed("AGPL-3.0-only")
    assert licence_of("jinja2") == "BSD-3-Clause"


def test_modules_and_what_makes_runtimes_are_listed() -> None:
    names = {one["name"] for one in LISTED}
    assert {"componentize-py", "quickjs-ng", "sucrase"} <= names
    assert "caxton_host/_agents/weather/weather.wasm" in names


def test_the_document_names_no_index() -> None:
    assert not re.search(r"https?://", TARGET.read_text())
    assert json.loads(TARGET.read_text())["bomFormat"] == "CycloneDX"


def test_what_a_host_installs_is_part_of_the_lock() -> None:
    every = {
        (name, version, *digests)
        for name, version, _, digests in locked((ROOT / "constraints.txt").read_text())
    }
    own = {
        (name, version, *digests)
        for name, version, _, digests in locked((ROOT / "requirements.txt").read_text())
    }
    assert own < every
    assert {"hatchling", "psycopg", "wasmtime"} <= {one[0] for one in own}
