"""A host that was killed, and the commands that let its run go on."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from caxton_host.cli import local_runs
from tests import standin
from tests.shared import once

from .guests import call, guest
from .shell import Shell, processes, toml
from .test_cli_process import until

ALLOW = '[[agents.a.allow]]\ntools = ["demo/*"]'
#: One call before the crash, one in it, one after it.
AGENT = guest(
    call("mcp__demo__echo", text="one"),
    call("mcp__demo__slow", seconds=1.5),
    call("mcp__demo__echo", text="three"),
    output="done",
)
PAID = {"content": [{"type": "text", "text": "paid"}]}


def configuration(shell: Shell, *, effect: str = "unsafe", allow: str = ALLOW) -> str:
    server: dict[str, object] = {
        **standin.command(f"of={shell.folder}"),
    }
    tables: dict[str, dict[str, object]] = {
        "servers.demo": server,
        "servers.demo.tools.slow": {"effect": effect},
        "agents.a": {"module": "a.wasm"},
    }
    return toml(tables, allow)


@pytest.fixture
def crashed(
    shell: Shell, compiled: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Shell]:
    """
    A folder whose one run lost its host while the tool was at work.

    All tests have copies of one log, and each its own note of how long that was.
    """
    state = shell.home / "state"
    (state / "caxton").mkdir(0o700, parents=True)
    shutil.copy(compiled / "state/caxton/cache.key", state / "caxton")
    shell.set(XDG_STATE_HOME=str(state))

    def crash(folder: Path) -> None:
        shell.write("caxton.toml", configuration(shell))
        shell.write("a.wasm", AGENT)
        with shell.started("run", "a") as host:
            until(lambda: shell.types().count("ToolInvoked") == 2)
            host.kill()
        until(lambda: not [*processes(str(shell.folder))])
        # Moved: a log whose original is still there counts as a copy of it.
        (folder / "work").mkdir()
        for one in shell.folder.iterdir():
            one.rename(folder / "work" / one.name)
        shutil.copytree(state, folder / "state")

    left = once(tmp_path_factory, "crashed", crash)
    shutil.copytree(left / "work", shell.folder, dirs_exist_ok=True)
    shutil.copytree(left / "state", state, dirs_exist_ok=True)
    shell.write("caxton.toml", configuration(shell))
    assert shell.types()[-1] == "ToolInvoked"
    yield shell
    until(lambda: not [*processes(str(shell.folder))])


def test_run_whose_call_may_be_repeated_goes_on(crashed: Shell) -> None:
    crashed.write("caxton.toml", configuration(crashed, effect="read"))
    # The stricter effect holds: the recorded one.
    assert crashed("runs", "resume", "@last").code == 3
    done = crashed("runs", "resolve", "@last", "4", "--retry", "--reason", "a read")
    assert (done.code, done.out) == (0, '"done"\n')
    assert "resumed" in done.err
    assert crashed.types()[4:] == [
        "RunResumed",
        "RunSuspended",
        "CallResolved",
        "RunResumed",
        "ToolRetried",
        "ToolCompleted",
        "ToolInvoked",
        "ToolCompleted",
        "RunCompleted",
    ]
    assert crashed("replay", "@last").code == 0
    assert crashed("audit", "verify").code == 0


def test_a_private_variable_is_given_again_to_whoever_resolves(crashed: Shell) -> None:
    private = "[context.pin]\nprivate = true\nrequired = true"
    crashed.write("caxton.toml", f"{configuration(crashed)}\n{private}\n")
    words = ("runs", "resolve", "@last", "4", "--retry", "--reason", "nothing there")
    without = crashed(*words)
    assert (without.code, without.fix) == (2, "add --var pin=VALUE")
    pin = ("--var", "pin=pin-0123456789")
    assert crashed(*words, "--no-resume", *pin).fix == "leave out --var, or --no-resume"
    assert "CallResolved" not in crashed.types()
    done = crashed(*words, *pin)
    assert (done.code, done.out) == (0, '"done"\n')


def test_suspended_run_exits_with_3_and_prints_the_command_that_ends_it(
    crashed: Shell,
) -> None:
    done = crashed("runs", "resume", "@last")
    assert (done.code, done.out) == (3, "")
    assert "call 2 (event 4)" in done.err
    (run_id,) = crashed.runs()
    command = f"caxton runs resolve {run_id.removeprefix('run/')} 4 --retry"
    assert command in done.fix
    assert crashed("runs", "list", "--state", "suspended", "--json").document
    shown = crashed("runs", "show", "@last")
    assert "in doubt" in shown.out
    assert command in shown.err
    # Asked again, it waits as before, and nothing is written.
    before = crashed.types()
    again = crashed("runs", "resume", "@last")
    assert (again.code, crashed.types()) == (3, before)
    assert command in again.fix


def test_run_goes_on_with_a_result_from_a_file(crashed: Shell) -> None:
    crashed.write("paid.json", json.dumps(PAID))
    done = crashed(
        *("runs", "resolve", "@last", "4", "--result", "paid.json"),
        *("--reason", "see the statement", "--json"),
    )
    assert done.code == 0
    assert done.document["state"] == "completed"
    assert done.document["calls"]["ok"] == 3
    (event,) = [
        item
        for item in crashed("events", "list", "@last", "--json").document
        if item["type"] == "CallResolved"
    ]
    assert event["payload"]["reason"] == "see the statement"
    assert event["payload"]["actor"]["kind"] == "local"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "No such file"),
        ("{", "JSON"),
        ("[]", "not a map"),
        ('{"content": 1}', "no list of content"),
    ],
)
def test_result_that_is_none_is_refused_and_nothing_is_written(
    crashed: Shell, content: str | None, said: str
) -> None:
    if content is not None:
        crashed.write("paid.json", content)
    before = crashed.types()
    done = crashed(
        *("runs", "resolve", "@last", "4", "--result", "paid.json"),
        *("--reason", "?"),
    )
    assert done.code == 2
    assert said in done.err
    assert "--result paid.json" in done.err
    assert crashed.types() == before


def test_failing_and_aborting_are_recorded(crashed: Shell) -> None:
    done = crashed(
        *("runs", "resolve", "@last", "4", "--fail", "--reason", "gave up"),
        "--no-resume",
    )
    assert done.code == 0
    assert crashed.types()[-2:] == ["CallResolved", "ToolFailed"]
    assert crashed("runs", "resume", "--all").code == 0
    assert crashed.types()[-1] == "RunCompleted"


def test_aborted_run_is_cancelled(crashed: Shell) -> None:
    done = crashed("runs", "resolve", "@last", "4", "--abort", "--reason", "no need")
    assert done.code == 0
    run = crashed("runs", "show", "@last", "--json").document
    assert (run["state"], run["error"]["message"]) == ("cancelled", "no need")
    assert crashed("runs", "resume", "@last").code == 2


@pytest.mark.parametrize(
    "words",
    [
        ("resume",),
        ("resume", "@last", "--all"),
        ("resolve", "@last", "4", "--reason", "x"),
        ("resolve", "@last", "4", "--retry", "--fail", "--reason", "x"),
        ("resolve", "@last", "4", "--retry"),
        ("resolve", "@last", "2", "--retry", "--reason", "x"),
        ("resolve", "zzz", "4", "--retry", "--reason", "x"),
    ],
)
def test_what_cannot_be_meant_is_a_usage_error(
    crashed: Shell, words: tuple[str, ...]
) -> None:
    before = crashed.types()
    done = crashed("runs", *words)
    assert done.code == 2
    assert done.fix
    assert crashed.types() == before


def test_all_idle_runs_are_resumed_and_those_that_wait_are_counted(
    crashed: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_runs, "_PAGE", 1)
    first = crashed("runs", "resume", "--all")
    assert first.code == 3
    assert "suspended" in first.out
    second = crashed("runs", "resume", "--all")
    assert second.code == 0
    assert "1 run suspended" in second.err


def test_run_of_a_file_is_resumed_with_the_grants_that_are_typed_again(
    shell: Shell,
) -> None:
    shell.write("a.wasm", AGENT)
    words = ["--server", f"demo={standin.typed(f'of={shell.folder}')}"]
    with shell.started("run", "a.wasm", *words, "--allow", "demo/*") as host:
        until(lambda: shell.types().count("ToolInvoked") == 2)
        host.kill()
    bare = shell("runs", "resume", "@last")
    assert bare.code == 2
    assert "--allow 'demo/*'" in bare.fix
    done = shell("runs", "resume", "@last", *words, "--allow", "demo/*")
    assert done.code == 3
    assert "--allow 'demo/*'" in done.fix
    assert "--server 'demo=" in done.fix
    until(lambda: not [*processes(str(shell.folder))])


def test_grants_that_were_taken_back_since_are_not_used(crashed: Shell) -> None:
    # law 4
    crashed.write(
        "caxton.toml",
        configuration(crashed, allow='[[agents.a.allow]]\ntools = ["demo/slow"]'),
    )
    done = crashed("runs", "resolve", "@last", "4", "--retry", "--reason", "x")
    assert done.code == 0
    assert "today" in done.err
    assert crashed.types()[-3:] == ["ToolInvoked", "ToolDenied", "RunCompleted"]
