"""
Agents as files: made from a template, built by a compiler, shipped as data.

What is shipped lies in the wheel as `caxton_host/_agents` and `_migrations`, and in
a checkout as `agents` and `migrations` beside the package.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from .errors import NotFoundError, UsageError

__all__ = ["Built", "build_agent", "find_shared", "languages", "new_agent"]

_NAME = re.compile(r"[a-z][a-z0-9_-]{0,62}")
_PLACE = "{{name}}"
_PASSED_ON = ("HOME", "PATH", "TMPDIR")
_TIMEOUT = 120.0
_ERROR_LENGTH = 4_000

# The order and the set of flags are part of what makes a build reproducible.
_FLAGS = (
    "--target=wasm32-freestanding",
    "-std=c17",
    "-Os",
    "-Wall",
    "-Wextra",
    "-nostdlib",
    "-Wl,--no-entry",
    "-Wl,--strip-all",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """
    A module that a compiler made.

    Attributes:
        path: Where it is.

        size: In bytes.

        sha256: Digest of its bytes, in hex: what ``RunStarted`` names it by.
    """

    path: Path
    size: int
    sha256: str


def find_shared(path: str) -> Path:
    """
    Return the file or folder that is shipped as *path*.

    Args:
        path: Starts with ``agents/`` or ``migrations/``, or is one of the two.

    Raises:
        NotFoundError: This installation does not hold it.
    """
    package = Path(__file__).resolve().parent
    for candidate in (package / f"_{path}", package.parent / path):
        if candidate.exists():
            return candidate
    raise NotFoundError(
        f"this installation has no {path}", fix="install caxton-host again"
    )


def languages() -> list[str]:
    """Return the languages that `new_agent` has a template for."""
    return sorted(entry.name for entry in find_shared("agents/templates").iterdir())


def new_agent(name: str, lang: str, folder: Path) -> Path:
    """
    Make an agent from a template, and return its folder.

    Args:
        name: What it is called, and so is its folder.

        lang: One of `languages`.

        folder: Where its folder is made.

    Raises:
        UsageError: The name is not one, is taken, or the language is unknown.
    """
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"{name!r} is not a name for an agent",
            fix="use lower case letters, digits, - and _, a letter first, at most 63",
        )
    if lang not in languages():
        raise UsageError(
            f"no template for the language {lang!r}",
            fix=f"use one of: {', '.join(languages())}",
        )
    target = folder / name
    try:
        target.mkdir(parents=True)
        for source in sorted(find_shared(f"agents/templates/{lang}").iterdir()):
            text = source.read_text("utf-8").replace(_PLACE, name)
            (target / source.name).write_text(text, "utf-8")
    except FileExistsError:
        raise UsageError(
            f"{target} is there already", fix="choose another name, or remove it"
        ) from None
    except OSError as exc:
        raise UsageError(
            f"{target} cannot be made: {exc.strerror}",
            fix="go to a folder that you may write to",
        ) from None
    return target


def build_agent(
    folder: Path, *, into: Path | None = None, cache: Path | None = None
) -> Built:
    """
    Compile the agent in *folder* to a module named after the folder.

    The same source, header and compiler give the same bytes. A build that fails
    leaves an earlier module as it was.

    Args:
        folder: Holds ``agent.c``, or a C file named like the folder.

        into: Where the module is put; the folder itself by default.

        cache: What the compiler may keep its cache in; by default nothing is kept.

    Raises:
        UsageError: There is no source or no compiler, or it refused the source.
    """
    source = _source(folder)
    if find_spec("ziglang") is None:
        raise UsageError(
            "the C compiler is not installed", fix='pip install "caxton-host[c]"'
        )
    target = (into or folder) / f"{folder.resolve().name}.wasm"
    with tempfile.TemporaryDirectory(prefix="caxton-build-") as scratch:
        module = Path(scratch, "out.wasm")
        _compile(source, module, cache or Path(scratch, "cache"))
        data = module.read_bytes()
    try:
        target.write_bytes(data)
    except OSError as exc:
        raise UsageError(
            f"{target} cannot be written: {exc.strerror}",
            fix="go to a folder that you may write to",
        ) from None
    return Built(path=target, size=len(data), sha256=hashlib.sha256(data).hexdigest())


def _source(folder: Path) -> Path:
    names = ("agent.c", f"{folder.resolve().name}.c")
    for name in names:
        if (folder / name).is_file():
            return folder.resolve() / name
    raise UsageError(
        f"{folder} holds no agent: neither {names[0]} nor {names[1]}",
        fix="name the folder that caxton agent new made",
    )


def _compile(source: Path, module: Path, cache: Path) -> None:
    include = find_shared("agents/sdk/c")
    command = [sys.executable, "-m", "ziglang", "cc", *_FLAGS]
    command += ["-I", str(include), "-o", str(module), source.name]
    # Not the caller's environment: CPATH and its like would change the build.
    environment = {key: os.environ[key] for key in _PASSED_ON if key in os.environ}
    environment["ZIG_GLOBAL_CACHE_DIR"] = str(cache.resolve())
    environment["ZIG_LOCAL_CACHE_DIR"] = str(cache.resolve())
    try:
        done = subprocess.run(  # noqa: S603 -- the operator's own source and compiler
            command,
            cwd=source.parent,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_TIMEOUT,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise UsageError(
            f"the compiler did not end within {_TIMEOUT:.0f} s", fix="try again"
        ) from None
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip()
        shown = said if len(said) <= _ERROR_LENGTH else f"{said[:_ERROR_LENGTH]}\n..."
        raise UsageError(
            f"the compiler refused {source.name}:\n{shown}",
            fix=f"change {source.name}; caxton.h documents what an agent can call",
        )
