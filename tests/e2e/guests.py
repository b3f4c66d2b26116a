"""Agents that do what a test needs, and nothing else."""

from __future__ import annotations

from caxton_host.core.calls import JSON
from caxton_host.lib import codec
from tests.integration.sandbox.support import LOOP, wasm

__all__ = ["SPINS", "TRAPS", "call", "guest", "log", "many"]

TRAPS = "(unreachable)"
SPINS = LOOP
_WARNING = 2


class _Steps:
    """Bytes in the guest's memory, and instructions that use them."""

    def __init__(self) -> None:
        self.data, self.code, self.end = "", "", 4096

    def put(self, value: bytes) -> str:
        at, self.end = self.end, self.end + len(value)
        text = "".join(f"\\{byte:02x}" for byte in value)
        self.data += f'(data (i32.const {at}) "{text}")\n'
        return f"(i32.const {at}) (i32.const {len(value)})"


def call(name: str | bytes, **params: JSON) -> tuple[str, bytes, bytes]:
    raw = name if isinstance(name, bytes) else name.encode()
    return "call", raw, codec.encode(params)


def many(*calls: tuple[str, bytes, bytes]) -> tuple[str, bytes, bytes]:
    """Return one step that makes calls as a batch."""
    pairs: list[JSON] = [
        [name.decode(), codec.decode(params, limit=1 << 20)]
        for _, name, params in calls
    ]
    return "many", codec.encode(pairs), b""


def log(text: str) -> tuple[str, bytes, bytes]:
    return "log", text.encode(), b""


def guest(
    *steps: tuple[str, bytes, bytes],
    output: JSON = None,
    then: str = "(i32.const 0)",
    entry: str = "run",
) -> bytes:
    """Return a module that takes *steps*, sets its output and ends as *then* does."""
    made = _Steps()
    for kind, first, second in steps:
        if kind == "log":
            made.code += f"(call $log (i32.const {_WARNING}) {made.put(first)})\n"
        elif kind == "many":
            sent = f"{made.put(first)} (i32.const 0) (i32.const 0)"
            made.code += f"(drop (call $mcp_call_many {sent}))\n"
        else:
            sent = f"{made.put(first)} {made.put(second)}"
            made.code += f"(drop (call $mcp_call {sent} (i32.const 0) (i32.const 0)))\n"
    made.code += f"(call $output {made.put(codec.encode(output))})\n"
    module = wasm(made.code + then, before=made.data, memory="4")
    assert entry == "run" or len(entry) == len("run")
    return module.replace(b"\x03run", b"\x03" + entry.encode())
