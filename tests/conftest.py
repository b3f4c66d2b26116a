"""What every test shares."""

from __future__ import annotations

import signal
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from .others import Programs, install
from .postgres import Server, running
from .shared import once


def pytest_configure() -> None:
    # Whoever starts the tests in the background may have them ignore it, and so would
    # every process that they start.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_report_to_serializable() -> Generator[None, object, object]:
    # What one process cannot tell the other ends all tests, passed or not: half a
    # surrogate pair that somebody logged.
    return _encodable((yield))


def _encodable(it: object) -> object:
    if isinstance(it, str):
        return it.encode("utf-8", "backslashreplace").decode()
    if isinstance(it, dict):
        return {key: _encodable(value) for key, value in it.items()}
    if isinstance(it, list | tuple):
        return type(it)(_encodable(value) for value in it)
    return it


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


@pytest.fixture(scope="session")
def zig_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the cache of the C compiler, which builds may fill at the same time."""
    return once(tmp_path_factory, "zig", lambda _: None)
