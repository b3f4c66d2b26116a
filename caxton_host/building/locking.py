"""
Lock the dependencies of a program: resolve them, and compile them in the sandbox.

The runtime compiles; see docs/reference/programs.md. The host reads the text of wheels,
and executes and unmarshals nothing of them.
"""

from __future__ import annotations

import asyncio
import json
import re
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..core.calls import JSON
from ..core.dependencies import Lock, Metadata, metadata_of
from ..core.limits import Limits
from ..errors import SandboxError, UsageError
from ..lib.codec import decode, encode, sha256
from ..lib.files import opened, replace_file
from ..ports.sandbox import Guest, Prepared, Sandbox
from ..runs.locked import MOST_PACKAGES, lock_of, packages_of
from ..runs.modules import LARGEST_RUNTIME
from .closed_door import ClosedDoor
from .resolve import Resolver, Target
from .wheels import Modules, modules_of

_MIB = 1024 * 1024
#: Compiling takes about 10,000 instructions a byte. The memory is that of runs: another
#: one would need other machine code.
_LIMITS = Limits(
    fuel=1_000_000_000_000,
    compute=300.0,
    output=MOST_PACKAGES + _MIB,
    module=LARGEST_RUNTIME,
)
_TARGET = """\
import os, sys
def run():
    version = ".".join(map(str, sys.version_info[:3]))
    return {"version": version, "sys_platform": sys.platform, "os_name": os.name}
"""
_LOCK = "caxton:lock"
_FAILED = re.compile(r'File "/packages/([^"\n]+)\.py", line ')
#: Most modules that are left out because they are not valid Python.
_LEFT_OUT = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Locked:
    """
    What was locked.

    Attributes:
        modules: How many modules they have.

        left_out: Files of wheels that are not valid in the runtime's Python.

        size: Bytes of the packages.
    """

    path: Path
    lock: Lock
    modules: int
    left_out: Sequence[str]
    size: int


async def lock(
    program: Path, compiler: Compiler, begins: Callable[[str], None]
) -> Locked:
    """
    Lock the dependencies that *program* names, and write the files beside it.

    Args:
        program: A file in Python.

        compiler: Of the runtime that will execute it.

        begins: Called with each step.

    Raises:
        UsageError: The program names no dependencies, or they cannot be resolved or
            compiled, or a file cannot be written.
    """
    metadata = metadata_in(program)
    target = await compiler.target()
    begins(f"resolving the dependencies of {program.name}")
    with tempfile.TemporaryDirectory(prefix="caxton-lock-") as scratch:
        resolver = Resolver(program.name, metadata, target, Path(scratch))
        found = await asyncio.to_thread(resolver.wheels)
        modules = await asyncio.to_thread(modules_of, [path for _, path in found])
    begins(f"compiling {len(modules):,} modules")
    packages, left_out = await _compiled(compiler, modules)
    wheels = [wheel for wheel, _ in found]
    made = Lock(
        metadata=metadata,
        python=target.version,
        packages=tuple(
            {"name": one.name, "version": one.version, "sha256": one.sha256}
            for one in wheels
        ),
        sha256=sha256(packages),
    )
    # The lock is last: until then, the old one does not fit.
    _write(packages_of(program), packages)
    _write(lock_of(program), made.to_toml().encode())
    return Locked(
        path=lock_of(program),
        lock=made,
        modules=len(modules) - len(left_out),
        left_out=left_out,
        size=len(packages),
    )


def metadata_in(program: Path) -> Metadata:
    """
    Return the metadata of a program that names dependencies.

    Raises:
        UsageError: It names none, or cannot be read.
    """
    if program.suffix != ".py":
        raise UsageError(
            f"{program} is not a program in Python, and only those have dependencies",
            fix="name a file that ends with .py",
        )
    try:
        with opened(program) as file:
            source = file.read().decode()
    except (OSError, UnicodeError) as exc:
        why = exc.strerror if isinstance(exc, OSError) else str(exc)
        raise UsageError(
            f"{program} cannot be read: {why}", fix="name a program in Python"
        ) from None
    metadata = metadata_of(source, program.name)
    if not metadata.dependencies:
        raise UsageError(
            f"{program.name} names no dependencies",
            fix='begin it with the lines # /// script, # dependencies = ["attrs>=25"] '
            "and # ///",
        )
    return metadata


async def _compiled(compiler: Compiler, modules: Modules) -> tuple[bytes, list[str]]:
    """Return the packages, and the files that the runtime cannot compile."""
    left_out: list[str] = []
    while True:
        try:
            return (await compiler.packages(modules)).encode(), left_out
        except UsageError as exc:
            failed = _FAILED.search(str(exc))
            file = failed[1] if failed else ""
            name = file.removesuffix("/__init__").replace("/", ".")
            if name not in modules or len(left_out) == _LEFT_OUT:
                raise
            left_out.append(f"{file}.py")
            modules = {key: value for key, value in modules.items() if key != name}


def _write(path: Path, data: bytes) -> None:
    try:
        replace_file(path, data)
    except OSError as exc:
        raise UsageError(
            f"{path} cannot be written: {exc.strerror}",
            fix="lock the program in a folder that you may write to",
        ) from None


@dataclass(frozen=True, slots=True)
class Compiler:
    """
    Executes a runtime in a sandbox.

    Attributes:
        runtime: The runtime, prepared by the sandbox.
    """

    sandbox: Sandbox
    runtime: Prepared

    @classmethod
    async def of(cls, sandbox: Sandbox, runtime: bytes) -> Compiler:
        """Prepare a runtime."""
        limits = _LIMITS.of(runtime)
        return cls(sandbox, await sandbox.prepare(runtime, limits, "run"))

    async def target(self) -> Target:
        """Return the Python that the runtime has."""
        found = await self._run("target.py", _TARGET)
        if not isinstance(found, dict):
            raise SandboxError("the runtime does not tell its version of Python")
        said = {key: str(value) for key, value in found.items()}
        return Target(version=said.pop("version"), markers=said)

    async def packages(self, modules: Modules) -> str:
        """
        Return modules as programs take them.

        Raises:
            UsageError: The runtime refuses one of them.
        """
        found = await self._run(_LOCK, json.dumps(modules))
        if not isinstance(found, str):
            raise SandboxError("the runtime returned no packages")
        return found

    async def _run(self, name: str, source: str) -> JSON:
        program = {"name": name, "language": "python", "source": source}
        guest = Guest(
            domain="caxton program lock",
            entry="run",
            limits=_LIMITS,
            input=encode(None),
            program=encode({**program, "packages": None}),
            seed=bytes(32),
            now=0,
        )
        ending = await self.sandbox.run(self.runtime, guest, ClosedDoor())
        if ending.kind != "returned" or ending.code or ending.output is None:
            raise UsageError(
                "the runtime cannot compile the packages: "
                f"{ending.message or f'it reached the limit {ending.limit}'}",
                fix="choose other versions of the packages, or fewer of them",
            )
        return decode(ending.output, limit=_LIMITS.output)
