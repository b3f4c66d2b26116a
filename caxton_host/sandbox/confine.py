"""
Confinement: a process permanently gives up every resource a guest must not have.

`spawn` starts a fresh interpreter with an empty environment. It opens what it needs,
imports what it needs, and then calls `confine`: from then on it has its memory, its
processor time and the files that are open, and can get no more. Each guard works
without privileges. A guard that the kernel lacks is left out and reported by `guards`;
only Linux has more than the resource limits.

What no longer works in a confined process: importing, ``open``, ``poll`` (the kernel
counts its entries against the limit of open files, so a socket with a timeout fails;
a blocking one, ``select`` and ``epoll`` are fine), ``sendmsg`` and ``recvmsg``.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import IO, TypeAlias

from . import kernel
from .kernel import DENY, RETURN, drop_capabilities, limit, prctl, restrict_names

# -- seccomp -------------------------------------------------------------------
#
# An allow list of system calls: what Python threads, wasmtime and one open socket need.
# All others fail with EPERM, a call in the convention of another processor kills.

#: Allowed with any arguments. Numbers on x86_64 and aarch64; -1: no such call.
# See arch/x86/entry/syscalls/syscall_64.tbl and include/uapi/asm-generic/unistd.h.
_ALLOWED = {
    "futex": (202, 98),
    "read": (0, 63),
    "write": (1, 64),
    "recvfrom": (45, 207),
    "clock_gettime": (228, 113),
    "readv": (19, 65),
    "writev": (20, 66),
    "epoll_wait": (232, -1),
    "epoll_pwait": (281, 22),
    "mmap": (9, 222),
    "munmap": (11, 215),
    "mprotect": (10, 226),
    "mremap": (25, 216),
    "madvise": (28, 233),
    "brk": (12, 214),
    "membarrier": (324, 283),
    "close": (3, 57),
    "shutdown": (48, 210),
    "fstat": (5, 80),
    "poll": (7, -1),
    "ppoll": (271, 73),
    "select": (23, -1),
    "pselect6": (270, 72),
    "epoll_ctl": (233, 21),
    "rt_sigaction": (13, 134),
    "rt_sigprocmask": (14, 135),
    "rt_sigreturn": (15, 139),
    "sigaltstack": (131, 132),
    "restart_syscall": (219, 128),
    "exit": (60, 93),
    "exit_group": (231, 94),
    "set_robust_list": (273, 99),
    "set_tid_address": (218, 96),
    "rseq": (334, 293),
    "sched_yield": (24, 124),
    "sched_getaffinity": (204, 123),
    "getcpu": (309, 168),
    "nanosleep": (35, 101),
    "clock_nanosleep": (230, 115),
    "clock_getres": (229, 114),
    "gettimeofday": (96, 169),
    "time": (201, -1),
    "getrandom": (318, 278),
    "getrusage": (98, 165),
    "getpid": (39, 172),
    "gettid": (186, 178),
    "getppid": (110, 173),
    "getuid": (102, 174),
    "geteuid": (107, 175),
    "getgid": (104, 176),
    "getegid": (108, 177),
}

_SENDTO = (44, 206)
_CLONE = (56, 220)
_FCNTL = (72, 25)
_IOCTL = (16, 29)
_PRCTL = (157, 167)
_MEMFD_CREATE = (319, 279)
_TGKILL = (234, 131)
_OPEN = (2, -1)
_OPENAT = (257, 56)
_SECCOMP = (317, 277)

#: What glibc and musl pass to make a thread: all memory, files and signals shared.
_THREAD = 0x3D0F00
_NOT_DETACHED = 0xFFFFFFFF & ~0x400000
_FIONBIO = 0x5421
_SET_NAME = 15
_GETFD_SETFD_GETFL_SETFL = (1, 2, 3, 4)
_CLOEXEC_ALLOW_SEALING = 3
_ADD_SEALS = 1033
#: O_RDONLY and O_CLOEXEC, as glibc and musl pass them.
_TO_READ = (0x80000, 0x88000)


@dataclass(frozen=True, slots=True)
class _Only:
    """
    A call that is allowed with some arguments.

    Attributes:
        numbers: As above.

        word: Half of an argument: 2 is the lower half of the second.

        values: Its allowed values.

        mask: The bits that are compared.
    """

    numbers: tuple[int, int]
    word: int
    values: tuple[int, ...]
    mask: int = 0xFFFFFFFF


def _conditions(*, images: bool, opening: bool) -> tuple[_Only, ...]:
    # Reading files, where Landlock allows it, and another filter on top of this one.
    opens = (
        _Only(_OPEN, 2, _TO_READ),
        _Only(_OPENAT, 4, _TO_READ),
        _Only(_SECCOMP, 0, (kernel.SET_FILTER,)),
    )
    seals = (_ADD_SEALS,) if images else ()
    memory = (_Only(_MEMFD_CREATE, 2, (_CLOEXEC_ALLOW_SEALING,)),) if images else ()
    return (
        # Given an address, a datagram socket can send to any peer.
        _Only(_SENDTO, 8, (0,)),
        _Only(_SENDTO, 9, (0,)),
        _Only(_CLONE, 0, (_THREAD,), _NOT_DETACHED),
        # F_SETOWN and F_SETSIG would send any signal to any process of the user.
        _Only(_FCNTL, 2, (*_GETFD_SETFD_GETFL_SETFL, *seals)),
        _Only(_IOCTL, 2, (_FIONBIO,)),
        _Only(_PRCTL, 0, (_SET_NAME,)),
        _Only(_TGKILL, 0, (os.getpid(),)),
        *memory,
        *(opens if opening else ()),
    )


def filter_program(
    machine: str, *, images: bool = False, opening: bool = False
) -> bytes:
    """Return the filter for this process, in classic BPF; see `confine`."""
    column = kernel.MACHINES.index(machine)
    code = kernel.prologue(machine)
    for numbers in _ALLOWED.values():
        if numbers[column] >= 0:
            code += kernel.allowing(numbers[column])
    conditions = _conditions(images=images, opening=opening)
    for numbers, group in groupby(conditions, key=lambda only: only.numbers):
        if numbers[column] >= 0:
            checks = [(only.word, only.mask, only.values) for only in group]
            code += kernel.allowing(numbers[column], *checks)
    code.append((RETURN, 0, 0, DENY))
    return kernel.assembled(code)


def filter_calls(*, images: bool = False, opening: bool = False) -> bool:
    """Filter the calls of every thread of this process. Needs no-new-privs."""
    if kernel.AUDIT_ARCH is None:
        return False
    return kernel.install_filter(
        filter_program(kernel.MACHINE, images=images, opening=opening)
    )


# -- all guards of a process ---------------------------------------------------

#: For the child that `guards` confines.
_PROBE_TIMEOUT_S = 60

#: Open descriptors of a process with images, three of which are taken at the start,
#: and the size of one image in bytes.
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
    "data": "Linux 4.7 or newer",
    "cpu": "a system with RLIMIT_CPU",
    "seccomp": "Linux on x86_64 or aarch64, with CONFIG_SECCOMP_FILTER",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    """
    One restriction on a confined process.

    Attributes:
        name: As `confine` returns it.

        available: Whether this machine has it.

        why: What the machine lacks, or empty.
    """

    name: str
    available: bool
    why: str


def confine(
    *,
    address_space: int | None = None,
    data: int | None = None,
    cpu: int | None = None,
    images: bool = False,
    load: Callable[[], object] | None = None,
) -> list[str]:
    """
    Confine this process permanently. Call it before any thread is started.

    Args:
        address_space: How much it may map, in bytes, with what it has already.

        data: How much of that it may write, images and files aside.

        cpu: How many seconds of processor time it may use, with what it has used.

        images: Whether it may create anonymous files in memory (memfd): at most
            `IMAGES`, of `IMAGE_SIZE` bytes. wasmtime shares the initial contents of a
            guest's memory that way. They cannot be executed, or sent anywhere.

        load: Called when all guards are in force, except that `seccomp` still allows
            to open files to read; `landlock` leaves only those without a name. Needs
            *images*: other processes may open no file at all.

    Returns:
        The guards in force. A guard that the kernel lacks is left out, and so is one
        that does not hold for a thread that already runs.
    """
    alone = _is_alone()
    files, size = (IMAGES, IMAGE_SIZE) if images else (0, 0)
    steps: dict[str, Callable[[], bool]] = {
        "no-new-privs": lambda: prctl(kernel.PR_SET_NO_NEW_PRIVS, 1),
        "landlock": lambda: restrict_names() and alone,
        "capabilities": lambda: drop_capabilities() and alone,
        "non-dumpable": lambda: prctl(kernel.PR_SET_DUMPABLE, 0),
        "no-core": lambda: limit(resource.RLIMIT_CORE, 0),
        ("few-files" if images else "no-files"): lambda: limit(
            resource.RLIMIT_NOFILE, files
        ),
        "file-size": lambda: limit(resource.RLIMIT_FSIZE, size),
    }
    if address_space is not None:
        # macOS takes this limit and does not keep it.
        steps["address-space"] = lambda: (
            limit(resource.RLIMIT_AS, address_space) and kernel.LINUX
        )
    if data is not None:
        steps["data"] = lambda: limit(resource.RLIMIT_DATA, data) and kernel.LINUX
    if cpu is not None:
        # SIGXCPU at the soft limit names the reason; SIGKILL at the hard one ends it.
        steps["cpu"] = lambda: limit(resource.RLIMIT_CPU, cpu, cpu + 1)
    steps["seccomp"] = lambda: filter_calls(images=images, opening=bool(load))
    found = [name for name, step in steps.items() if step()]
    if load:
        load()
        filter_calls(images=images)
    return found


def guards() -> list[Guard]:
    """Return the guards of this machine, found by confining a child process."""
    with spawn(__name__, stdout=subprocess.PIPE) as child:
        try:
            out, _ = child.communicate(timeout=_PROBE_TIMEOUT_S)
            found = json.loads(out)
        except (subprocess.TimeoutExpired, ValueError):
            child.kill()
            found = []
    return [
        Guard(name=name, available=name in found, why="" if name in found else needs)
        for name, needs in _NEEDS.items()
    ]


def confines_servers() -> bool:
    """Return whether this machine can confine tool servers."""
    return bool(kernel.landlock_version()) and kernel.AUDIT_ARCH is not None


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
    """Return the command that runs *module* in an isolated interpreter."""
    return [sys.executable, "-I", "-m", module, *args]


def die_with_parent(parent: int) -> None:
    """
    End this process when the thread that started it ends, however it ends.

    Args:
        parent: The process id of the parent, as the parent gave it: it may have
            ended before this call.
    """
    prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def harden_host() -> None:
    """Keep other processes of this user, and core dumps, from the host's memory."""
    prctl(kernel.PR_SET_DUMPABLE, 0)
    limit(resource.RLIMIT_CORE, 0)


def _is_alone() -> bool:
    """Return whether this is the only thread, those of libraries included."""
    try:
        return sum(1 for _ in Path("/proc/self/task").iterdir()) == 1
    except OSError:
        return threading.active_count() == 1


if __name__ == "__main__":
    sys.stdout.write(json.dumps(confine(address_space=1 << 40, data=1 << 40, cpu=3600)))
