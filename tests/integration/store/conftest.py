"""A place for events in each kind of database."""

from __future__ import annotations

from pathlib import Path

import pytest

from caxton_host.store import migrate
from tests.unit.store.fakes import url


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return the url of an empty log."""
    if request.param == "postgresql":
        found: str = request.getfixturevalue("postgres_url")
        return found
    migrate.upgrade(url(tmp_path))
    return url(tmp_path)
