"""
Execute a command under a `SystemCallFilter` of systemd: `python -m tests.filtered`.

Needs Debian's systemd, which knows the groups and brings libseccomp.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from collections.abc import Iterator

#: https://man7.org/linux/man-pages/man3/seccomp_init.3.html
_ALLOW, _EPERM = 0x7FFF0000, 0x00050001


def calls(words: list[str]) -> Iterator[str]:
    """Yield the names of the calls that groups and names permit."""
    for word in words:
        if not word.startswith("@"):
            yield word
            continue
        shown = subprocess.check_output(
            ["systemd-analyze", "syscall-filter", word], text=True
        )
        found = [line.strip() for line in shown.splitlines()[1:]]
        names = [line for line in found if line and line[0] != "#"]
        yield from (name for name in names if name[0] != "@")
        yield from calls([name for name in names if name[0] == "@"])


def restrict(words: str) -> None:
    """Filter the calls of this process."""
    lib = ctypes.CDLL("libseccomp.so.2")
    lib.seccomp_init.restype = ctypes.c_void_p
    rules = ctypes.c_void_p(lib.seccomp_init(_EPERM))
    for name in {*calls(["@default", *words.split()])}:
        number = lib.seccomp_syscall_resolve_name(name.encode())
        if number >= 0:
            assert lib.seccomp_rule_add(rules, _ALLOW, number, 0) == 0, name
    assert lib.seccomp_load(rules) == 0


if __name__ == "__main__":
    restrict(sys.argv[1])
    os.execvp(sys.argv[2], sys.argv[2:])  # noqa: S606 -- that is what it is for
