"""
The system calls that a confined process may make: a list, and no other.

They are what Python threads, wasmtime and one open socket need. All others fail with
EPERM, a call in the convention of another processor kills. ``clone3`` hides its flags
from a filter, so it does not exist; glibc falls back to ``clone``.
See https://docs.kernel.org/userspace-api/seccomp_filter.html.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
from dataclasses import dataclass
from itertools import groupby

from .linux import AUDIT, AUDIT_ARCH, MACHINES, syscall

#: Allowed with any arguments. Numbers on x86_64 and aarch64; -1: there is none.
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

_SET_FILTER, _ALL_THREADS = 1, 1


@dataclass(frozen=True, slots=True)
class _Only:
    """
    A call that is allowed with some arguments.

    Attributes:
        numbers: As above.

        word: Which half of which argument: 2 is the lower half of the second.

        values: What it may be.

        mask: The bits that are looked at.
    """

    numbers: tuple[int, int]
    word: int
    values: tuple[int, ...]
    mask: int = 0xFFFFFFFF


def _conditions(*, images: bool) -> tuple[_Only, ...]:
    seals = (_ADD_SEALS,) if images else ()
    memory = (_Only(_MEMFD_CREATE, 2, (_CLOEXEC_ALLOW_SEALING,)),) if images else ()
    return (
        # With an address, a datagram socket reaches whom it likes.
        _Only(_SENDTO, 8, (0,)),
        _Only(_SENDTO, 9, (0,)),
        _Only(_CLONE, 0, (_THREAD,), _NOT_DETACHED),
        # F_SETOWN and F_SETSIG would send any signal to any process of the user.
        _Only(_FCNTL, 2, (*_GETFD_SETFD_GETFL_SETFL, *seals)),
        _Only(_IOCTL, 2, (_FIONBIO,)),
        _Only(_PRCTL, 0, (_SET_NAME,)),
        _Only(_TGKILL, 0, (os.getpid(),)),
        *memory,
    )


def program(machine: str, *, images: bool = False) -> bytes:
    """Return the filter for this process, in classic BPF; see `confine.confine`."""
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
    conditions = _conditions(images=images)
    for numbers, group in groupby(conditions, key=lambda only: only.numbers):
        block = [instruction for only in group for instruction in _compare(only)]
        block.append((_RETURN, 0, 0, _ALLOW))
        code += [(_IF_EQUAL, 0, len(block), numbers[column]), *block]
    code.append((_RETURN, 0, 0, _DENY))
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in code)


def _compare(only: _Only) -> list[tuple[int, int, int, int]]:
    """Go on behind these instructions if the word is right, else deny."""
    count = len(only.values)
    return [
        (_LOAD, 0, 0, _AT_ARGUMENTS + 4 * only.word),
        (_AND, 0, 0, only.mask),
        *((_IF_EQUAL, count - at, 0, value) for at, value in enumerate(only.values)),
        (_RETURN, 0, 0, _DENY),
    ]


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.c_char_p))


def restrict(*, images: bool = False) -> bool:
    """Filter the calls of every thread of this process. Needs no-new-privs."""
    if AUDIT_ARCH is None:
        return False
    code = program(platform.machine(), images=images)
    fprog = _Program(len(code) // 8, code)
    return syscall("seccomp", _SET_FILTER, _ALL_THREADS, ctypes.byref(fprog)) == 0
