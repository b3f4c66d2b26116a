"""What is told of the messages on the wire: all, on one line each, and no secret."""

from __future__ import annotations

import logging
import stat
from pathlib import Path

import pytest

from caxton_host.core.text.redact import Redactor
from caxton_host.core.tools.servers import ServerConfig
from caxton_host.mcp.transport.wire import STDERR, Tap, WireTap, tap_of

SECRET = "hunter2-hunter2"  # noqa: S105 -- a canary
STAMP = "2023-11-14T22:13:20.123Z "


class Clock:
    def monotonic(self) -> float:
        raise NotImplementedError

    def now(self) -> int:
        return 1_700_000_000_123_456


def tap(path: Path | str) -> WireTap:
    return WireTap("crm", str(path), Redactor([SECRET]), Clock())


def test_each_message_is_one_line_that_says_which_way_it_went(tmp_path: Path) -> None:
    path = tmp_path / "wire.log"
    told = tap(path)
    told.sent(b'{"id":1,"method":"tools/list"}\n')
    told.heard(b'{"id":1,"result":{}}')
    told.heard(b'{"method":"notifications/message"}')
    told.heard(b'{"id":2,"method":"ping"}')
    told.heard(b"not JSON at all")
    told.heard(b"[" * 100_000)
    told.answered(b"{\n  1\n}")
    lines = path.read_text().splitlines()
    assert [line.removeprefix(STAMP)[:30] for line in lines] == [
        'MCP POST crm {"id":1,"method":',
        'MCP RESP crm {"id":1,"result":',
        'MCP RECV crm {"method":"notifi',
        'MCP RECV crm {"id":2,"method":',
        "MCP RECV crm not JSON at all",
        "MCP RECV crm [[[[[[[[[[[[[[[[[",
        r"MCP RESP crm {\n  1\n}",
    ]
    assert len(lines[5]) < 66 * 1024


def test_a_secret_in_a_message_is_masked_in_whatever_form(tmp_path: Path) -> None:
    # law 8
    path = tmp_path / "wire.log"
    for form in (SECRET, SECRET.encode().hex(), SECRET.replace("-", "\\u002d")):
        tap(path).sent(f'{{"token":"{form}"}}'.encode())
    tap(path).answered(b"x" * (64 * 1024 - 5) + SECRET.encode())
    *masked, last = path.read_text().splitlines()
    assert [line[-23:] for line in masked] == ['{"token":"[redacted]"}'.rjust(23)] * 3
    assert last.endswith("x[reda...")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_what_a_server_sends_cannot_steer_a_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    tap(STDERR).answered(b"\x1b[31mred\x9b\xff")
    assert capsys.readouterr().err == (
        f"{STAMP}MCP RESP crm \\x1b[31mred\ufffd\ufffd\n"
    )


def test_a_file_that_cannot_be_written_is_told_of_once_and_costs_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "target")
    told = tap(tmp_path / "link")
    with caplog.at_level(logging.WARNING):
        told.sent(b"{}")
        told.sent(b"{}")
    assert len(caplog.messages) == 1
    assert not (tmp_path / "target").exists()


def test_nothing_is_told_unless_it_is_asked_for() -> None:
    assert type(tap_of(ServerConfig(name="x"), Redactor(), Clock())) is Tap
    asked = ServerConfig(name="x", wire_log="-")
    assert isinstance(tap_of(asked, Redactor(), Clock()), WireTap)
