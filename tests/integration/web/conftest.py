"""The server that says what it is told to, and a client for it."""

from __future__ import annotations

from ..webhooks.conftest import client, server

__all__ = ["client", "server"]
