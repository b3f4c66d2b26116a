"""
The system calls that Python does not offer.

On x86_64 and aarch64. Elsewhere each of them fails, and its guard is not in force.
"""

from __future__ import annotations

import ctypes
import platform
import sys

#: How the kernel names a processor to a system call filter.
AUDIT = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
MACHINES = tuple(AUDIT)

LINUX = sys.platform == "linux"
_64_BIT = sys.maxsize > 1 << 32

#: This processor, or ``None`` where we know no system call.
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
    """Set an attribute of the process, or say that it cannot be."""
    if not LINUX:
        return False
    rest = [ctypes.c_ulong(arg) for arg in (*args, 0, 0, 0, 0)[:4]]
    return int(_libc.prctl(option, *rest)) == 0
