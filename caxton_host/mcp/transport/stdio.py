"""
A server as a child process: start, read and end it.

It is started without a shell, with a minimal environment, and in a session of its own,
so that its children end with it; on Linux also those in other sessions. On Linux the
kernel ends it if the host dies (`setpriv --pdeathsig`, where available: a child cannot
set this before its own exec). Elsewhere its standard input ends, and a server that
ignores this keeps running.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from functools import cache
from pathlib import Path
from typing import cast

from ...core.log.events import Event
from ...core.text.redact import Redactor, plain
from ...core.tools.servers import ServerConfig
from ...errors import ServerUnavailable, ToolError
from ...lib.machine import SystemClock
from .confining import confined
from .egress import proxied
from .jsonrpc import Peer
from .serverlog import LogFile, ServerLog
from .timing import Throttle
from .wire import Link, longest

#: Seconds for a server to end after its input is closed, and again after SIGTERM.
GRACE = 2.0
_SHORT_GRACE = 0.2

_STDIN, _STDOUT, _STDERR = range(3)
_STDERR_KEPT = 16 * 1024
_LONGEST_SECRET = 4096
_WORDS = 500
_STDERR_A_SECOND = 16 * 1024 * 1024
_UNSOLICITED_A_SECOND = 1000

#: Descendants of one server that are ended with it.
_MOST_BELOW = 1000

_PASSED = ("HOME", "LOGNAME", "SHELL", "TERM", "USER", "LANG", "TMPDIR")
_NETWORK = (
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "NO_PROXY",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "NODE_EXTRA_CA_CERTS",
)


def environment(
    host: Mapping[str, str], configured: Mapping[str, str]
) -> dict[str, str]:
    """
    Return the environment of a server.

    Args:
        host: The host's own.

        configured: The variables that are configured for it.
    """
    own = {name: host[name] for name in _PASSED if name in host}
    # `python` is the one that runs the host, wherever it was installed.
    here = str(Path(sys.executable).parent)
    own["PATH"] = os.pathsep.join((here, host.get("PATH", os.defpath)))
    return own | dict(configured)


def withheld(host: Mapping[str, str], configured: Mapping[str, str]) -> list[str]:
    """Return the proxy and certificate variables that a server does not get."""
    names = [name for base in _NETWORK for name in (base, base.lower())]
    return [name for name in names if name in host and name not in configured]


@asynccontextmanager
async def connect(
    config: ServerConfig,
    redact: Redactor,
    log: LogFile | None = None,
    emit: Callable[[Event], None] = lambda _: None,
) -> AsyncGenerator[Link]:
    """
    Run a server during the block. Its standard error goes to *log*.

    Args:
        config: The server.

        redact: Removes secrets from what it says.

        log: For its standard error.

        emit: Called with each event of its connections.

    Raises:
        ServerUnavailable: The program is missing, or cannot be run.
    """
    env = environment(os.environ, config.env)
    command = _argv(config, env)
    loop = asyncio.get_running_loop()
    limit = longest(config)
    words = ServerLog(log.append if log else _unheard, redact, SystemClock())
    async with (
        proxied(config, redact, emit) as egress,
        confined(config, command, env, egress.fd if egress else None) as argv,
    ):
        if egress:
            env |= egress.variables
        words.note(f"started: {shown(config, redact)}")
        try:
            _, child = await loop.subprocess_exec(
                lambda: _Child(limit, redact, words),
                *(argv if config.confine else (*_tied_to_host(), *argv)),
                env=env,
                cwd=config.cwd,
                start_new_session=True,
                pass_fds=(egress.fd,) if egress else (),
            )
        except (OSError, ValueError) as exc:
            raise ServerUnavailable(
                f"cannot run {config.command[0]!r}: {exc}",
                fix=f"check command and cwd of [servers.{config.name}]",
            ) from exc
        try:
            if egress:
                await egress.begin()
            yield Link(child.peer, child.last_words)
        finally:
            await child.stop()


def _unheard(_lines: str) -> None:
    """Drop the standard error of a server."""


def _argv(config: ServerConfig, env: Mapping[str, str]) -> list[str]:
    program, *args = config.command
    where = program
    if os.sep in program:
        found = os.access(Path(config.cwd or ".") / program, os.X_OK)
    else:
        where = shutil.which(program, path=env["PATH"]) or program
        found = where != program
    if not found:
        raise ServerUnavailable(
            f"there is no program {program!r}",
            fix=f"correct the command of [servers.{config.name}], or install it",
        )
    return [where, *args]


@cache
def _tied_to_host() -> tuple[str, ...]:
    setpriv = shutil.which("setpriv", path="/usr/bin:/bin")
    if sys.platform != "linux" or setpriv is None:
        return ()
    prefix = (setpriv, "--pdeathsig", "KILL", "--")
    # Some systems have one without this option.
    tried = subprocess.run([*prefix, setpriv, "--version"], capture_output=True)  # noqa: PLW1510, S603 -- it may fail; no shell
    return () if tried.returncode else prefix


class _Valve:
    """Limits what is read from a pipe in a second, which makes the writer wait."""

    def __init__(self, pipe: asyncio.ReadTransport, a_second: int) -> None:
        self._pipe = pipe
        self._throttle = Throttle(a_second)
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None

    def spend(self, amount: int) -> None:
        wait = self._throttle.spend(amount, self._loop.time())
        if wait and self._timer is None:
            self._pipe.pause_reading()
            self._timer = self._loop.call_later(wait, self._open)

    def _open(self) -> None:
        self._timer = None
        if not self._pipe.is_closing():
            self._pipe.resume_reading()


class _Said(asyncio.Protocol):
    """
    Receives the output of a process directly.

    Through the subprocess protocol it would come one turn of the event loop later.
    """

    def __init__(
        self, take: Callable[[bytes], None], below: asyncio.BaseProtocol
    ) -> None:
        self._take = take
        self._below = below

    def data_received(self, data: bytes) -> None:
        self._take(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._below.connection_lost(exc)


class _Child(asyncio.SubprocessProtocol):
    """The protocol of the process."""

    def __init__(self, limit: int, redact: Redactor, words: ServerLog) -> None:
        self._redact = redact
        self._words = words
        self._loop = asyncio.get_running_loop()
        self._exited = asyncio.Event()
        self._closed = asyncio.Event()
        self._said = bytearray()
        self._cut = False
        self._limit = limit

    # -- callbacks of the event loop -------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._process = cast("asyncio.SubprocessTransport", transport)
        self._stdin = cast("asyncio.WriteTransport", self._pipe(_STDIN))
        self.peer = Peer(self._stdin.write, limit=self._limit, on_lost=self._lost)
        out = cast("asyncio.ReadTransport", self._pipe(_STDOUT))
        self._talk = _Valve(out, _UNSOLICITED_A_SECOND)
        out.set_protocol(_Said(self._heard, out.get_protocol()))
        self._noise = _Valve(
            cast("asyncio.ReadTransport", self._pipe(_STDERR)), _STDERR_A_SECOND
        )

    def _pipe(self, fd: int) -> asyncio.BaseTransport | None:
        return self._process.get_pipe_transport(fd)

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd == _STDERR:
            self._said += data
            self._cut = self._cut or len(self._said) > _STDERR_KEPT
            del self._said[:-_STDERR_KEPT]
            self._noise.spend(len(data))
            self._words.feed(data)
        else:  # Output from before `_Said` was installed.
            self._heard(data)

    def _heard(self, data: bytes) -> None:
        self.peer.feed(data)
        if self.peer.unsolicited:
            self._talk.spend(self.peer.unsolicited)
            self.peer.unsolicited = 0

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        del exc
        if fd == _STDERR:
            return
        self.peer.broken = True
        if self._exited.is_set():
            self._ended()
        else:  # The exit code mostly follows at once, and says more.
            self._loop.call_later(_SHORT_GRACE, self._ended)

    def process_exited(self) -> None:
        self._exited.set()
        self._signal(signal.SIGKILL)  # Its process group ends with it.
        if self.peer.broken:
            self._ended()
        else:  # A last answer may still be in the pipe.
            self._loop.call_later(_SHORT_GRACE, self._ended)

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self._ended()
        self._words.end()
        self._closed.set()

    def pause_writing(self) -> None:
        self.peer.pause_writing()

    def resume_writing(self) -> None:
        self.peer.resume_writing()

    # -- for the peer ----------------------------------------------------------

    def _lost(self, _why: ToolError) -> None:
        cast("asyncio.ReadTransport", self._pipe(_STDOUT)).close()

    def _ended(self) -> None:
        code = self._process.get_returncode()
        if code is None:
            how = "closed the connection"
        elif code < 0:
            how = f"was ended by {_signal_name(-code)}"
        else:
            how = f"ended with exit code {code}"
        self.peer.lose("transport", f"the server {how}")

    def last_words(self) -> str:
        text = self._redact.text(self._said.decode(errors="replace"))
        if self._cut:  # It may begin with half a secret, which is not redacted.
            text = text[_LONGEST_SECRET:]
        return plain(text.strip()[-_WORDS:], self._redact)

    # -- the end ---------------------------------------------------------------

    async def stop(self) -> None:
        """End the process and its descendants: input closed, SIGTERM, then SIGKILL."""
        grace = _SHORT_GRACE if self.peer.lost else GRACE
        self.peer.lose("transport", "the host ends")
        alive = not self._exited.is_set()
        below = descendants(self._process.get_pid()) if alive else []
        try:
            self._stdin.close()
            for number in (signal.SIGTERM, signal.SIGKILL):
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._exited.wait(), grace)
                    break
                self._signal(number)
            await self._exited.wait()
        finally:
            if not self._exited.is_set():
                self._signal(signal.SIGKILL)
            end(below)
            self._process.close()
        await self._closed.wait()

    def _signal(self, number: signal.Signals) -> None:
        # The child leads its group; both may be gone by now.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.get_pid(), number)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def shown(config: ServerConfig, redact: Redactor) -> str:
    """Return the command of a server, redacted."""
    return plain(shlex.join(config.command), redact, 200)


# -- descendants -----------------------------------------------------------------------
#
# On Linux only, and while the process runs: the children of a dead process have another
# parent.


def descendants(pid: int) -> list[int]:
    """Return a handle of each descendant, since process ids are reused."""
    handles: list[int] = []
    if sys.platform == "linux":
        for below in _below(pid):
            with suppress(OSError):
                handles.append(os.pidfd_open(below))
    return handles


def end(handles: Iterable[int]) -> None:
    """Kill the processes that still run, and close all handles."""
    for handle in handles:
        if sys.platform == "linux":
            with suppress(ProcessLookupError, PermissionError):
                signal.pidfd_send_signal(handle, signal.SIGKILL)
        os.close(handle)


def _below(pid: int) -> list[int]:
    found = [pid]
    for parent in found:
        children = [int(child) for child in _children(parent)]
        found += children[: _MOST_BELOW - len(found)]
    return found[1:]


def _children(pid: int) -> Iterator[str]:
    # It may end at any moment, and its folder vanishes.
    with suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208 -- names will do
            with suppress(OSError):
                yield from Path(f"/proc/{pid}/task/{task}/children").read_text().split()
