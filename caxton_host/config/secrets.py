"""
Values from outside the file, and which values must never be seen again (law 8).

``caxton.toml`` says ``${env:NAME}``, ``${env:NAME:-default}`` and ``${file:PATH}``.
An imported file keeps the spellings of its program: ``${NAME}``,
``${NAME:-default}``, ``${VAR|default}``, ``${env:NAME}``, ``${workspaceFolder}``,
``${userHome}``, and VS Code's ``${input:id}``, which is the variable
``CAXTON_INPUT_ID``; it cannot read files. ``${context.x}`` is left for the run, and
``$${`` stands for ``${``.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from ..core.text.redact import MIN_LENGTH

if TYPE_CHECKING:
    from .source import At


_MAX_FILE = 64 * 1024
_REFERENCE = re.compile(r"\$?\$\{([^{}]*\}?)")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ENV = re.compile(r"(?:env:)?([A-Za-z_][A-Za-z0-9_]*)(?:(?::-|\|)(.*))?", re.DOTALL)
_REFERENCED = re.compile(
    r"(?:[A-Za-z]{1,20} )?(?:\$\{(?:env:[A-Za-z_][A-Za-z0-9_]*|file:[^{}]+)\})+"
)
_SECRET_NAME = re.compile(
    r"token|key|secret|passw|credential|cookie|auth(?!or(?!i))", re.IGNORECASE
)
_NEVER = frozenset({"HOME", "USER", "PWD", "TMPDIR", "PATH"})


@dataclass(slots=True)
class Secrets:
    """
    Fills in references, and remembers what is secret of what it saw.

    Attributes:
        home: What ``~`` and ``${userHome}`` stand for.

        seen: Every secret value, of any length.
    """

    environ: Mapping[str, str] = field(repr=False)
    home: Path
    seen: set[str] = field(default_factory=set[str], repr=False)

    @property
    def redactable(self) -> frozenset[str]:
        """The secrets that are long enough to be looked for in texts."""
        return frozenset(s for s in self.seen if len(s.encode()) >= MIN_LENGTH)

    @property
    def short(self) -> frozenset[str]:
        """The others."""
        return frozenset(self.seen) - self.redactable

    def note(self, value: str, name: str, at: At) -> None:
        """Remember *value* as secret, unless its *name* says that it is none."""
        if value and name not in _NEVER and name.upper() not in at.public:
            self.seen.add(value)

    def expand(self, text: str, at: At) -> str:
        """
        Return *text* with its references filled in.

        Raises:
            ConfigError: A variable is unset and has no default, a file cannot be
                read, or a reference is none that is known.
        """
        if "${" not in text:
            return text
        return _REFERENCE.sub(lambda found: self._one(found[0], found[1], at), text)

    def _one(self, whole: str, reference: str, at: At) -> str:
        if whole.startswith("$$"):
            return whole[1:]
        if not reference.endswith("}"):
            raise at.error(
                "a reference in it has no end", fix="write $${ for a plain ${"
            )
        reference = reference[:-1]
        if reference.startswith("context."):
            return whole
        if reference.startswith("file:") and not at.source.imported:
            return self._file(reference.removeprefix("file:"), at)
        if at.source.imported:
            if reference.startswith("input:"):
                reference = input_variable(reference.removeprefix("input:"))
            elif reference == "workspaceFolder":
                return str(at.source.folder)
            elif reference == "userHome":
                return str(self.home)
        found = _ENV.fullmatch(reference)
        if not found or not (at.source.imported or reference.startswith("env:")):
            raise at.error(
                "a reference in it is not known",
                fix=f"write ${{env:{reference}}}"
                if _NAME.fullmatch(reference)
                else "write ${env:NAME} or ${file:PATH}, and $${ for a plain ${",
            )
        return self._variable(found[1], found[2], at)

    def _variable(self, name: str, default: str | None, at: At) -> str:
        value = self.environ.get(name)
        if value is None or (not value and default is not None):
            if default is None:
                raise at.unset(
                    f"the environment variable {name} is not set",
                    fix=f"run: export {name}=...; or write ${{env:{name}:-default}}",
                )
            return default
        self.note(value, name, at)
        return value

    def _file(self, name: str, at: At) -> str:
        path = at.source.folder / Path(name).expanduser()
        try:
            with path.open("rb") as file:
                mode = os.fstat(file.fileno()).st_mode
                data = file.read(_MAX_FILE + 1)
            value = data.decode().rstrip("\r\n")
        except (OSError, ValueError):
            raise at.error(
                f"the file {name} cannot be read as text",
                fix="name a text file that you may read",
            ) from None
        if len(data) > _MAX_FILE:
            raise at.error(f"the file {name} has more than 64 KiB", fix="shorten it")
        if stat.S_IMODE(mode) & 0o077:
            at.warn(f"others can read the file {name}; run: chmod 600 {name}")
        self.note(value, "", at)
        return value


def input_variable(identifier: str) -> str:
    """
    Return the variable that answers an input that VS Code would ask for.

    >>> input_variable("api-key")
    'CAXTON_INPUT_API_KEY'
    """
    return "CAXTON_INPUT_" + re.sub(r"[^A-Za-z0-9]", "_", identifier).upper()


def sounds_secret(name: str) -> bool:
    """
    Return whether the value of a variable of that name is a secret.

    >>> sounds_secret("CRM_TOKEN"), sounds_secret("GIT_AUTHOR_NAME")
    (True, False)
    """
    return name not in _NEVER and _SECRET_NAME.search(name) is not None


def is_reference(value: str) -> bool:
    """
    Return whether a value is found elsewhere, but for the scheme of a header.

    >>> is_reference("Bearer ${env:CRM_TOKEN}"), is_reference("${env:A:-hunter2}")
    (True, False)
    """
    return _REFERENCED.fullmatch(value) is not None
