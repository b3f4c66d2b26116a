"""A host that says exactly what it is told to."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from caxton_host.remote.address import Address
from caxton_host.remote.client import Remote
from tests.integration.webhooks.conftest import Server, server

__all__ = ["server"]


@pytest.fixture
def told() -> list[str]:
    """What the client says while it waits."""
    return []


@pytest.fixture
async def remote(server: Server, told: list[str]) -> AsyncIterator[Remote]:
    async with Remote(Address.parse(server.url), "cx_token", told.append) as made:
        yield made
