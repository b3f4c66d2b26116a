"""
A tool server whose processes count together what they do, in a file.

    python -I -S counting_server.py FOLDER

`work` writes a line to FOLDER/work when it begins and when it ends. It ends once there
is the file FOLDER/go. No SDK, so that it starts fast.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

folder = Path(sys.argv[1])
lines = os.open(folder / "work", os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
MODERN = "2026-07-28"


def say(number: object, result: dict[str, Any]) -> None:
    data = json.dumps({"jsonrpc": "2.0", "id": number, "result": result}).encode()
    os.write(1, data + b"\n")


def work(number: object) -> None:
    os.write(lines, b"+\n")
    while not (folder / "go").exists():
        time.sleep(0.01)
    os.write(lines, b"-\n")
    say(number, {"content": [{"type": "text", "text": "done"}]})


def answer(number: object, method: str) -> None:
    if method == "tools/call":
        threading.Thread(target=work, args=[number], daemon=True).start()
    elif method == "tools/list":
        tool = {"name": "work", "description": "", "inputSchema": {"type": "object"}}
        say(number, {"tools": [tool]})
    elif method == "server/discover":
        info = {"name": "counting", "version": "1"}
        found = {"supportedVersions": [MODERN], "capabilities": {"tools": {}}}
        more = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
        meta = {"io.modelcontextprotocol/serverInfo": info}
        say(number, {**found, **more, "_meta": meta})


for line in sys.stdin:
    message = json.loads(line)
    answer(message.get("id"), message.get("method", ""))
