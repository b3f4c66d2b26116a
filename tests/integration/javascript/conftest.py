from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from caxton_host.building import build_agent, new_agent


@pytest.fixture(scope="session")
def hello(tmp_path_factory: pytest.TempPathFactory, javascript_cache: Path) -> bytes:
    folder = new_agent("hello", "javascript", tmp_path_factory.mktemp("hello"))
    return build_agent(folder, cache=javascript_cache).path.read_bytes()


@pytest.fixture(scope="session")
def probe(tmp_path_factory: pytest.TempPathFactory, javascript_cache: Path) -> bytes:
    folder = tmp_path_factory.mktemp("javascript") / "probe"
    folder.mkdir()
    shutil.copy(Path(__file__).with_name("probe.js"), folder)
    return build_agent(folder, cache=javascript_cache).path.read_bytes()
