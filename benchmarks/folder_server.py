"""
A tool server with folders in memory: lists one, reads a file, takes one to write.

    python folder_server.py

Its answers have the form of the filesystem server of MCP, which the example agent
``researcher`` is written for. Nothing that is written is kept.
"""

from __future__ import annotations

from typing import Any

import anyio
import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

_WORDS = [
    "harbour",
    "lantern",
    "meadow",
    "copper",
    "window",
    "garden",
    "silver",
    "bridge",
]
_FOLDERS: dict[str, dict[str, str]] = {
    "/empty": {},
    "/one": {"a.md": "# Title\n\nSome harbour lantern words, harbour again.\n"},
    "/mixed": {
        "b.txt": "\n\n## Second line is the title ##\nmeadow copper\n",
        "a.rst": "plain\n",
        "c.py": "print()\n",
        "SUMMARY.md": "of last week\n",
        "empty.md": "",
        "blank.txt": "  \n#\n",
        "locked.md": "?",
    },
    "/many": {
        f"note-{n:02}.md": f"# Note {n}\n"
        + f"{_WORDS[n % 8]} {_WORDS[n % 3]} abc\n" * n
        for n in range(35)
    },
    "/sixteen": {f"n{n}.txt": f"{_WORDS[n % 5]} {_WORDS[n % 2]}\n" for n in range(16)},
    "/seventeen": {f"n{n}.txt": f"{_WORDS[n % 7]}\n" * 2 for n in range(17)},
    "/words": {
        "w.md": "abc abcd ab12cd Wort wort WORT ein-und-zwanzig harbour_lantern\n"
    },
}
_PATH = {"type": "string"}


def _tool(name: str, *more: str) -> types.Tool:
    properties = dict.fromkeys(("path", *more), _PATH)
    schema = {"type": "object", "properties": properties, "required": [*properties]}
    return types.Tool(name=name, input_schema=schema)


_TOOLS = [
    _tool("list_directory"),
    _tool("read_text_file"),
    _tool("write_file", "content"),
]


async def _list(
    _context: ServerRequestContext[object], _params: types.PaginatedRequestParams | None
) -> types.ListToolsResult:
    return types.ListToolsResult(tools=_TOOLS)


async def _call(
    _context: ServerRequestContext[object], params: types.CallToolRequestParams
) -> types.CallToolResult:
    given: dict[str, Any] = params.arguments or {}
    folder, _, name = given["path"].rstrip("/").rpartition("/")
    text = None
    if params.name == "list_directory":
        files = _FOLDERS.get(given["path"].rstrip("/"))
        if files is not None:
            lines = ["[DIR] drafts.md", *(f"[FILE] {name}" for name in files)]
            text = "\n".join(lines)
    elif params.name == "read_text_file":
        text = _FOLDERS.get(folder, {}).get(name)
        text = None if text == "?" else text
    elif folder in _FOLDERS and folder != "/words":
        text = f"Successfully wrote to {given['path']}"
    return types.CallToolResult(
        content=[types.TextContent(text=text if text is not None else "ENOENT")],
        is_error=text is None,
    )


async def _serve() -> None:
    server = Server("folders", on_list_tools=_list, on_call_tool=_call)
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


if __name__ == "__main__":
    anyio.run(_serve)
