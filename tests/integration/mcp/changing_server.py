"""A server of the official SDK: each call of its tool `grow` adds a tool."""

from __future__ import annotations

from mcp.server.mcpserver import Context, MCPServer

server = MCPServer("changing")


@server.tool()
async def grow(name: str, ctx: Context) -> str:
    """Add a tool, and tell."""

    def grown() -> str:
        """Return a word."""
        return name

    server.add_tool(grown, name=name)
    await ctx.notify_tools_changed()
    return "grown"


if __name__ == "__main__":
    server.run("stdio")
