"""Description of the machine that figures were measured on."""

from __future__ import annotations

import os
import platform
import sys
from importlib.metadata import version
from pathlib import Path

_IN_MEMORY = {"tmpfs", "ramfs"}


def file_system(folder: Path) -> str:
    """Return the kind of file system that *folder* is on."""
    best = ("", "unknown")
    for line in Path("/proc/mounts").read_text("utf-8").splitlines():
        _, mount, kind, *_ = line.split()
        inside = folder == Path(mount) or Path(mount) in folder.parents
        if inside and len(mount) >= len(best[0]):
            best = mount, kind
    return best[1]


def refuse_memory(folder: Path) -> str:
    """Return the file system of *folder*; exit if it is in memory."""
    kind = file_system(folder.resolve())
    if kind in _IN_MEMORY:
        sys.exit(
            f"Error: {folder} is on {kind}, which is not durable\n"
            "To fix: pass a folder on a disk with --folder"
        )
    return kind


def describe() -> str:
    """Return one line with the machine, its load and the versions."""
    load = ", ".join(f"{x:.1f}" for x in os.getloadavg())
    packages = ", ".join(
        f"{name} {version(name)}" for name in ("mcp", "wasmtime", "sqlalchemy")
    )
    return (
        f"{os.cpu_count()} cores, load {load}, {platform.system()} "
        f"{platform.release()}, Python {platform.python_version()}, {packages}"
    )
