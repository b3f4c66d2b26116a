"""
System calls that Python does not offer: Landlock, seccomp, namespaces, attributes.

Shared by the workers, which give up everything, and by the launcher of tool servers,
which keeps what their configuration grants. Imports little: a launcher starts with
every server.
"""

from __future__ import annotations

import ctypes
import errno
import os
import resource
import stat
import struct
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import TypeAlias

    #: A filter: code, jump if true, jump if false, value.
    Code: TypeAlias = list[tuple[int, int, int, int]]

# -- calls by number -------------------------------------------------------------------
#
# On x86_64 and aarch64. Elsewhere each of them fails, and its guard is not in force.

MACHINE = os.uname().machine
#: The kernel's numbers of processors in a system call filter.
AUDIT = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
MACHINES = tuple(AUDIT)

LINUX = sys.platform == "linux"
_64_BIT = sys.maxsize > 1 << 32

#: This processor, or ``None`` where the numbers of system calls are unknown.
AUDIT_ARCH = AUDIT.get(MACHINE) if LINUX and _64_BIT else None

_NUMBERS = {
    "capset": (126, 91),
    "landlock_add_rule": (445, 445),
    "landlock_create_ruleset": (444, 444),
    "landlock_restrict_self": (446, 446),
    "mount_setattr": (442, 442),
    "seccomp": (317, 277),
    "unshare": (272, 97),
}

_libc = ctypes.CDLL(None, use_errno=True)


def syscall(name: str, *args: object) -> int:
    """Make a system call that glibc does not wrap. Returns -1 if it fails."""
    if AUDIT_ARCH is None:
        return -1
    wide = [ctypes.c_long(arg) if isinstance(arg, int) else arg for arg in args]
    at = _NUMBERS[name][MACHINES.index(MACHINE)]
    return int(_libc.syscall(ctypes.c_long(at), *wide))


def _failed(what: str) -> OSError:
    number = ctypes.get_errno() or errno.ENOSYS
    return OSError(number, os.strerror(number), what)


# -- attributes of the process ---------------------------------------------------------

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38
_CAPABILITY_VERSION_3 = 0x20080522


def prctl(option: int, *args: int) -> bool:
    """Set an attribute of the process; return whether that succeeded."""
    if not LINUX:
        return False
    rest = [ctypes.c_ulong(arg) for arg in (*args, 0, 0, 0, 0)[:4]]
    return int(_libc.prctl(option, *rest)) == 0


def limit(kind: int, soft: int, hard: int | None = None) -> bool:
    """Lower a resource limit; return whether that succeeded."""
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


def drop_capabilities() -> bool:
    """Drop every capability of the calling thread."""
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    return syscall("capset", header, (ctypes.c_uint32 * 6)()) == 0


# -- namespaces ------------------------------------------------------------------------

NEW_MOUNTS, NEW_IPC, NEW_USERS = 0x20000, 0x8000000, 0x10000000
NEW_PROCESSES = 0x20000000
NOSUID, NODEV, NOEXEC = 2, 4, 8
_RECURSIVE_PRIVATE = 0x44000


def unshare(flags: int) -> None:
    """
    Give the calling process namespaces of its own, or its children if of processes.

    An ordinary user gets one of users too, in which user and group are the same.

    Raises:
        OSError: The kernel, or a policy of the machine, does not allow it.
    """
    if syscall("unshare", flags) == 0:
        return
    uid, gid = os.geteuid(), os.getegid()
    if syscall("unshare", flags | NEW_USERS) != 0:
        raise _failed("unshare")
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", f"{uid} {uid} 1"),
        ("gid_map", f"{gid} {gid} 1"),
    ):
        with open(f"/proc/self/{name}", "w") as file:  # noqa: PTH123 -- no import
            file.write(text)


def succeeds(attempt: Callable[[], object]) -> bool:
    """Return whether *attempt* succeeds in a child process of its own."""
    if child := os.fork():
        return os.waitpid(child, 0)[1] == 0
    try:
        os._exit(attempt() is False)
    except OSError:
        os._exit(1)


def unshare_mounts() -> bool:
    """Give the calling process mounts of its own, which nobody else sees."""
    return (
        syscall("unshare", NEW_MOUNTS) == 0
        and _libc.mount(None, b"/", None, _RECURSIVE_PRIVATE, None) == 0
    )


def mount(kind: str, where: str, flags: int, options: str) -> bool:
    """Mount a file system without a device; return whether that succeeded."""
    named, bits = kind.encode(), ctypes.c_ulong(flags)
    done = _libc.mount(named, where.encode(), named, bits, options.encode())
    return int(done) == 0


_AT_FDCWD, _AT_RECURSIVE = -100, 0x8000
_READ_ONLY, _BIND = 1, 0x1000


class _MountAttributes(ctypes.Structure):
    _fields_ = tuple(
        (name, ctypes.c_uint64) for name in ("set", "clear", "propagation", "users")
    )


def freeze_mounts(writable: Iterable[str]) -> bool:
    """
    Make all mounts read-only but what is at and below *writable*.

    Landlock does not cover ``chmod``, ``chown`` and the like. Needs own mounts.
    """
    paths = [path.encode() for path in writable]
    binds = (_libc.mount(path, path, None, _BIND, None) == 0 for path in paths)
    return (
        all(binds)
        and _change_mounts(b"/", _AT_RECURSIVE, _MountAttributes(set=_READ_ONLY))
        and all(
            _change_mounts(path, 0, _MountAttributes(clear=_READ_ONLY))
            for path in paths
        )
    )


def _change_mounts(path: bytes, flags: int, change: _MountAttributes) -> bool:
    size = ctypes.sizeof(change)
    at = ctypes.c_char_p(path), flags, ctypes.byref(change), size
    return syscall("mount_setattr", _AT_FDCWD, *at) == 0


# -- Landlock --------------------------------------------------------------------------
#
# Access to files, network addresses and outside processes by name. The kernel is asked
# for every right it knows; rights are granted by `Beneath` only. What is open already
# stays open. See https://docs.kernel.org/userspace-api/landlock.html.

# The rights of version 1, and two later ones.
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1, 2, 4, 8
_MAKE_DEVICES = 1 << 6 | 1 << 11
_ALL_OF_VERSION_5 = (1 << 16) - 1
_TRUNCATE, _IOCTL_DEV = 1 << 14, 1 << 15

#: Rights to what is at and below a path.
LIST = _READ_DIR
READ = _EXECUTE | _READ_FILE | _READ_DIR
USE = _READ_FILE | _WRITE_FILE
WRITE = _ALL_OF_VERSION_5 & ~_MAKE_DEVICES & ~_IOCTL_DEV

#: What a rule about anything but a folder may grant.
_OF_FILES = _EXECUTE | USE | _TRUNCATE
_RULE_BENEATH = 1


class _Rights(ctypes.Structure):
    _fields_ = (
        ("files", ctypes.c_uint64),
        ("network", ctypes.c_uint64),
        ("scopes", ctypes.c_uint64),
    )


class _Beneath(ctypes.Structure):
    _pack_ = 1
    _layout_ = "ms"
    _fields_ = (("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32))


def landlock_version() -> int:
    """Return the version of Landlock that is in force here, or 0."""
    return max(0, syscall("landlock_create_ruleset", None, 0, 1))


def restrict_names(
    granted: Iterable[tuple[str, int]] = (), *, network: bool = True
) -> bool:
    """
    Drop every right of the calling thread that this kernel can restrict.

    Threads that it starts later inherit this; those that run already do not.
    Needs no-new-privs, and three free file descriptors.

    Args:
        granted: Paths, and the rights that are kept at and below each.

        network: Whether those to TCP ports are dropped.

    Raises:
        OSError: A path cannot be opened, or has a link in it.
    """
    attributes = _Rights()
    for field in ("files", "network", "scopes") if network else ("files", "scopes"):
        _claim_all(attributes, field)
    ruleset = _create_ruleset(attributes)
    if ruleset < 0:
        return False
    try:
        for path, rights in granted:
            _grant(ruleset, path, rights & int(attributes.files))
        return syscall("landlock_restrict_self", ruleset, 0) == 0
    finally:
        os.close(ruleset)


def _grant(ruleset: int, path: str, rights: int) -> None:
    at = _reach(path)
    try:
        if not stat.S_ISDIR(os.fstat(at).st_mode):
            rights &= _OF_FILES
        rule = _Beneath(rights, at)
        where = ctypes.byref(rule)
        if syscall("landlock_add_rule", ruleset, _RULE_BENEATH, where, 0) != 0:
            raise _failed(path)
    finally:
        os.close(at)


def _reach(path: str) -> int:
    """Open an absolute path, but through no link: who is confined may have made it."""
    flags = os.O_PATH | os.O_CLOEXEC | os.O_NOFOLLOW
    at = os.open("/", flags)
    for name in filter(None, path.split("/")):
        above = at
        try:
            at = os.open(name, flags, dir_fd=above)
        except OSError as exc:
            raise OSError(exc.errno, exc.strerror, path) from None
        finally:
            os.close(above)
        if stat.S_ISLNK(os.fstat(at).st_mode):
            os.close(at)
            raise OSError(errno.ELOOP, f"{name} is a link now", path)
    return at


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


# -- seccomp ---------------------------------------------------------------------------
#
# ``clone3`` hides its flags from a filter, so it does not exist; libraries fall back to
# ``clone``. See https://docs.kernel.org/userspace-api/seccomp_filter.html.

CLONE3 = (435, 435)

ALLOW = 0x7FFF0000
DENY = 0x00050000 | errno.EPERM
NO_SUCH_CALL = 0x00050000 | errno.ENOSYS
KILL = 0x80000000

LOAD, AND, IF_AT_LEAST, IF_EQUAL, RETURN = 0x20, 0x54, 0x35, 0x15, 0x06
AT_NUMBER, AT_ARCH, AT_ARGUMENTS = 0, 4, 16

SET_FILTER, _ALL_THREADS = 1, 1


def prologue(machine: str) -> Code:
    """Return the beginning of a filter: other conventions kill, ``clone3`` is gone."""
    return [
        (LOAD, 0, 0, AT_ARCH),
        (IF_EQUAL, 1, 0, AUDIT[machine]),
        (RETURN, 0, 0, KILL),
        (LOAD, 0, 0, AT_NUMBER),
        (IF_EQUAL, 0, 1, CLONE3[MACHINES.index(machine)]),
        (RETURN, 0, 0, NO_SUCH_CALL),
    ]


def assembled(code: Code) -> bytes:
    """Return a filter as the kernel takes it."""
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in code)


def allowing(number: int, *checks: tuple[int, int, tuple[int, ...]]) -> Code:
    """
    Return instructions that allow a call if all its arguments pass, and else deny it.

    Args:
        number: Of the call.

        checks: Half of an argument (2 is the lower half of the second), the bits of it
            that are compared, and the allowed values.
    """
    block: Code = []
    for word, mask, values in checks:
        count = len(values)
        block += [
            (LOAD, 0, 0, AT_ARGUMENTS + 4 * word),
            (AND, 0, 0, mask),
            *((IF_EQUAL, count - at, 0, value) for at, value in enumerate(values)),
            (RETURN, 0, 0, DENY),
        ]
    block.append((RETURN, 0, 0, ALLOW))
    return [(IF_EQUAL, 0, len(block), number), *block]


class _FilterProgram(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.c_char_p))


def install_filter(code: bytes) -> bool:
    """Filter the calls of every thread of this process. Needs no-new-privs."""
    fprog = _FilterProgram(len(code) // 8, code)
    return syscall("seccomp", SET_FILTER, _ALL_THREADS, ctypes.byref(fprog)) == 0
