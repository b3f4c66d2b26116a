"""Log lines: one a record, with what it is about, and without secrets."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import threading
from datetime import UTC, datetime
from typing import Any

import pytest

from caxton_host.core.text.redact import Redactor
from caxton_host.lib.logs import FIELDS, Behind, Lines, Style, about, of_host

SECRET = "hunter2hunter2"  # noqa: S105 -- it is none
#: What somebody outside may have said, to begin a line or to steer a terminal.
EVIL = 'x\n{"level": "critical"}\r\x1b[2J\x7f\x9b31m\u2028\u202e'


def record(message: str, **fields: Any) -> logging.LogRecord:  # noqa: ANN401 -- JSON
    made = logging.LogRecord("caxton_host.x", logging.INFO, "", 1, message, (), None)
    made.created = datetime(2026, 11, 21, 23, 5, 1, 250_000, UTC).timestamp()
    setattr(made, FIELDS, fields)
    return made


def raised(text: str) -> Any:  # noqa: ANN401 -- as of `sys.exc_info`
    try:
        int(text)
    except ValueError:
        return sys.exc_info()


def document(line: logging.LogRecord) -> Any:  # noqa: ANN401 -- whatever was logged
    return json.loads(Lines("json").format(line))


def test_json_line_has_time_level_message_and_what_it_is_about() -> None:
    with about(run="0193", agent="weather"), about(call=2, principal="ann"):
        found = document(record("call settled", server="demo", duration_ms=1.5))

    assert found == {
        "ts": "2026-11-21T23:05:01.250Z",
        "level": "info",
        "logger": "caxton_host.x",
        "message": "call settled",
        "run": "0193",
        "agent": "weather",
        "call": 2,
        "principal": "ann",
        "server": "demo",
        "duration_ms": 1.5,
    }
    assert "run" not in document(record("later"))


def test_line_for_people_begins_with_time_and_level() -> None:
    with about(run="0193"):
        line = Lines("text").format(record("call settled", tool="a b", left="x"))

    assert line == (
        '2026-11-21T23:05:01.250Z info    call settled run=0193 tool="a b" left=x'
    )


async def test_what_is_logged_at_the_same_time_is_about_its_own_run() -> None:
    async def one(run: str) -> str:
        with about(run=run):
            await asyncio.sleep(0)
            found: str = document(record("x"))["run"]
            return found

    assert await asyncio.gather(*map(one, "abc")) == ["a", "b", "c"]


@pytest.mark.parametrize("style", ["text", "json"])
def test_nothing_from_outside_begins_a_line_or_steers_a_terminal(style: Style) -> None:
    with about(agent=EVIL):
        line = Lines(style).format(record(EVIL, tool=EVIL))

    assert line.isprintable()
    assert "\n" not in line
    if style == "json":
        assert json.loads(line)["tool"] == EVIL
    else:
        assert line.count(" agent=") == line.count(" tool=") == 1


@pytest.mark.parametrize("style", ["text", "json"])
def test_no_line_has_a_secret_in_any_field(style: Style) -> None:  # law 8
    redact = Redactor([SECRET])
    with of_host(redact, lambda: (None, None)), about(principal=SECRET):
        bad = record(f"sent {SECRET}", tool=SECRET, more=[SECRET, {"k": SECRET}])
        bad.exc_info = raised(SECRET)
        line = Lines(style).format(bad)
    assert "ValueError" in line
    assert SECRET not in line
    assert line.count("[redacted]") >= 5


def test_secrets_of_every_host_of_the_process_are_kept() -> None:  # law 8
    def untraced() -> tuple[None, None]:
        return None, None

    with (
        of_host(Redactor([SECRET]), untraced),
        of_host(Redactor(["opensesame"]), untraced),
    ):
        line = Lines("json").format(record(f"{SECRET} opensesame"))
    assert json.loads(line)["message"] == "[redacted] [redacted]"


def test_exception_is_one_field_of_one_line() -> None:
    bad = record("the host failed")
    bad.exc_info = raised(EVIL)

    line = Lines("json").format(bad)
    assert line.isprintable()
    assert json.loads(line)["exception"].startswith("Traceback (most recent call last)")


def test_line_knows_the_trace_it_was_logged_in() -> None:
    with of_host(Redactor(), lambda: (None, None)), of_host(Redactor(), lambda: T):
        found = document(record("x"))
    assert (found["trace_id"], found["span_id"]) == T


T = ("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331")


def test_who_does_not_read_lines_holds_nobody_up() -> None:
    reads, written = threading.Event(), list[str]()

    def write(line: str) -> None:
        assert reads.wait(30)
        written.append(line)

    behind = Behind(Lines("json"), write, room=3)
    for number in range(10):
        behind.handle(record(f"line {number}"))
    reads.set()
    behind.close()

    lines = "\n".join(written).split("\n")
    said = [json.loads(line)["message"] for line in lines]
    assert said == [f"line {number}" for number in range(len(said))]
    assert 3 <= len(said) <= 4


def test_lines_that_are_left_out_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    reads = threading.Event()
    behind = Behind(Lines("text"), lambda _: reads.wait(30), room=1)
    for _ in range(10):
        behind.handle(record("x"))
    reads.set()
    while not caplog.records:
        reads.wait(0.001)
    behind.close()
    assert caplog.records[0].getMessage() in {
        *("8 lines were left out", "9 lines were left out")
    }


def test_lines_that_cannot_be_written_stop_nothing() -> None:
    def write(line: str) -> None:
        raise BrokenPipeError(line)

    behind = Behind(Lines("text"), write)
    behind.handle(record("x"))
    behind.handle(record("y"))
    behind.close()
    assert not behind._thread.is_alive()


def test_line_that_cannot_be_made_is_left_out_alone() -> None:
    written = list[str]()
    behind = Behind(Lines("json"), written.append)
    behind.handle(record("x", what=object()))
    behind.handle(record("y"))
    behind.close()
    assert [json.loads(line)["message"] for line in written] == ["y"]


def test_record_whose_words_do_not_fit_harms_nobody() -> None:
    written = list[str]()
    behind = Behind(Lines("json"), written.append)
    behind.handle(logging.LogRecord("x", 20, "", 0, "%d calls", ("no number",), None))
    behind.handle(record("y"))
    behind.close()
    assert [json.loads(line)["message"] for line in written] == ["y"]


def test_line_made_after_secrets_were_let_go_of_holds_none_of_them() -> None:  # law 8
    written, redact = list[str](), Redactor()
    behind = Behind(Lines("json"), written.append)
    with of_host(redact, lambda: (None, None)):
        redact.hold("run/1", [SECRET])
        behind.handle(record(SECRET))
        for number in range(1, 100):
            redact.hold(f"run/{number}", [f"another secret {number}"])
            redact.let_go(f"run/{number}")
        assert redact.text(SECRET) == SECRET
        behind.close()
    assert [json.loads(line)["message"] for line in written] == ["[redacted]"]


def test_line_made_after_its_host_is_gone_holds_none_of_its_secrets() -> None:  # law 8
    written = list[str]()
    behind = Behind(Lines("json"), written.append)
    with of_host(Redactor([SECRET]), lambda: (None, None)):
        behind.handle(record(SECRET))
    behind.close()
    assert [json.loads(line)["message"] for line in written] == ["[redacted]"]
