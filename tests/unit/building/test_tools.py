"""Compilers are run with a bounded voice, little environment, and not for ever."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from caxton_host.building import tools
from caxton_host.errors import UsageError


def _python(code: str, folder: Path, **environ: str) -> str:
    return tools.call(
        [sys.executable, "-c", code],
        folder=folder,
        failed="it failed",
        fix="mend it",
        environ=environ,
    )


def test_what_a_tool_prints_is_returned_and_bounded(tmp_path: Path) -> None:
    assert _python("print('é')", tmp_path, PYTHONIOENCODING="utf-8") == "é"
    said = _python("print('x' * 1_000_000)", tmp_path)
    assert said == "x" * tools.SAID + "\n..."


def test_a_tool_that_fails_is_quoted_with_what_to_do(tmp_path: Path) -> None:
    code = "import sys; print('one', file=sys.stderr); sys.exit('two')"
    with pytest.raises(UsageError, match="it failed:\none\ntwo") as caught:
        _python(code, tmp_path)
    assert caught.value.fix == "mend it"


def test_a_tool_that_cannot_be_run_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be run: No such file") as caught:
        tools.call(["./nothing"], folder=tmp_path, failed="", fix="")
    assert caught.value.fix


def test_a_tool_sees_of_the_environment_what_it_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CAXTON_SECRET", "hidden")
    said = _python("import os; print(*os.environ)", tmp_path, MORE="1")
    assert {"PATH", "MORE"} <= set(said.split())
    assert "CAXTON_SECRET" not in said


def test_who_listens_is_told_that_a_tool_takes_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tools, "_FIRST_REPORT_S", 0.05)
    monkeypatch.setattr(tools, "_REPORT_EVERY_S", 0.05)
    told: list[float] = []
    with tools.listening(told.append):
        _python("import time; time.sleep(0.5)", tmp_path)
    assert len(told) > 1
    assert told == sorted(told)


def test_what_a_tool_started_ends_with_it(tmp_path: Path) -> None:
    code = (
        "import subprocess as s, sys; "
        "print(s.Popen([sys.executable, '-c', 'import time; time.sleep(60)']).pid)"
    )
    pid = int(_python(code, tmp_path))
    for _ in range(100):
        if not _alive(pid):
            return
        time.sleep(0.05)
    raise AssertionError(f"{pid} is still there")


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    # Until init has reaped it, it is a zombie.
    return ") Z " not in Path(f"/proc/{pid}/stat").read_text("ascii")
