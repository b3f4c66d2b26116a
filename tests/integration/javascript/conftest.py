from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from caxton_host.building import build_agent, new_agent
from tests.javascript import install


@pytest.fixture(scope="session")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder below which agents in JavaScript can be built."""
    return install(tmp_path_factory.mktemp("javascript"))


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("zig")


@pytest.fixture(scope="session")
def hello(workshop: Path, cache: Path) -> bytes:
    folder = new_agent("hello", "javascript", workshop)
    return build_agent(folder, cache=cache).path.read_bytes()


@pytest.fixture(scope="session")
def probe(workshop: Path, cache: Path) -> bytes:
    folder = workshop / "probe"
    folder.mkdir()
    shutil.copy(Path(__file__).with_name("probe.js"), folder)
    return build_agent(folder, cache=cache).path.read_bytes()
