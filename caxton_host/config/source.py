"""
Places in a file of a configuration, and the references and secrets in its values.

Every error names the file, the key and the fix. None shows a value: it may be a secret
in the wrong place (law 8).

``caxton.toml`` has the references ``${env:NAME}``, ``${env:NAME:-default}`` and
``${file:PATH}``. An imported file keeps the spellings of its program: ``${NAME}``,
``${NAME:-default}``, ``${VAR|default}``, ``${env:NAME}``, ``${workspaceFolder}``,
``${userHome}``, and VS Code's ``${input:id}``, which is the variable
``CAXTON_INPUT_ID``; it cannot read files. ``${context.x}`` is left for the run, and
``$${`` stands for ``${``.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from ..core.names import nearest
from ..core.text.redact import MIN_LENGTH
from ..errors import ConfigError, UnsetError
from .key_lines import Lines

_PLAIN_KEY = re.compile(r"[A-Za-z0-9_-]{1,64}(?:\[[0-9]+\])?")

_NO_LINES = Lines("")


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """
    A file that is being read.

    Attributes:
        shown: How messages name it.

        folder: What its relative paths start from.

        imported: It was written for another program: what is not known there is
            a warning, and variables are spelled as there.

        secrets: Where values come from, and which must not be seen again.

        warnings: What was odd in any file so far.

        lines: Where each key is.
    """

    shown: str
    folder: Path
    secrets: Secrets
    imported: bool = False
    warnings: list[str] = field(default_factory=list[str])
    lines: Lines = _NO_LINES


@dataclass(slots=True)
class ErrorCollector:
    """
    Collects the errors of several ``with`` blocks, to raise all of them.

    >>> several = ErrorCollector()
    >>> for text in ("1", "x"):
    ...     with several:
    ...         if not text.isdecimal():
    ...             raise ConfigError(f"{text} is no number")
    >>> several.settle()
    Traceback (most recent call last):
        ...
    caxton_host.errors.ConfigError: x is no number
    """

    found: list[ConfigError] = field(default_factory=list[ConfigError])

    def __enter__(self) -> None:
        """Begin one part."""

    def __exit__(self, _: object, error: BaseException | None, __: object) -> bool:
        if isinstance(error, ConfigError):
            self.found += error.each
            return True
        return False

    def settle(self) -> None:
        """
        Raise the collected errors, if there are any.

        Raises:
            ConfigError: The first; its ``each`` has all.
        """
        if self.found:
            error = self.found[0]
            error.each = tuple(self.found)
            raise error


@dataclass(frozen=True, slots=True, kw_only=True)
class At:
    """
    A place in a file, by its keys.

    Attributes:
        public: Names, in capitals, whose values are no secrets here.
    """

    source: Source
    keys: tuple[str, ...] = ()
    public: frozenset[str] = frozenset()

    @property
    def name(self) -> str:
        """The last key: the name of a table."""
        return self.keys[-1]

    @property
    def where(self) -> str:
        """The file and the keys, for people."""
        return f"{self.source.shown}: {self.path}" if self.keys else self.source.shown

    @property
    def path(self) -> str:
        """The dotted key, for people."""
        return ".".join(map(_key, self.keys))

    @property
    def line(self) -> int | None:
        """The line in the file, if that is known."""
        return self.source.lines.of(self.keys)

    def key(self, name: str | int) -> At:
        """Return the place of *name* below this one."""
        return replace(self, keys=(*self.keys, str(name)))

    def below(self, keys: Iterable[str]) -> At:
        """Return the place that *keys* lead to from this one."""
        return replace(self, keys=(*self.keys, *keys))

    def error(
        self, problem: str, fix: str = "", *, line: int | None = None
    ) -> ConfigError:
        """Return an error at this place."""
        return self._complaint(ConfigError, problem, fix, line)

    def unset(self, problem: str, fix: str) -> ConfigError:
        """Return the error that a variable is not set."""
        return self._complaint(UnsetError, problem, fix, None)

    def _complaint(
        self, kind: type[ConfigError], problem: str, fix: str, line: int | None
    ) -> ConfigError:
        return kind(
            problem,
            fix=fix,
            file=self.source.shown,
            key=self.path,
            line=line or self.line,
        )

    def warn(self, text: str) -> None:
        """Record a warning at this place."""
        self.source.warnings.append(str(self.error(text)))

    def unknown(self, name: str, known: Iterable[str]) -> None:
        """
        Report an unknown key.

        Raises:
            ConfigError: Unless the file was written for another program.
        """
        here = self.key(name)
        if self.source.imported:
            here.warn("unknown key, ignored")
            return
        names = sorted(known)
        close = nearest(name, names)
        raise here.error(
            "unknown key",
            fix=f"write {close}" if close else f"known here: {', '.join(names)}",
        )

    def expand(self, text: str) -> str:
        """Expand the references in *text*."""
        return self.source.secrets.expand(text, self)


def _key(name: str) -> str:
    return name if _PLAIN_KEY.fullmatch(name) else json.dumps(name[:64])


_MAX_FILE = 64 * 1024
_REFERENCE = re.compile(r"\$?\$\{([^{}]*\}?)")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
#: A variable and its default, as imported files spell them.
ENV_REFERENCE = re.compile(
    r"(?:env:)?([A-Za-z_][A-Za-z0-9_]*)(?:(?::-|\|)(.*))?", re.DOTALL
)
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
    Expands references, and records secret values.

    Attributes:
        home: What ``~`` and ``${userHome}`` stand for.

        seen: Every secret value, of any length.
    """

    environ: Mapping[str, str] = field(repr=False)
    home: Path
    seen: set[str] = field(default_factory=set[str], repr=False)

    @property
    def redactable(self) -> frozenset[str]:
        """The secrets that are long enough to be searched for in texts."""
        return frozenset(s for s in self.seen if len(s.encode()) >= MIN_LENGTH)

    @property
    def short(self) -> frozenset[str]:
        """The secrets that are too short to be searched for."""
        return frozenset(self.seen) - self.redactable

    def note(self, value: str, name: str, at: At) -> None:
        """Record *value* as a secret, unless *name* is known to be public."""
        if value and name not in _NEVER and name.upper() not in at.public:
            self.seen.add(value)

    def expand(self, text: str, at: At) -> str:
        """
        Expand the references in *text*.

        Raises:
            ConfigError: A variable is unset and has no default, a file cannot be
                read, or a reference is unknown.
        """
        if "${" not in text:
            return text
        return _REFERENCE.sub(lambda found: self._one(found[0], found[1], at), text)

    def _one(self, whole: str, reference: str, at: At) -> str:
        if whole.startswith("$$"):
            return whole[1:]
        if not reference.endswith("}"):
            raise at.error(
                "contains a reference without a closing brace",
                fix="write $${ for a plain ${",
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
        found = ENV_REFERENCE.fullmatch(reference)
        if not found or not (at.source.imported or reference.startswith("env:")):
            raise at.error(
                "contains an unknown reference",
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
            at.warn(
                f"the file {name} is readable by other users; run: chmod 600 {name}"
            )
        self.note(value, "", at)
        return value


def input_variable(identifier: str) -> str:
    """
    Return the environment variable that replaces an input of VS Code.

    >>> input_variable("api-key")
    'CAXTON_INPUT_API_KEY'
    """
    return "CAXTON_INPUT_" + re.sub(r"[^A-Za-z0-9]", "_", identifier).upper()


def sounds_secret(name: str) -> bool:
    """
    Return whether the name of a variable suggests a secret.

    >>> sounds_secret("CRM_TOKEN"), sounds_secret("GIT_AUTHOR_NAME")
    (True, False)
    """
    return name not in _NEVER and _SECRET_NAME.search(name) is not None


def is_reference(value: str) -> bool:
    """
    Return whether a value consists of references, after a header's scheme.

    >>> is_reference("Bearer ${env:CRM_TOKEN}"), is_reference("${env:A:-hunter2}")
    (True, False)
    """
    return _REFERENCED.fullmatch(value) is not None
