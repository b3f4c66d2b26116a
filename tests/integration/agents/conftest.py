from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from caxton_host.building import build_agent, find_shared
from tests.integration.wasi.conftest import built as wasi_program
from tests.shared import once

#: Languages that are built to core modules, which a bare engine runs.
CORE = ("c", "rust")
#: Every language that the example is written in.
LANGUAGES = (*CORE, "python", "javascript")

WEATHER = find_shared("agents/weather") / "weather"
TRIP = Path(__file__).with_name("tasks") / "trip"
#: A module in Python takes long to build and to compile, so one module is both agents.
_EITHER = {
    ".py": """\
from caxton_agent import input
import trip, weather

def run():
    return (trip if "cities" in (input() or {}) else weather).run()
""",
    ".js": """\
import { input } from "caxton";
import { run as trip } from "./trip.js";
import { run as weather } from "./weather.js";

export const run = () => (input()?.cities ? trip() : weather());
""",
}


def _built(name: str, factory: pytest.TempPathFactory, cache: Path) -> bytes:
    source = Path(__file__).parent / name

    def build(folder: Path) -> None:
        shutil.copy(source, folder / f"agent{source.suffix}")
        build_agent(folder, cache=cache)

    (module,) = once(factory, source.name, build).glob("*.wasm")
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
        shutil.copytree(WEATHER.parent, sources)
        for suffix, text in _EITHER.items():
            (sources / f"agent{suffix}").write_text(text)
            shutil.copy(TRIP.with_suffix(suffix), sources)
        for lang in LANGUAGES:
            made = build_agent(sources, lang=lang, into=folder, cache=javascript_cache)
            made.path.rename(folder / lang)

    built = once(tmp_path_factory, "weathers", build)
    return {lang: (built / lang).read_bytes() for lang in LANGUAGES}


@pytest.fixture(scope="session")
def trips(
    weathers: dict[str, bytes],
    tmp_path_factory: pytest.TempPathFactory,
    zig_cache: Path,
) -> dict[str, bytes]:
    """Return the task of ten calls in each language, by language."""
    return weathers | {
        "c": _built("tasks/trip.c", tmp_path_factory, zig_cache),
        "rust": _built("tasks/trip.rs", tmp_path_factory, zig_cache),
        "go": wasi_program("go", tmp_path_factory),
    }


@pytest.fixture(params=CORE)
def weather(request: pytest.FixtureRequest, weathers: dict[str, bytes]) -> bytes:
    """Return the example agent, in each language of core modules."""
    return weathers[request.param]


@pytest.fixture(scope="session")
def batching(tmp_path_factory: pytest.TempPathFactory, zig_cache: Path) -> bytes:
    return _built("batch.c", tmp_path_factory, zig_cache)
