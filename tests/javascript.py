"""Where agents in JavaScript can be built: folders with their build tool."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from caxton_host.building import find_shared
from tests.shared import once

TEMPLATE = find_shared("agents/templates/javascript")


def workshop(factory: pytest.TempPathFactory) -> Path:
    """Return a new folder below which agents can be built with the one build tool."""
    tool = once(factory, "componentize-qjs", install)
    folder = factory.mktemp("javascript")
    for file in tool.iterdir():
        (folder / file.name).symlink_to(file)
    return folder


def install(folder: Path) -> None:
    """
    Have npm put the build tool into *folder*.

    It holds each package against the digest in the lock, be it from a cache or not.
    """
    for name in ("package.json", "package-lock.json"):
        text = (TEMPLATE / name).read_text().replace("{{name}}", "workshop")
        (folder / name).write_text(text)
    subprocess.run(["npm", "ci"], cwd=folder, check=True, timeout=100)
