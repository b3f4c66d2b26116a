"""
Build agents in Python: the interpreter and the agent as one component.

The tool, componentize-py, imports the agent once at the build and keeps the resulting
memory. ``still.c`` fixes the time and randomness that this memory depends on, so that
the same source gives the same bytes.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from itertools import islice
from pathlib import Path

from ..core.sections import INTERPRETER, section
from ..errors import UsageError
from .python_sources import check
from .shipped import find_shared
from .tools import call, zig_cc

SOURCES: tuple[str, ...] = ("agent.py",)

_HERE = Path(__file__).parent
_TOOLS = ("componentize_py", "ziglang")
_MAX_FILES = 2_000
_SKIPPED = {"__pycache__", "node_modules"}
_SHIM_FLAGS = ("-shared", "-fPIC", "-O2", "-nostdlib", "-lc")

# datetime and zoneinfo in Python instead of C: they ask the module time, whose
# functions the SDK replaces.
_ENTRY = """\
import sys
sys.modules["_datetime"] = sys.modules["_zoneinfo"] = None
from caxton_agent import _still
_still.install()
"""
_AGENT = (
    _ENTRY
    + """\
from caxton_agent._component import load
WitWorld = load({name!r})
"""
)
_RUNTIME = (
    _ENTRY
    + """\
from caxton_runtime import main
from caxton_agent._component import world
WitWorld = world(main.start, main.FINDER)
"""
)


def compile(source: Path, module: Path, scratch: Path) -> None:
    """Compile *source* to *module*, with the Python files in its folder."""
    check(source, [*islice(_sources(source.parent), _MAX_FILES)])
    _componentize(
        source.parent,
        _AGENT.format(name=source.stem),
        module,
        scratch,
        failed=f"{source.name} cannot be built",
        fix=f"change {source.name}; what it imports has to be in its folder, in Python",
    )


def build_python_runtime(target: Path, scratch: Path) -> None:
    """
    Build the runtime that executes programs in Python.

    Args:
        target: An absolute path, where no file exists.

        scratch: As for `Language.compile`.

    Raises:
        UsageError: A tool is missing, or failed.
    """
    _componentize(
        find_shared("agents/runtimes/python"),
        _RUNTIME,
        target,
        scratch,
        failed="the runtime for Python cannot be built",
        fix='pip install --force-reinstall "caxton-host[programs]"',
    )


def _componentize(  # noqa: PLR0913 -- by name
    folder: Path, entry: str, module: Path, scratch: Path, *, failed: str, fix: str
) -> None:
    """Write the component that *entry* makes of the Python files in *folder*."""
    if any(find_spec(tool) is None for tool in _TOOLS):
        raise UsageError(
            "the builder of Python agents is not installed",
            fix='pip install "caxton-host[programs]"',
        )
    author, sdk, none = (scratch / name for name in ("author", "sdk", "none"))
    _copy(folder, author)
    _copy(find_shared("agents/sdk/python"), sdk)
    (sdk / "caxton_component.py").write_text(entry, "utf-8")
    # Where it looks for packages; otherwise it would use those of the machine.
    (none / "lib" / "site-packages").mkdir(parents=True)
    (scratch / "tmp").mkdir()
    command = [sys.executable, "-I", str(_HERE / "componentize.py"), "--quiet"]
    command += ["--wit-path", str(find_shared("agents/wit")), "--world", "agent"]
    command += ["componentize", "--stub-wasi", "--output", str(module)]
    command += ["--python-path", str(author), "--python-path", str(sdk)]
    call(
        [*command, "caxton_component"],
        folder=scratch,
        failed=failed,
        fix=fix,
        environ={
            "LD_PRELOAD": str(_shim(scratch)),
            "TMPDIR": str(scratch / "tmp"),
            "VIRTUAL_ENV": str(none),
        },
    )
    with module.open("ab") as file:
        file.write(section(INTERPRETER, b""))


def _shim(scratch: Path) -> Path:
    library = scratch / "still.so"
    zig_cc(
        *_SHIM_FLAGS,
        *("-o", library, _HERE / "still.c"),
        folder=scratch,
        scratch=scratch,
        failed="the build's own library cannot be compiled",
        fix='pip install --force-reinstall "caxton-host[programs]"',
    )
    return library


def _copy(folder: Path, target: Path) -> None:
    """
    Copy the Python files of *folder*.

    The build may write beside what it imports, and code that runs at the build sees no
    other file.
    """
    for count, file in enumerate(_sources(folder)):
        if count == _MAX_FILES:
            raise UsageError(
                f"{folder} holds more than {_MAX_FILES:,} Python files",
                fix="give the agent a folder of its own",
            )
        copy = target / file.relative_to(folder)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, copy)


def _sources(folder: Path) -> Iterator[Path]:
    for at, folders, files in os.walk(folder):
        folders[:] = sorted(
            name
            for name in folders
            if name not in _SKIPPED
            and not name.startswith(".")
            and not Path(at, name, "pyvenv.cfg").exists()
        )
        yield from (Path(at, name) for name in sorted(files) if name.endswith(".py"))
