"""What a component may import, and must export. The same is in `agents/wit`."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

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
    }
)
ENTRY_TYPE = "() -> result<_, string>"
