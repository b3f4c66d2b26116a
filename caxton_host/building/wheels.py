"""
The modules of wheels: their text, read within bounds and never executed.

A wheel is a zip file from outside. Only the files are read that are modules, by what
they claim to be; nothing is unpacked to a folder.
"""

from __future__ import annotations

import io
import re
import tokenize
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import TypeAlias

from ..errors import UsageError

#: Full name of a module to whether it is a package, and its text. The name of a folder
#: of metadata has the text of ``METADATA``.
Modules: TypeAlias = dict[str, tuple[bool, str]]

_MIB = 1024 * 1024
#: Most bytes of a wheel, of one module and of all; most files of a wheel.
_WHEEL, _MODULE, _ALL = 64 * _MIB, 2 * _MIB, 16 * _MIB
_FILES = 10_000
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_CHOSEN = "choose another version of the package, or a smaller one"


def modules_of(wheels: Iterable[Path]) -> Modules:
    """
    Return the modules of wheels. Of two with one name, the last one counts.

    Raises:
        UsageError: A file is not a wheel, is damaged, or exceeds a bound.
    """
    found: Modules = {}
    size = 0
    for path in wheels:
        for name, is_package, text in _read(path):
            size += len(text)
            if size > _ALL:
                raise UsageError(
                    f"the packages have more than {_ALL:,} bytes of source, with "
                    f"{path.name}",
                    fix=_CHOSEN,
                )
            found[name] = is_package, text
    return dict(sorted({**_parents(found), **found}.items()))


def _read(path: Path) -> Iterator[tuple[str, bool, str]]:
    with _opened(path) as archive:
        for info in archive.infolist():
            parts = PurePosixPath(info.filename).parts
            if len(parts) == 2 and parts[0].endswith(".dist-info"):  # noqa: PLR2004 -- a folder and a file
                if parts[1] == "METADATA":
                    yield parts[0], False, _text(archive, info, path, utf8=True)
            elif module := _module(parts):
                yield *module, _text(archive, info, path)


def _opened(path: Path) -> zipfile.ZipFile:
    try:
        if path.stat().st_size > _WHEEL:
            raise UsageError(f"{path.name} has more than {_WHEEL:,} bytes", fix=_CHOSEN)
        archive = zipfile.ZipFile(path)
    except (OSError, ValueError, zipfile.BadZipFile) as exc:
        raise _damaged(path, exc) from None
    if len(archive.infolist()) > _FILES:
        archive.close()
        raise UsageError(f"{path.name} has more than {_FILES:,} files", fix=_CHOSEN)
    return archive


def _module(parts: tuple[str, ...]) -> tuple[str, bool] | None:
    """
    Return the module that a file is, and whether it is a package; None for others.

    >>> _module(("attr", "__init__.py")), _module(("attr", "py.typed"))
    (('attr', True), None)
    """
    if len(parts) > 2 and parts[0].endswith(".data") and parts[1] in _LIBRARIES:  # noqa: PLR2004 -- two folders
        parts = parts[2:]
    if not parts or not parts[-1].endswith(".py"):
        return None
    names = [*parts[:-1], parts[-1].removesuffix(".py")]
    if not all(map(_IDENTIFIER.fullmatch, names)):
        return None
    is_package = names[-1] == "__init__" and len(names) > 1
    return ".".join(names[:-1] if is_package else names), is_package


_LIBRARIES = ("purelib", "platlib")


def _text(
    archive: zipfile.ZipFile, info: zipfile.ZipInfo, path: Path, *, utf8: bool = False
) -> str:
    where = f"{path.name}: {info.filename}"
    try:
        with archive.open(info) as file:
            data = file.read(_MODULE + 1)
        if len(data) > _MODULE:
            raise UsageError(f"{where} has more than {_MODULE:,} bytes", fix=_CHOSEN)
        if utf8:
            return data.decode(errors="replace")
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
        text = io.StringIO(data.decode(encoding), newline=None).read()
    except (
        *(SyntaxError, UnicodeError, LookupError, NotImplementedError),
        *(OSError, EOFError, RuntimeError, zlib.error, zipfile.BadZipFile),
    ) as exc:
        raise _damaged(path, exc, info.filename) from None
    return text


def _damaged(path: Path, exc: Exception, file: str = "") -> UsageError:
    where = f"{path.name}: {file}" if file else path.name
    return UsageError(f"{where} cannot be read: {exc}", fix=_CHOSEN)


def _parents(found: Modules) -> Modules:
    """Return an empty package for each folder that has no file of its own."""
    return {
        ".".join(parts[:end]): (True, "")
        for name in found
        if not name.endswith(".dist-info")
        for parts in [name.split(".")]
        for end in range(1, len(parts))
    }
