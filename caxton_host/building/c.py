"""C, by the compiler of Zig, which comes as a wheel: the same on every machine."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

from ..errors import UsageError
from .shipped import find_shared
from .tools import call

SOURCES: tuple[str, ...] = ("agent.c",)

# The order and the set of flags are part of what makes a build reproducible.
_FLAGS = (
    "--target=wasm32-freestanding",
    "-std=c17",
    "-Os",
    "-Wall",
    "-Wextra",
    "-nostdlib",
    "-Wl,--no-entry",
    "-Wl,--strip-all",
)


def compile(source: Path, module: Path, scratch: Path) -> None:
    """Compile *source* to *module*."""
    if find_spec("ziglang") is None:
        raise UsageError(
            "the C compiler is not installed", fix='pip install "caxton-host[c]"'
        )
    include = find_shared("agents/sdk/c")
    command = [sys.executable, "-I", "-m", "ziglang", "cc", *_FLAGS]
    command += ["-I", str(include), "-o", str(module), source.name]
    cache = str(scratch / "cache")
    call(
        command,
        folder=source.parent,
        failed=f"the compiler refused {source.name}",
        fix=f"change {source.name}; caxton.h documents what an agent can call",
        environ={"ZIG_GLOBAL_CACHE_DIR": cache, "ZIG_LOCAL_CACHE_DIR": cache},
    )
