"""Build agents in C, with the compiler of Zig."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from ..errors import UsageError
from .shipped import find_shared
from .tools import zig_cc

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
    zig_cc(
        *_FLAGS,
        *("-I", find_shared("agents/sdk/c")),
        *("-o", module, source.name),
        folder=source.parent,
        scratch=scratch,
        failed=f"the compiler refused {source.name}",
        fix=f"change {source.name}; caxton.h documents what an agent can call",
    )
