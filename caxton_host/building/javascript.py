"""
Build agents in JavaScript: QuickJS and the agent's modules as one component.

The tool, componentize-qjs, is an npm package in `node_modules` of the agent's folder or
of one above it, as Node.js resolves it. It runs the top level of the agent's modules
and keeps the resulting memory. The modules are copied to a folder of their own, so that
the built module depends on no path.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import sys
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path

from ..errors import UsageError
from .shipped import find_shared
from .tools import call, zig_cc

SOURCES: tuple[str, ...] = ("agent.js",)

_FROZEN = Path(__file__).with_name("frozen.c")
_TOOL = "componentize-qjs"
_VERSION = "0.4.5"
#: Major version of Node.js.
_OLDEST = 18
_INSTALL = "apt-get install nodejs npm"
_FLAGS = ("--world", "agent", "--sync", "--stub-wasi", "--opt-size")

_SUFFIXES = frozenset({".js", ".mjs", ".json"})
_SKIPPED = frozenset({_TOOL, "@andreiltd"})
_MOST_FILES, _MOST_BYTES = 10_000, 32 * 1024 * 1024

_FAILED = f"{_TOOL} failed"
_ENTRY = "caxton-entry.js"
_ENTRY_TEXT = """\
import {{ start }} from "caxton";
import * as agent from {name};
export const run = start(agent);
"""

_NOISE = re.compile(r"^.*?\nError: (: )?(Failed to [^:\n]*: |Error: )*", re.DOTALL)
_OURS = re.compile(rf"\n +at [^\n]*/({_ENTRY}|node_modules/caxton/\w+\.js):[^\n]*")
_ROOT = re.compile(r"(?<=[\s('])/(?=[^\s:]+\.m?js\b)")


def compile(source: Path, module: Path, scratch: Path) -> None:
    """Compile *source* to *module*."""
    node = _node(source.parent)
    tool = _tool(source.parent)
    environ = frozen(scratch)
    root = scratch / "modules"
    _copy(source.parent, root)
    sdk = root / "node_modules" / "caxton"
    sdk.mkdir(parents=True, exist_ok=True)
    for file in ("caxton.js", "chat.js", "package.json"):
        shutil.copyfile(find_shared(f"agents/sdk/javascript/{file}"), sdk / file)
    (root / _ENTRY).write_text(
        _ENTRY_TEXT.format(name=json.dumps(f"./{source.name}")), "utf-8"
    )
    wit = find_shared("agents/wit/caxton-agent.wit")
    command = [node, str(tool / "cli.mjs"), *_FLAGS]
    command += ["--wit", str(wit), "--js", _ENTRY, "--output", str(module)]
    try:
        call(command, folder=root, failed=_FAILED, fix="", environ=environ)
    except UsageError as exc:
        if not str(exc).startswith(_FAILED):
            raise
        raise UsageError(
            f"{source.name} cannot be built:\n{_readable(str(exc), root)}",
            fix=f"change {source.name}; caxton.d.ts documents what an agent can call",
        ) from None


def _node(folder: Path) -> str:
    node = shutil.which("node")
    if node is None:
        raise UsageError("Node.js is not installed", fix=_INSTALL)
    version = call(
        [node, "--version"], folder=folder, failed="node failed", fix=_INSTALL
    )
    match = re.match(r"v(\d+)\.", version)
    if not match or int(match[1]) < _OLDEST:
        raise UsageError(
            f"Node.js {version.removeprefix('v')} is too old, {_OLDEST} would do",
            fix=_INSTALL,
        )
    return node


def _tool(folder: Path) -> Path:
    """Return the folder of the npm package."""
    for parent in (folder, *folder.parents):
        if (tool := parent / "node_modules" / _TOOL).is_dir():
            return tool
    if shutil.which("npm") is None:
        raise UsageError("npm is not installed", fix=_INSTALL)
    locked = (folder / "package-lock.json").is_file()
    install = "npm ci" if locked else f"npm install {_TOOL}@{_VERSION}"
    raise UsageError(f"{_TOOL} is not installed", fix=_inside(folder, install))


def _inside(folder: Path, command: str) -> str:
    """Return the shell command for *command* in *folder*. npm --prefix reads less."""
    below = os.path.relpath(folder)
    if below == ".":
        return command
    shown = shlex.quote(str(folder) if below.startswith("..") else below)
    return f"(cd {shown} && {command})"


def _copy(folder: Path, root: Path) -> None:
    """Copy the modules of an agent, and those of the packages it uses."""
    size = 0
    for count, path in enumerate(_modules(folder)):
        size += path.stat().st_size
        if count >= _MOST_FILES or size > _MOST_BYTES:
            raise UsageError(
                f"{folder} holds more modules than an agent can: over {_MOST_FILES} "
                f"files, or over {_MOST_BYTES // 1024**2} MiB",
                fix="give the agent a folder of its own",
            )
        target = root / path.relative_to(folder)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)


def _modules(folder: Path) -> Iterator[Path]:
    for place, folders, files in os.walk(folder):
        folders[:] = [
            name for name in sorted(folders) if name[0] != "." and name not in _SKIPPED
        ]
        for name in sorted(files):
            path = Path(place, name)
            if name[0] != "." and path.suffix in _SUFFIXES and path.is_file():
                yield path


def _readable(said: str, root: Path) -> str:
    """Return the errors of the tool, with the author's own paths."""
    said = _NOISE.sub("", said).replace(f"{root}{os.sep}", "")
    return _ROOT.sub("", _OURS.sub("", said)).strip()


def frozen(scratch: Path) -> Mapping[str, str]:
    """
    Return the variables with which the tool sees a fixed time and no randomness.

    The tool keeps what it finds at the build, so without them each build differs.

    Args:
        scratch: As for `Language.compile`.

    Returns:
        Nothing where there is no LD_PRELOAD. A module that is built there works, and
        differs from one build to the next.

    Raises:
        UsageError: There is no compiler.
    """
    if sys.platform != "linux":
        return {}
    if find_spec("ziglang") is None:
        raise UsageError(
            "a compiler that the build needs is not installed",
            fix='pip install "caxton-host[javascript]"',
        )
    library = scratch / "frozen.so"
    zig_cc(
        *("-shared", "-fPIC", "-O1", "-o", library, _FROZEN),
        folder=scratch,
        scratch=scratch,
        failed=f"the compiler refused {_FROZEN.name}",
        fix="install caxton-host again",
    )
    return {"LD_PRELOAD": str(library), "CAXTON_FROZEN": f"{_TOOL}."}
