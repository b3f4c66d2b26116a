"""
A tool server with resources and prompts, for sessions. No SDK, so that it starts fast.

    python -IS library.py FOLDER [WORD ...]

The words say what is wrong with it; with ``echo``, it has a tool of that name. It notes
each request in ``FOLDER/asked``.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

FOLDER, WORDS = Path(sys.argv[1]), set(sys.argv[2:])
NAME = FOLDER.name
SECRET = os.environ.get("LIBRARY_KEY", "")
BLOB = "AAH/" * 30_000
LISTS: dict[str, tuple[str, list[Any]]] = {
    "resources/list": (
        "resources",
        [
            {"uri": f"{NAME}://public/a", "name": "a", "mimeType": "text/plain"},
            {"uri": f"{NAME}://secret/b", "name": "b"},
            {"uri": "shared://both", "name": f"both of {NAME}"},
        ],
    ),
    "resources/templates/list": (
        "resourceTemplates",
        [
            {"uriTemplate": f"{NAME}://public/{{page}}", "name": "page"},
            {"uriTemplate": f"{NAME}://{{area}}/{{page}}", "name": "any"},
        ],
    ),
    "prompts/list": (
        "prompts",
        [
            {
                "name": "review",
                "description": f"Reviews. {SECRET}",
                "arguments": [{"name": "text", "required": True}, {"odd": 1}],
            },
            {"name": f"only_{NAME}"},
        ],
    ),
    "tools/list": ("tools", []),
}
ODD: list[Any] = [
    None,
    {"uri": 7, "uriTemplate": 7, "name": 7},
    {"uri": "x:\n", "uriTemplate": "x:\n", "name": "\u202e"},
    {"uri": f"x:{SECRET}", "uriTemplate": f"x:{SECRET}", "name": SECRET or "s"},
    {"uri": "x" * 9000, "uriTemplate": "x" * 9000, "name": "x" * 9000},
]


def read(uri: str) -> dict[str, Any]:
    if uri.endswith("blob"):
        return {"contents": [{"uri": uri, "blob": BLOB, "mimeType": "image/png"}]}
    if uri.endswith("nothing"):
        raise KeyError(uri)
    if uri.endswith("odd"):
        return {"contents": "none"}
    if uri.endswith("asks"):
        ask({"id": "s", "method": "sampling/createMessage", "params": {}})
        ask({"id": "r", "method": "roots/list"})
    return {"contents": [{"uri": uri, "text": f"{uri} of {NAME} {SECRET}"}]}


def answer(method: str, params: dict[str, Any]) -> dict[str, Any]:  # noqa: PLR0911 -- one a method
    match method:
        case "initialize":
            able = ("resources", "prompts", "completions", "tools")
            info = {"name": NAME, "version": "1"}
            return {
                "protocolVersion": "2025-06-18",
                "capabilities": {key: {} for key in able},
                "serverInfo": info,
            }
        case "ping":
            return {}
        case "resources/read":
            return read(params["uri"])
        case "tools/call":
            text = json.dumps({"said": params.get("arguments"), "key": SECRET})
            return {"content": [{"type": "text", "text": text}]}
        case "prompts/get":
            text = f"{params['name']} of {NAME}: {params.get('arguments')}"
            content = {"type": "text", "text": text}
            if "odd" in WORDS:
                return {"messages": "none"}
            return {"messages": [{"role": "user", "content": content}]}
        case "completion/complete":
            if "odd" in WORDS:
                return {"completion": 7}
            values: list[Any] = [params["argument"]["value"] + x for x in ("1", "2")]
            return {"completion": {"values": [*values, "../secret/b"], "total": 3}}
        case _:
            return listed(method)


def listed(method: str) -> dict[str, Any]:
    key, entries = LISTS[method]
    if method == "tools/list":
        names = ["resources/read", *({"echo"} & WORDS)]
        entries = [{"name": one, "inputSchema": {"type": "object"}} for one in names]
    elif "loops" in WORDS:
        return {key: entries, "nextCursor": "again"}
    elif "giant" in WORDS:
        return {key: [*entries, {"name": "x" * 900_000}], "nextCursor": "more"}
    elif "odd" in WORDS:
        return {key: [*ODD, *entries]}
    elif "none" in WORDS:
        return {key: "none"}
    return {key: entries}


def ask(message: dict[str, Any]) -> None:
    say(message)
    note(json.dumps(json.loads(sys.stdin.readline()).get("error")))


def note(text: str) -> None:
    with (FOLDER / "asked").open("a") as file:
        file.write(text + "\n")


def say(message: dict[str, Any]) -> None:
    line = json.dumps({"jsonrpc": "2.0", **message})
    sys.stdout.buffer.write(line.encode() + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    for line in sys.stdin:
        asked = json.loads(line)
        if "id" not in asked:
            continue
        note(asked["method"])
        try:
            result = answer(asked["method"], asked.get("params") or {})
        except KeyError:
            say({"id": asked["id"], "error": {"code": -32002, "message": "no such"}})
        else:
            say({"id": asked["id"], "result": result})
