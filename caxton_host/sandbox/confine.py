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

import ctypes
import errno
import json
import os
import platform
import resource
import signal
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import IO, TypeAlias

# -- system calls that Python does not offer -----------------------------------
#
# On x86_64 and aarch64. Elsewhere each of them fails, and its guard is not in force.

#: The kernel's numbers of processors in a system call filter.
AUDIT = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
MACHINES = tuple(AUDIT)

LINUX = sys.platform == "linux"
_64_BIT = sys.maxsize > 1 << 32

#: This processor, or ``None`` where the numbers of system calls are unknown.
AUDIT_ARCH = AUDIT.get(platform.machine()) if LINUX and _64_BIT else None

_NUMBERS = {
    "capset": (126, 91),
    "landlock_create_ruleset": (444, 444),
    "landlock_restrict_self": (446, 446),
    "seccomp": (317, 277),
}

_libc = ctypes.CDLL(None, use_errno=True)


def syscall(name: str, *args: object) -> int:
    """Make a system call that glibc does not wrap. Returns -1 if it fails."""
    if AUDIT_ARCH is None:
        return -1
    wide = [ctypes.c_long(arg) if isinstance(arg, int) else arg for arg in args]
    at = _NUMBERS[name][MACHINES.index(platform.machine())]
    return int(_libc.syscall(ctypes.c_long(at), *wide))


def prctl(option: int, *args: int) -> bool:
    """Set an attribute of the process; return whether that succeeded."""
    if not LINUX:
        return False
    rest = [ctypes.c_ulong(arg) for arg in (*args, 0, 0, 0, 0)[:4]]
    return int(_libc.prctl(option, *rest)) == 0


# -- Landlock ------------------------------------------------------------------
#
# Access to files, network addresses and outside processes by name. The kernel is asked
# for every right it knows, and no exception is granted. What is open already stays
# open. See https://docs.kernel.org/userspace-api/landlock.html.


class _Rights(ctypes.Structure):
    _fields_ = (
        ("files", ctypes.c_uint64),
        ("network", ctypes.c_uint64),
        ("scopes", ctypes.c_uint64),
    )


def restrict_names() -> bool:
    """
    Drop every right of the calling thread that this kernel can restrict.

    Threads that it starts later inherit this; those that run already do not.
    Needs no-new-privs, and one free file descriptor.
    """
    attributes = _Rights()
    for field in ("files", "network", "scopes"):
        _claim_all(attributes, field)
    ruleset = _create_ruleset(attributes)
    if ruleset < 0:
        return False
    try:
        return syscall("landlock_restrict_self", ruleset, 0) == 0
    finally:
        os.close(ruleset)


def _claim_all(attributes: _Rights, field: str) -> None:
    """Set every bit of *field* that the kernel knows; it refuses unknown ones."""
    for bits in range(32, -1, -1):
        setattr(attributes, field, (1 << bits) - 1)
        ruleset = _create_ruleset(attributes)
        if ruleset >= 0:
            os.close(ruleset)
            return


def _create_ruleset(attributes: _Rights) -> int:
    return syscall(
        "landlock_create_ruleset",
        ctypes.byref(attributes),
        ctypes.sizeof(attributes),
        0,
    )


# -- seccomp -------------------------------------------------------------------
#
# An allow list of system calls: what Python threads, wasmtime and one open socket need.
# All others fail with EPERM, a call in the convention of another processor kills.
# ``clone3`` hides its flags from a filter, so it does not exist; glibc falls back to
# ``clone``. See https://docs.kernel.org/userspace-api/seccomp_filter.html.

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
_CLONE3 = (435, 435)
_FCNTL = (72, 25)
_IOCTL = (16, 29)
_PRCTL = (157, 167)
_MEMFD_CREATE = (319, 279)
_TGKILL = (234, 131)
_OPEN = (2, -1)
_OPENAT = (257, 56)
_SECCOMP = (317, 277)

_ALLOW = 0x7FFF0000
_DENY = 0x00050000 | errno.EPERM
_NO_SUCH_CALL = 0x00050000 | errno.ENOSYS
_KILL = 0x80000000

_LOAD, _AND, _IF_EQUAL, _RETURN = 0x20, 0x54, 0x15, 0x06
_AT_NUMBER, _AT_ARCH, _AT_ARGUMENTS = 0, 4, 16

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

_SET_FILTER, _ALL_THREADS = 1, 1


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
        _Only(_SECCOMP, 0, (_SET_FILTER,)),
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
    column = MACHINES.index(machine)
    code = [
        (_LOAD, 0, 0, _AT_ARCH),
        (_IF_EQUAL, 1, 0, AUDIT[machine]),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _AT_NUMBER),
        (_IF_EQUAL, 0, 1, _CLONE3[column]),
        (_RETURN, 0, 0, _NO_SUCH_CALL),
    ]
    for numbers in _ALLOWED.values():
        if numbers[column] >= 0:
            code += [(_IF_EQUAL, 0, 1, numbers[column]), (_RETURN, 0, 0, _ALLOW)]
    conditions = _conditions(images=images, opening=opening)
    for numbers, group in groupby(conditions, key=lambda only: only.numbers):
        if numbers[column] < 0:
            continue
        block = [instruction for only in group for instruction in _compare(only)]
        block.append((_RETURN, 0, 0, _ALLOW))
        code += [(_IF_EQUAL, 0, len(block), numbers[column]), *block]
    code.append((_RETURN, 0, 0, _DENY))
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in code)


def _compare(only: _Only) -> list[tuple[int, int, int, int]]:
    """Return instructions that deny the call unless the word has an allowed value."""
    count = len(only.values)
    return [
        (_LOAD, 0, 0, _AT_ARGUMENTS + 4 * only.word),
        (_AND, 0, 0, only.mask),
        *((_IF_EQUAL, count - at, 0, value) for at, value in enumerate(only.values)),
        (_RETURN, 0, 0, _DENY),
    ]


class _FilterProgram(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.c_char_p))


def filter_calls(*, images: bool = False, opening: bool = False) -> bool:
    """Filter the calls of every thread of this process. Needs no-new-privs."""
    if AUDIT_ARCH is None:
        return False
    code = filter_program(platform.machine(), images=images, opening=opening)
    fprog = _FilterProgram(len(code) // 8, code)
    return syscall("seccomp", _SET_FILTER, _ALL_THREADS, ctypes.byref(fprog)) == 0


# -- all guards of a process ---------------------------------------------------

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_SET_NO_NEW_PRIVS = 38
_CAPABILITY_VERSION_3 = 0x20080522
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
        "no-new-privs": lambda: prctl(_PR_SET_NO_NEW_PRIVS, 1),
        "landlock": lambda: restrict_names() and alone,
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
    if data is not None:
        steps["data"] = lambda: _limit(resource.RLIMIT_DATA, data) and LINUX
    if cpu is not None:
        # SIGXCPU at the soft limit names the reason; SIGKILL at the hard one ends it.
        steps["cpu"] = lambda: _limit(resource.RLIMIT_CPU, cpu, cpu + 1)
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
    sys.stdout.write(json.dumps(confine(address_space=1 << 40, data=1 << 40, cpu=3600)))
