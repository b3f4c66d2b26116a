"""A host over HTTP: control API, admin page and MCP server."""
