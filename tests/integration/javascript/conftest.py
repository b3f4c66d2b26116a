from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

from caxton_host.building import build_agent, find_shared, new_agent

#: From the files of an agent to the bytes of the component.
Build: TypeAlias = Callable[..., bytes]


@pytest.fixture(scope="session")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder below which agents in JavaScript can be built."""
    folder = tmp_path_factory.mktemp("javascript")
    template = find_shared("agents/templates/javascript")
    for name in ("package.json", "package-lock.json"):
        text = (template / name).read_text().replace("{{name}}", "workshop")
        (folder / name).write_text(text)
    # It holds each package against the digest in the lock, be it from a cache or not.
    subprocess.run(["npm", "ci"], cwd=folder, check=True, timeout=100)
    return folder


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("zig")


@pytest.fixture(scope="session")
def weather(workshop: Path, cache: Path) -> bytes:
    folder = workshop / "weather"
    folder.mkdir()
    shutil.copy(find_shared("agents/weather/weather.js"), folder)
    return build_agent(folder, cache=cache).path.read_bytes()


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
