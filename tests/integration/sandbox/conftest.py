"""A sandbox for each test, over one cache of compiled modules."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from caxton_host.sandbox import WasmSandbox, link

from .support import KEY


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine, no worker dies for being slow."""
    monkeypatch.setattr(link, "GRACE_S", 10.0)


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("compiled")


@pytest.fixture
async def sandbox(compiled: Path) -> AsyncIterator[WasmSandbox]:
    async with WasmSandbox(compiled, KEY) as made:
        yield made
