"""The pure parts of commands."""

from __future__ import annotations

import ctypes
import os
import pwd
import signal
import sys

import click
import pytest

from caxton_host import cli, errors
from caxton_host.app.bootstrap import usable_store
from caxton_host.app.tool_setup import open_tools
from caxton_host.cli import output
from caxton_host.cli.local_host import LocalHost
from caxton_host.cli.output import complain
from caxton_host.cli.overrides import parse_server
from caxton_host.cli.run_text import call_lines, failure, remark, report, rows
from caxton_host.cli.runs import shortened
from caxton_host.config import Config
from caxton_host.core.calls import Completed, Failed
from caxton_host.core.log.events import (
    Event,
    LogWritten,
    Recorded,
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunStarted,
    RunSuspended,
    ToolInvoked,
    ToolProgress,
    ToolRetried,
    settled,
)
from caxton_host.core.log.projection import summarise
from caxton_host.core.text.redact import Redactor
from caxton_host.errors import CaxtonError, UsageError
from caxton_host.lib.machine import local_actor
from caxton_host.telemetry import NoTelemetry

_PR_GET_DUMPABLE, _PR_SET_DUMPABLE = 3, 4


def recorded(*events: Event | None) -> list[Recorded]:
    return [
        Recorded(
            position=seq,
            stream="run/0198",
            seq=seq,
            type=type(event).__name__ if event else "LogWritten",
            schema_version=1,
            recorded_at=1_700_000_000_000_000 + seq * 1000,
            trace_id="0" * 32,
            span_id=None,
            hash=bytes(32),
            event=event,
        )
        for seq, event in enumerate(events, 1)
    ]


def retried(number: int, attempt: int) -> ToolRetried:
    return ToolRetried(call=number, attempt=attempt, reason="transport")


def invoked(number: int, params: dict[str, object] | None) -> ToolInvoked:
    return ToolInvoked(
        call=number,
        name="mcp__demo__echo",
        server="demo",
        tool="echo",
        params=params,  # type: ignore[arg-type]
        params_sha256="0" * 64,
        effect="unsafe",
        rule="allow[1]",
        idempotency_key="k",
        fuel=1,
    )


# -- exit codes ----------------------------------------------------------------


def _kinds(kind: type[CaxtonError] = CaxtonError) -> list[type[CaxtonError]]:
    return [kind, *(one for below in kind.__subclasses__() for one in _kinds(below))]


def test_every_error_has_a_code_and_a_way_out() -> None:
    for kind in _kinds():
        error = kind.__new__(kind)
        error.fix = ""
        assert 1 <= output.exit_code(error) <= 6
        assert output.remedy(error)
    assert output.exit_code(errors.ServerUnavailable("down")) == 6
    assert output.exit_code(errors.LogBrokenError("broken")) == 5
    assert output.exit_code(errors.StoreError("full")) == 1


def _raising(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> int:
    def command(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(cli.caxton, "main", command)
    return cli.execute([])


def test_an_error_without_a_fix_of_its_own_still_has_a_way_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _raising(monkeypatch, errors.StoreError("disk full")) == 1
    err = capsys.readouterr().err
    assert err.startswith("Error: disk full\nTo fix: see that the database's disk")


def test_an_error_of_the_operating_system_names_the_file(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _raising(monkeypatch, PermissionError(13, "denied", "some/file")) == 2
    assert capsys.readouterr().err.startswith("Error: some/file: denied\nTo fix: ")
    assert _raising(monkeypatch, OSError("odd")) == 2
    assert capsys.readouterr().err.startswith("Error: odd\nTo fix: ")


def test_an_interrupt_is_code_130(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _raising(monkeypatch, KeyboardInterrupt()) == 130
    assert _raising(monkeypatch, click.Abort()) == 130
    assert capsys.readouterr().err == "interrupted\ninterrupted\n"


def test_a_click_error_without_a_context_names_caxton(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _raising(monkeypatch, click.ClickException("no")) == 2
    assert capsys.readouterr().err == "Error: no\nTo fix: see caxton --help\n"


def test_windows_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    with pytest.raises(SystemExit) as exit_:
        cli.main()
    assert exit_.value.code == 2
    err = capsys.readouterr().err
    assert err.startswith("Error: Windows is not supported")
    assert "\nTo fix: " in err


def test_the_actor_is_the_user_of_the_operating_system(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("USER", "somebody-else")
    monkeypatch.setenv("LOGNAME", "somebody-else")
    actor = local_actor()
    name = pwd.getpwuid(os.getuid()).pw_name
    assert actor == {"kind": "local", "id": name, "authenticated": False}

    def unknown(_uid: int) -> None:
        raise KeyError

    monkeypatch.setattr(pwd, "getpwuid", unknown)
    assert local_actor()["id"] == str(os.getuid())


# -- words ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "command", "url"),
    [
        ("a=b", ("b",), None),
        ("a=b 'c d' e=f", ("b", "c d", "e=f"), None),
        ("a=https://host/mcp", (), "https://host/mcp"),
        ("a=http://host", (), "http://host"),
    ],
)
def test_a_server_on_the_command_line(
    spec: str, command: tuple[str, ...], url: str | None
) -> None:
    server = parse_server(spec)
    assert (server.name, server.command, server.url) == ("a", command, url)
    assert server.transport == ("http" if url else "stdio")


@pytest.mark.parametrize(
    "spec", ["", "a", "=b", "a=", "a= ", "a b=c", "a__b=c", "a='", "a=http://[b"]
)
def test_no_server_on_the_command_line(spec: str) -> None:
    with pytest.raises(UsageError, match="--server") as error:
        parse_server(spec)
    assert error.value.fix


def test_run_ids_are_shortened_to_what_tells_them_apart() -> None:
    names = ["018bcfe5-6800-7000-8000-1", "018bcfe5-6801-7000-8000-1"]
    assert shortened(names) == ["018bcfe5-6800", "018bcfe5-6801"]
    assert shortened([]) == []


def test_every_event_has_a_remark_of_one_line() -> None:
    started = RunStarted(
        agent="a\n",
        actor={},
        module_sha256="0" * 64,
        abi="core/1",
        entry="run",
        input={"a": "\x1b"},
        context={},
        limits={},
        seed="",
        grants={},
        grants_sha256="",
        catalogue={},
        servers={},
        host=None,
        engine="",
    )
    failed = Failed(kind="timeout", sent="unknown", message="too\nlate")
    history = recorded(
        started,
        invoked(1, {"text": "x" * 200}),
        settled(1, failed),
        invoked(2, None),
        settled(2, Completed(is_error=True, message="no")),
        LogWritten(n=1, level="info", text="\x1b[2J"),
        None,
        RunSuspended(reason="approval", call=2),
        RunCancelled(actor={}, reason="interrupted"),
        RunFailed(kind="trap", message="unreachable", fuel=1),
        RunCompleted(output=[1], output_sha256="", fuel=1),
        ToolProgress(call=1, message="on\nit", progress=1.0, total=3.0),
    )
    remarks = [remark(event) for event in history]
    assert remarks[2] == "timeout, sent unknown: too\\nlate"
    assert remarks[4] == "tool error: no"
    assert remarks[5] == "info: \\x1b[2J"
    assert remarks[6] == "erased"
    assert remarks[7] == "reason=approval, call=2"
    assert remarks[9:] == ["trap: unreachable", "[1]", "1 of 3 on\\nit"]
    assert max(len(str(row[-1])) for row in rows(history)) == 100
    lines = call_lines(history)
    assert lines[0].endswith("...  failed (timeout, sent unknown): too\\nlate")
    assert lines[1] == "call 2 (event 4)  mcp__demo__echo   tool error, 0 ms"


def test_a_run_that_is_not_over_has_no_failure_to_tell(
    capsys: pytest.CaptureFixture[str],
) -> None:
    history = recorded(invoked(1, {}))
    run = summarise("0198", history)
    report(run, history, configured=True, servers=[])
    failure(run, history)
    err = capsys.readouterr().err
    assert "running in 0 ms: 1 call, 0 denied, 0 failed, 1 event\n" in err
    assert "Error" not in err


def test_signals_that_are_ignored_stay_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    handled: list[int] = []
    found = {signal.SIGTERM: signal.SIG_DFL, signal.SIGHUP: signal.SIG_IGN}
    monkeypatch.setattr(signal, "getsignal", found.get)
    monkeypatch.setattr(signal, "signal", lambda number, _: handled.append(number))
    monkeypatch.setattr(cli, "execute", lambda _: 3)
    monkeypatch.setattr("sys.unraisablehook", sys.unraisablehook)
    monkeypatch.setattr("gc.set_threshold", lambda *_: None)
    monkeypatch.setattr("gc.freeze", lambda: None)
    monkeypatch.setattr("logging.Logger.addHandler", lambda *_: None)
    with pytest.raises(SystemExit) as exit_:
        cli.main()
    assert exit_.value.code == 3
    assert handled == [signal.SIGTERM]


async def test_no_server_is_started_that_could_look_into_the_host() -> None:
    # law 8: the host holds the credentials of every server
    libc = ctypes.CDLL(None)
    libc.prctl(_PR_SET_DUMPABLE, 1)
    config = Config(store_url="sqlite://")
    async with open_tools(config, Redactor(), NoTelemetry(), lambda _: None):
        assert libc.prctl(_PR_GET_DUMPABLE) == 0


def test_a_broken_log_is_not_a_matter_of_usage() -> None:
    with pytest.raises(errors.LogBrokenError), usable_store():
        raise errors.LogBrokenError("a page is gone")
    with pytest.raises(UsageError) as error, usable_store():
        raise errors.StoreError("no such file", fix="name another")
    assert error.value.fix == "name another"


@pytest.mark.parametrize(
    ("fix", "typed"),
    [
        ("caxton db migrate", "caxton --db sqlite:///a.db db migrate"),
        ("caxton agent list", "caxton --db sqlite:///a.db agent list"),
        (
            "see `caxton events list 1`",
            "see `caxton --db sqlite:///a.db events list 1`",
        ),
        ("caxton --db URL db migrate", "caxton --db URL db migrate"),
        ("name the folder that caxton agent new made", ""),
        ("caxton doctor", ""),
    ],
)
def test_a_fix_repeats_the_options_that_were_given(
    capsys: pytest.CaptureFixture[str], fix: str, typed: str
) -> None:
    given = LocalHost(db="sqlite:///a.db")
    with (
        click.Context(cli.caxton, obj=given) as root,
        click.Context(click.Command("status"), parent=root),
    ):
        complain("it rains", fix)
    assert capsys.readouterr().err == f"Error: it rains\nTo fix: {typed or fix}\n"
