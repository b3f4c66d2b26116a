"""
The dependencies of a program in Python: those that it names, and those that are locked.

A program names them as inline script metadata (PEP 723). The lock names the version and
the digest of each wheel, and the digest of the packages made of them.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeVar, cast

from ..errors import UsageError
from .calls import JSON
from .text.toml_text import value_text

_BEGIN, _END = "# /// script", "# ///"
#: Most characters of the metadata and of a lock, and most dependencies.
_METADATA, _LOCK = 64 * 1024, 1024 * 1024
_DEPENDENCIES = 100
_LONGEST = 300
#: A name with extras, versions and a marker (PEP 508); no address and no option.
_SPECIFIER = r"[<>=!~]{1,3} ?[A-Za-z0-9.*+!_-]+"
_REQUIREMENT = re.compile(
    r"[A-Za-z0-9][A-Za-z0-9._-]* ?(\[[A-Za-z0-9._, -]*\])? ?\(?"
    rf"({_SPECIFIER}( ?, ?{_SPECIFIER})*)?\)? ?(;[A-Za-z0-9_.,<>=!~'\"() -]*)?"
)
_VERSIONS = re.compile(r"[A-Za-z0-9<>=!~.*+, -]*")
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,98}[A-Za-z0-9])?")
_VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+!_-]{0,98}")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_EXTRA = re.compile(r";.*\bextra\s*==")
_VERSION_OF_LOCK = 1

_Table: TypeAlias = Mapping[str, object]
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Metadata:
    """
    What a program says of itself.

    Attributes:
        dependencies: Names with versions, as they are written.

        requires_python: The versions of Python that it works with, or ``""``.
    """

    dependencies: tuple[str, ...] = ()
    requires_python: str = ""


def metadata_of(source: str, name: str) -> Metadata:
    r"""
    Return the inline metadata of a program.

    >>> text = '# /// script\n# dependencies = ["attrs>=25"]\n# ///\nimport attrs'
    >>> metadata_of(text, "report.py").dependencies
    ('attrs>=25',)

    Args:
        source: The text of the program.

        name: Of its file, for messages.

    Raises:
        UsageError: It is not valid.
    """
    text, line = _block(source, name)
    try:
        return _metadata(tomllib.loads(text))
    except (ValueError, RecursionError) as exc:
        raise UsageError(
            f"{name}: the metadata that begins in line {line}: {exc}",
            fix='write for example # dependencies = ["attrs>=25"]; addresses and paths '
            "do not work",
        ) from None


def _metadata(table: _Table) -> Metadata:
    dependencies = _texts(table, "dependencies")
    requires = _get(table, "requires-python", str, "")
    if len(dependencies) > _DEPENDENCIES:
        raise ValueError(f"it has more than {_DEPENDENCIES} dependencies")
    for at, one in enumerate(dependencies):
        # One space at most, so that the match takes linear time.
        if len(one) > _LONGEST or not _REQUIREMENT.fullmatch(" ".join(one.split())):
            shown = repr(one[:_LONGEST])
            raise ValueError(
                f"dependencies[{at}], {shown}, is not a name with versions"
            )
    if len(requires) > _LONGEST or not _VERSIONS.fullmatch(requires):
        raise ValueError("requires-python is not a list of versions")
    return Metadata(dependencies=tuple(dependencies), requires_python=requires)


def _block(source: str, name: str) -> tuple[str, int]:
    """Return the text of the metadata, and the line in which it begins."""
    lines = source.splitlines()
    starts = [at for at, line in enumerate(lines) if line.rstrip() == _BEGIN]
    if not starts:
        return "", 0
    if len(starts) > 1:
        raise UsageError(
            f"{name}: a second block of metadata begins in line {starts[1] + 1}",
            fix="join the two blocks",
        )
    (start,) = starts
    inside: list[str] = []
    for line in lines[start + 1 :]:
        if line.rstrip() == _END:
            break
        if line.rstrip() != "#" and not line.startswith("# "):
            inside.clear()
            break
        inside.append(line[2:])
    else:
        inside.clear()
    if not inside:
        raise UsageError(
            f"{name}: the metadata that begins in line {start + 1} does not end, or is "
            "empty",
            fix=f"begin each of its lines with '# ', and end it with the line '{_END}'",
        )
    text = "\n".join(inside)
    if len(text) > _METADATA:
        raise UsageError(
            f"{name}: the metadata has {len(text):,} characters, of {_METADATA:,} "
            "allowed",
            fix="shorten it",
        )
    return text, start + 1


# -- what pip has resolved ---------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Wheel:
    """
    A wheel that was chosen.

    Attributes:
        file: The name of its file.

        sha256: Digest of the file; ``""`` if pip did not tell it.

        wants: The names of the packages that it requires.

        requested: The program names it.
    """

    name: str
    version: str
    file: str
    sha256: str
    wants: tuple[str, ...] = ()
    requested: bool = False

    @property
    def is_pure(self) -> bool:
        """Whether it works on every machine, by its name."""
        return self.file.endswith("-none-any.whl")


def wheels_of(report: JSON) -> list[Wheel]:
    """
    Return the wheels that an installation report of pip names.

    Raises:
        ValueError: It is not such a report.
    """
    found = [_wheel(one) for one in _tables(_table(report), "install")]
    return sorted(found, key=lambda wheel: normal(wheel.name))


def _wheel(install: _Table) -> Wheel:
    metadata = _table(install.get("metadata"))
    download = _table(install.get("download_info"))
    archive = _table(download.get("archive_info", {}))
    hashes = _table(archive.get("hashes", {}))
    wants = _texts(metadata, "requires_dist")
    matches = [_NAME.match(one) for one in wants if not _EXTRA.search(one)]
    return Wheel(
        name=_matching(metadata, "name", _NAME),
        version=_matching(metadata, "version", _VERSION),
        file=_get(download, "url", str).rpartition("/")[2],
        sha256=_matching(hashes, "sha256", _DIGEST) if hashes else "",
        wants=tuple(match[0] for match in matches if match),
        requested=install.get("requested") is True,
    )


def normal(name: str) -> str:
    """
    Return the name of a package, normalised.

    >>> normal("Typing_Extensions")
    'typing-extensions'
    """
    return re.sub(r"[-_.]+", "-", name).lower()


def chain(wheels: Sequence[Wheel], name: str) -> list[str]:
    """Return the shortest way from what the program names to a package."""
    known = {normal(wheel.name): wheel for wheel in wheels}
    ways = [[wheel.name] for wheel in wheels if wheel.requested]
    seen: set[str] = set()
    for way in ways:
        last = normal(way[-1])
        if last == normal(name):
            return way
        if last not in seen:
            seen.add(last)
            wanted = [
                known[one] for one in map(normal, known[last].wants) if one in known
            ]
            ways += [[*way, one.name] for one in wanted]
    return [name]


# -- the lock ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Lock:
    """
    The content of a lock file.

    Attributes:
        metadata: That of the program when it was locked.

        python: The version of Python that the packages are compiled for.

        packages: Name, version and digest of the wheel of each.

        sha256: Digest of the packages as the runtime takes them.
    """

    metadata: Metadata
    python: str
    packages: tuple[Mapping[str, JSON], ...]
    sha256: str

    def to_toml(self) -> str:
        """Return the text of the file."""
        head = {
            "version": _VERSION_OF_LOCK,
            "dependencies": [*self.metadata.dependencies],
            "requires-python": self.metadata.requires_python,
            "python": self.python,
            "sha256": self.sha256,
        }
        lines = ["# Made by caxton program lock; do not edit."]
        lines += _pairs(head)
        for package in self.packages:
            lines += ["", "[[package]]", *_pairs(package)]
        return "\n".join(lines) + "\n"

    @classmethod
    def from_toml(cls, text: str) -> Lock:
        """
        Parse the text of a lock file.

        Raises:
            ValueError: It is not one.
        """
        if len(text) > _LOCK:
            raise ValueError(f"it has more than {_LOCK:,} characters")
        table = tomllib.loads(text)
        if table.get("version") != _VERSION_OF_LOCK:
            raise ValueError(f"its version is not {_VERSION_OF_LOCK}")
        return cls(
            metadata=Metadata(
                dependencies=tuple(_texts(table, "dependencies")),
                requires_python=_get(table, "requires-python", str),
            ),
            python=_get(table, "python", str),
            packages=tuple(map(_locked, _tables(table, "package"))),
            sha256=_matching(table, "sha256", _DIGEST),
        )


def _locked(package: _Table) -> dict[str, JSON]:
    return {
        "name": _matching(package, "name", _NAME),
        "version": _matching(package, "version", _VERSION),
        "sha256": _matching(package, "sha256", _DIGEST),
    }


def _pairs(table: Mapping[str, object]) -> Iterator[str]:
    return (f"{key} = {value_text(value)}" for key, value in table.items())


# -- values from outside -----------------------------------------------------------


def _table(value: object) -> _Table:
    if not isinstance(value, dict):
        raise ValueError("it lacks a table")  # noqa: TRY004 -- of a text
    return cast("_Table", value)


def _get(table: _Table, key: str, kind: type[_T], default: _T | None = None) -> _T:
    value = table.get(key, default)
    if not isinstance(value, kind):
        raise ValueError(f"{key} is missing, or of another type")  # noqa: TRY004 -- of a text
    return value


def _matching(table: _Table, key: str, pattern: re.Pattern[str]) -> str:
    text = _get(table, key, str)
    if not pattern.fullmatch(text):
        raise ValueError(f"{key} is not valid")
    return text


def _texts(table: _Table, key: str) -> list[str]:
    values: Iterable[object] = _get(table, key, list, [])
    if not all(isinstance(value, str) for value in values):
        raise ValueError(f"{key} is not a list of texts")
    return cast("list[str]", values)


def _tables(table: _Table, key: str) -> list[_Table]:
    return [*map(_table, _get(table, key, list, []))]
