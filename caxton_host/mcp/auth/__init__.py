"""Tokens for tool servers: OAuth 2.1."""
