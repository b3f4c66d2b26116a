"""
A process that does whatever it is told, for tests of what it cannot do.

It is started as workers are, and prepared with code of the test's choice, for
example `CONFINE`. From then on it runs the code texts that its socket brings, as a
guest would that has broken out of the sandbox and owns the whole worker.
"""

from __future__ import annotations

import json
import socket
import subprocess
from typing import Any, Self

from caxton_host.sandbox.confine import spawn

CONFINE = "guards = confine.confine()"
#: As a worker of components is.
CONFINE_WITH_IMAGES = "guards = confine.confine(images=True)"
#: The user that owns nothing; only root can become another, the others stay.
BECOME_ORDINARY = "os.getuid() == 0 and os.setuid(65534)"

#: What a process tries with; it has imported `ctypes`.
ATTEMPT = """
def attempt(action, *args):
    "Return 0, or the error number of the failure."
    try:
        action(*args)
    except OSError as error:
        return error.errno
    return 0

libc = ctypes.CDLL(None, use_errno=True)

def syscall(number, *args):
    "Return 0, or the error number of the failure."
    ctypes.set_errno(0)
    libc.syscall(number, *args)
    return ctypes.get_errno()
"""

_BOOTSTRAP = (
    """
import ctypes, errno, fcntl, json, mmap, os, resource, select, signal, socket
import subprocess, threading, time, traceback
from caxton_host.sandbox import confine, kernel
"""
    + ATTEMPT
    + """
door = socket.socket(fileno={fd})
orders = door.makefile("rb")
names = globals()
exec({prepare!r}, names)
door.sendall(b"0\\n")
for order in orders:
    try:
        names["result"] = None
        exec(json.loads(order), names)
        answer = names["result"]
    except BaseException as error:
        answer = dict(raised=type(error).__name__, text=str(error))
    door.sendall(json.dumps(answer).encode() + b"\\n")
"""
)


class Prisoner:
    """
    Runs code texts in a process of their own.

    Attributes:
        process: The process itself.
    """

    def __init__(self, prepare: str = CONFINE, *, fds: tuple[int, ...] = ()) -> None:
        ours, theirs = socket.socketpair()
        text = _BOOTSTRAP.format(fd=theirs.fileno(), prepare=prepare).encode().hex()
        self.process = spawn(
            "code",
            fds=(theirs.fileno(), *fds),
            stdin=subprocess.PIPE,
        )
        assert self.process.stdin is not None
        self.process.stdin.write(f"exec(bytes.fromhex('{text}'))\n".encode())
        self.process.stdin.flush()
        theirs.close()
        ours.settimeout(60)
        self._door = ours
        self._answers = ours.makefile("rb")
        assert self._answers.readline() == b"0\n", "the prisoner did not start"

    def run(self, code: str, **names: object) -> Any:  # noqa: ANN401 -- its JSON
        """Return what *code* leaves in ``result``; fail if it raises."""
        answer = self.attempt(code, **names)
        if isinstance(answer, dict) and "raised" in answer:
            raise AssertionError(answer)
        return answer

    def attempt(self, code: str, **names: object) -> Any:  # noqa: ANN401 -- its JSON
        """Return what *code* leaves in ``result``, or what it raised."""
        text = "".join(f"{key} = {value!r}\n" for key, value in names.items()) + code
        self._door.sendall(json.dumps(text).encode() + b"\n")
        answer = self._answers.readline()
        assert answer, f"the prisoner died: {self.process.wait(10)}"
        return json.loads(answer)

    def order(self, code: str) -> None:
        """Let it run *code* that may end it."""
        self._door.sendall(json.dumps(code).encode() + b"\n")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdin is not None
        self.process.stdin.close()
        self._answers.close()
        self._door.close()
