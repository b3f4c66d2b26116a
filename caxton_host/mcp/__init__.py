"""
The tool side: servers that speak the Model Context Protocol.

The only owner of the MCP SDK. It costs half a second to import, so that happens
while the first server starts, and never before.
"""

from __future__ import annotations

from .pool import McpTools, Pool

__all__ = ["McpTools", "Pool"]
