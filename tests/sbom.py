"""
Write what is shipped as a CycloneDX document, from lock and installed metadata.

`python -m tests.sbom` writes docs/reference/sbom.cdx.json; `tests/unit/test_sbom.py`
checks it. Nothing in it depends on the machine or the time.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from email.message import Message
from hashlib import sha256
from importlib.metadata import metadata
from pathlib import Path
from typing import Any, cast

from packaging.markers import Marker

ROOT = Path(__file__).resolve().parents[1]
TARGET = ROOT / "docs/reference/sbom.cdx.json"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

#: Licences that what is shipped may have. A new one is a decision.
ALLOWED = {
    *("0BSD", "Apache-2.0", "Apache-2.0 WITH LLVM-exception", "BSD-2-Clause"),
    *("BSD-3-Clause", "ISC", "MIT", "MIT-0", "MPL-2.0", "PSF-2.0"),
    # Drivers of PostgreSQL, used unchanged and replaceable.
    "LGPL-3.0-only",
}
#: What metadata says in other words.
_WORDS = {
    "3-Clause BSD License": "BSD-3-Clause",
    "MIT License": "MIT",
    "Apache Software License": "Apache-2.0",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
}
#: As their projects say, since their metadata do not say which. The last three are not
#: shipped: interpreters of programs are built from them on the machine.
_READ = {
    "jinja2": "BSD-3-Clause",
    "componentize-py": "Apache-2.0 WITH LLVM-exception AND PSF-2.0",
    "quickjs-ng": "MIT",
    "sucrase": "MIT",
}
_RUNTIME = ROOT / "agents/runtimes/javascript/lock.json"
_PYTHONS = ("3.11", "3.12", "3.13", "3.14")


def is_allowed(licence: str) -> bool:
    """
    Return whether an expression of SPDX gives a licence that is allowed.

    >>> is_allowed("AGPL-3.0-only OR MIT"), is_allowed("MIT AND AGPL-3.0-only")
    (True, False)
    """
    return any(
        all(one.strip("() ") in ALLOWED for one in each.split(" AND "))
        for each in licence.split(" OR ")
    )


def licence_of(name: str) -> str:
    """Return the licence of an installed package, as an expression of SPDX."""
    if name in _READ:
        return _READ[name]
    said = cast("Message", metadata(name))
    kinds = [one.split(" :: ") for one in said.get_all("Classifier", [])]
    found = (
        said.get("License-Expression")
        or said.get("License")
        or next((kind[-1] for kind in kinds if kind[0] == "License"), "unknown")
    )
    return _WORDS.get(found, found)


def locked(text: str) -> Iterator[tuple[str, str, str, list[str]]]:
    """Yield name, version, marker and digests of each package of a lock."""
    for block in re.split(r"^(?=[a-z])", text, flags=re.MULTILINE)[1:]:
        head = block.splitlines()[0].rstrip(" \\")
        pin, _, marker = head.partition(" ; ")
        name, _, version = pin.partition("==")
        yield name, version, marker, re.findall("sha256:([0-9a-f]{64})", block)


def _library(name: str, version: str, kind: str, licence: str) -> dict[str, Any]:
    return {
        "type": "library",
        "bom-ref": f"pkg:{kind}/{name}@{version}",
        "name": name,
        "version": version,
        "purl": f"pkg:{kind}/{name.replace('@', '%40')}@{version}",
        "licenses": [{"expression": licence}],
    }


def _is_for_linux(marker: str) -> bool:
    here = {
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
        "platform_system": "Linux",
        "sys_platform": "linux",
    }
    return not marker or any(
        Marker(marker).evaluate(
            {**here, "python_version": one, "python_full_version": one}
        )
        for one in _PYTHONS
    )


def _packages() -> Iterator[dict[str, Any]]:
    # The digests of their files, over a hundred of some, are in the lock.
    for name, version, marker, _ in locked((ROOT / "requirements.txt").read_text()):
        if _is_for_linux(marker):
            found = _library(name, version, "pypi", licence_of(name))
            yield found | {"scope": "required"}


def _runtimes() -> Iterator[dict[str, Any]]:
    """Yield what makes the interpreters of programs: CPython and QuickJS."""
    (version,) = (
        version
        for name, version, *_ in locked((ROOT / "constraints.txt").read_text())
        if name == "componentize-py"
    )
    parts = [("pypi", "componentize-py", version)]
    lock = json.loads(_RUNTIME.read_text())
    for kind, part in (("generic", "engine"), ("npm", "eraser")):
        parts.append((kind, lock[part]["package"], lock[part]["version"]))
    for kind, name, version in parts:
        found = _library(name, version, kind, licence_of(name))
        yield found | {"scope": "optional"}


def _modules() -> Iterator[dict[str, Any]]:
    """Yield the compiled agents in the wheel."""
    for path in sorted((ROOT / "agents").rglob("*.wasm")):
        digest = sha256(path.read_bytes()).hexdigest()
        name = f"caxton_host/_{path.relative_to(ROOT).as_posix()}"
        yield {
            "type": "file",
            "bom-ref": name,
            "name": name,
            "hashes": [{"alg": "SHA-256", "content": digest}],
            "licenses": [{"expression": PROJECT["license"]}],
        }


def document() -> dict[str, Any]:
    """Return the document."""
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": PROJECT["name"],
                "name": PROJECT["name"],
                "version": PROJECT["version"],
                "licenses": [{"expression": PROJECT["license"]}],
            }
        },
        "components": [*_packages(), *_runtimes(), *_modules()],
    }


def text() -> str:
    return json.dumps(document(), indent=1) + "\n"


if __name__ == "__main__":
    TARGET.write_text(text())
