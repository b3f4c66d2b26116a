"""Agents as MCP tools: the server half of the protocol."""
