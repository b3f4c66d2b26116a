from __future__ import annotations

from pathlib import Path

import pytest

from tests.shared import once

from .shell import Shell


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return once(tmp_path_factory, "compiled", lambda _: None)


@pytest.fixture
def shell(
    tmp_path: Path,
    compiled: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Shell:
    return Shell(tmp_path, compiled, monkeypatch, capsys)
