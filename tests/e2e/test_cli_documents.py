"""What ``--json`` prints, key by key: other programs rest on it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from typing import Any

import click
import pytest
from click.testing import CliRunner

from caxton_host.cli import caxton

from .guests import TRAPS, guest
from .shell import Shell, toml

TEXT, NUMBER, COUNT, FLAG, NULL = str, (int, float), int, bool, type(None)

CALLS = dict.fromkeys(
    ("total", "ok", "tool_error", "denied", "failed", "in_doubt", "waits"), COUNT
)
ACTOR = {"kind": "local", "id": TEXT, "authenticated": FLAG}
RUN: Mapping[str, Any] = {
    "$type": "caxton.run/v1",
    "run_id": TEXT,
    "agent": TEXT,
    "actor": ACTOR,
    "module_sha256": TEXT,
    "state": TEXT,
    "output": object,
    "error": (NULL, {"kind": TEXT, "message": TEXT}),
    "calls": CALLS,
    "events": COUNT,
    "started_at": COUNT,
    "duration_ms": NUMBER,
    "trace_id": TEXT,
    "forked_from": (NULL, {"run": TEXT, "seq": COUNT, "hash": TEXT}),
    "waits_for": (NULL, TEXT),
    "program": NULL,
    "bounds": list,
    "signed_by": list,
    "parent": (NULL, TEXT),
    "called_by": (NULL, COUNT),
    "erased": FLAG,
}
#: Of a list, which reads no events.
LISTED: Mapping[str, Any] = {
    "$type": "caxton.listed-run/v1",
    **dict.fromkeys(("run_id", "agent", "kind", "state", "module_sha256"), TEXT),
    **dict.fromkeys(("reason", "tenant", "parent", "trace_id"), (NULL, TEXT)),
    "started_at": COUNT,
    "changed_at": COUNT,
    "ended_at": (NULL, COUNT),
    "actor": ACTOR,
    "calls": (NULL, CALLS),
    "tools": list,
    "duration_ms": (NULL, NUMBER),
    "erased": FLAG,
}
#: Of one run alone, not of several.
WHOLE: Mapping[str, Any] = {**RUN, "call_list": list}
CALL: Mapping[str, Any] = {
    "call": COUNT,
    "seq": COUNT,
    "name": TEXT,
    "tool": (NULL, TEXT),
    "params": (NULL, dict),
    "outcome": TEXT,
    "message": (NULL, TEXT),
    "duration_us": (NULL, COUNT),
    "cached": FLAG,
    "run": (NULL, TEXT),
}
EVENT: Mapping[str, Any] = {
    "$type": "caxton.event/v1",
    "position": COUNT,
    "stream": TEXT,
    "seq": COUNT,
    "type": TEXT,
    "schema_version": COUNT,
    "recorded_at": COUNT,
    "trace_id": (NULL, TEXT),
    "span_id": (NULL, TEXT),
    "payload": dict,
    "hash": TEXT,
}
REPLAY: Mapping[str, Any] = {
    "$type": "caxton.replay/v1",
    "executed": bool,
    "run_id": TEXT,
    "verdict": TEXT,
    "calls": COUNT,
    "until": (NULL, COUNT),
    "state": TEXT,
    "divergence": (
        NULL,
        {
            "seq": (NULL, COUNT),
            "path": TEXT,
            "recorded": object,
            "replayed": object,
            "run": (NULL, TEXT),
        },
    ),
    "not_kept": (NULL, COUNT),
}
PLACE = {"run": TEXT, "seq": COUNT}
DIFF: Mapping[str, Any] = {
    "$type": "caxton.diff/v1",
    "a": TEXT,
    "b": TEXT,
    "same": FLAG,
    "first": {
        "call": COUNT,
        "name": TEXT,
        "a": PLACE,
        "b": PLACE,
        "differences": list,
    },
    "calls": list,
    "end": list,
}
AUDIT: Mapping[str, Any] = {
    "$type": "caxton.audit/v1",
    "verdict": TEXT,
    "checked": ["chain", "tree", "checkpoints"],
    "streams": COUNT,
    "events": COUNT,
    "erased": COUNT,
    "before": NULL,
    "behind": COUNT,
    "lag": COUNT,
    "erased_runs": [],
    "checkpoint": (NULL, {"origin": TEXT, "size": COUNT, "root": TEXT}),
    "signer": (NULL, {"trusted": (True, False), "fingerprint": (NULL, TEXT)}),
    "faults": [],
    "first_bad": (NULL, {"stream": TEXT, "seq": COUNT}),
}

EXPORT: Mapping[str, Any] = {
    "$type": "caxton.export/v1",
    "run_id": TEXT,
    "path": "run.caxton",
    "html": "run.html",
    "bytes": COUNT,
    "public_key": TEXT,
    "not_kept": (NULL, TEXT),
}
ERASURE: Mapping[str, Any] = {
    "$type": "caxton.erasure/v1",
    "run_id": TEXT,
    "agent": "weather",
    "actor": ACTOR,
    "reason": "asked",
    "events": COUNT,
    "scrubbed": True,
}
SERVER: Mapping[str, Any] = {
    "$type": "caxton.server/v1",
    "name": "demo",
    "transport": "stdio",
    "address": TEXT,
    "required": FLAG,
    "origin": TEXT,
    "host": TEXT,
    "live": False,
    "as_of": COUNT,
    "state": "connected",
    "problem": None,
    "protocol": "2026-07-28",
    "latency_ms": NUMBER,
    "restarts": 0,
    "breaker": "closed",
    "generation": 1,
}
ARCHIVED: Mapping[str, Any] = {
    "$type": "caxton.archived/v1",
    "run_id": TEXT,
    "agent": "weather",
    "state": "completed",
    "ended_at": COUNT,
    "events": COUNT,
    "bytes": COUNT,
    "bundle": (NULL, TEXT),
}


def fits(value: object, shape: Any) -> bool:  # noqa: ANN401 -- a type, a value, or several
    """Return whether *value* is of that shape, with all its keys and no other."""
    if isinstance(shape, tuple):
        return any(fits(value, one) for one in shape)
    if isinstance(shape, list) and isinstance(value, list):
        return len(value) == len(shape) and all(map(fits, value, shape))
    if isinstance(shape, Mapping):
        return (
            isinstance(value, dict)
            and value.keys() == shape.keys()
            and all(fits(value[key], shape[key]) for key in shape)
        )
    if isinstance(shape, type):
        # In Python a flag is a number; here it is none.
        return isinstance(value, shape) and (shape is not int or value is not True)
    return bool(value == shape)


@pytest.fixture
def ran(shell: Shell) -> Shell:
    shell("init")
    shell("run", "weather", "-q")
    return shell


def test_a_run(ran: Shell) -> None:
    done = ran("run", "weather", "--json")
    assert done.err == ""
    assert fits(done.document, WHOLE), done.out
    assert done.document["calls"] == {
        "total": 3,
        "ok": 1,
        "tool_error": 0,
        "denied": 2,
        "failed": 0,
        "in_doubt": 0,
        "waits": 0,
    }
    assert re.fullmatch(r"[0-9a-f]{32}", done.document["trace_id"])
    assert re.fullmatch(r"[0-9a-f]{64}", done.document["module_sha256"])
    assert ran("runs", "show", "@last", "--json").document == done.document
    calls = done.document["call_list"]
    assert all(fits(call, CALL) for call in calls)
    assert [(call["tool"], call["outcome"]) for call in calls] == [
        ("demo/get_weather", "ok"),
        (None, "denied"),
        ("demo/echo", "denied"),
    ]
    listed = ran("runs", "list", "--json").document
    assert len(listed) == 2
    assert all(fits(run, LISTED) for run in listed)
    same = LISTED.keys() & RUN.keys() - {"$type", "duration_ms"}
    assert all(listed[0][key] == done.document[key] for key in same)
    assert listed[0]["tools"] == [
        ["", "denied"],
        ["demo/echo", "denied"],
        ["demo/get_weather", "ok"],
    ]
    few = ran("runs", "list", "--limit", "1", "--json")
    assert (few.document, few.err) == (
        listed[:1],
        "there are more than 1 run; -n NUMBER shows more\n",
    )


def test_a_run_that_failed(ran: Shell) -> None:
    ran.write("agents/weather.wasm", guest(then=TRAPS))
    done = ran("run", "weather", "--json")
    assert fits(done.document, WHOLE), done.out
    assert done.code == 1
    assert done.document["state"] == "failed"
    assert done.document["error"]["kind"]
    assert done.document["output"] is None
    assert done.fix


def test_events(ran: Shell) -> None:
    events = ran("events", "list", "@last", "--json").document
    assert all(fits(event, EVENT) for event in events), events
    assert [event["seq"] for event in events] == [*range(1, len(events) + 1)]
    assert len({event["stream"] for event in events}) == 1
    assert events[0]["type"] == "RunStarted"
    assert len(events[0]["hash"]) == 64


def test_a_replay(ran: Shell) -> None:
    document = ran("replay", "@last", "--json").document
    assert fits(document, REPLAY), document
    assert (document["verdict"], document["calls"]) == ("identical", 3)
    assert document["divergence"] is None


def test_a_fork_and_how_it_differs(ran: Shell) -> None:
    parent = ran("runs", "show", "@last", "--json").document
    ran.write("storm.json", '{"content": [{"type": "text", "text": "storm"}]}')
    edit = ("--at", "2", "--set-result", "storm.json")

    done = ran("runs", "fork", "@last", *edit, "--json")

    assert fits(done.document, WHOLE), done.out
    assert done.err == ""
    assert done.document["forked_from"]["run"] == parent["run_id"]
    assert done.document["forked_from"]["seq"] == 2
    found = ran("runs", "diff", parent["run_id"], "@last", "--json")
    assert fits(found.document, DIFF), found.out
    assert found.code == 1
    assert found.document["first"] == found.document["calls"][0]
    assert {one["path"] for one in found.document["first"]["differences"]} == {
        "$.message",
        "$.data.content[0].text",
    }


def test_an_audit(ran: Shell) -> None:
    document = ran("audit", "verify", "--json").document
    assert fits(document, AUDIT), document
    assert (document["verdict"], document["first_bad"]) == ("intact", None)
    of_one = ran("audit", "verify", "@last", "--json").document
    assert of_one["streams"] == 1
    assert of_one["events"] < document["events"]


@pytest.mark.parametrize(
    ("words", "shape"),
    [
        ("audit export @last -o run.caxton --html run.html", EXPORT),
        ("audit erase @last --reason asked", ERASURE),
        ("db archive --to old --before 3000-01-01 --dry-run", [ARCHIVED]),
        ("db archive --to old --before 3000-01-01", [ARCHIVED]),
    ],
)
def test_what_leaves_the_log(ran: Shell, words: str, shape: object) -> None:
    done = ran(*words.split(), "--json")
    assert fits(done.document, shape), done.out


def test_an_explanation(ran: Shell) -> None:
    allowed = ran("runs", "explain", "@last", "3", "--json").document
    assert allowed["$type"] == "caxton.explanation/v1"
    assert (allowed["verdict"], allowed["rule"], allowed["seq"]) == (
        "allowed",
        "allow[1]",
        2,
    )
    denied = ran("runs", "explain", "@last", "8", "--json").document
    assert denied["verdict"] == "not_granted"
    assert denied["remedy"] == '[[agents.weather.allow]]\ntools = ["demo/echo"]'
    assert {rule["id"]: rule["fits"] for rule in denied["considered"]} == {
        "allow[1]": False,
        "deny[1]": False,
    }


def test_every_document_says_what_it_is(ran: Shell) -> None:
    ran("server", "add", "other", "--", "x")
    ran.write("ava.json", '{"mcp": {"servers": {"ava": {"command": "x"}}}}')
    for words in (
        "agent list",
        "agent new hello",
        "agent build hello",
        "agent inspect hello.wasm",
        "grant suggest --manifest hello.wasm",
        "grant suggest weather",
        "grant check",
        "grant explain weather demo/echo",
        "grant matrix",
        "grant budgets",
        "completion bash",
        "config import --from ava ava.json",
        "config show",
        "config reload",
        "serve token create --name ci --scope run",
        "serve token list",
        "serve token revoke ci",
        "server restart demo",
        "db status",
        "db migrate",
        "db recount",
        "doctor",
        "events export @last",
        "init other",
        "mcp install claude-code --yes",
        "mcp install generic",
        "mcp uninstall claude-code --yes",
        "server list",
        "server test demo",
        "server logs demo",
        "server remove other",
        "server tools demo",
        "tool list --server demo",
        "tool show demo/echo",
        "tool call demo/echo text=hi",
        "tool call demo/fail message=no",
        "tool accept demo/echo",
        "tool stubs demo",
    ):
        document = ran(*words.split(), "--json").document
        for one in document if isinstance(document, list) else [document]:
            assert re.fullmatch(r"caxton\.[a-z-]+/v1", one["$type"]), words


def test_the_doctor_says_what_makes_the_networks_of_servers(ran: Shell) -> None:
    said = ran("doctor", "--json").document["servers"]["connect"]

    assert said in {"namespace", "bubblewrap", "no: install bubblewrap"}
    assert f"connect        {said}" in ran("doctor").out


def test_a_list_of_servers_says_how_they_did(ran: Shell) -> None:
    (server,) = ran("server", "list", "--json").document
    assert fits(server, SERVER), server
    assert ran("server", "list").out.startswith("demo\tstdio\t")
    assert ran("server", "list").out.endswith(" ago\n")


def test_a_server_that_does_not_answer_is_a_document_too(shell: Shell) -> None:
    shell.write("caxton.toml", toml({"servers.x": {"command": "no-such-program"}}))
    done = shell("server", "test", "x", "--json")
    assert done.code == 6
    assert done.document["answers"] is False
    assert "no-such-program" in done.document["problem"]
    assert "servers.x" in done.fix


# -- what all commands share ---------------------------------------------------


def commands(
    command: click.Command = caxton, *path: str
) -> Iterator[tuple[str, click.Command]]:
    yield " ".join(("caxton", *path)), command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from commands(found, *path, name)


def examples(command: click.Command) -> list[list[str]]:
    """Return the commands in the help of *command*, as words."""
    text = (command.help or "").partition("Examples:\n")[2].replace("\\\n", " ")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return [shlex.split(line.partition(" > ")[0]) for line in lines]


def test_every_command_can_print_json() -> None:
    for path, command in commands():
        names = {option for param in command.params for option in param.opts}
        # Its stdout is a client's.
        spares = isinstance(command, click.Group) or path == "caxton mcp connect"
        assert spares or "--json" in names, path


def test_every_help_has_examples_that_parse() -> None:
    for path, command in commands():
        shown = CliRunner().invoke(caxton, [*path.split()[1:], "--help"])
        assert "Examples:\n" in shown.output, path
        assert examples(command), path
        for words in examples(command):
            assert words[0] == "caxton"
            # A path that is named need not be there.
            _parse(caxton, "caxton", words[1:])


def _parse(command: click.Command, name: str, words: list[str]) -> None:
    with command.make_context(name, words) as context:
        if isinstance(command, click.Group):
            rest = [*context._protected_args, *context.args]
            if command.invoke_without_command and not rest:
                return
            found, inner, left = command.resolve_command(context, rest)
            assert inner is not None
            _parse(inner, str(found), left)


def test_help_names_every_command_that_there_is() -> None:
    shown = CliRunner().invoke(caxton, ["--help"]).output
    for path, command in commands():
        if path.count(" ") == 1:
            assert path.split()[1] in shown
            assert command.callback is not None
