"""
Landlock: no file, no network address, no process outside may be reached by name.

The kernel is asked for every right it knows, and no exception is granted. What is
open already stays open. See https://docs.kernel.org/userspace-api/landlock.html.
"""

from __future__ import annotations

import ctypes
import os

from .linux import syscall

_QUERY_VERSION = 1


class _Attributes(ctypes.Structure):
    _fields_ = (
        ("files", ctypes.c_uint64),
        ("network", ctypes.c_uint64),
        ("scopes", ctypes.c_uint64),
    )


def version() -> int:
    """Return the version of Landlock in this kernel, or 0."""
    return max(
        0,
        syscall("landlock_create_ruleset", None, 0, _QUERY_VERSION),
    )


def restrict() -> bool:
    """
    Take every right that this kernel can take from the calling thread.

    Threads that it starts later inherit this; those that run already do not.
    Needs no-new-privs, and one free file descriptor.
    """
    attributes = _Attributes()
    for field in ("files", "network", "scopes"):
        _claim_all(attributes, field)
    ruleset = _create(attributes)
    if ruleset < 0:
        return False
    try:
        return syscall("landlock_restrict_self", ruleset, 0) == 0
    finally:
        os.close(ruleset)


def _claim_all(attributes: _Attributes, field: str) -> None:
    """Set every bit of *field* that the kernel knows: it refuses one too many."""
    for bits in range(32, -1, -1):
        setattr(attributes, field, (1 << bits) - 1)
        ruleset = _create(attributes)
        if ruleset >= 0:
            os.close(ruleset)
            return


def _create(attributes: _Attributes) -> int:
    return syscall(
        "landlock_create_ruleset",
        ctypes.byref(attributes),
        ctypes.sizeof(attributes),
        0,
    )
