"""A server describes a tool otherwise: a person looks, and accepts it or does not."""

from __future__ import annotations

import sys

import pytest

from tests.integration.mcp.conftest import FAULTY

from .guests import call, guest
from .shell import Shell, toml


@pytest.fixture
def changed(shell: Shell) -> Shell:
    """Return where a tool has changed since a run has seen it."""
    shell.write("a.wasm", guest(call("mcp__crm__act")))
    words = ["-S", str(FAULTY), "changes_on_restart", str(shell.folder / "state")]
    tables: dict[str, dict[str, object]] = {
        "servers.crm": {"command": sys.executable, "args": words},
        "agents.a": {"module": "a.wasm"},
    }
    grant = "[[agents.a.allow]]", 'tools = ["crm/act"]'
    shell.write("caxton.toml", toml(tables, *grant))
    first = shell("run", "a", "--json")
    assert first.document["calls"]["ok"] == 1
    return shell


def test_a_tool_that_has_changed_is_accepted_by_a_person(changed: Shell) -> None:
    # law 9
    refused = changed("run", "a")
    assert "crm/act has changed since it was accepted" in refused.err
    assert "To fix: caxton tool accept crm/act" in refused.err
    last = changed("runs", "show", "@last", "--json").document
    assert (last["calls"]["failed"], last["calls"]["ok"]) == (1, 0)

    looked = changed("tool", "accept", "crm/act", "--dry-run")
    assert looked.out == "$.description\n  - does it\n  + does something else\n"
    assert "without --dry-run" in looked.err
    assert "held against the new schemas, of 2 runs: 2 identical\n" in looked.err
    assert changed("run", "a", "--json").document["calls"]["failed"] == 1

    accepted = changed("tool", "accept", "crm/act", "--json").document
    assert accepted["state"] == "accepted"
    assert accepted["before"] != accepted["definition_sha256"]
    assert [one["path"] for one in accepted["differences"]] == ["$.description"]
    assert changed("run", "a", "--json").document["calls"]["ok"] == 1

    events = [
        (type_, stream)
        for type_, stream in changed.rows("SELECT type, stream FROM events")
        if type_ == "ToolsChanged"
    ]
    assert len(events) == 3, "the host saw it twice, and a person accepted it"
    assert changed("audit", "verify").code == 0
    again = changed("tool", "accept", "crm/act")
    assert (again.out, again.err) == ("", "crm/act is what was accepted before\n")


@pytest.mark.parametrize(
    "words",
    [
        ("server", "test", "crm"),
        ("server", "tools", "crm"),
        ("tool", "list"),
        ("tool", "show", "crm/act"),
    ],
)
def test_whoever_looks_at_a_tool_is_told_that_runs_do_not_see_it(
    changed: Shell, words: tuple[str, ...]
) -> None:
    fix = "To fix: caxton tool accept crm/act"
    assert fix in changed(*words).err
    if words[0] == "tool":
        document = changed(*words, "--json").document
        tools = document if isinstance(document, list) else [document]
        assert tools[0]["accepted"] is False
    changed("tool", "accept", "crm/act")
    assert fix not in changed(*words).err


def test_a_server_may_be_trusted_to_change_its_tools(changed: Shell) -> None:
    toml_ = changed.folder / "caxton.toml"
    toml_.write_text(
        toml_.read_text().replace(
            "[servers.crm]", '[servers.crm]\non_tool_change = "accept"'
        )
    )
    assert changed("run", "a", "--json").document["calls"]["ok"] == 1


def test_looking_at_what_nobody_has_seen_leaves_nothing(shell: Shell) -> None:
    shell("init")
    looked = shell("tool", "accept", "demo/echo", "--dry-run")
    assert looked.code == 0
    assert "$.description\n  + Says what it is told.\n" in looked.out
    assert "outputSchema" not in looked.out
    assert looked.err.count("\n") == 1
    assert not shell.database.exists()


def test_what_is_no_tool_is_not_accepted(changed: Shell) -> None:
    for words, wrong, fix in (
        ("crm", "'crm' is not SERVER/TOOL", "caxton tool list"),
        ("crn/act", "there is no server 'crn'", "write crm"),
        ("crm/axt", "crm has no tool 'axt'", "write act"),
    ):
        done = changed("tool", "accept", words)
        assert done.code == 2
        assert wrong in done.err
        assert done.fix == fix


def test_a_tool_that_no_run_has_seen_can_be_accepted(changed: Shell) -> None:
    done = changed("tool", "accept", "crm/echo")
    assert done.err == "crm/echo is what was accepted before\n"
    (changed.folder / "caxton.db").unlink()
    done = changed("tool", "accept", "crm/echo")
    assert "crm/echo is accepted: no run had seen it" in done.err
    assert "$.name\n  + echo" in done.out
