"""What a server writes for people: whole lines, no secret, not too much."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from caxton_host.core.text.redact import Redactor
from caxton_host.mcp.transport import serverlog
from caxton_host.mcp.transport.serverlog import LogFile, ServerLog, Tail

SECRET = "hunter2-hunter2"  # noqa: S105 -- a canary
STAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z ")


class Clock:
    seconds = 1000.0

    def monotonic(self) -> float:
        return self.seconds

    def now(self) -> int:
        return round(1_700_000_000_123_456 + self.seconds * 1e6)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def told() -> list[str]:
    return []


@pytest.fixture
def log(told: list[str], clock: Clock) -> ServerLog:
    def write(text: str) -> None:
        told.extend(STAMP.sub("", line, count=1) for line in text.splitlines())

    return ServerLog(write, Redactor([SECRET]), clock)


def test_a_secret_in_two_pieces_is_found(log: ServerLog, told: list[str]) -> None:
    # law 8
    for piece in (b"one\nkey hun", b"ter2-hun", b"ter2 given\r\n  two"):
        log.feed(piece)
    assert told == ["one", "key [redacted] given"]
    log.end()
    assert told[2:] == ["  two"]


def test_what_is_written_cannot_steer_a_terminal(
    log: ServerLog, told: list[str]
) -> None:
    log.feed(b"\x1b[31mred\x9b \xff\n\n\n")
    assert told == ["\\x1b[31mred\ufffd \ufffd"]


def test_no_server_speaks_in_the_name_of_the_host(
    log: ServerLog, told: list[str]
) -> None:
    log.note("started: x")
    log.feed(b"-- started: y\n - z --\n")
    assert told == ["-- started: x", "\\-- started: y", " - z --"]


def test_a_line_without_an_end_is_not_held_for_ever(
    log: ServerLog, told: list[str]
) -> None:
    for _ in range(4):
        log.feed(b"x" * 20_000)
    log.feed(b"hunter2-")
    log.feed(b"hunter2\nnext\n")
    assert told == ["-- 80015 bytes left out: too fast, or without an end", "next"]


def test_too_much_is_left_out_to_the_end_of_its_line(
    log: ServerLog, told: list[str], clock: Clock
) -> None:
    # law 8: what follows a piece that was left out may begin with half a secret.
    for _ in range(5):
        log.feed(b"hunter2 is it\n" + b"noise\n" * 10_000 + b"key hunter2-")
    clock.seconds += 60
    log.feed(b"hunter2\nquiet\n")
    assert {*told[:-2]} == {"hunter2 is it", "noise", "key [redacted] is it"}
    assert told[-1] == "quiet"
    assert re.fullmatch(r"-- \d+ bytes left out: .*", told[-2])
    assert len("".join(told)) < 300_000


def test_many_small_pieces_are_too_much_as_well(
    log: ServerLog, told: list[str]
) -> None:
    for _ in range(10_000):
        log.feed(b"x\n")
    log.end()
    assert 1000 < len(told) < 1500
    assert told[-1].startswith("-- ")


def test_a_file_is_for_its_owner_and_turns_over_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serverlog, "_FILE", 100)
    file = LogFile(tmp_path / "state" / "servers", "demo")
    tail = Tail(file)
    assert [*tail.more()] == []
    seen: list[str] = []
    for number in range(30):
        file.append(f"line {number}\n")
        if number % 7 == 0:
            seen += tail.more()
    seen += tail.more()
    tail.close()
    older, newer = file.paths
    assert (older.name, newer.name) == ("demo.log.1", "demo.log")
    assert oct(newer.parent.stat().st_mode)[-3:] == "700"
    assert {oct(path.stat().st_mode)[-3:] for path in file.paths} == {"600"}
    assert 200 > older.stat().st_size > 100
    assert seen == [f"line {number}" for number in range(30)]
    again = Tail(file)
    assert [*again.more()][-1] == "line 29"
    again.close()


def test_a_line_that_is_still_being_written_is_not_told(tmp_path: Path) -> None:
    file = LogFile(tmp_path, "demo")
    tail = Tail(file)
    file.append("whole\nha")
    assert [*tail.more()] == ["whole"]
    file.append("lf\n")
    assert [*tail.more()] == ["half"]
    file.paths[-1].unlink()
    assert [*tail.more()] == []
    tail.close()


def test_a_file_that_cannot_be_written_is_warned_of_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "demo.log").symlink_to(tmp_path / "elsewhere")
    file = LogFile(tmp_path, "demo")
    file.append("one\n")
    file.append("two\n")
    assert not (tmp_path / "elsewhere").exists()
    [record] = caplog.records
    assert "cannot write demo.log" in record.getMessage()
    assert "To fix: free space" in record.getMessage()
