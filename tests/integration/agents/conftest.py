from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from caxton_host.building import build_agent, find_shared
from tests.shared import once

#: Languages that are built to core modules, which a bare engine runs.
CORE = ("c", "rust")
#: Every language that the example is written in.
LANGUAGES = (*CORE, "python", "javascript")


def _built(name: str, factory: pytest.TempPathFactory, cache: Path) -> bytes:
    source = Path(__file__).with_name(name)

    def build(folder: Path) -> None:
        shutil.copy(source, folder / f"agent{source.suffix}")
        build_agent(folder, cache=cache)

    (module,) = once(factory, name, build).glob("*.wasm")
    return module.read_bytes()


@pytest.fixture(scope="session")
def probe_c(tmp_path_factory: pytest.TempPathFactory, zig_cache: Path) -> bytes:
    return _built("probe.c", tmp_path_factory, zig_cache)


@pytest.fixture(scope="session")
def probe_rust(tmp_path_factory: pytest.TempPathFactory, zig_cache: Path) -> bytes:
    return _built("probe.rs", tmp_path_factory, zig_cache)


@pytest.fixture(scope="session", params=CORE)
def probe(request: pytest.FixtureRequest) -> bytes:
    """Return what uses every function of an SDK, in each language."""
    module: bytes = request.getfixturevalue(f"probe_{request.param}")
    return module


@pytest.fixture(scope="session")
def weathers(
    tmp_path_factory: pytest.TempPathFactory, javascript_cache: Path
) -> dict[str, bytes]:
    """Return the example agent in each language, by language."""

    def build(folder: Path) -> None:
        sources = tmp_path_factory.mktemp("sources") / "weather"
        shutil.copytree(find_shared("agents/weather"), sources)
        for lang in LANGUAGES:
            made = build_agent(sources, lang=lang, into=folder, cache=javascript_cache)
            made.path.rename(folder / lang)

    built = once(tmp_path_factory, "weathers", build)
    return {lang: (built / lang).read_bytes() for lang in LANGUAGES}


@pytest.fixture(params=CORE)
def weather(request: pytest.FixtureRequest, weathers: dict[str, bytes]) -> bytes:
    """Return the example agent, in each language of core modules."""
    return weathers[request.param]


@pytest.fixture(scope="session")
def batching(tmp_path_factory: pytest.TempPathFactory, zig_cache: Path) -> bytes:
    return _built("batch.c", tmp_path_factory, zig_cache)
