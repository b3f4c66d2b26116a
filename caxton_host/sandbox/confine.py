"""
Confinement: a process gives up, for good, all that a guest must not have.

`spawn` starts a fresh interpreter with an empty environment. It opens what it needs,
imports what it needs, and then calls `confine`: from there on it has its memory, its
processor time and the files that are open, and can get no others. Each guard works
without privileges. What the kernel lacks is left out and reported, on Linux by
`guards`; elsewhere only the resource limits exist.

What no longer works in a confined process: importing, ``open``, ``poll`` (the kernel
counts its entries against the limit of open files, so a socket with a timeout fails;
a blocking one, ``select`` and ``epoll`` are fine), ``sendmsg`` and ``recvmsg``.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TypeAlias

from . import landlock, seccomp
from .linux import LINUX, prctl, syscall

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_SET_NO_NEW_PRIVS = 38
_CAPABILITY_VERSION_3 = 0x20080522
_PROBE_TIMEOUT = 60

#: Descriptors, three of which are taken, and the most bytes of one file.
IMAGES = 16
IMAGE_SIZE = 128 * 1024 * 1024

_File: TypeAlias = int | IO[bytes]

_NEEDS = {
    "no-new-privs": "Linux 3.5 or newer",
    "landlock": "Linux 5.13 or newer, with landlock in /sys/kernel/security/lsm",
    "capabilities": "Linux on x86_64 or aarch64",
    "non-dumpable": "Linux",
    "no-core": "a system with RLIMIT_CORE",
    "no-files": "a system with RLIMIT_NOFILE",
    "file-size": "a system with RLIMIT_FSIZE",
    "address-space": "Linux",
    "cpu": "a system with RLIMIT_CPU",
    "seccomp": "Linux on x86_64 or aarch64, with CONFIG_SECCOMP_FILTER",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    """
    One thing that keeps a confined process in.

    Attributes:
        name: As `confine` returns it.

        available: Whether this machine has it.

        why: What is missing, or empty.
    """

    name: str
    available: bool
    why: str


def confine(
    *, address_space: int | None = None, cpu: int | None = None, images: bool = False
) -> list[str]:
    """
    Confine this process, for good. Call it before any thread is started.

    Args:
        address_space: How much it may map, in bytes, with what it has already.

        cpu: How many seconds of processor time it may use, with what it has used.

        images: Whether it may make files that have no name and are in memory: a few
            of them, and none too large. wasmtime shares the first contents of a
            guest's memory that way. They cannot be executed, or sent anywhere.

    Returns:
        The guards in force. One that the kernel lacks is left out, and so is one
        that does not hold for a thread that runs already.
    """
    alone = _is_alone()
    files, size = (IMAGES, IMAGE_SIZE) if images else (0, 0)
    steps: dict[str, Callable[[], bool]] = {
        "no-new-privs": lambda: prctl(_PR_SET_NO_NEW_PRIVS, 1),
        "landlock": lambda: landlock.restrict() and alone,
        "capabilities": lambda: _drop_capabilities() and alone,
        "non-dumpable": lambda: prctl(_PR_SET_DUMPABLE, 0),
        "no-core": lambda: _limit(resource.RLIMIT_CORE, 0),
        ("few-files" if images else "no-files"): lambda: _limit(
            resource.RLIMIT_NOFILE, files
        ),
        "file-size": lambda: _limit(resource.RLIMIT_FSIZE, size),
    }
    if address_space is not None:
        # macOS takes this limit and does not keep it.
        steps["address-space"] = lambda: (
            _limit(resource.RLIMIT_AS, address_space) and LINUX
        )
    if cpu is not None:
        # The first limit ends it with a signal of its own, the second in any case.
        steps["cpu"] = lambda: _limit(resource.RLIMIT_CPU, cpu, cpu + 1)
    steps["seccomp"] = lambda: seccomp.restrict(images=images)
    return [name for name, step in steps.items() if step()]


def guards() -> list[Guard]:
    """Return which guards this machine has, by confining a child."""
    with spawn(__name__, stdout=subprocess.PIPE) as child:
        try:
            out, _ = child.communicate(timeout=_PROBE_TIMEOUT)
            found = json.loads(out)
        except (subprocess.TimeoutExpired, ValueError):
            child.kill()
            found = []
    return [
        Guard(name=name, available=name in found, why="" if name in found else needs)
        for name, needs in _NEEDS.items()
    ]


def spawn(
    module: str,
    *args: str,
    fds: Collection[int] = (),
    stdin: _File = subprocess.DEVNULL,
    stdout: _File = subprocess.DEVNULL,
    stderr: _File = subprocess.DEVNULL,
) -> subprocess.Popen[bytes]:
    """
    Start *module* in a fresh interpreter that inherits nothing but *fds*.

    Call it from the main thread: a child that asked to die with its parent dies
    with the thread that started it.
    """
    return subprocess.Popen(  # noqa: S603 -- our own interpreter and module
        command(module, *args),
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        pass_fds=tuple(fds),
        env={},
        cwd="/",
        start_new_session=True,
    )


def command(module: str, *args: str) -> list[str]:
    """Return what runs *module* in an interpreter that ignores its surroundings."""
    return [sys.executable, "-I", "-m", module, *args]


def die_with_parent(parent: int) -> None:
    """
    End this process when the thread that started it ends, however it ends.

    Args:
        parent: The process id of the parent, as the parent gave it: it may have
            ended before this call.
    """
    prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def harden_host() -> None:
    """Keep other processes of this user, and core dumps, from the host's memory."""
    prctl(_PR_SET_DUMPABLE, 0)
    _limit(resource.RLIMIT_CORE, 0)


def _is_alone() -> bool:
    """Return whether this is the only thread, those of libraries included."""
    try:
        return sum(1 for _ in Path("/proc/self/task").iterdir()) == 1
    except OSError:
        return threading.active_count() == 1


def _limit(kind: int, soft: int, hard: int | None = None) -> bool:
    _, allowed = resource.getrlimit(kind)
    unlimited = allowed == resource.RLIM_INFINITY
    wanted = [
        value if unlimited else min(value, allowed)
        for value in (soft, soft if hard is None else hard)
    ]
    try:
        resource.setrlimit(kind, (wanted[0], wanted[1]))
    except (OSError, ValueError):
        return False
    return True


def _drop_capabilities() -> bool:
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    return syscall("capset", header, (ctypes.c_uint32 * 6)()) == 0


if __name__ == "__main__":
    sys.stdout.write(json.dumps(confine(address_space=1 << 40, cpu=3600)))
