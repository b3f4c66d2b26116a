"""Agents that are components, as their author sees them."""

from __future__ import annotations

import pytest

from tests import standin
from tests.components import LOOP, SHOW, call, component, place, text

from .shell import Shell, toml

DEMO = standin.command()
TOOL = "mcp__demo__echo"
DATA, CALL = call(TOOL, '{"text": "héllo"}')
MANY = f'[["{TOOL}",{{"text":"1"}}],["{TOOL}",{{"text":"2","text":"3"}}],["no",{{}}]]'
BATCH = f"(call $mcp-call-many {place(600, MANY)} (i32.const 16))"
LINE = f"(call $log (i32.const 2) {place(560, 'línea')})"
AGENT = component(
    f"{LINE} {CALL} {BATCH} {SHOW} (drop (call $random)) (drop (call $now))",
    before=DATA + text(600, MANY) + text(560, "línea"),
)


@pytest.fixture
def demo(shell: Shell) -> Shell:
    """A folder whose agent is a component and may call the demo server."""
    shell.write(
        "caxton.toml",
        toml(
            {
                "servers.demo": DEMO,
                "agents.a": {"module": "a.wasm"},
                "agents.a.limits": {"fuel": 100_000_000},
            },
            '[[agents.a.allow]]\ntools = ["demo/*"]',
        ),
    )
    shell.write("a.wasm", AGENT)
    return shell


def test_run_of_a_component_is_recorded_like_any(demo: Shell) -> None:
    done = demo("run", "a")
    assert done.code == 0, done.err
    assert [one["status"] for one in done.document] == ["ok", "bad_request", "denied"]
    assert done.document[0]["message"] == "1"
    events = demo("events", "list", "@last", "--json").document
    started = events[0]["payload"]
    assert started["abi"] == "component/1"
    assert started["limits"]["memory"] == 256 * 1024 * 1024
    kinds = [event["type"] for event in events]
    assert kinds.count("ToolInvoked") == 4  # law 2
    assert kinds.count("ToolCompleted") == 2
    assert kinds.count("ToolDenied") == 2
    asked = [one["payload"] for one in events if one["type"] == "ToolInvoked"]
    assert [one["params"] for one in asked] == [
        {"text": "héllo"},
        {"text": "1"},
        None,
        {},
    ]
    (line,) = (one["payload"] for one in events if one["type"] == "LogWritten")
    assert (line["level"], line["text"]) == ("warning", "línea")
    assert demo("audit", "verify").code == 0


# law 6
def test_component_replays_in_other_workers_and_without_the_cache(demo: Shell) -> None:
    assert demo("run", "a").code == 0
    demo.write("caxton.toml", "version = 1")  # no server is left to ask
    again = demo("replay", "@last")
    assert (again.code, "identical" in again.out) == (0, True)
    demo.set(XDG_CACHE_HOME=str(demo.home / "cache"))
    fresh = demo("replay", "@last")
    assert (fresh.code, fresh.out) == (0, again.out)


@pytest.mark.parametrize(
    ("body", "before", "said"),
    [
        ("(unreachable)", "", "trap: unreachable"),
        ("", "(func $s (unreachable)) (start $s)", "trap: unreachable"),
        (
            "(drop (call $f))",
            "(func $f (result i32) (call $f))",
            "trap: stack overflow",
        ),
        (LOOP, "", "limit: fuel"),
        (f"(call $output {place(64, '{')})", text(64, "{"), "agent_error: output: not"),
    ],
)
def test_component_that_fails_is_a_run_that_failed_and_replays(
    demo: Shell, body: str, before: str, said: str
) -> None:
    demo.write("a.wasm", component(body, before=before))
    done = demo("run", "a")
    assert (done.code, said in done.err) == (1, True), done.err
    assert "identical" in demo("replay", "@last").out


def test_error_that_an_agent_returns_is_what_is_said(demo: Shell) -> None:
    body = """(i32.store8 (i32.const 0) (i32.const 1))
      (i32.store (i32.const 4) (i32.const 64))
      (i32.store (i32.const 8) (i32.const 13))"""
    demo.write("a.wasm", component(body, before=text(64, "no such city\x1b")))
    done = demo("run", "a")
    assert done.code == 1
    assert r"agent_error: no such city" in done.err
    assert "\x1b" not in done.err
    (end,) = (
        event["payload"]
        for event in demo("events", "list", "@last", "--json").document
        if event["type"] == "RunFailed"
    )
    assert end["kind"] == "agent_error"
    assert end["fuel"] is not None


# law 1
def test_component_with_wasi_is_no_run(demo: Shell) -> None:
    demo.write("a.wasm", component("", interface="wasi:cli/environment@0.2.0"))
    done = demo("run", "a")
    assert done.code == 2
    assert 'imports "wasi:cli/environment@0.2.0"' in done.err
    assert "--stub-wasi" in done.fix
    assert demo("runs", "list", "--json").document == []


def test_component_of_other_types_is_no_run(demo: Shell) -> None:
    demo.write("a.wasm", component("", imports={"now": "(result u64)"}))
    done = demo("run", "a")
    assert done.code == 2
    assert 'imports "now" as () -> u64; it is () -> s64' in done.err
    assert "package caxton:agent" in done.fix
