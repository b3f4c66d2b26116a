from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from caxton_host.building.javascript import kept_runtime
from caxton_host.building.runtimes import RuntimeFolder
from caxton_host.core.tools.servers import ServerConfig
from caxton_host.mcp.transport import stdio
from tests import standin
from tests.shared import once

from .shell import Shell

if TYPE_CHECKING:
    from playwright.sync_api import Browser

CHROMIUM = "/usr/bin/chromium"


@pytest.fixture(scope="module")
def browser() -> Generator[Browser]:
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 -- 200 ms

    with sync_playwright() as driver:
        # The sandbox of the browser needs what a container does not give.
        started = driver.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox"]
        )
        yield started
        started.close()


@pytest.fixture(scope="session")
def compiled(
    tmp_path_factory: pytest.TempPathFactory, compiled_runtimes: Path, zig_cache: Path
) -> Path:
    """Return the folder of compiled modules, and of the key they are made with."""

    def prepare(folder: Path) -> None:
        (folder / "cache/caxton").mkdir(parents=True)
        # Runtimes are compiled once for all tests, so with a key that all know.
        (folder / "cache/caxton/modules").symlink_to(compiled_runtimes)
        (folder / "cache/caxton/build").symlink_to(zig_cache)
        (folder / "state/caxton").mkdir(parents=True, mode=0o700)
        key = folder / "state/caxton/cache.key"
        key.touch(0o600)
        key.write_bytes(bytes(32))

    return once(tmp_path_factory, "compiled", prepare)


@pytest.fixture
def runtimes(shell: Shell, compiled: Path, python_runtime: Path) -> Shell:
    """Return a shell on a machine that has built its runtimes."""
    folder = RuntimeFolder(compiled / "cache/caxton/runtimes")
    folder.folder.mkdir(exist_ok=True)
    place = folder.place("python")
    assert place
    if not place.exists():
        with suppress(FileExistsError):
            place.hardlink_to(python_runtime)
    return shell


@pytest.fixture
def javascript(shell: Shell, compiled: Path, javascript_runtime: Path) -> Shell:
    """Return a shell on a machine that has built the runtime for JavaScript."""
    folder = RuntimeFolder(compiled / "cache/caxton/runtimes")
    builds = compiled / "cache/caxton/build"
    place = folder.place("javascript-typescript")
    assert place
    for target in (place, kept_runtime(builds)):
        target.parent.mkdir(exist_ok=True)
        with suppress(FileExistsError):
            target.symlink_to(javascript_runtime)
    return shell


@pytest.fixture(autouse=True)
def _demo_without_the_sdk(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Start the stand-in wherever a configuration names the demo server.

    That is in this process; the commands that tests start as programs have the real
    one. `caxton init` and `caxton demo` name it, and its import of the SDK takes ten
    times as long as a run.
    """
    argv = stdio._argv

    def quick(config: ServerConfig, env: Mapping[str, str]) -> list[str]:
        if config.command[1:] == ("-m", "caxton_host.demo_server"):
            config = replace(config, command=tuple(standin.typed().split(" ")))
        return argv(config, env)

    monkeypatch.setattr(stdio, "_argv", quick)


@pytest.fixture
def shell(
    tmp_path: Path,
    compiled: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Shell:
    return Shell(tmp_path, compiled, monkeypatch, capsys)
