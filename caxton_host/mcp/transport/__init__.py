"""Ways to a tool server: stdio, streamable HTTP, SSE."""
