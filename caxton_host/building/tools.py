"""
Run a compiler with a minimal environment, a time limit and progress reports.

Its output is bounded, and it is killed with all processes that it started. `listening`
reports that a long build is under way.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import IO, TypeAlias

from ..errors import UsageError

#: Called about once a second, after the first two, with the seconds a tool has run.
Progress: TypeAlias = Callable[[float], None]

#: Characters of what a tool printed that an error shows.
SAID = 4_000
#: A tool that has not ended by then is killed.
_TIMEOUT_S = 300.0
#: Before the first report of progress, and between two.
_FIRST_REPORT_S = 2.0
_REPORT_EVERY_S = 1.0
_PASSED_ON = ("HOME", "PATH", "TMPDIR")

_listener: ContextVar[Progress | None] = ContextVar("listener", default=None)


@contextlib.contextmanager
def listening(progress: Progress | None) -> Generator[None]:
    """Call *progress* while a tool takes long."""
    token = _listener.set(progress)
    try:
        yield
    finally:
        _listener.reset(token)


def call(
    command: Sequence[str],
    *,
    folder: Path,
    failed: str,
    fix: str,
    environ: Mapping[str, str] | None = None,
) -> str:
    """
    Run a tool to its end, and return the beginning of its output.

    Args:
        command: The program and its arguments. No shell is involved.

        folder: Where it runs.

        failed: The error message if it fails, without a full stop.

        fix: The fix of that error.

        environ: Variables beside ``HOME``, ``PATH`` and ``TMPDIR``. Of the caller's
            environment it gets nothing else: that could change the module.

    Raises:
        UsageError: It failed, cannot be run, or took more than five minutes.
    """
    passed_on = {key: os.environ[key] for key in _PASSED_ON if key in os.environ}
    with tempfile.TemporaryFile() as printed:
        try:
            process = subprocess.Popen(  # noqa: S603 -- the operator's own tools
                command,
                cwd=folder,
                env={**passed_on, **(environ or {})},
                stdin=subprocess.DEVNULL,
                stdout=printed,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as exc:
            raise UsageError(
                f"{command[0]} cannot be run: {exc.strerror}", fix="install it again"
            ) from None
        try:
            _await(process, command[0])
        finally:
            _end(process)
        said = _said(printed)
    if process.returncode:
        raise UsageError(f"{failed}:\n{said}", fix=fix)
    return said


def zig_cc(
    *args: str | Path,
    folder: Path,
    scratch: Path,
    failed: str,
    fix: str,
) -> None:
    """
    Run the C compiler of Zig, which comes as a wheel: the same on every machine.

    Args:
        args: Of ``zig cc``.

        folder: Where it runs.

        scratch: As for `Language.compile`; the compiler's cache is in it.

        failed: As for `call`.

        fix: The same.

    Raises:
        UsageError: As of `call`.
    """
    cache = str(scratch / "cache")
    call(
        [sys.executable, "-I", "-m", "ziglang", "cc", *map(str, args)],
        folder=folder,
        failed=failed,
        fix=fix,
        environ={"ZIG_GLOBAL_CACHE_DIR": cache, "ZIG_LOCAL_CACHE_DIR": cache},
    )


def _await(process: subprocess.Popen[bytes], name: str) -> None:
    progress = _listener.get()
    began = time.monotonic()
    wait = min(_FIRST_REPORT_S, _TIMEOUT_S)
    while (passed := time.monotonic() - began) < _TIMEOUT_S:
        try:
            process.wait(wait)
        except subprocess.TimeoutExpired:
            wait = min(_REPORT_EVERY_S, _TIMEOUT_S)
            if progress:
                progress(passed + wait)
        else:
            return
    raise UsageError(
        f"{Path(name).name} did not end within {_TIMEOUT_S:.0f} s",
        fix="try again when the machine is less busy",
    )


def _end(process: subprocess.Popen[bytes]) -> None:
    # Also the processes that the tool left running.
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _said(printed: IO[bytes]) -> str:
    printed.seek(0)
    text = printed.read(4 * SAID + 4).decode(errors="replace").strip()
    return text if len(text) <= SAID else f"{text[:SAID]}\n..."
