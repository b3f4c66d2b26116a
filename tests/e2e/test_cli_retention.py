"""``caxton db retain``, and a host that does the same."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from .serving import served
from .shell import Shell
from .test_docs import ROOT, add, blocks, commands, type_in

PAGE = ROOT / "docs" / "how-to" / "keep-and-forget.md"
RULES = """
[retention]
archive = "archive"
every = "50ms"
[[retention.rules]]
agents = ["payer"]
action = "keep"
[[retention.rules]]
agents = ["wea*"]
states = ["completed"]
after = "1ms"
action = "archive"
"""


@pytest.fixture
def ran(shell: Shell) -> Shell:
    shell("init")
    shell("run", "weather", "-q", "-i", '{"location": "Atlantis"}')
    config = shell.folder / "caxton.toml"
    config.write_text(config.read_text() + RULES)
    return shell


def test_runs_that_have_to_go_are_listed_and_moved(ran: Shell) -> None:
    run = ran("runs", "show", "@last", "--json").document["run_id"]
    before = ran.database.read_bytes()
    [due] = ran("db", "retain", "--dry-run", "--json").document
    assert (due["$type"], due["run_id"], due["rule"], due["outcome"]) == (
        "caxton.retained/v1",
        run,
        "retention: rule 2",
        "due",
    )
    assert ran.database.read_bytes() == before
    assert not Path("archive").exists()

    done = ran("db", "retain")

    assert done.code == 0, done.err
    assert f"{run}.caxton" in done.out
    assert "1 run: 1 done" in done.err
    assert b"Atlantis" not in ran.database.read_bytes()
    assert "retention: rule 2" in ran("runs", "show", run).out
    assert ran("audit", "verify").code == 0
    key = ran("audit", "key", "--json").document["public_key"]
    bundle = ("--bundle", f"archive/{run}.caxton", "--key", key)
    assert ran("replay", *bundle).out.startswith("identical")
    assert ran("db", "retain", "--json").document == []


def test_what_is_kept_or_fails_is_told(ran: Shell) -> None:
    run = ran("runs", "show", "@last", "--json").document["run_id"]
    ran("runs", "hold", run, "--reason", "x")
    kept = ran("db", "retain")
    assert (kept.code, "on hold" in kept.out) == (0, True)
    ran("runs", "release", run, "--reason", "x")
    Path("archive").mkdir()
    Path("archive", f"{run}.caxton").write_text("mine")

    done = ran("db", "retain")

    assert done.code == 1
    assert f"{run}.caxton is not the bundle of run {run}" in done.err
    assert "move the file away" in done.fix


def test_the_page_is_right(shell: Shell) -> None:
    shell("init")
    shell("run", "weather", "-q")
    typed: list[str] = []
    for language, _, text in blocks(PAGE):
        if language == "toml":
            add(shell, text.replace('"180d"', '"1ms"').replace('"30d"', '"1ms"'))
        for line in commands(language or "sh", text):
            typed.append(line)
            type_in(shell, line.replace("RUN", "@last"))
            if line == "caxton db retain":
                assert shell("runs", "show", "@last", "--json").document["erased"]
                shell("run", "weather", "-q")
    assert len(typed) == 5
    assert shell("audit", "verify").code == 0


def test_retention_without_rules_is_refused(shell: Shell) -> None:
    shell("init")
    done = shell("db", "retain")
    assert done.code == 2
    assert "[[retention.rules]]" in done.fix
    assert not shell.database.exists()


def test_a_host_that_serves_archives_by_itself(ran: Shell) -> None:
    run = ran("runs", "show", "@last", "--json").document["run_id"]
    bundle = ran.folder / "archive" / f"{run}.caxton"
    with served(ran) as host:
        until = time.monotonic() + 60
        while not ran("runs", "show", run, "--json").document["erased"]:
            assert time.monotonic() < until
            time.sleep(0.05)
        assert host.get("/readyz").status_code == 200

    assert bundle.exists()
    shown = ran("runs", "show", run).out
    assert "erased  by service retention: retention: rule 2" in shown
    assert ran("audit", "verify").code == 0
