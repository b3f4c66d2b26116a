"""Fork, diff and the stepping replay, as they are typed."""

from __future__ import annotations

import json
import signal
import socket
import subprocess

import pytest

from tests import standin

from .guests import call, guest, log
from .shell import SOON, Shell, toml
from .test_cli_process import until

DEMO: dict[str, object] = standin.command()
ALLOW = '[[agents.a.allow]]\ntools = ["demo/*"]'
#: 1 start, 2 line, 3-4 call 1, 5-6 call 2, 7 line, 8-9 call 3, 10 end.
AGENT = guest(
    log("begin"),
    call("mcp__demo__echo", text="one"),
    call("mcp__demo__echo", text="two"),
    log("middle"),
    call("mcp__demo__echo", text="three"),
    output="done",
)
STORM = {"content": [{"type": "text", "text": "storm"}]}


def configuration(allow: str = ALLOW) -> str:
    tables: dict[str, dict[str, object]] = {
        "servers.demo": DEMO,
        "agents.a": {"module": "a.wasm"},
    }
    return toml(tables, allow)


@pytest.fixture
def ran(shell: Shell) -> Shell:
    """A folder with one run, of three calls."""
    shell.write("caxton.toml", configuration())
    shell.write("a.wasm", AGENT)
    assert shell("run", "a").code == 0
    shell.write("storm.json", json.dumps(STORM))
    return shell


def newest(shell: Shell) -> str:
    name: str = shell("runs", "show", "@last", "--json").document["run_id"]
    return name


# -- fork ----------------------------------------------------------------------


def test_fork_goes_on_from_an_event_and_names_its_parent(ran: Shell) -> None:
    parent = newest(ran)

    done = ran("runs", "fork", "@last", "--at", "6")

    assert (done.code, done.out) == (0, '"done"\n')
    assert f"forked from run {parent}" in done.err
    assert ran.types()[10:] == [
        "RunStarted",
        "LogWritten",
        "ToolInvoked",
        "ToolCompleted",
        "RunCompleted",
    ]
    shown = ran("runs", "show", "@last")
    assert f"forked  from run {parent} at event 6" in shown.out
    assert ran("runs", "show", parent).out.count("forked") == 0
    assert len(ran("runs", "list", "--json").document) == 2
    assert ran("replay", "@last").code == 0
    assert ran("audit", "verify").code == 0
    assert ran("runs", "diff", parent, "@last").code == 0


def test_edited_result_is_what_the_agent_sees(ran: Shell) -> None:
    parent = newest(ran)

    done = ran("runs", "fork", "@last", "--at", "5", "--set-result", "storm.json")

    assert done.code == 0
    assert "call 2 (event 2)  edited:  ok" in done.err
    events = ran("events", "list", "@last", "--json").document
    assert events[1]["payload"]["message"] == "storm"
    assert ran("replay", "@last").code == 0
    found = ran("runs", "diff", parent, "@last")
    assert found.code == 1
    first, row, *_ = found.out.splitlines()
    assert first.startswith("first difference: call 2 mcp__demo__echo, $.message: ")
    assert row.split("\t")[:4] == ["2", "mcp__demo__echo", "5 / 5", "$.message"]


def test_fork_has_the_grants_of_today(ran: Shell) -> None:  # law 4
    ran.write("caxton.toml", configuration(""))

    done = ran("runs", "fork", "@last", "--at", "6")
    assert done.code == 0
    assert ran.types()[-2:] == ["ToolDenied", "RunCompleted"]
    assert "denied: call 3" in done.err

    ran("runs", "fork", "@last", "--at", "1", "--allow", "demo/echo")
    assert ran.types()[-2:] == ["ToolCompleted", "RunCompleted"]


def test_fork_of_an_agent_that_is_not_configured_is_warned_of(shell: Shell) -> None:
    shell.write("a.wasm", AGENT)
    server = ("--server", f"demo={standin.typed()}")
    shell("run", "a.wasm", *server, "--allow", "demo/echo")

    done = shell("runs", "fork", "@last", "--at", "6", *server)

    assert "nothing is granted to the fork; add --allow" in done.err
    assert shell.types()[-2] == "ToolDenied"


def test_fork_with_another_module(ran: Shell) -> None:
    fixed = guest(
        call("mcp__demo__echo", text="one"),
        call("mcp__demo__echo", text="two"),
        log("fixed"),
        output="fixed",
    )
    ran.write("fixed.wasm", fixed)

    done = ran("runs", "fork", "@last", "--at", "6", "--agent", "fixed.wasm")

    assert (done.code, done.out) == (0, '"fixed"\n')
    assert ran("replay", "@last").code == 0
    assert ran("runs", "fork", "@last", "--at", "1").out == '"fixed"\n'
    assert ran("replay", "@last").code == 0


def test_module_that_does_something_else_in_the_prefix_fails_the_fork(
    ran: Shell,
) -> None:
    parent = newest(ran)
    ran.write("other.wasm", guest(call("mcp__demo__echo", text="uno")))

    done = ran("runs", "fork", "@last", "--at", "6", "--agent", "other.wasm")

    assert done.code == 1
    assert f"event 3 of run {parent}, $.params.text: recorded 'one'" in done.err


@pytest.mark.parametrize(
    ("words", "said", "fix"),
    [
        (["--at", "5"], "cannot fork at event 5", "fork at event 1, 2, 4, 6, 7 or"),
        (["--at", "99"], "no event 99", "1 to 10"),
        (["--at", "2", "--set-result", "storm.json"], "not of a call", "event 3, 5 or"),
        (["--at", "5", "--set-result", "none.json"], "No such file", "exists"),
        (["--at", "5", "--set-result", "a.wasm"], "a.wasm: ", "CallToolResult"),
        (["--at", "6", "--agent", "none.wasm"], "cannot read the module", "exists"),
        (["--at", "6", "--agent", "storm.json"], "storm.json: ", ""),
        ([], "Missing option '--at'", "--help"),
    ],
)
def test_fork_that_cannot_be_is_refused_and_nothing_is_written(
    ran: Shell, words: list[str], said: str, fix: str
) -> None:
    done = ran("runs", "fork", "@last", *words)

    assert done.code == 2
    assert said in done.err
    assert fix in done.fix
    assert len(ran.runs()) == 1


def test_fork_that_was_killed_is_resumed(shell: Shell) -> None:  # law 10
    agent = guest(
        call("mcp__demo__echo", text="one"),
        call("mcp__demo__slow", seconds=1.5),
        output="done",
    )
    shell.write("caxton.toml", configuration())
    shell.write("a.wasm", agent)
    shell("run", "a")
    with shell.started("runs", "fork", "@last", "--at", "3") as host:
        until(lambda: shell.types().count("ToolInvoked") == 3)
        host.kill()
    assert shell("runs", "resume", "@last").code == 3

    seq = shell("events", "list", "@last", "--json").document[1]["seq"]
    done = shell("runs", "resolve", "@last", str(seq), "--retry", "--reason", "no")

    assert (done.code, done.out) == (0, '"done"\n')
    assert shell("replay", "@last").code == 0


def test_suspended_fork_of_an_edited_call_tells_what_it_waits_for(shell: Shell) -> None:
    agent = guest(
        call("mcp__demo__echo", text="one"),
        call("mcp__demo__slow", seconds=1.5),
    )
    shell.write("caxton.toml", configuration())
    shell.write("a.wasm", agent)
    shell.write("storm.json", json.dumps(STORM))
    shell("run", "a")
    edit = ("--at", "2", "--set-result", "storm.json")
    with shell.started("runs", "fork", "@last", *edit) as host:
        until(lambda: shell.types().count("ToolInvoked") == 3)
        host.kill()

    done = shell("runs", "resume", "@last")

    assert done.code == 3
    assert "in doubt: call 2 (event 3)" in done.err


# -- diff ----------------------------------------------------------------------


def test_two_runs_of_an_agent_that_did_the_same_are_the_same(ran: Shell) -> None:
    first = newest(ran)
    ran("run", "a")

    done = ran("runs", "diff", first, "@last")

    assert (done.code, done.out) == (0, "same\n")


def test_end_that_differs_is_told(ran: Shell) -> None:
    first = newest(ran)
    ran.write("a.wasm", AGENT.replace(b"done", b"gone"))
    ran("run", "a")

    done = ran("runs", "diff", first, "@last")

    assert done.code == 1
    assert done.out.splitlines() == [
        'first difference: the end, $.output: "done" became "gone"',
        'end\t\t\t$.output\t"done"\t"gone"',
    ]


# -- replay: until, against, step ----------------------------------------------


def test_replay_stops_after_the_event_that_is_named(ran: Shell) -> None:
    done = ran("replay", "@last", "--until", "6")
    assert done.out == "identical up to event 6: 2 calls answered from the log\n"
    document = ran("replay", "@last", "--until", "5", "--json").document
    assert (document["until"], document["calls"]) == (5, 2)
    assert ran("replay", "@last", "--until", "11").code == 2
    # A difference behind that event does not count.
    other = guest(log("begin"), call("mcp__demo__echo", text="one"))
    ran.write("b.wasm", other)
    assert ran("replay", "@last", "--until", "4", "--against", "b.wasm").code == 0
    assert ran("replay", "@last", "--until", "5", "--against", "b.wasm").code == 4


def test_replay_against_another_module_names_the_first_difference(ran: Shell) -> None:
    run_id = newest(ran)
    other = guest(
        call("mcp__demo__echo", text="one"), call("mcp__demo__echo", text="2")
    )
    ran.write("b.wasm", other)

    done = ran("replay", "@last", "--against", "b.wasm", "--json")

    assert done.code == 4
    assert done.document["divergence"] == {
        "seq": 5,
        "path": "$.params.text",
        "recorded": "two",
        "replayed": "2",
        "run": None,
    }
    assert f"caxton events list {run_id}" in done.fix
    assert ran("replay", "@last", "--against", "a.wasm").code == 0
    assert ran("replay", "@last", "--against", "none.wasm").code == 2
    assert ran("replay", "@last", "--against", "storm.json").code == 2


def test_stepper_takes_its_commands_from_a_pipe(ran: Shell) -> None:
    typed = b"\ne\nlog\nn 2\n"
    done = ran("replay", "@last", "--step", stdin=typed)

    assert done.code == 0
    lines = done.out.splitlines()
    assert lines[0] == 'call 1 (event 3)  mcp__demo__echo {"text": "one"}'
    assert lines[1] == "  event 4  ToolCompleted  ok: one"
    assert lines[2] == 'call 2 (event 5)  mcp__demo__echo {"text": "two"}'
    recorded = ran("events", "list", "@last", "--json").document
    assert [json.loads(line) for line in lines[4:6]] == recorded[4:6]
    assert lines[6] == "warning: begin"
    # Two on from call 2 there is none: it goes on to the end.
    assert lines[7] == "identical: 3 calls answered from the log"
    assert len(lines) == 8


@pytest.mark.parametrize(
    ("typed", "ends"),
    [
        (b"c\n", "identical: 3 calls"),
        (b"continue\n", "identical: 3 calls"),
        (b"q\n", "identical up to event 4: 1 call"),
        (b"", "identical up to event 4: 1 call"),
        (b"next\n", "identical up to event 6: 2 calls"),
        (b"n 2\nquit\n", "identical up to event 9: 3 calls"),
        (b"n x\nn 0\nn 99999999999\n\xff\nh\nl\nc\n", "identical: 3 calls"),
    ],
)
def test_stepper_ends_as_it_is_told(ran: Shell, typed: bytes, ends: str) -> None:
    done = ran("replay", "@last", "--step", stdin=typed)

    assert done.code == 0
    assert done.out.splitlines()[-1].startswith(ends)


def test_stepper_explains_itself(ran: Shell) -> None:
    done = ran("replay", "@last", "--step", stdin=b"what\n")

    assert "no such command: what" in done.err
    for word in ("next [N]", "continue", "event", "log", "quit", "help"):
        assert word in done.out


def test_stepper_says_where_there_is_no_log_line(shell: Shell) -> None:
    shell.write("caxton.toml", configuration())
    shell.write("a.wasm", guest(call("mcp__demo__echo", text="one")))
    shell("run", "a")

    assert "no log line" in shell("replay", "@last", "--step", stdin=b"l\n").err


def test_stepper_shows_a_divergence(ran: Shell) -> None:
    ran.write("b.wasm", guest(call("mcp__demo__echo", text="one")))

    done = ran("replay", "@last", "--step", "--against", "b.wasm", stdin=b"n\nn\n")

    assert done.code == 4
    assert "event 5, $.name" in done.err


def test_stepper_shows_what_a_fork_inherited(ran: Shell) -> None:
    ran("runs", "fork", "@last", "--at", "6")

    done = ran("replay", "@last", "--step", stdin=b"n\nn\nc\n")

    assert done.out.count("call ") == 3
    assert done.code == 0


def test_stepper_is_for_people(ran: Shell) -> None:
    assert ran("replay", "@last", "--step", "--json").code == 2


def test_stepper_is_left_by_an_interrupt(ran: Shell) -> None:
    with ran.started("replay", "@last", "--step", stdin=subprocess.PIPE) as child:
        assert child.stdout
        assert child.stdout.readline()
        child.send_signal(signal.SIGINT)
        assert child.wait(SOON) == 130


# -- law 6: a replay touches nothing -------------------------------------------


@pytest.mark.parametrize("words", [[], ["--until", "6"], ["--step"]])
def test_replay_starts_no_server_and_reads_no_credential(
    ran: Shell, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:  # law 6
    unset: dict[str, dict[str, object]] = {
        "servers.demo": {"command": "/no/such/command", "env": {"K": "${env:UNSET}"}},
        "servers.far": {
            "url": "https://far.example/mcp",
            "headers": {"Authorization": "Bearer ${file:no-such-file}"},
        },
        "agents.a": {"module": "no-such-module.wasm"},
    }
    ran.write("caxton.toml", toml(unset, 'import = ["no-such.json"]'))
    ran.folder.joinpath("a.wasm").unlink()
    ran.database.chmod(0o444)
    before = ran.database.read_bytes()

    def touched(*_args: object, **_options: object) -> None:
        raise AssertionError

    monkeypatch.setattr(socket.socket, "connect", touched)
    monkeypatch.setattr(socket, "create_connection", touched)
    monkeypatch.setattr(socket, "getaddrinfo", touched)
    # What reads credentials complains of them.
    assert ran("server", "list").code == 2

    done = ran("replay", "@last", *words, stdin=b"c\n")

    assert done.code == 0, done.err
    assert done.out.splitlines()[-1].startswith("identical")
    assert ran.database.read_bytes() == before


def test_diff_and_explain_read_no_credential_either(ran: Shell) -> None:
    unset: dict[str, dict[str, object]] = {
        "servers.demo": {"command": "x", "env": {"K": "${env:UNSET}"}}
    }
    ran.write("caxton.toml", toml(unset))

    assert ran("runs", "diff", "@last", "@last").code == 0
    assert ran("runs", "explain", "@last", "3").code == 0


def test_replay_finds_the_log_that_is_named_or_configured(ran: Shell) -> None:
    run_id = newest(ran)
    ran.database.rename(ran.folder / "other.db")
    other = f"sqlite:///{ran.folder}/other.db"

    assert ran("--db", other, "replay", run_id).code == 0
    ran.write("caxton.toml", toml({"store": {"url": "sqlite:///${env:WHERE}.db"}}))
    assert "WHERE is not set" in ran("replay", run_id).err
    ran.set(WHERE="other")
    assert ran("replay", run_id).code == 0


def test_run_that_a_host_still_drives_is_replayed_as_far_as_it_is(shell: Shell) -> None:
    agent = guest(
        call("mcp__demo__echo", text="one"), call("mcp__demo__slow", seconds=5)
    )
    shell.write("caxton.toml", configuration())
    shell.write("a.wasm", agent)
    with shell.started("run", "a") as host:
        until(lambda: shell.types().count("ToolInvoked") == 2)
        done = shell("replay", "@last")
        assert host.poll() is None

    assert done.code == 0
    assert done.out.startswith("identical: 2 calls")
    assert "the run has not ended" in done.err
