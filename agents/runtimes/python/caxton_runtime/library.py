"""
Modules as values: the pure standard library, and the locked packages of a program.

A module is a flag, whether it is a package, and its code as zlib of marshal. So a
runtime holds the whole library, and a run unpacks what it imports.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import marshal
import os
import types
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.machinery import ModuleSpec

__all__ = ["Finder", "pack", "read_folder"]

#: What needs a screen, a device, other processes or parts in C that are missing.
_LEFT_OUT = {
    *("__phello__", "_aix_support", "_android_support", "_apple_support"),
    *("_ios_support", "_osx_support", "antigravity", "ctypes", "curses"),
    *("ensurepip", "idlelib", "multiprocessing", "pty", "pydoc_data"),
    *("site-packages", "this", "tkinter", "tty", "turtle", "turtledemo", "venv"),
}
_METADATA = ".dist-info"


def pack(
    modules: Iterable[tuple[str, bool, str]], root: str
) -> Iterator[tuple[str, object]]:
    """
    Compile modules, and yield each name with what a library holds of it.

    Args:
        modules: The full name of each, whether it is a package, and its text. A name
            that ends with ``.dist-info`` is not a module: its text is the metadata of a
            distribution.

        root: Folder of the file names in tracebacks.

    Raises:
        SyntaxError: One of them is not Python.
    """
    for name, is_package, text in modules:
        if name.endswith(_METADATA):
            yield name, text
            continue
        path = name.replace(".", "/") + ("/__init__.py" if is_package else ".py")
        code = compile(text, f"{root}/{path}", "exec", dont_inherit=True)
        yield name, (is_package, zlib.compress(marshal.dumps(code)))


def read_folder(folder: str, before: str = "") -> Iterator[tuple[str, bool, str]]:
    """
    Yield the modules of the standard library in *folder*, as for `pack`.

    Args:
        folder: The folder of the library, or of a package in it.

        before: The name of that package, with a dot.
    """
    for name in sorted(os.listdir(folder)):
        path, stem = f"{folder}/{name}", name.removesuffix(".py")
        if f"{before}{stem}" in _LEFT_OUT:
            continue
        if stem not in {name, "__init__"}:
            yield before + stem, False, _text(path)
        elif os.path.exists(f"{path}/__init__.py"):
            yield before + name, True, _text(f"{path}/__init__.py")
            yield from read_folder(path, f"{before}{name}.")


def _text(path: str) -> str:
    with open(path, "rb") as file:
        return importlib.util.decode_source(file.read())


class Finder(importlib.metadata.DistributionFinder):
    """Imports modules of a library."""

    def __init__(self, library: Mapping[str, object]) -> None:
        self.library = library

    def find_spec(
        self,
        fullname: str,
        _path: Sequence[str] | None = None,
        _target: types.ModuleType | None = None,
    ) -> ModuleSpec | None:
        """Return how a module is imported, or None if the library does not have it."""
        found = self.library.get(fullname)
        if not isinstance(found, tuple):
            return None
        spec = ModuleSpec(fullname, self, is_package=found[0])
        spec.origin = "the library of the runtime"
        return spec

    def create_module(self, spec: ModuleSpec) -> None:
        """Have the interpreter create it."""

    def get_code(self, fullname: str) -> types.CodeType:
        """Return the code of a module."""
        _, code = self.library[fullname]
        return marshal.loads(zlib.decompress(code))

    def exec_module(self, module: types.ModuleType) -> None:
        """Execute the code of *module*."""
        code = self.get_code(module.__name__)
        module.__file__ = code.co_filename
        exec(code, module.__dict__)

    def find_distributions(
        self, context: importlib.metadata.DistributionFinder.Context
    ) -> Iterator[importlib.metadata.Distribution]:
        """Return the distributions of that name."""
        for text in self.library.values():
            if isinstance(text, str):
                found = _Distribution(text)
                if context.name in {None, found.name}:
                    yield found


class _Distribution(importlib.metadata.Distribution):
    def __init__(self, text: str) -> None:
        self._metadata = text

    def read_text(self, filename: str) -> str | None:
        return self._metadata if filename == "METADATA" else None

    def locate_file(self, path: object) -> None:
        raise FileNotFoundError(path)
