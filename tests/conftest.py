"""What every test shares."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from .others import Programs, install
from .postgres import Server, running
from .shared import once


def pytest_configure() -> None:
    # Whoever starts the tests in the background may have them ignore it, and so would
    # every process that they start.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    with running() as server:
        yield server


@pytest.fixture
def postgres_url(postgres: Server) -> str:
    """Return the url of a database that is this test's own."""
    return postgres.make()


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Programs:
    return Programs(once(tmp_path_factory, "npm", install))
