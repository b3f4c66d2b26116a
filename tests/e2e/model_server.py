"""
A tool server that answers as a model's, with the tokens that a call took.

    python -I -S model_server.py

A prompt takes as many tokens as it says.
"""

from __future__ import annotations

import json
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # Importing it takes as long as all the rest.
    from typing import Any

INFO = {"name": "model", "version": "1"}
FRESH = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
SCHEMA = {
    "type": "object",
    "properties": {"model": {"type": "string"}, "prompt": {"type": "string"}},
}


def answer(method: str, params: dict[str, Any]) -> dict[str, Any]:
    if method == "server/discover":
        return {
            "supportedVersions": ["2026-07-28"],
            "capabilities": {"tools": {}},
            **FRESH,
            "_meta": {"io.modelcontextprotocol/serverInfo": INFO},
        }
    if method == "tools/list":
        tool = {"name": "complete", "description": "Answers.", "inputSchema": SCHEMA}
        return {"tools": [tool], **FRESH}
    tokens = int(params["arguments"]["prompt"])
    whole = {"text": "hello", "usage": {"total_tokens": tokens}}
    blocks = [{"type": "text", "text": json.dumps(whole)}]
    return {"content": blocks, "structuredContent": whole, "resultType": "complete"}


for line in sys.stdin:
    message = json.loads(line)
    if "id" in message:
        result = answer(message["method"], message.get("params", {}))
        said = {"jsonrpc": "2.0", "id": message["id"], "result": result}
        sys.stdout.write(f"{json.dumps(said)}\n")
        sys.stdout.flush()
