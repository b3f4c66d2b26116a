"""Wheels, made without a builder: a zip file with modules and metadata."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path


def make_wheel(
    folder: Path,
    name: str,
    files: Mapping[str, str | bytes],
    *wants: str,
    tag: str = "py3-none-any",
    version: str = "1.0",
) -> Path:
    """Write a wheel of *files* that requires *wants*, and return its path."""
    stem = f"{name}-{version}"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    metadata += "".join(f"Requires-Dist: {one}\n" for one in wants)
    about = f"{stem}.dist-info"
    whole: dict[str, str | bytes] = {
        **files,
        f"{about}/METADATA": metadata,
        f"{about}/WHEEL": f"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: {tag}\n",
        f"{about}/RECORD": "",
    }
    folder.mkdir(exist_ok=True)
    path = folder / f"{stem}-{tag}.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for file, content in whole.items():
            archive.writestr(file, content)
    return path
