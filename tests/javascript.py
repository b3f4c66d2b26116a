"""Where agents in JavaScript can be built: a folder with their build tool."""

from __future__ import annotations

import subprocess
from pathlib import Path

from caxton_host.building import find_shared

TEMPLATE = find_shared("agents/templates/javascript")


def install(folder: Path) -> Path:
    """
    Have npm put the build tool into *folder*, and return that.

    It holds each package against the digest in the lock, be it from a cache or not.
    """
    for name in ("package.json", "package-lock.json"):
        text = (TEMPLATE / name).read_text().replace("{{name}}", "workshop")
        (folder / name).write_text(text)
    subprocess.run(["npm", "ci"], cwd=folder, check=True, timeout=100)
    return folder
