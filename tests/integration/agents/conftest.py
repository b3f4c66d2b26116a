from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from caxton_host.building import build_agent


@pytest.fixture(scope="session")
def zig_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("zig")


def _built(name: str, folder: Path, cache: Path) -> bytes:
    shutil.copy(Path(__file__).with_name(f"{name}.c"), folder / "agent.c")
    return build_agent(folder, cache=cache).path.read_bytes()


@pytest.fixture(scope="session")
def probe(tmp_path_factory: pytest.TempPathFactory, zig_cache: Path) -> bytes:
    return _built("probe", tmp_path_factory.mktemp("probe"), zig_cache)


@pytest.fixture(scope="session")
def batching(tmp_path_factory: pytest.TempPathFactory, zig_cache: Path) -> bytes:
    return _built("batch", tmp_path_factory.mktemp("batch"), zig_cache)
