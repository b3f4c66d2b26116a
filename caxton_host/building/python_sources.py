"""
Check the sources of an agent in Python before it is built, which takes longer.

The checks are those that need no build: the syntax of each file, and the imports of the
files that the agent reaches. An import inside ``try``, ``if`` or a function is left to
the agent.
"""

from __future__ import annotations

import ast
import re
import sys
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path

from ..errors import UsageError

#: The standard library without what needs the operating system or parts in C that the
#: WebAssembly build of CPython lacks, and without what CPython 3.14 has no more.
_LACKS = frozenset(
    {
        *("bz2", "ctypes", "curses", "fcntl", "grp", "lzma", "mmap", "msvcrt", "nt"),
        *("multiprocessing", "pty", "pwd", "readline", "resource", "ssl", "syslog"),
        *("termios", "tkinter", "tty", "turtle", "winreg", "winsound"),
        *("aifc", "asynchat", "asyncore", "audioop", "cgi", "cgitb", "chunk", "crypt"),
        *("distutils", "imghdr", "imp", "lib2to3", "mailcap", "msilib", "nis"),
        *("nntplib", "ossaudiodev", "pipes", "smtpd", "sndhdr", "spwd", "sunau"),
        *("telnetlib", "uu", "xdrlib"),
    }
)
_LIBRARY = sys.stdlib_module_names | {"annotationlib", "compression"}
_SDK = frozenset({"caxton_agent"})
_IN_C = (".so", ".pyd")
#: Syntax that the Python of agents knows, and an older one that runs this may not.
_NEWER = re.compile(
    r"""^\s*type\s+\w|\b(def|class)\s+\w+\s*\[|\b[fFtTrR]{1,2}['"]|\bexcept\b.*,"""
)
_AGENTS = (3, 14)


def check(entry: Path, files: Sequence[Path]) -> None:
    """
    Raise for the first error that a build would find, too.

    Args:
        entry: The file that the agent begins with.

        files: All Python files of its folder.

    Raises:
        UsageError: A file is not Python, or imports what no agent can import.
    """
    root = entry.parent
    trees = {file: _parsed(file, root) for file in files}
    modules = {_name(file.relative_to(root)): file for file in files}
    known = _known(modules)
    waiting, seen = [entry], {entry}
    for file in waiting:
        tree = trees.get(file)
        at = file.relative_to(root)
        for node, name in _imports(tree, at) if tree else ():
            for target in _targets(name, node, modules):
                if target not in seen:
                    seen.add(target)
                    waiting.append(target)
            top = name.partition(".")[0]
            if top not in known:
                _refuse(file, node, top, root)


def _parsed(file: Path, root: Path) -> ast.Module | None:
    """Return the syntax tree; ``None`` if only a newer Python can judge it."""
    where = file.relative_to(root)
    try:
        with warnings.catch_warnings(action="ignore"):
            return ast.parse(file.read_bytes(), str(where))
    except SyntaxError as exc:
        line = exc.lineno or 1
        text = exc.text or ""
        if sys.version_info < _AGENTS and _is_newer(file, line):
            return None
        raise _error(f"{where}:{line}", exc.msg, text, exc.offset or 1) from None
    except (ValueError, RecursionError, OSError) as exc:
        raise _error(f"{where}", str(exc), "", 1) from None


def _is_newer(file: Path, line: int) -> bool:
    lines = file.read_text("utf-8", errors="replace").splitlines()
    return any(map(_NEWER.search, lines[max(0, line - 3) : line]))


def _name(file: Path) -> str:
    parts = file.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _known(modules: dict[str, Path]) -> frozenset[str]:
    own = frozenset(name.partition(".")[0] for name in modules)
    return own | _SDK | (_LIBRARY - _LACKS)


def _imports(tree: ast.Module, file: Path) -> Iterator[tuple[ast.stmt, str]]:
    """Yield the imports of a module that are executed when it is imported."""
    waiting: list[ast.stmt] = [*tree.body]
    for node in waiting:
        if isinstance(node, ast.Import):
            yield from ((node, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            package = file.parts[: -node.level] if node.level else ()
            yield node, ".".join((*package, *filter(None, [node.module])))
        elif isinstance(node, ast.ClassDef | ast.With):
            waiting += node.body


def _targets(name: str, node: ast.stmt, modules: dict[str, Path]) -> Iterator[Path]:
    """Yield the files of the folder that an import executes."""
    parts = name.split(".")
    names = [".".join(parts[:end]) for end in range(1, len(parts) + 1)]
    if isinstance(node, ast.ImportFrom):
        names += [f"{name}.{alias.name}" for alias in node.names]
    yield from (modules[one] for one in names if one in modules)


def _refuse(file: Path, node: ast.stmt, top: str, root: Path) -> None:
    where = f"{file.relative_to(root)}:{node.lineno}"
    lines = file.read_text("utf-8", errors="replace").splitlines()
    text = lines[node.lineno - 1]
    offset = text.find(top, node.col_offset) + 1
    in_c = sorted(one.name for one in root.glob(f"{top}*") if one.suffix in _IN_C)
    if in_c:
        why = f"{in_c[0]} is a part in C, which no agent can have"
    elif top in _LACKS:
        why = f"agents have no {top}: it needs the operating system, parts in C, or an "
        why += "older Python"
    else:
        why = f"no module {top!r} in the folder of the agent or the standard library"
    raise _error(where, why, text, offset)


def _error(where: str, why: str, text: str, offset: int) -> UsageError:
    shown = text.rstrip("\n")
    start = len(shown) - len(shown.lstrip())
    caret = " " * max(offset - 1 - start, 0) + "^"
    quote = f"\n    {shown.lstrip()}\n    {caret}" if shown else ""
    return UsageError(
        f"{where}: {why}{quote}",
        fix=f"change {where.partition(':')[0]}; what it imports has to be in its "
        "folder, in Python",
    )
