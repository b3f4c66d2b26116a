"""A host over HTTP: control API, console and MCP server."""
