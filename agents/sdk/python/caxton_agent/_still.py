"""
Make the standard library deterministic: an agent sees only what the log holds.

A component has no clock, randomness, files or sockets. A function that uses one would
trap, which no ``except`` catches. `install` replaces these functions before the
author's modules are imported. During the build they behave as usual, with a clock that
stands still. After `seal`, which runs at the start of the run, they ask the host or
raise an exception.
"""

from __future__ import annotations

import errno
import functools
import importlib
import io
import os
import random
import sys
import time
import types
from collections.abc import Callable, Mapping, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from typing import Any, NoReturn

from . import _clock, _threads
from ._bridge import Level, host
from ._run import random_bytes

__all__ = ["flush", "install", "install_late", "seal"]

_NO_FILES = "an agent has no files: call a tool that reads or writes them"
_NO_SOCKETS = "an agent has no network: call a tool that has access"
_NO_PROCESS = "an agent has no process: raise SystemExit to end the run"
_NO_SIGNALS = "an agent has no signals"
_NO_DATABASES = "an agent has no files: connect to ':memory:'"
#: ``sqlite3.SQLITE_ATTACH``.
_ATTACH = 24

#: Functions of the module posix without effects outside the agent.
_HARMLESS = {
    "cpu_count",
    "fspath",
    "getcwd",
    "getcwdb",
    "getpid",
    "putenv",
    "strerror",
    "umask",
    "uname",
    "unsetenv",
}
_ENDS = {"_exit", "abort"}

_CLOCK = types.SimpleNamespace(
    implementation="caxton", monotonic=True, adjustable=False, resolution=1e-6
)

#: Audit events that the interpreter raises before it does what an agent cannot.
_REFUSED = {
    "open": _NO_FILES,
    "signal.pthread_kill": _NO_SIGNALS,
}

_sealed = False
#: The highest recursion limit: each level may take stack of the interpreter.
_DEPTH = 20_000
_streams: list[_Lines] = []


def install() -> None:
    """Replace functions that access the outside. Call this before other imports."""
    _replace_clocks()
    _replace_randomness()
    _replace_files()
    _replace_fatal()
    _threads.install()
    sys.addaudithook(_audit)


def seal(*finders: Any) -> None:  # noqa: ANN401 -- what sys.meta_path holds
    """
    Switch all replaced functions to the host, or to an exception.

    Args:
        finders: Where modules are imported from during the run. Without one, an import
            of what the build did not import says so.
    """
    global _sealed  # noqa: PLW0603 -- there is one run
    _sealed = True
    random.seed()
    _streams[:] = _Lines("info"), _Lines("warning")  # The agent may replace others.
    for name, stream in zip(
        ("stdin", "stdout", "stderr"), (io.StringIO(), *_streams), strict=True
    ):
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    sys.meta_path[:] = [each for each in sys.meta_path if each is not PathFinder]
    sys.meta_path += finders or [_Missing()]


def flush() -> None:
    """Write the incomplete last lines of stdout and stderr."""
    for stream in _streams:
        stream.flush()


# ---- Time --------------------------------------------------------------------


def _replace_clocks() -> None:
    for name in ("time", "monotonic", "perf_counter", "process_time"):
        _replace(time, name, _clock.seconds)
        _replace(time, f"{name}_ns", _clock.nanoseconds)
    _replace(time, "clock_gettime", lambda _which: _clock.seconds())
    _replace(time, "clock_gettime_ns", lambda _which: _clock.nanoseconds())
    _replace(time, "sleep", _clock.sleep)
    _replace(time, "get_clock_info", lambda _name: _CLOCK)
    for name in ("gmtime", "localtime", "ctime"):
        _replace(time, name, _filled(getattr(time, name), 0, _clock.seconds))
    _replace(time, "asctime", _filled(time.asctime, 0, time.localtime))
    _replace(time, "strftime", _filled(time.strftime, 1, time.localtime))


def _filled(
    function: Callable[..., Any], at: int, default: Callable[[], object]
) -> Callable[..., Any]:
    """Return *function* with a *default* for its argument *at*."""

    def filled(*args: object) -> object:
        given = [each for each in args[at:] if each is not None]
        return function(*args[:at], *(given or [default()]))

    return filled


# ---- Randomness --------------------------------------------------------------


def _replace_randomness() -> None:
    for module in (os, sys.modules["posix"]):
        _replace(module, "urandom", random_bytes)
    random._urandom = os.urandom  # type: ignore[attr-defined] # noqa: SLF001 -- SystemRandom, and so secrets, draw from it
    original = random.Random.seed

    def seed(self: random.Random, a: Any = None, version: int = 2) -> None:  # noqa: ANN401 -- as it was
        if a is None:
            a = int.from_bytes(os.urandom(8), "little")
        original(self, a, version)

    random.Random.seed = seed  # type: ignore[method-assign]
    random.seed = random._inst.seed  # noqa: SLF001 -- the generator behind random.random()


# ---- Files, sockets, processes -----------------------------------------------


def _replace_files() -> None:
    posix = sys.modules["posix"]
    for name, value in list(vars(posix).items()):
        if isinstance(value, types.BuiltinFunctionType) and name not in _HARMLESS:
            if name.startswith("_path") or name == "urandom":
                continue
            why = _NO_PROCESS if name in _ENDS else _NO_FILES
            _guard(posix, name, why)
            if getattr(os, name, None) is value:
                setattr(os, name, getattr(posix, name))
    for module, name in ((io, "open"), (io, "open_code"), (sys.modules["_io"], "open")):
        _guard(module, name, _NO_FILES)
    sys.modules["builtins"].open = io.open  # type: ignore[attr-defined]


def _audit(event: str, args: tuple[Any, ...]) -> None:
    if not _sealed:
        return
    if event in _REFUSED:
        raise PermissionError(errno.EPERM, _REFUSED[event])
    if event.startswith("socket."):
        raise PermissionError(errno.EPERM, _NO_SOCKETS)
    if event == "sqlite3.connect" and args[0] != ":memory:":
        raise PermissionError(errno.EPERM, _NO_DATABASES)


def _replace_fatal() -> None:
    """Replace functions that end the interpreter."""
    faults = importlib.import_module("faulthandler")
    for name, value in list(vars(faults).items()):
        if isinstance(value, types.BuiltinFunctionType):
            _guard(faults, name, _NO_SIGNALS)
    signals = importlib.import_module("_signal")
    for name in ("alarm", "pause", "raise_signal", "setitimer", "sigwait"):
        _guard(signals, name, _NO_SIGNALS)
    for name in ("_baserepl", "_debugmallocstats", "remote_exec"):
        _guard(sys, name, _NO_PROCESS)
    limit = sys.setrecursionlimit
    _replace(sys, "setrecursionlimit", lambda depth: limit(min(depth, _DEPTH)))


def install_late() -> None:
    """Replace functions of modules that only some agents import."""
    modules: Mapping[str, Any] = sys.modules
    if socket := modules.get("socket"):
        for name in ("getaddrinfo", "gethostbyname", "socketpair"):
            _guard(socket, name, _NO_SOCKETS)
        _guard(modules["_socket"], "close", _NO_SOCKETS)
    if select := modules.get("select"):
        for name in ("select", "poll"):
            _guard(select, name, _NO_SOCKETS)
    if asyncio := modules.get("asyncio"):
        loop = importlib.import_module("caxton_agent._loop").Loop
        for module in (asyncio, asyncio.events):
            _replace(module, "new_event_loop", loop)
    if sqlite := modules.get("sqlite3"):
        _replace(sqlite, "connect", _connecting(sqlite.connect))
    if threading := modules.get("threading"):
        _threads.install_late(threading)
    if queue := modules.get("queue"):
        queue.SimpleQueue = modules["_queue"].SimpleQueue = queue._PySimpleQueue  # noqa: SLF001 -- what it is without C
    modules["_random"].Random = random.Random


def _connecting(connect: Callable[..., Any]) -> Callable[..., Any]:
    def authorize(action: int, name: str | None, *_: object) -> int:
        return int(action == _ATTACH and name not in {"", ":memory:"})

    def connected(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 -- as it was
        made = connect(*args, **kwargs)
        made.set_authorizer(authorize)  # Without files, SQLite ends the interpreter.
        return made

    return connected


def _guard(owner: Any, name: str, why: str) -> None:  # noqa: ANN401 -- a module or class
    def refuse(*_: object, **__: object) -> NoReturn:
        raise PermissionError(errno.EPERM, why)

    _replace(owner, name, refuse)


def _replace(owner: Any, name: str, function: Callable[..., Any]) -> None:  # noqa: ANN401 -- as above
    original = getattr(owner, name, None)
    if original is None:
        return

    @functools.wraps(original)
    def replaced(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 -- as it was
        return (function if _sealed else original)(*args, **kwargs)

    setattr(owner, name, replaced)


# ---- Output and imports ------------------------------------------------------


class _Lines(io.TextIOBase):
    """A stream that writes its lines to the run's log."""

    encoding = "utf-8"

    def __init__(self, level: Level) -> None:
        self._level: Level = level
        self._begun = ""

    def writable(self) -> bool:
        return True

    def write(self, text: str, /) -> int:
        *lines, self._begun = f"{self._begun}{text}".split("\n")
        for line in lines:
            self._log(line)
        return len(text)

    def flush(self) -> None:
        if self._begun:
            line, self._begun = self._begun, ""
            self._log(line)

    def _log(self, line: str) -> None:
        host().log(self._level, line.encode(errors="replace").decode())


class _Missing:
    """Rejects imports during the run, with an explanation."""

    def find_spec(
        self,
        name: str,
        _path: Sequence[str] | None = None,
        _target: types.ModuleType | None = None,
    ) -> ModuleSpec | None:
        raise ModuleNotFoundError(
            f"the build did not import a module named {name!r}: "
            "import it at the top of the file",
            name=name,
        )
