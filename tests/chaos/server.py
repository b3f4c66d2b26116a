"""
A tool server that writes its effects as lines to a file that survives it.

    python -I -S server.py COUNTER [LONGEST]

It does not use the SDK, so that it starts fast. It waits before and after each effect,
so that kills hit both sides: up to LONGEST milliseconds, 4 if it is not given.
"""

from __future__ import annotations

import fcntl
import json
import os
import sys
import time
from typing import Any

TOOLS = ("look", "pay", "send")
KEY = "io.caxton/idempotency-key"

longest = int(sys.argv[2]) if len(sys.argv) > 2 else 4
counter = os.open(sys.argv[1], os.O_CREAT | os.O_RDWR | os.O_APPEND, 0o600)
paid: set[str] = set()
seen = 0


def say(number: object, result: dict[str, Any]) -> None:
    data = json.dumps({"jsonrpc": "2.0", "id": number, "result": result}).encode()
    os.write(1, data + b"\n")


def catch_up() -> None:
    """Read the payments made by this process and its predecessors."""
    global seen  # noqa: PLW0603 -- the read position
    # The position of the descriptor itself moves with each write.
    while data := os.pread(counter, 65536, seen):
        whole = data[: data.rindex(b"\n") + 1]
        seen += len(whole)
        for line in whole.splitlines():
            tool, key, _ = line.decode().split(" ")
            if tool == "pay":
                paid.add(key)


def act(tool: str, key: str) -> str:
    pause = int(key[:4], 16) % longest / 1000
    time.sleep(pause)
    if tool == "pay":
        fcntl.flock(counter, fcntl.LOCK_EX)
        catch_up()
    if tool != "pay" or key not in paid:
        os.write(counter, f"{tool} {key} {os.getpid()}\n".encode())
    fcntl.flock(counter, fcntl.LOCK_UN)
    time.sleep(pause / 2)
    return key


def answer(method: str, params: dict[str, Any]) -> dict[str, Any]:
    if method == "server/discover":
        return {
            "supportedVersions": ["2026-07-28"],
            "capabilities": {"tools": {}},
            "resultType": "complete",
            "ttlMs": 0,
            "cacheScope": "private",
            "_meta": {
                "io.modelcontextprotocol/serverInfo": {
                    "name": "counting",
                    "version": "1",
                }
            },
        }
    if method == "tools/list":
        schema = {"type": "object"}
        return {
            "tools": [
                {"name": tool, "description": tool, "inputSchema": schema}
                for tool in TOOLS
            ]
        }
    said = act(params["name"], params["_meta"][KEY])
    whole = {"key": said, "token": "canary-4711-canary", "cost": int(said[:2], 16) % 5}
    return {"content": [{"type": "text", "text": json.dumps(whole)}]}


for line in sys.stdin:
    message = json.loads(line)
    if "id" in message:
        say(message["id"], answer(message["method"], message.get("params", {})))
