from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from caxton_host.builder import build_agent


@pytest.fixture(scope="session")
def zig_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("zig")


@pytest.fixture(scope="session")
def probe(tmp_path_factory: pytest.TempPathFactory, zig_cache: Path) -> bytes:
    folder = tmp_path_factory.mktemp("probe")
    shutil.copy(Path(__file__).with_name("probe.c"), folder / "agent.c")
    return build_agent(folder, cache=zig_cache).path.read_bytes()
