"""
WASI programs: what a run gives one, and how their modules are recognised.

See https://github.com/WebAssembly/WASI, preview 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from .calls import JSON
from .sections import imports_from

#: The module that its functions are imported from, the function that is called, and
#: the name of the ABI in logs.
MODULE = "wasi_snapshot_preview1"
ENTRY = "_start"
ABI = "wasi/1"

_USUAL = "run"


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """
    What a WASI program is given, beside its input.

    Attributes:
        args: Its arguments, its own name first.

        env: Its environment.

        files: The path of each of its files to the SHA-256 of the bytes.
    """

    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    files: Mapping[str, str] = field(default_factory=dict[str, str])

    def to_payload(self) -> dict[str, JSON]:
        """Return it as ``RunStarted.command`` holds it."""
        return {
            "args": [*self.args],
            "env": {**self.env},
            "files": {**self.files},
        }

    @classmethod
    def from_payload(cls, payload: Mapping[str, Any] | None) -> Command:
        """Return what was recorded, or an empty command."""
        found = payload or {}
        return cls(
            args=tuple(map(str, found.get("args", ()))),
            env={str(k): str(v) for k, v in found.get("env", {}).items()},
            files={str(k): str(v) for k, v in found.get("files", {}).items()},
        )


def entry_of(module: bytes, entry: str) -> str:
    """Return the function to call: of a WASI program, ``_start`` instead of ``run``."""
    return ENTRY if entry == _USUAL and is_command(module) else entry


@lru_cache(maxsize=16)  # a host asks of the same modules for each run
def is_command(module: bytes) -> bool:
    """Return whether *module* imports from WASI preview 1."""
    return imports_from(module, MODULE)
