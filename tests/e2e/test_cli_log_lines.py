"""What a command logs on stderr, as lines for people or for programs."""

from __future__ import annotations

import json
import re
from typing import Any

from .shell import Done, Shell


def logged(done: Done) -> list[dict[str, Any]]:
    return [json.loads(line) for line in done.err.splitlines() if line.startswith("{")]


def run(shell: Shell, *options: str) -> Done:
    shell("init")
    return shell(*options, "run", "weather", "-i", '{"location": "Lima"}')


def test_a_run_and_its_calls_are_json_lines(shell: Shell) -> None:
    done = run(shell, "--log-format", "json", "--log-level", "info")

    lines = [one for one in logged(done) if one["logger"] == "caxton_host.activity"]
    assert [one["message"] for one in lines] == [
        "run began",
        *["call settled"] * 3,
        "run ended",
    ]
    began, call, *_, ended = lines
    assert {one["run"] for one in lines} == {began["run"]}
    assert (call["call"], call["server"], call["tool"]) == (1, "demo", "get_weather")
    assert {one["status"] for one in lines[1:4]} == {"ok", "denied"}
    assert (call["status"], ended["state"]) == ("ok", "completed")
    assert 0 < call["duration_ms"] < ended["duration_ms"]
    assert "Lima" not in json.dumps(lines)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", call["ts"])


def test_lines_for_people_say_the_same(shell: Shell) -> None:
    done = run(shell, "--log-format", "text", "--log-level", "info")

    line, *_ = [one for one in done.err.splitlines() if "call settled" in one]
    assert re.match(r"\S+Z info    call settled run=\S+ agent=weather call=1 ", line)
    assert " server=demo tool=get_weather status=ok duration_ms=" in line


def test_traced_lines_name_their_span(shell: Shell) -> None:
    shell.set(OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:9")
    done = run(shell, "--log-format", "json", "--log-level", "info")

    calls = [one for one in logged(done) if one["message"] == "call settled"]
    events = shell("events", "list", "@last", "--json").document
    invoked = [one for one in events if one["type"] == "ToolInvoked"]
    assert [(one["trace_id"], one["span_id"]) for one in calls] == [
        (one["trace_id"], one["span_id"]) for one in invoked
    ]


def test_nothing_but_warnings_is_logged_unless_that_is_asked_for(shell: Shell) -> None:
    assert logged(run(shell, "--log-format", "json")) == []
    assert "call settled" not in run(shell).err


def test_a_warning_is_a_json_line_too(shell: Shell) -> None:
    shell("init")
    file = shell.folder / "caxton.toml"
    file.write_text(
        file.read_text() + '\n[servers.gone]\ncommand = "no-such-program"\n'
    )
    done = shell("--log-format", "json", "tool", "list")
    found = [one for one in logged(done) if one["level"] == "warning"]
    assert any("no-such-program" in one["message"] for one in found), done.err
