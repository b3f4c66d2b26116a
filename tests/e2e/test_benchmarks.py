"""Run the benchmarks briefly, because they use private attributes."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path

import pytest

from benchmarks import __main__ as benchmarks
from benchmarks import machine

pytestmark = pytest.mark.no_cover

SMALL = ["--rounds", "1", "--calls", "5", "--warm-up", "1", "--runs", "20"]
SMALL += ["--servers", "2", "--each", "1", "--judged", "1000"]
SECTIONS = ["calls", "transports", "slow", "runs", "what_if", "profile"]


@pytest.mark.long
def test_sections_measure_what_they_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # The folder of a test may be in memory: nothing here is a measurement.
    monkeypatch.setattr(machine, "refuse_memory", machine.file_system)
    page = tmp_path / "page.md"
    words = [*SECTIONS, *SMALL, "--folder", str(tmp_path / "new")]
    monkeypatch.setattr("sys.argv", ["benchmarks", *words, "--write", str(page)])

    benchmarks.main()

    assert "per second" in capsys.readouterr().out
    written = page.read_text("utf-8")
    titles = re.findall("<!-- section (\\w+) -->", written)
    assert titles == SECTIONS
    for transport in ("stdio", "http", "sse"):
        assert f"| {transport}, 64 at once, ratio |" in written
    steps = dict(re.findall(r"\| (\w+): [^|]+\| ([0-9.,]+) us", written))
    assert {"forward", "fsync", "gateway", "guest", "hash", "socket"} <= {*steps}
    assert all(float(took.replace(",", "")) > 0 for took in steps.values())
    for rank in ("largest", "second"):
        assert f"What was done about the {rank} step" in written


def test_only_a_section_that_measures_a_peer_needs_the_extra_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in [one for one in sys.modules if one.startswith("benchmarks")]:
        monkeypatch.delitem(sys.modules, name)
    for name in ("cedarpy", "cel", "celpy", "eventsourcing", "extism", "fastmcp"):
        monkeypatch.setitem(sys.modules, name, None)

    assert {*SECTIONS} <= {*importlib.import_module("benchmarks.__main__").SECTIONS}
