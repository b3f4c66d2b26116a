from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from caxton_host.building import build_agent, find_shared
from tests.integration.wasi.conftest import built as wasi_program
from tests.programs import compile_module
from tests.shared import once

_RUST = pytest.param("rust", marks=pytest.mark.debian)
#: Languages that are built to core modules, which a bare engine runs.
CORE = ("c", _RUST)

Build = Callable[[str], bytes]

WEATHER = find_shared("agents/weather") / "weather"
TRIP = Path(__file__).with_name("tasks") / "trip"
EVALUATOR = Path(__file__).with_name("evaluator.py")
RARE = b"a very rare word"
#: A module in Python takes long to build and to compile, so one module is all agents.
_EITHER = {
    ".py": """\
from caxton_agent import input
import evaluator, trip, weather

def run():
    given = input() or {}
    if not isinstance(given, dict):
        return evaluator.run()
    return (trip if "cities" in given else weather).run()
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
def weather_in(
    tmp_path_factory: pytest.TempPathFactory, zig_cache: Path, compiled_runtimes: Path
) -> Build:
    """Return what builds the example agent in a language."""

    def built(lang: str) -> bytes:
        def build(folder: Path) -> None:
            sources = tmp_path_factory.mktemp("sources") / "weather"
            shutil.copytree(WEATHER.parent, sources)
            for suffix, text in _EITHER.items():
                (sources / f"agent{suffix}").write_text(text)
                shutil.copy(TRIP.with_suffix(suffix), sources)
            shutil.copy(EVALUATOR, sources)
            (sources / "helping").mkdir()
            (sources / "helping" / "__init__.py").write_text("from .words import WORD")
            (sources / "helping" / "words.py").write_text(f"WORD = {RARE.decode()!r}")
            made = build_agent(sources, lang=lang, into=folder, cache=zig_cache)
            if lang == "python":
                compile_module(made.path, compiled_runtimes)

        folder = once(tmp_path_factory, f"weather-{lang}", build)
        return (folder / "weather.wasm").read_bytes()

    return built


@pytest.fixture(scope="session")
def trip_in(
    weather_in: Build, tmp_path_factory: pytest.TempPathFactory, zig_cache: Path
) -> Build:
    """Return what builds the task of ten calls in a language."""

    def built(lang: str) -> bytes:
        if lang == "go":
            return wasi_program("go", tmp_path_factory, zig_cache)
        if lang in {"c", "rust"}:
            suffix = {"c": ".c", "rust": ".rs"}[lang]
            return _built(f"tasks/trip{suffix}", tmp_path_factory, zig_cache)
        return weather_in(lang)

    return built


@pytest.fixture(params=CORE)
def weather(request: pytest.FixtureRequest, weather_in: Build) -> bytes:
    """Return the example agent, in each language of core modules."""
    return weather_in(request.param)


@pytest.fixture(scope="session")
def batching(tmp_path_factory: pytest.TempPathFactory, zig_cache: Path) -> bytes:
    return _built("batch.c", tmp_path_factory, zig_cache)
