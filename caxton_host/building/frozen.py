"""For build tools that keep what they find at the build: the same of it, each time."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from ..errors import UsageError
from .tools import call

_SOURCE = Path(__file__).with_name("frozen.c")


def frozen(library: str, extra: str, scratch: Path) -> Mapping[str, str]:
    """
    Return the variables with which a tool sees a time that stands, and no chance.

    Args:
        library: Part of the path of the library that is to see them.

        extra: The extra of this package that brings the compiler for it.

        scratch: As for `Language.compile`.

    Returns:
        Nothing where there is no LD_PRELOAD. What is built there works, and differs
        from one build to the next.

    Raises:
        UsageError: There is no compiler.
    """
    if sys.platform != "linux":
        return {}
    if find_spec("ziglang") is None:
        raise UsageError(
            "a compiler that the build needs is not installed",
            fix=f'pip install "caxton-host[{extra}]"',
        )
    made = scratch / "frozen.so"
    cache = str(scratch / "cache")
    call(
        [
            *(sys.executable, "-m", "ziglang", "cc"),
            *("-shared", "-fPIC", "-O1", "-o", str(made), str(_SOURCE)),
        ],
        folder=scratch,
        failed=f"the compiler refused {_SOURCE.name}",
        fix="install caxton-host again",
        environ={"ZIG_GLOBAL_CACHE_DIR": cache, "ZIG_LOCAL_CACHE_DIR": cache},
    )
    return {"LD_PRELOAD": str(made), "CAXTON_FROZEN": library}
