"""A folder with a configuration in it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from caxton_host.config import Config, load
from caxton_host.errors import ConfigError


@dataclass
class Folder:
    path: Path
    environ: dict[str, str] = field(default_factory=dict)

    def write(self, text: str | bytes, name: str = "caxton.toml") -> Path:
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return path

    def load(self, text: str | bytes | None = None) -> Config:
        if text is not None:
            self.write(text)
        return load(None, environ=self.environ, cwd=self.path)

    def refusal(self, text: str | bytes) -> ConfigError:
        """Return why *text* is refused; it has to say how to go on."""
        with pytest.raises(ConfigError) as caught:
            self.load(text)
        assert caught.value.fix
        assert not caught.value.fix.endswith(".")
        return caught.value


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    home = tmp_path / "home"
    home.mkdir()
    work = tmp_path / "work"
    work.mkdir()
    return Folder(work, {"HOME": str(home)})
