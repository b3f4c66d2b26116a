"""Agents of the examples, and one that calls a batch."""

from __future__ import annotations

from pathlib import Path

from caxton_host.core.calls import JSON
from caxton_host.lib import codec
from tests.integration.sandbox.support import wasm

AGENTS = Path(__file__).resolve().parents[3] / "agents"
WEATHER = AGENTS / "weather" / "weather.wasm"
ECHO = AGENTS / "echo" / "echo.wasm"


def batch(*items: JSON) -> bytes:
    """Return a module that makes these calls at once."""
    data = codec.encode([*items])
    text = "".join(f"\\{byte:02x}" for byte in data)
    return wasm(
        f"(drop (call $mcp_call_many (i32.const 0) (i32.const {len(data)})"
        " (i32.const 0) (i32.const 0))) (i32.const 0)",
        before=f'(data (i32.const 0) "{text}")',
    )
