"""A server with things to read, on the official SDK. By itself it speaks over stdio."""

from __future__ import annotations

from mcp.server import MCPServer


def library() -> MCPServer:
    """Return the server."""
    server = MCPServer("library")

    @server.tool()
    def now() -> str:
        return "now"

    @server.resource("crm://company", name="company", mime_type="application/json")
    def company() -> str:
        return '{"name": "Analytical Engines"}'

    @server.resource("crm://motto")
    def motto() -> str:
        return "hunter2-hunter2 is our motto"

    @server.resource("crm://logo", name="logo", mime_type="image/png")
    def logo() -> bytes:
        return b"\x89PNG"

    @server.resource("crm://broken", name="broken")
    def broken() -> str:
        raise ValueError

    @server.resource("crm://customers/{customer_id}", name="customer")
    def customer(customer_id: str) -> str:
        return f'{{"id": "{customer_id}"}}'

    return server


if __name__ == "__main__":
    library().run("stdio")
