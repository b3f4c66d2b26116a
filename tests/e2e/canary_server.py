"""
A tool server that tells all it knows, in every way it can.

    python canary_server.py SECRET_ARGUMENT

No SDK, so that it starts fast.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.canaries import forms

SECRETS = [sys.argv[1], os.environ["API_TOKEN"], os.environ["PLAIN_NAME"]]
SPELT = [form for secret in SECRETS for form in forms(secret).values()]
NESTED: dict[str, Any] = {"list": [{form: [form]} for form in SPELT], "text": SPELT}


def say(message: object) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def tool(name: str) -> dict[str, Any]:
    return {
        "name": name,
        "description": " ".join(SPELT),
        "inputSchema": {"type": "object", "properties": {form: {} for form in SPELT}},
        "annotations": {"title": SPELT[0]},
    }


def answer(name: str) -> dict[str, Any]:
    if name == "die":
        for form in SPELT:
            sys.stderr.write(form[:7])
            sys.stderr.flush()
            sys.stderr.write(form[7:] + "\n")
        sys.stderr.flush()
        os._exit(3)
    if name == "refuse":
        return {"error": {"code": -32000, "message": " ".join(SPELT), "data": NESTED}}
    content = [{"type": "text", "text": form} for form in SPELT]
    result = {"content": content, "structuredContent": NESTED}
    return {"result": {**result, "isError": name == "fail"}}


def handle(message: dict[str, Any]) -> dict[str, Any]:
    match message["method"]:
        case "initialize":
            info = {"name": SPELT[0], "version": SPELT[1]}
            return {
                "result": {
                    "protocolVersion": "2025-06-18",
                    "capabilities": {"tools": {}},
                    "serverInfo": info,
                }
            }
        case "tools/list":
            named = [secret.encode().hex() for secret in SECRETS]
            names = ["echo", "fail", "refuse", "die", *named]
            return {"result": {"tools": [tool(name) for name in names]}}
        case "tools/call":
            return answer(message["params"]["name"])
        case _:
            return {"error": {"code": -32601, "message": "no " + SPELT[0]}}


for form in SPELT:
    sys.stderr.write(form + "\n")
for line in sys.stdin:
    asked = json.loads(line)
    if "id" in asked:
        say({"jsonrpc": "2.0", "id": asked["id"], **handle(asked)})
