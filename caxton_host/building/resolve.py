"""
Resolve the dependencies of a program by pip, to wheels without parts in C.

pip runs with its own configuration, and takes wheels only: it executes nothing of a
package. It resolves as for a machine with the runtime's Python; a wheel with parts in C
is then replaced by the pure wheel of the same version, if there is one.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path

from ..core.dependencies import Metadata, Wheel, chain, wheels_of
from ..errors import UsageError
from .tools import call

_PROGRAM = str(Path(__file__).with_name("pip_program.py"))
_ONLY_WHEELS = ("--only-binary", ":all:", "--no-input", "--disable-pip-version-check")
_PURE = ("--platform", "any", "--implementation", "py", "--abi", "none", "--no-deps")
#: Variables that configure pip, and its connections.
_OF_PIP = ("PIP_", "SSL_CERT_", "REQUESTS_CA_BUNDLE", "XDG_CONFIG_", "XDG_CACHE_")
_WHEELS = "wheels"
_PROXIES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """
    The Python that packages are for.

    Attributes:
        version: Such as ``3.14.0``.

        markers: The other values of markers (PEP 508).
    """

    version: str
    markers: Mapping[str, str]

    @property
    def short(self) -> str:
        """The version without its last part."""
        return ".".join(self.version.split(".")[:2])

    def environment(self) -> dict[str, str]:
        """Return the values of all markers."""
        versions = ("python_full_version", "implementation_version")
        return {
            **dict.fromkeys(versions, self.version),
            "python_version": self.short,
            "implementation_name": "cpython",
            "platform_python_implementation": "CPython",
            "platform_machine": "wasm32",
            **dict.fromkeys(
                ("platform_release", "platform_system", "platform_version"), ""
            ),
            **self.markers,
        }


@dataclass(frozen=True, slots=True)
class Resolver:
    """
    Resolves the dependencies of one program.

    Attributes:
        program: The name of its file, for messages.

        target: What they are for.

        scratch: An empty folder, where the wheels are put.
    """

    program: str
    metadata: Metadata
    target: Target
    scratch: Path

    def wheels(self) -> list[tuple[Wheel, Path]]:
        """
        Return the chosen wheels, and their files.

        Raises:
            UsageError: pip is missing or fails, or a package has no pure wheel.
        """
        if find_spec("pip") is None:
            raise UsageError(
                "pip is not installed in the Python that runs caxton",
                fix=f"{sys.executable} -m ensurepip",
            )
        report = self.scratch / "report.json"
        options = (
            "--dry-run",
            "--quiet",
            "--ignore-installed",
            "--report",
            str(report),
        )
        target = ("--target", str(self.scratch / "target"))
        self._pip(
            ["install", *options, *target, "--", *self.metadata.dependencies],
            f"the dependencies of {self.program} cannot be resolved",
        )
        try:
            chosen = wheels_of(json.loads(report.read_bytes()))
        except ValueError as exc:
            raise UsageError(
                f"the report of pip cannot be read: {exc}",
                fix=f"{sys.executable} -m pip install --upgrade pip",
            ) from None
        if pure := [f"{one.name}=={one.version}" for one in chosen if one.is_pure]:
            failed = f"the dependencies of {self.program} cannot be downloaded"
            self._download(pure, failed)
        for one in chosen:
            if not one.is_pure:
                self._replace(one, chosen)
        return [self._found(one) for one in chosen]

    def _download(self, exactly: Sequence[str], failed: str) -> None:
        words = ("--quiet", *_PURE, "--dest", str(self.scratch / _WHEELS), "--")
        self._pip(["download", *words, *exactly], failed)

    def _replace(self, wheel: Wheel, chosen: Sequence[Wheel]) -> None:
        """Download the pure wheel of a package that has others, too."""
        exactly = f"{wheel.name}=={wheel.version}"
        try:
            self._download([exactly], exactly)
        except UsageError as exc:
            if not str(exc).startswith(exactly):
                raise
            way = chain(chosen, wheel.name)
            raise UsageError(
                f"{wheel.name} {wheel.version} has parts in C, which no program can "
                f"have ({' wants '.join([self.program, *way])})",
                fix=f"use a package that is pure Python instead of {way[0]}",
            ) from None

    def _pip(self, words: Sequence[str], failed: str) -> None:
        command, *rest = words
        environment = json.dumps(self.target.environment())
        call(
            [
                *(sys.executable, "-I", _PROGRAM, environment),
                *(self.metadata.requires_python, command),
                *(*_ONLY_WHEELS, "--python-version", self.target.short, *rest),
            ],
            folder=self.scratch,
            failed=failed,
            fix=f"correct the metadata in {self.program}, or the configuration of pip",
            environ={
                key: value
                for key, value in os.environ.items()
                if key.startswith(_OF_PIP) or key.lower() in _PROXIES
            },
        )

    def _found(self, wheel: Wheel) -> tuple[Wheel, Path]:
        """Return a wheel with the digest of its file, and the file."""
        wanted = [_part(wheel.name), _part(wheel.version)]
        for path in (self.scratch / _WHEELS).glob("*.whl"):
            if [_part(one) for one in path.name.split("-")[:2]] == wanted:
                digest = sha256(path.read_bytes()).hexdigest()
                if wheel.is_pure and wheel.sha256 not in {"", digest}:
                    raise UsageError(
                        f"{path.name} changed while it was downloaded",
                        fix=f"caxton program lock {self.program}",
                    )
                return replace(wheel, file=path.name, sha256=digest), path
        raise UsageError(
            f"pip downloaded no wheel of {wheel.name} {wheel.version}",
            fix=f"{sys.executable} -m pip install --upgrade pip",
        )


def _part(name: str) -> str:
    """Return a part of the name of a wheel, so that equal ones are equal."""
    return name.lower().replace("-", "_").replace(".", "_")
