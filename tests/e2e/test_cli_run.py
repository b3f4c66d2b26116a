"""``caxton run``: what goes in, what comes out, and what servers do to it."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from caxton_host.app import bootstrap
from caxton_host.cli import output
from caxton_host.config import Paths
from caxton_host.core.calls import JSON
from caxton_host.core.limits import Places
from caxton_host.core.tools.manifest import section
from tests import standin

from .guests import SPINS, TRAPS, call, guest, log
from .shell import Done, Shell, processes, toml

FAULTY = Path(__file__).parents[1] / "integration" / "mcp" / "faulty_server.py"
DEMO = standin.command()
ALLOW = '[[agents.a.allow]]\ntools = ["demo/*"]'


@pytest.fixture
def demo(shell: Shell) -> Shell:
    """A folder whose agent may call every tool of the demo server."""
    shell.write(
        "caxton.toml",
        toml({"servers.demo": DEMO, "agents.a": {"module": "a.wasm"}}, ALLOW),
    )
    return shell


def faulty(shell: Shell, mode: str, **options: object) -> None:
    """Put a server that misbehaves in the place of the demo server."""
    state = str(shell.folder / "state")
    server = {
        "command": sys.executable,
        "args": ["-S", str(FAULTY), mode, state],
        **options,
    }
    shell.write(
        "caxton.toml",
        toml({"servers.demo": server, "agents.a": {"module": "a.wasm"}}, ALLOW),
    )


def run(shell: Shell, module: bytes, *words: str, stdin: bytes = b"") -> Done:
    shell.write("a.wasm", module)
    return shell("run", "a", *words, stdin=stdin)


def payload(shell: Shell, type_: str) -> dict[str, JSON]:
    """Return the payload of the only event of that type in the last run."""
    events = shell("events", "list", "@last", "--json").document
    (found,) = (event["payload"] for event in events if event["type"] == type_)
    assert isinstance(found, dict)
    return found


def test_a_slow_call_is_told_while_it_lasts(shell: Shell) -> None:
    faulty(shell, "late", slow_response_threshold_ms=50)
    module = guest(call("mcp__demo__act"))

    ran = run(shell, module)

    assert ran.code == 0
    assert "call 1: Still working on act..." in ran.err
    assert payload(shell, "ToolProgress")["message"] == "Still working on act..."
    assert "Still working" not in run(shell, module, "--quiet").err


# -- what goes in --------------------------------------------------------------


def test_input_that_the_agent_does_not_take_starts_no_server(shell: Shell) -> None:
    faulty(shell, "sound")
    takes = b'{"name": "a", "input_schema": {"type": "array"}}'
    module = guest(call("mcp__demo__act")) + section(takes)
    refused = run(shell, module, "-i", '"Oslo"')
    assert refused.code == 2
    assert "the input is not what the agent takes" in refused.err
    assert not (shell.folder / "state").exists()  # which the server writes first
    assert run(shell, module, "-i", "[]").code == 0


@pytest.mark.parametrize("given", ["text", "file", "pipe", "nothing"])
def test_input_comes_from_the_command_line_a_file_or_a_pipe(
    demo: Shell, given: str
) -> None:
    value: JSON = {"location": "Lima", "list": [1, 2.5, None, True], "é": "ü"}
    text = json.dumps(value, ensure_ascii=False)
    demo.write("in.json", text)
    words = {"text": ("-i", text), "file": ("-i", "@in.json"), "pipe": ("-i", "-")}
    done = run(demo, guest(), *words.get(given, ()), stdin=text.encode())
    assert done.code == 0
    started = payload(demo, "RunStarted")
    assert started["input"] == (None if given == "nothing" else value)


@pytest.mark.parametrize("given", ["text", "file", "pipe"])
def test_input_that_is_no_json_is_passed_as_text(demo: Shell, given: str) -> None:
    text = "name,sum\nLübeck,1\n"
    demo.write("in.csv", text)
    word = {"text": text, "file": "@in.csv", "pipe": "-"}[given]
    refused = run(demo, guest(), "-i", word, stdin=text.encode())
    assert refused.code == 2
    named = "TEXT" if given == "text" else word
    assert refused.fix.endswith(f"text that is not JSON: --input-text {named}")

    done = run(demo, guest(), "--input-text", word, stdin=text.encode())
    assert done.code == 0
    assert payload(demo, "RunStarted")["input"] == text


def test_text_that_cannot_be_an_input_is_refused(demo: Shell) -> None:
    demo.write("in.bin", b"ab\xff")
    for words, error in (
        (("--input-text", "@in.bin"), "--input-text: byte 2 is not UTF-8"),
        (("--input-text", "@none"), "cannot read the input none: No such file"),
        (("--input-text", "a", "-i", "1"), "--input and --input-text exclude each"),
    ):
        refused = run(demo, guest(), *words)
        assert refused.code == 2
        assert error in refused.err
        assert refused.fix


def test_variables_are_given_defaulted_and_required(demo: Shell) -> None:
    demo.write(
        "caxton.toml",
        toml(
            {
                "agents.a": {"module": "a.wasm"},
                "context.user_name": {"default": "there"},
                "context.customer_id": {"required": True},
                "context.note": {},
            }
        ),
    )
    missing = run(demo, guest())
    assert missing.code == 2
    assert missing.fix == "add --var customer_id=VALUE"
    assert demo.runs() == []
    assert run(demo, guest(), "--var", "customer_id=a=b").code == 0
    assert payload(demo, "RunStarted")["context"] == {
        "user_name": "there",
        "customer_id": "a=b",
    }


def test_a_module_without_a_configuration_takes_any_variable(shell: Shell) -> None:
    shell.write("a.wasm", guest())
    assert shell("run", "a.wasm", "--var", "k=v").code == 0
    assert payload(shell, "RunStarted")["context"] == {"k": "v"}


def test_another_entry_point(demo: Shell) -> None:
    done = run(demo, guest(output="other", entry="two"), "--entry", "two")
    assert (done.code, done.out) == (0, '"other"\n')


def test_a_program_has_no_entry_point(shell: Shell) -> None:
    shell.write("a.py", "def run(): return 1")
    done = shell("run", "a.py", "--entry", "start")
    assert "--entry is for a module, and a is a program" in done.err
    assert (done.code, done.fix) == (2, "leave it out, and define run() in the program")


def test_a_file_that_is_no_good_name_is_called_agent(shell: Shell) -> None:
    shell.write("my agent!.wasm", guest())
    done = shell("run", "my agent!.wasm", "--json")
    assert done.document["agent"] == "agent"


def test_an_unknown_server_in_a_grant_is_told(demo: Shell) -> None:
    done = run(demo, guest(), "--allow", "demmo/echo")
    assert done.code == 0
    assert "warning: --allow: no server is meant by demmo/echo" in done.err
    assert "did you mean demo?" in done.err


def test_an_unknown_tool_in_a_grant_is_told(demo: Shell) -> None:
    words = ("--allow", "demo/ecko", "--allow", "demo/qqqq*", "--allow", "demo/*")
    done = run(demo, guest(), *words)
    warned = [line for line in done.err.splitlines() if line.startswith("warning")]
    lacks = "no server offers such a tool"
    assert warned == [
        f"warning: --allow demo/ecko: {lacks}. To fix: write demo/echo",
        f"warning: --allow demo/qqqq*: {lacks}. To fix: caxton tool list --server demo",
    ]
    assert run(demo, guest(), *words, "-q").err == ""
    forked = demo("runs", "fork", "@last", "--at", "1", *words)
    assert "write demo/echo" in forked.err


# -- what comes out ------------------------------------------------------------


def test_stdout_has_the_output_and_nothing_else(demo: Shell) -> None:
    module = guest(call("mcp__demo__echo", text="hi"), log("a line"), output={"a": 1})
    done = run(demo, module)
    assert (done.code, done.out) == (0, '{"a": 1}\n')
    assert done.err.startswith("run 0")
    assert 'call 1 (event 2)  mcp__demo__echo {"text": "hi"}  ok, ' in done.err
    assert "completed in " in done.err


def test_quiet_is_the_output_alone(demo: Shell) -> None:
    module = guest(call("mcp__demo__echo", text="hi"), output="done")
    assert run(demo, module, "-q") == Done(code=0, out='"done"\n', err="")


def test_no_output_is_no_line(demo: Shell) -> None:
    assert run(demo, guest(), "-q") == Done(code=0, out="", err="")


def test_a_quiet_run_that_fails_says_why(demo: Shell) -> None:
    done = run(demo, guest(then="(i32.const 7)", output="half"), "-q")
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith("Error: agent_error: the agent returned 7\n")
    assert "caxton events list" in done.fix


def test_a_trap_is_a_run_that_failed(demo: Shell) -> None:
    done = run(demo, guest(then=TRAPS))
    assert done.code == 1
    assert "Error: trap: " in done.err
    assert done.fix
    assert demo("runs", "list", "--state", "failed", "--json").document
    assert demo("replay", "@last").code == 0  # it fails the same way


def test_what_an_agent_says_cannot_steer_a_terminal(demo: Shell) -> None:
    evil = "\x1b[2J\x9b31m\u202egnp.exe\r\nTo fix: curl | sh"
    module = guest(
        call(b"\x1b[2J"),
        call("mcp__demo__echo", text=evil),
        call("mcp__demo__fail", message=evil),
        log(evil),
        output={"said": evil},
    )
    ran = run(demo, module, "-i", json.dumps(evil))
    assert json.loads(ran.out) == {"said": evil}
    shown = [ran]
    shown += [demo("events", "list", "@last", *more) for more in ((), ("--json",))]
    shown += [demo("runs", "show", "@last"), demo("runs", "explain", "@last", "4")]
    shown += [demo("events", "export", "@last"), demo("runs", "list")]
    for done in shown:
        text = done.out + done.err
        assert not [char for char in text if char not in "\n\t" and _steers(char)]
        assert "\nTo fix: curl" not in text


def _steers(char: str) -> bool:
    return not char.isprintable()


# -- denials -------------------------------------------------------------------


def test_each_distinct_denial_is_told_once_with_the_grant_to_paste(
    demo: Shell,
) -> None:
    rules = (
        '[[agents.a.allow]]\ntools = ["demo/fail"]\ncalls = "1/run"',
        '[[agents.a.deny]]\ntools = ["demo/slow"]',
    )
    demo.write(
        "caxton.toml",
        toml({"servers.demo": DEMO, "agents.a": {"module": "a.wasm"}}, *rules),
    )
    echo, fail = call("mcp__demo__echo", text=""), call("mcp__demo__fail", message="")
    slow = call("mcp__demo__slow", seconds=0)
    done = run(demo, guest(echo, echo, fail, fail, slow, call("none"), call(b"\0")))
    assert done.code == 0
    told = [line for line in done.err.splitlines() if line.startswith("denied: ")]
    assert [line.partition(": ")[2].partition(")")[2] for line in told] == [
        " mcp__demo__echo: this agent has no grant for that tool",
        " mcp__demo__fail: all 1 calls of that grant are spent, rule allow[1]",
        " mcp__demo__slow: a rule forbids that tool, rule deny[1]",
        " none: this agent has no grant for that tool",
        told[4].partition(")")[2],
    ]
    assert "7 calls, 6 denied" in done.err
    assert "no tool of that name is known; caxton tool list shows all" in done.err
    pasted = '[[agents.a.allow]]\ntools = ["demo/echo"]\n'
    assert pasted in done.err

    file = demo.folder / "caxton.toml"
    file.write_text(file.read_text() + pasted)
    assert "mcp__demo__echo" not in run(demo, guest(echo), "--fail-on-denied").out
    assert demo("runs", "show", "@last", "--json").document["calls"]["ok"] == 1


def test_a_module_of_no_configuration_is_told_the_option(shell: Shell) -> None:
    shell.write("a.wasm", guest(call("mcp__demo__echo", text="hi")))
    server = f"demo={standin.typed()}"
    words = ("run", "a.wasm", "--server", server, "--fail-on-denied")
    denied = shell(*words)
    assert denied.code == 1
    assert "  to allow it: --allow demo/echo\n" in denied.err
    assert not [*processes(str(shell.folder))]
    assert shell(*words, "--allow", "demo/echo").code == 0


# -- limits --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limits", "module", "kind"),
    [
        ({"compute": "100ms"}, guest(then=SPINS), "compute"),
        (
            {"total_calls": 1},
            guest(*[call("mcp__demo__echo", text="")] * 3),
            "total_calls",
        ),
        ({"wall": "300ms"}, guest(call("mcp__demo__slow", seconds=60)), "wall"),
    ],
    ids=["compute", "total_calls", "wall"],
)
def test_a_limit_ends_the_run_and_is_named(
    demo: Shell, limits: Mapping[str, JSON], module: bytes, kind: str
) -> None:
    agent = {"module": "a.wasm", "limits": limits}
    demo.write(
        "caxton.toml",
        toml({"servers.demo": DEMO, "agents.a": agent}, ALLOW),
    )
    done = run(demo, module, "--json")
    assert done.code == 1
    assert done.document["state"] == "failed"
    assert done.document["error"]["kind"] == "limit"
    assert done.document["error"]["message"].startswith(f"{kind}: ")
    assert f"raise limits.{kind}" in done.fix


# -- servers -------------------------------------------------------------------

ACT = guest(call("mcp__demo__act"), call("mcp__demo__echo", text="again"), output=1)
NAMES = '[[agents.a.allow]]\ntools = ["demo/act", "demo/echo"]'


@pytest.mark.parametrize(
    ("mode", "kind", "sent"),
    [
        ("dies", "transport", "unknown"),
        ("garbage", "protocol", "unknown"),
        ("large", "too_large", "yes"),
        ("never", "timeout", "unknown"),
        ("refuses", "protocol", "yes"),
    ],
)
def test_a_server_that_fails_a_call_is_an_outcome_and_the_next_call_works(
    demo: Shell, mode: str, kind: str, sent: str
) -> None:
    faulty(demo, mode, timeout="1s", env={"SECRET": "hunter2-hunter2"})
    done = run(demo, ACT)
    assert (done.code, done.out) == (0, "1\n")
    assert demo.types().count("ToolFailed") == 1
    failed = payload(demo, "ToolFailed")
    assert failed["kind"] == kind
    assert failed["sent"] == sent
    assert payload(demo, "ToolCompleted")["message"] == "again"
    assert f"failed ({kind}, sent {sent})" in done.err
    explained = demo("runs", "explain", "@last", "2")
    assert f"ended     failed ({kind}, sent {sent})" in explained.out
    assert "hunter2" not in done.err
    assert not [*processes(str(demo.folder))]


def test_an_old_server_is_probed_by_the_first_process_only(demo: Shell) -> None:
    faulty(demo, "legacy_ignores")
    for _ in range(3):
        assert run(demo, ACT).code == 0
    told = (demo.folder / "state").read_text().splitlines()
    methods = [line.split()[1] for line in told if line.startswith("told ")]
    assert methods.count("server/discover") == 1
    assert methods.count("notifications/initialized") == 3


def test_a_server_that_cannot_start_leaves_its_calls_unsent(demo: Shell) -> None:
    state = {"command": "no-such-program"}
    demo.write(
        "caxton.toml",
        toml({"servers.demo": state, "agents.a": {"module": "a.wasm"}}, NAMES),
    )
    done = run(demo, guest(call("mcp__demo__act"), output="went on"))
    assert (done.code, done.out) == (0, '"went on"\n')
    failed = payload(demo, "ToolFailed")
    assert (failed["kind"], failed["sent"]) == ("transport", "no")
    assert "no-such-program" in done.err
    assert "To fix: correct the command of [servers.demo]" in done.err


def test_an_outage_is_a_failure_of_the_server_and_no_denial(shell: Shell) -> None:
    gone = {"command": "no-such-program"}
    granted = '[[agents.a.allow]]\ntools = ["gone/*"]'
    shell.write(
        "caxton.toml",
        toml({"servers.gone": gone, "agents.a": {"module": "a.wasm"}}, granted),
    )
    done = run(shell, guest(call("mcp__gone__x")), "--fail-on-denied")
    assert done.code == 0
    assert "failed (transport, sent no): the server gone is down" in done.err
    assert "to allow it" not in done.err
    assert shell.types() == ["RunStarted", "ToolInvoked", "ToolFailed", "RunCompleted"]

    told = shell("runs", "explain", "@last", "2").out
    assert "tool      gone/x" in told
    assert "allowed" in told
    why = "there is no program 'no-such-program'"
    [server] = shell("server", "list", "--json").document
    assert (server["state"], why in server["problem"]) == ("failed", True)
    assert f"gone: {why}" in shell("server", "list").err


def test_a_tool_that_is_listed_twice_gets_no_advice_to_grant_it(demo: Shell) -> None:
    faulty(demo, "odd_tools")  # which lists echo twice, and grants are for demo/*
    done = run(demo, guest(call("mcp__demo__echo")))
    hint = "# demo/echo is granted, but demo did not offer it to this run;\n"
    assert "'echo': listed 2 times" in done.err
    assert hint in done.err
    assert "to allow it" not in done.err
    denied = payload(demo, "ToolDenied")  # as a tool that the server lacks
    assert denied["message"] == "this agent has no grant for that tool"
    assert hint in demo("runs", "explain", "@last", "2").out
    assert "'echo': listed 2 times" in demo("server", "tools", "demo").err


def test_lines_before_the_protocol_are_passed_over(demo: Shell) -> None:
    faulty(demo, "junk_at_start", required=True)
    assert run(demo, ACT).code == 0


def test_a_required_server_that_is_down_has_no_other_complain(demo: Shell) -> None:
    names = "[[agents.a.allow]]\ntools = ['gone/x', 'slow/x']\n"
    gone = {"command": "no-such-program", "required": True}
    slow = {"command": "sleep", "args": ["60"]}
    demo.write(
        "caxton.toml",
        toml(
            {
                "servers.gone": gone,
                "servers.slow": slow,
                "agents.a": {"module": "a.wasm"},
            },
            names,
        ),
    )
    done = run(demo, ACT)
    assert done.code == 6
    assert "the server gone is down" in done.err
    assert "slow" not in done.err


def test_a_server_that_does_not_answer_is_named_off_a_terminal(
    demo: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "PATIENCE", 0.05)
    slow = {"command": "sleep", "args": ["60"], "start_timeout": "0.5s"}
    demo.write(
        "caxton.toml",
        toml({"servers.demo": slow, "agents.a": {"module": "a.wasm"}}, ALLOW),
    )
    waits = "waiting for the tools of demo\n"
    assert waits in run(demo, guest()).err
    assert waits not in run(demo, guest(), "-q").err
    assert waits in demo("runs", "fork", "@last", "--at", "1").err
    assert "starting demo\n" in demo("server", "test", "demo").err


@pytest.mark.parametrize("mode", ["dies_at_start", "no_list"])
def test_a_required_server_that_is_down_is_code_6_and_no_run(
    demo: Shell, mode: str
) -> None:
    faulty(demo, mode, required=True, start_timeout="5s", env={"SECRET": "h2-h2-h2-h2"})
    done = run(demo, ACT)
    assert (done.code, done.out) == (6, "")
    assert "the server demo is down" in done.err
    assert done.fix
    assert demo.runs() == []
    assert "h2-h2" not in done.err
    assert not [*processes(str(demo.folder))]


@pytest.mark.parametrize(
    ("mode", "kind", "fix"),
    [
        ("never", "timeout", "raise timeout in [servers.demo], or "),
        ("large", "too_large", "raise max_result in [servers.demo]"),
        ("refuses", "protocol", "caxton server test demo shows"),
    ],
)
def test_a_call_by_hand_says_what_can_be_done(
    demo: Shell, mode: str, kind: str, fix: str
) -> None:
    faulty(demo, mode, timeout="1s")
    done = demo("tool", "call", "demo/act", "--json")
    assert done.code == 1
    assert done.document["failed"]["kind"] == kind
    assert done.fix.startswith(fix)


def test_words_that_are_no_parameters_start_nothing(demo: Shell) -> None:
    faulty(demo, "sound")
    for words in (["text"], ['{"text":'], ["a=1", "a=2"]):
        assert demo("tool", "call", "demo/act", *words).code == 2
    assert not (demo.folder / "state").exists()


def test_a_command_by_hand_recalls_what_a_server_speaks(demo: Shell) -> None:
    faulty(demo, "legacy_ignores")
    assert run(demo, ACT).code == 0
    state = demo.folder / "state"
    assert "told server/discover" in state.read_text()
    for words in (("server", "test", "demo"), ("tool", "call", "demo/echo")):
        state.unlink()
        assert demo(*words).code == 0
        assert "told server/discover" not in state.read_text()


def test_a_call_by_hand_says_what_a_server_did(demo: Shell) -> None:
    faulty(demo, "garbage")
    failed = demo("tool", "call", "demo/act")
    assert failed.code == 1
    assert failed.err.startswith("Error: protocol, sent unknown: ")
    assert failed.fix == "caxton server test demo shows whether it answers"
    faulty(demo, "dies_at_start", env={"SECRET": "h2-h2-h2-h2"})
    for words in (
        ("tool", "call", "demo/act"),
        ("tool", "list", "--server", "demo"),
        ("server", "test", "demo"),
    ):
        down = demo(*words)
        assert (down.code, down.out) == (6, "")
        assert "no luck" in down.err
        assert down.fix
    listed = demo("tool", "list")
    assert listed.code == 0
    assert "warning: " in listed.err


# -- the log -------------------------------------------------------------------


def test_a_change_of_the_log_is_found_and_named(demo: Shell) -> None:
    module = guest(call("mcp__demo__echo", text="hi"), output="ok")
    run_id = run(demo, module, "--json").document["run_id"]
    assert demo("audit", "verify").code == 0
    _rewrite(demo, run_id, 3, b"hi", b"ho")

    done = demo("audit", "verify")
    assert done.code == 5
    assert done.out.startswith("broken: ")
    assert f"Error: run/{run_id} event 3: its payload is not what" in done.err
    assert done.fix
    document = demo("audit", "verify", "@last", "--json")
    assert document.code == 5
    assert document.document["verdict"] == "broken"
    assert document.document["first_bad"] == {"stream": f"run/{run_id}", "seq": 3}


def test_an_agent_that_does_something_else_diverges(demo: Shell) -> None:
    module = guest(call("mcp__demo__echo", text="hi"), output="ok")
    run_id = run(demo, module, "--json").document["run_id"]
    _rewrite(demo, run_id, 2, b"mcp__demo__echo", b"mcp__demo__ecco")
    done = demo("replay", "@last")
    assert done.code == 4
    assert done.out == "diverged: 1 call answered from the log\n"
    assert "Error: diverged at event 2, $.name: " in done.err
    assert done.fix
    found = demo("replay", run_id[:-4], "--json").document
    assert found["verdict"] == "diverged"
    assert found["divergence"]["seq"] == 2
    assert found["divergence"]["recorded"] == "mcp__demo__ecco"
    assert found["divergence"]["replayed"] == "mcp__demo__echo"


def test_a_run_whose_events_are_gone_is_a_broken_log(demo: Shell) -> None:
    run(demo, guest())
    with demo.tampering() as connection:
        connection.execute("DELETE FROM payloads")
        connection.execute("DELETE FROM events")
    done = demo("events", "list", "@last")
    assert done.code == 5
    assert "its events are gone" in done.err
    assert done.fix


_DAMAGE = {
    "gone": [
        (
            "DELETE FROM payloads WHERE position IN"
            " (SELECT position FROM events WHERE stream = ?)"
        ),
        "DELETE FROM events WHERE stream = ?",
    ],
    "changed": [
        (
            "UPDATE payloads SET payload = x'c1' WHERE position IN"
            " (SELECT position FROM events WHERE stream = ?)"
        )
    ],
}


@pytest.mark.parametrize("how", [*_DAMAGE])
def test_a_list_finds_a_damaged_run_and_verification_says_that_it_is(
    demo: Shell, how: str
) -> None:
    # law 9
    for _ in range(3):
        run(demo, guest())
    names = [one["run_id"] for one in demo("runs", "list", "--json").document]
    with demo.tampering() as connection:
        for statement in _DAMAGE[how]:
            connection.execute(statement, (f"run/{names[1]}",))

    listed, shown = demo("runs", "list", "--json"), demo("runs", "list")
    verified = demo("audit", "verify")

    assert (listed.code, shown.code) == (0, 0)
    assert [one["run_id"] for one in listed.document] == names
    assert verified.code == 5
    assert verified.fix


def test_a_replay_takes_the_places_of_the_configuration(
    demo: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(demo, guest())
    file = demo.folder / "caxton.toml"
    file.write_text(f"{file.read_text()}\n[sandbox]\nworkers = 1\nguests = 3\n")
    found: list[Places] = []

    really = bootstrap.open_sandbox

    def open_sandbox(paths: Paths, places: Places | None = None) -> Any:  # noqa: ANN401
        found.append(places or Places())
        return really(paths, places or Places())

    monkeypatch.setattr(bootstrap, "open_sandbox", open_sandbox)
    assert demo("replay", "@last").code == 0
    assert found == [Places(workers=1, guests=3)]


def test_an_erased_payload_is_shown_as_that(demo: Shell) -> None:
    run(demo, guest(call("mcp__demo__echo", text="hi")))
    with demo.tampering() as connection:
        connection.execute("DELETE FROM payloads")
    assert "erased" in demo("events", "list", "@last").out
    assert demo("runs", "show", "@last").code == 0
    done = demo("runs", "explain", "@last", "2")
    assert (done.code, done.fix) == (2, "caxton runs show @last")


def _rewrite(shell: Shell, run_id: str, seq: int, old: bytes, new: bytes) -> None:
    """Change a payload as somebody would who may write the database."""
    with shell.tampering() as connection:
        ((position, payload),) = connection.execute(
            "SELECT position, payload FROM payloads JOIN events USING (position) "
            "WHERE stream = ? AND seq = ?",
            (f"run/{run_id}", seq),
        ).fetchall()
        assert old in payload
        connection.execute(
            "UPDATE payloads SET payload = ? WHERE position = ?",
            (payload.replace(old, new), position),
        )
