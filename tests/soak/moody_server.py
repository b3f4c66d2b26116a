"""
A tool server that misbehaves when a call requests it. It does not use the SDK.

The parameter `mood` of the tool `act` selects the behaviour: see `tests.soak.load`.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

MOOD = {"type": "object", "properties": {"mood": {"type": "string"}}}
TOOL = {"name": "act", "description": "does as it likes", "inputSchema": MOOD}
START = {
    "protocolVersion": "2025-11-25",
    "capabilities": {"tools": {}},
    "serverInfo": {"name": "moody", "version": "1"},
}


def write(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def act(mood: str) -> dict[str, Any] | None:
    """Return an answer, or None for no answer."""
    text, is_error = mood, False
    match mood:
        case "dies":
            os._exit(3)
        case "silent":
            return None
        case "babbles":
            write("Traceback (most recent call last):")
            return None
        case "refuses":
            return {"error": {"code": -32000, "message": "not today"}}
        case "fails":
            is_error = True
        case "large":
            text = "x" * 2_000_000
        case "rants":
            sys.stderr.write("one more line of a log\n" * 200)
            sys.stderr.flush()
        case "slow":
            time.sleep(0.1)
        case _:
            pass
    content = [{"type": "text", "text": text}]
    return {"result": {"content": content, "isError": is_error}}


def main() -> None:
    """Serve until standard input ends."""
    for line in sys.stdin:
        asked = json.loads(line)
        match asked.get("method"):
            case "initialize":
                said: dict[str, Any] | None = {"result": START}
            case "tools/list":
                said = {"result": {"tools": [TOOL]}}
            case "tools/call":
                said = act(asked["params"]["arguments"]["mood"])
            case "ping":
                said = {"result": {}}
            case _:
                said = {"error": {"code": -32601, "message": "no such method"}}
        if said and "id" in asked:
            write(json.dumps({"jsonrpc": "2.0", "id": asked["id"], **said}))


if __name__ == "__main__":
    main()
