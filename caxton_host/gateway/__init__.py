"""The only way from an agent to a tool."""
