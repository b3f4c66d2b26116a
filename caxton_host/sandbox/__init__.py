"""The sandbox: what a guest can do, and what confines it."""

from __future__ import annotations

TYPE_CHECKING = False

if TYPE_CHECKING:
    from .pool import WasmSandbox

__all__ = ["WasmSandbox"]


def __getattr__(name: str) -> object:
    # A worker imports its modules from here, and none of the host's: 60 ms a start.
    if name == "WasmSandbox":
        from .pool import WasmSandbox  # noqa: PLC0415 -- see above

        return WasmSandbox
    raise AttributeError(name)
