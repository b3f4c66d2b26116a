"""What the tests of evidence share."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from caxton_host.sandbox import WasmSandbox

from .engine import Engine, running


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with running() as it:
        yield it


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """Share one loop and one sandbox."""
    return "asyncio"


@pytest.fixture(scope="module")
async def sandbox(
    anyio_backend: str, compiled_runtimes: Path
) -> AsyncIterator[WasmSandbox]:
    del anyio_backend
    async with WasmSandbox(compiled_runtimes, bytes(32)) as it:
        yield it
