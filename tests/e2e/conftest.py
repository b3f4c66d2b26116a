from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from caxton_host.core.tools.servers import ServerConfig
from caxton_host.mcp.transport import stdio
from tests import standin
from tests.shared import once

from .shell import Shell


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return once(tmp_path_factory, "compiled", lambda _: None)


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
