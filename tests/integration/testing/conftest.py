"""One sandbox for the session, over folders of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from caxton_host.testing import Harness


@pytest.fixture(scope="session")
def caxton_harness(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Harness]:
    home = str(tmp_path_factory.mktemp("home"))
    with Harness({"HOME": home}) as harness:
        yield harness
