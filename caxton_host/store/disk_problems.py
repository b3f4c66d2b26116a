"""What around a file keeps this user from writing it: its disk, or its owner."""

from __future__ import annotations

import os
import pwd
import re
from pathlib import Path

_MOUNTS = Path("/proc/self/mountinfo")
_FIELDS = 6
#: Bytes: less than the files beside a database begin with.
_ROOM = 1 << 16


def nearest(path: Path) -> Path:
    """Return the folder of *path*, or the one above it that is there."""
    return next(parent for parent in path.absolute().parents if parent.exists())


def is_full(folder: Path) -> bool:
    """Return whether nothing more fits on the disk of *folder*."""
    found = os.statvfs(folder)
    if found.f_flag & os.ST_RDONLY:
        return False
    has_no_names = bool(found.f_files) and not found.f_favail
    return found.f_bavail * found.f_frsize < _ROOM or has_no_names


def unwritable(path: Path) -> tuple[str, str]:
    """Return what keeps this user from writing *path*, and what mends that."""
    folder = nearest(path)
    if os.statvfs(folder).f_flag & os.ST_RDONLY:
        elsewhere = "name a file elsewhere with --db"
        if mount := mount_of(folder.resolve()):
            why = f", since {mount} is mounted read-only"
            return why, f"mount -o remount,rw {mount}; or {elsewhere}"
        return f", since the disk of {folder} is mounted read-only", elsewhere
    for target in (path, folder):
        if target.exists() and not os.access(target, os.W_OK):
            return f", since this user may not write {target}", _allow(target)
    return "", ""


def mount_of(folder: Path, mounts: Path = _MOUNTS) -> str | None:
    """
    Return where the disk of *folder* is mounted, if that is known and read-only.

    Args:
        folder: Without links.

        mounts: In the format of ``/proc/self/mountinfo``.
    """
    try:
        lines = mounts.read_text("utf-8", errors="replace").splitlines()
    except OSError:
        return None
    best, is_read_only = "", False
    for line in lines:
        # 36 35 98:0 /root /mount\040point ro,noatime shared:1 - ext4 /dev/root rw
        fields = line.split(" ")
        if len(fields) <= _FIELDS:
            continue
        point = re.sub(r"\\([0-7]{3})", lambda m: chr(int(m[1], 8)), fields[4])
        # What is mounted later on the same folder hides what was there.
        if folder.is_relative_to(point) and len(point) >= len(best):
            best = point
            is_read_only = "ro" in {*fields[5].split(","), *fields[-1].split(",")}
    return best if is_read_only else None


def _allow(target: Path) -> str:
    owner = target.stat().st_uid
    if owner == os.geteuid():
        return f"chmod u+w {target}"
    try:
        name = pwd.getpwuid(owner).pw_name
    except KeyError:
        name = str(owner)
    return f"do this as its owner, {name}; or name another file with --db"
