"""
What a guest may import and must export: as a core module, and as a component.

The functions of components are the same as in `agents/wit`.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

NAMESPACE = "caxton"

#: Everything a core module can reach, with its WebAssembly type.
HOST_FUNCTIONS: Mapping[str, str] = MappingProxyType(
    {
        "mcp_call": "(i32, i32, i32, i32, i32, i32) -> i64",
        "mcp_call_many": "(i32, i32, i32, i32) -> i64",
        "take_reply": "(i32, i32) -> i32",
        "tools": "(i32, i32) -> i64",
        "context": "(i32, i32, i32, i32) -> i64",
        "input": "(i32, i32) -> i64",
        "output": "(i32, i32) -> ()",
        "now": "() -> i64",
        "random": "(i32, i32) -> ()",
        "log": "(i32, i32, i32) -> ()",
        "program": "(i32, i32) -> i64",
        "fail": "(i32, i32) -> ()",
    }
)
CORE_ENTRY_TYPE = "() -> i32"

INTERFACE = "caxton:agent/host@1.0.0"
LEVELS = ("debug", "info", "warning", "error")

#: Everything a component can reach, with its type. Names of parameters do not count.
FUNCTIONS: Mapping[str, str] = MappingProxyType(
    {
        "mcp-call": "(string, string) -> string",
        "mcp-call-many": "(string) -> string",
        "tools": "() -> string",
        "context": "(string) -> option<string>",
        "input": "() -> string",
        "output": "(string)",
        "now": "() -> s64",
        "random": "() -> u64",
        "log": f"(enum {{{', '.join(LEVELS)}}}, string)",
        "program": "() -> string",
    }
)
ENTRY_TYPE = "() -> result<_, string>"
