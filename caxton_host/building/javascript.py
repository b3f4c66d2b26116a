"""
Build agents in JavaScript, and the runtime for programs in JavaScript.

The runtime is quickjs-ng's engine with C of our own, compiled by Zig: a core module,
whose memory is that after it loaded the modules of ``agents/runtimes/javascript``. An
agent is the runtime with the agent's modules loaded.

The engine's source is on PyPI as a source distribution only, which no installation
keeps. So pip downloads it for the build, by the digest in ``lock.json``.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import secrets
import shutil
import sys
import tarfile
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path, PurePosixPath

from ..core.sections import INTERPRETER, section
from ..errors import UsageError
from .memory import remember
from .shipped import Inputs, digest_of, find_shared
from .tools import call, zig_cc

SOURCES: tuple[str, ...] = ("agent.js",)
INPUTS = Inputs(
    shared=("runtimes/javascript", "sdk/javascript"),
    made_by=("javascript.py", "memory.py"),
    tools=("ziglang", "setuptools"),
)
#: Bytes of the stack in memory, which the engine measures. The native stack of 16 MiB
#: must not be full before. Most of the engine uses up to 7 times as much of that one;
#: its parsers up to 22 times, so they stop where little of this one is used.
_STACK = 2 * 1024 * 1024
_PARSER_STACK = 640 * 1024
_PARSER_CHECK = b"js_check_stack_overflow(s->ctx->rt, %d)"
_FLAGS = (
    "--target=wasm32-wasi",
    "-mexec-model=reactor",
    "-std=gnu11",
    "-O2",
    "-w",
    "-D_GNU_SOURCE",
    "-DNDEBUG",
    f"-DSTACK={_STACK}",
    "-Wl,--no-entry",
    "-Wl,--strip-all",
    f"-Wl,-z,stack-size={_STACK}",
)
_ENGINE = ("quickjs.c", "dtoa.c", "libregexp.c", "libunicode.c")
#: Names of the modules of the runtime, in the order in which they are loaded.
_MODULES: Mapping[str, str] = {
    "caxton:events": "runtimes/javascript/events.js",
    "caxton:modules": "runtimes/javascript/modules.js",
    "caxton:tools": "runtimes/javascript/tools.js",
    "caxton:sdk": "sdk/javascript/caxton.js",
    "caxton:chat": "sdk/javascript/chat.js",
    "caxton": "sdk/javascript/index.js",
    "caxton:runtime": "runtimes/javascript/runtime.js",
}
#: What the eraser imports for purposes that it does not have here.
_ABSENT = ("lines-and-columns", "ts-interface-checker", "@jridgewell/gen-mapping")

_SUFFIXES = frozenset({".js", ".mjs", ".json"})
_MOST_FILES, _MOST_BYTES = 10_000, 32 * 1024 * 1024
_PASSED_ON = ("PIP_", "NPM_CONFIG_", "SSL_CERT_", "REQUESTS_CA_")
_AGAIN = "check the connection to the package index, and try again"


def compile(source: Path, module: Path, scratch: Path) -> None:
    """Compile *source* to *module*, with the modules and packages in its folder."""
    given = {"files": _read(source.parent), "entry": source.name, "role": "agent"}
    _check_tools()
    runtime = kept_runtime(scratch / "cache")
    if not runtime.is_file():
        new = scratch / "javascript.wasm"
        build_javascript_runtime(new, scratch)
        partly = runtime.with_name(f"{runtime.name}.{secrets.token_hex(4)}")
        shutil.copyfile(new, partly)
        partly.replace(runtime)
    try:
        made = remember(
            runtime.read_bytes(),
            given,
            scratch / "cache",
            exports=("memory", "run"),
        )
    except UsageError as exc:
        raise UsageError(
            f"{source.name} cannot be built:\n{exc}",
            fix=f"change {source.name}; caxton.d.ts documents what an agent can call",
        ) from None
    module.write_bytes(made)


def kept_runtime(cache: Path) -> Path:
    """Return where the runtime that agents are made of is kept, once it is built."""
    return cache / f"javascript-{digest_of(INPUTS)}.wasm"


def build_with_typescript(target: Path, scratch: Path) -> None:
    """Build the runtime that executes programs in TypeScript too."""
    build_javascript_runtime(target, scratch, typescript=True)


def _check_tools() -> None:
    if any(find_spec(tool) is None for tool in INPUTS.tools):
        raise UsageError(
            "the compiler of the JavaScript runtime is not installed",
            fix='pip install "caxton-host[programs]"',
        )


def build_javascript_runtime(
    target: Path, scratch: Path, *, typescript: bool = False
) -> None:
    """
    Build the runtime that executes programs in JavaScript.

    Args:
        target: An absolute path, where no file exists.

        scratch: As for `Language.compile`.

        typescript: Whether it erases the types of programs in TypeScript, with a
            package of npm.

    Raises:
        UsageError: A tool is missing, or failed.
    """
    _check_tools()
    (scratch / "cache").mkdir(exist_ok=True)
    lock = json.loads(_shared("runtimes/javascript/lock.json").read_text("utf-8"))
    cache = scratch / "cache"
    eraser = _eraser(lock["eraser"], scratch) if typescript else None
    module = _engine(_source(lock["engine"], scratch), scratch)
    modules = [
        [name, _shared(path).read_text("utf-8")] for name, path in _MODULES.items()
    ]
    exports = ("memory", "prepare", "run")
    made = remember(module, modules, cache, exports=exports)
    if eraser:
        given = {"files": eraser, "entry": "erase.js", "role": "eraser"}
        made = remember(made, given, cache, exports=exports)
    target.write_bytes(made)


def _shared(path: str) -> Path:
    return find_shared(f"agents/{path}")


# -- what comes from elsewhere --------------------------------------------------


def _source(wanted: Mapping[str, str], scratch: Path) -> Path:
    """Return the folder of the engine's source, downloaded unless it is there."""
    package, exact = wanted["package"], wanted["version"]
    archive = scratch / "cache" / f"{package.replace('-', '_')}-{exact}.tar.gz"
    if not archive.is_file():
        listed, folder = scratch / "engine.txt", scratch / "download"
        listed.write_text(f"{package}=={exact} --hash=sha256:{wanted['sha256']}\n")
        command = [sys.executable, "-I", "-m", "pip", "download", "--quiet"]
        command += ["--disable-pip-version-check", "--no-deps", "--no-binary", ":all:"]
        command += ["--no-build-isolation", "--require-hashes", "-r", str(listed)]
        call(
            [*command, "-d", str(folder)],
            folder=scratch,
            failed=f"{package} {exact}, the JavaScript engine, cannot be downloaded",
            fix=_AGAIN,
            environ=_environ(),
        )
        shutil.copyfile(folder / archive.name, archive)
    source = scratch / "engine"
    source.mkdir()
    check, ours = _PARSER_CHECK % 1000, _PARSER_CHECK % (_STACK - _PARSER_STACK)
    for path, content in _unpack(archive, "sha256", wanted["sha256"]):
        if path.suffix in {".c", ".h"}:
            (source / path.name).write_bytes(content.replace(check, ours))
    return source


def _eraser(wanted: Mapping[str, str], scratch: Path) -> dict[str, str]:
    """Return the files of what erases types, downloaded unless it is there."""
    name = f"{wanted['package']}-{wanted['version']}.tgz"
    archive = scratch / "cache" / name
    if not archive.is_file():
        if shutil.which("npm") is None:
            raise UsageError("npm is not installed", fix="apt-get install nodejs npm")
        spec = f"{wanted['package']}@{wanted['version']}"
        call(
            ["npm", "pack", "--silent", "--ignore-scripts", spec],
            folder=scratch,
            failed=f"{spec}, which erases types, cannot be downloaded",
            fix=_AGAIN,
            environ=_environ(),
        )
        shutil.copyfile(scratch / name, archive)
    digest = base64.b64decode(wanted["integrity"].removeprefix("sha512-")).hex()
    files = {
        "/".join(path.parts[1:]): content.decode()
        for path, content in _unpack(archive, "sha512", digest)
        if "esm" in path.parts or path.name == "package.json"
    }
    absent = _shared("runtimes/javascript/absent.js").read_text("utf-8")
    return {
        "erase.js": _shared("runtimes/javascript/erase.js").read_text("utf-8"),
        **{f"node_modules/{name}/index.js": absent for name in _ABSENT},
        **{
            f"node_modules/{wanted['package']}/{path}": text
            for path, text in files.items()
        },
    }


def _unpack(
    archive: Path, algorithm: str, digest: str
) -> Iterator[tuple[PurePosixPath, bytes]]:
    """Yield the files of an archive that has that digest."""
    data = archive.read_bytes()
    if hashlib.new(algorithm, data).hexdigest() != digest:
        archive.unlink()
        raise UsageError(f"{archive.name} was altered", fix="try again")
    with tarfile.open(archive) as packed:
        for member in packed:
            if file := packed.extractfile(member):
                yield PurePosixPath(member.name), file.read()


def _environ() -> dict[str, str]:
    """Return the variables of package managers. What they get has a known digest."""
    return {
        key: value
        for key, value in os.environ.items()
        if key.upper().startswith(_PASSED_ON) or key.lower().endswith("_proxy")
    }


def _engine(source: Path, scratch: Path) -> bytes:
    module = scratch / "engine.wasm"
    zig_cc(
        *_FLAGS,
        *("-I", source, "-o", module),
        *(_shared(f"runtimes/javascript/{name}") for name in ("glue.c", "values.c")),
        *(source / name for name in _ENGINE),
        folder=scratch,
        scratch=scratch,
        failed="the JavaScript engine cannot be compiled",
        fix='pip install --force-reinstall "caxton-host[programs]"',
    )
    return module.read_bytes() + section(INTERPRETER, b"")


# -- the modules of an agent --------------------------------------------------------


def _read(folder: Path) -> dict[str, str]:
    """Return the modules of an agent, and those of the packages it uses."""
    size = 0
    files: dict[str, str] = {}
    for path in _modules(folder):
        size += path.stat().st_size
        if len(files) >= _MOST_FILES or size > _MOST_BYTES:
            raise UsageError(
                f"{folder} holds more modules than an agent can: over {_MOST_FILES} "
                f"files, or over {_MOST_BYTES // 1024**2} MiB",
                fix="give the agent a folder of its own",
            )
        text = path.read_text("utf-8", errors="replace")
        files[path.relative_to(folder).as_posix()] = text
    return files


def _modules(folder: Path) -> Iterator[Path]:
    for place, folders, files in os.walk(folder):
        folders[:] = [name for name in sorted(folders) if name[0] != "."]
        for name in sorted(files):
            path = Path(place, name)
            if name[0] != "." and path.suffix in _SUFFIXES and path.is_file():
                yield path
