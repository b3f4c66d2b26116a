from __future__ import annotations

import io
import json
import logging
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caxton_host.cli import output
from caxton_host.cli.output import (
    Notes,
    complain,
    counted,
    note,
    patience,
    plain,
    pour,
    say,
    show,
    table,
    to_json,
)
from caxton_host.core.calls import JSON
from tests.scene import JSON_VALUES

#: A clear, a colour in one byte, a turn of direction, a link, half a character.
EVIL = "\x1b[2J\x9b31m\u202e\x1b]8;;http://x\x07\u2066\ud800\u2028"


def steers(text: str) -> bool:
    return any(not char.isprintable() and char not in " \u00a0\n" for char in text)


@given(st.text())
def test_a_plain_text_is_one_line_that_steers_nothing(text: str) -> None:
    assert "\n" not in plain(text)
    assert all(char.isprintable() or char.isspace() for char in plain(text))
    if text.isprintable():
        assert plain(text) == text


@given(JSON_VALUES, st.sampled_from([None, 2]))
def test_json_has_the_same_value_and_steers_nothing(
    value: JSON, indent: int | None
) -> None:
    text = to_json(value, indent=indent)
    assert json.loads(text) == value
    assert all(char.isprintable() or char.isspace() for char in text)
    assert not any(0x7F <= ord(char) < 0xA0 for char in text)


def test_what_steers_a_terminal_is_escaped() -> None:
    assert not steers(plain(EVIL))
    assert not steers(to_json({EVIL: [EVIL]}))
    assert json.loads(to_json(EVIL)) == EVIL
    assert plain("12\u00a0°C, 日本 👍") == "12\u00a0°C, 日本 👍"


def test_lines_are_kept_and_their_contents_are_harmless(
    capsys: pytest.CaptureFixture[str],
) -> None:
    say(f"one\ntwo{EVIL}")
    note(f"three\n{EVIL}")
    complain(f"four{EVIL}", "five")
    out, err = capsys.readouterr()
    assert out.count("\n") == 2
    assert err.splitlines()[0] == "three"
    assert err.splitlines()[-1] == "To fix: five"
    assert not steers(out + err)


def test_a_number_of_things() -> None:
    assert [counted(number, "call") for number in (0, 1, 2)] == [
        "0 calls",
        "1 call",
        "2 calls",
    ]


def test_a_pipe_gets_tabs_and_no_heading(capsys: pytest.CaptureFixture[str]) -> None:
    table(("a", "b"), [("one", 1), ("t\tw\no", None)])
    assert capsys.readouterr().out == "one\t1\nt\\tw\\no\t\n"


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "on_terminal", lambda: True)
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("TERM", "dumb")


@pytest.mark.usefixtures("terminal")
def test_a_terminal_gets_a_table_that_fits(capsys: pytest.CaptureFixture[str]) -> None:
    table(("run", "what"), [("0198-" + "0" * 15, "long " * 20), (EVIL, "[red]")])
    out = capsys.readouterr().out
    assert "run" in out
    assert "0198-" + "0" * 15 in out
    assert "[red]" in out
    assert max(map(len, out.splitlines())) <= 40
    assert not steers(out)
    table(("run",), [])
    assert capsys.readouterr().out == ""


@pytest.mark.usefixtures("terminal")
@pytest.mark.parametrize("width", ["60", "70", "76", "80", "85"])
@pytest.mark.parametrize("first", ["0" * 16, "0" * 36])
def test_no_column_of_a_table_is_cut(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    width: str,
    first: str,
) -> None:
    monkeypatch.setenv("COLUMNS", width)
    cells = (first, "old", "run read", "*", "", "2026-11-22 00:48:31", "expired")
    table(("id", "name", "scopes", "agents", "roles", "expires", "state"), [cells])
    out = capsys.readouterr().out
    assert sorted(filter(str.isalnum, out.rpartition("─")[2])) == sorted(
        filter(str.isalnum, "".join(cells))
    )


@pytest.mark.usefixtures("terminal")
def test_data_on_a_terminal_is_made_harmless(
    capsys: pytest.CaptureFixture[str],
) -> None:
    pour(f"a{EVIL}\nb")
    show({"a": EVIL})
    out = capsys.readouterr().out
    assert not steers(out)
    assert out.endswith('\n{\n  "a": ' + to_json(EVIL) + "\n}\n")


def test_data_in_a_pipe_is_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    pour("\x1b[2J\ta\u202e")
    assert capsys.readouterr().out == "\x1b[2J\ta\u202e\n"


def test_a_warning_of_the_package_is_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    text = "the server %s\x1b[2J is down"
    record = logging.LogRecord("x", logging.WARNING, "", 1, text, ("demo",), None)
    Notes().handle(record)
    assert capsys.readouterr().err == "warning: the server demo\\x1b[2J is down\n"


class _Terminal(io.StringIO):
    """A stderr that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_what_takes_long_is_shown_once_it_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    stderr = _Terminal()
    monkeypatch.setattr("sys.stderr", stderr)
    with patience("the quick one"):
        before = threading.active_count()
    assert stderr.getvalue() == ""
    assert threading.active_count() < before

    monkeypatch.setattr(output, "PATIENCE", 0.01)
    with patience("the [slow] one"):
        for _ in range(1000):
            if "the [slow] one" in stderr.getvalue():
                break
            threading.Event().wait(0.01)
    assert "the [slow] one" in stderr.getvalue()


def test_a_part_is_shown_in_its_place_and_told_where_no_terminal_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(output, "PATIENCE", 0.01)
    for seen in (_Terminal(), io.StringIO()):
        monkeypatch.setattr("sys.stderr", seen)
        with patience("the whole") as doing, doing.part("the part"):
            until = time.monotonic() + 10
            while "the part" not in seen.getvalue() and time.monotonic() < until:
                threading.Event().wait(0.01)
        assert "the part" in seen.getvalue()
    assert seen.getvalue() == "the part\n"


def test_nothing_is_shown_where_nobody_looks(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with patience("it"):
        assert threading.current_thread() is threading.main_thread()
    assert capsys.readouterr() == ("", "")
