"""
How a compiler is run: with little of our environment, not for ever, and heard.

What it prints is bounded, and it is ended with all that it started, whatever becomes
of us. Who wants to know that a build goes on listens with `listening`.
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

#: Told how many seconds a tool has run, about once a second, after the first two.
Progress: TypeAlias = Callable[[float], None]

#: Characters of what a tool printed that an error shows.
SAID = 4_000
_TIMEOUT = 300.0
_PATIENCE = 2.0
_TICK = 1.0
_PASSED_ON = ("HOME", "PATH", "TMPDIR")

_listener: ContextVar[Progress | None] = ContextVar("listener", default=None)


@contextlib.contextmanager
def listening(progress: Progress | None) -> Generator[None]:
    """Have *progress* told of tools that take long."""
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
    Run a tool to its end, and return the first of what it printed.

    Args:
        command: The program and its arguments. No shell is involved.

        folder: Where it runs.

        failed: What it means if it fails, as a sentence without a full stop.

        fix: What to do about that.

        environ: Variables beside ``HOME``, ``PATH`` and ``TMPDIR``. Of the caller's
            environment it sees nothing else: it would change what is built.

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
    wait = min(_PATIENCE, _TIMEOUT)
    while (passed := time.monotonic() - began) < _TIMEOUT:
        try:
            process.wait(wait)
        except subprocess.TimeoutExpired:
            wait = min(_TICK, _TIMEOUT)
            if progress:
                progress(passed + wait)
        else:
            return
    raise UsageError(
        f"{Path(name).name} did not end within {_TIMEOUT:.0f} s",
        fix="try again when the machine is less busy",
    )


def _end(process: subprocess.Popen[bytes]) -> None:
    # What a tool leaves behind is ended too: nobody else would.
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _said(printed: IO[bytes]) -> str:
    printed.seek(0)
    text = printed.read(4 * SAID + 4).decode(errors="replace").strip()
    return text if len(text) <= SAID else f"{text[:SAID]}\n..."
