from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from caxton_host.building import build_agent, new_agent
from tests import javascript


@pytest.fixture(scope="session")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder below which agents in JavaScript can be built."""
    return javascript.workshop(tmp_path_factory)


@pytest.fixture(scope="session")
def hello(workshop: Path, zig_cache: Path) -> bytes:
    folder = new_agent("hello", "javascript", workshop)
    return build_agent(folder, cache=zig_cache).path.read_bytes()


@pytest.fixture(scope="session")
def probe(workshop: Path, zig_cache: Path) -> bytes:
    folder = workshop / "probe"
    folder.mkdir()
    shutil.copy(Path(__file__).with_name("probe.js"), folder)
    return build_agent(folder, cache=zig_cache).path.read_bytes()
