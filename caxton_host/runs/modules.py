"""Modules and programs: their files, their manifests, and the agents' descriptions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import TypeAlias, cast

from ..config import Agent
from ..config.model import CALLER, TaskSupport
from ..core.calls import JSON
from ..core.commands import Command
from ..core.log.events import RunStarted
from ..core.names import nearest
from ..core.programs import (
    CODE_SCHEMA,
    LARGEST,
    Language,
    Program,
    Runtime,
    called_with,
    language_of,
    program_of,
    runtime_of,
)
from ..core.tools.manifest import LIMIT, Manifest, find
from ..core.tools.schemas import bounded
from ..errors import BadBytes, ModuleRefused, UsageError
from ..lib.codec import load_json
from ..lib.files import opened
from ..lib.json_schema import check, mismatch
from .command_files import command_of
from .locked import packages_of, read_locked
from .pinning import check_files


def located(agent: Agent) -> Path:
    """
    Return the file of an agent's module.

    Raises:
        UsageError: The configuration names none.
    """
    if agent.module is None:
        raise UsageError(
            f"[agents.{agent.name}] names no module and no program",
            fix='add module = "FILE.wasm", or program = "FILE.py"',
        )
    return agent.module


def stamp(path: Path) -> tuple[int, int, int]:
    """
    Return a value that changes when a file is written.

    Raises:
        UsageError: The file does not exist.
    """
    try:
        found = path.stat()
    except OSError as exc:
        raise _unreadable(path, exc) from None
    return found.st_ino, found.st_size, found.st_mtime_ns


def read_module(path: Path, limit: int) -> bytes:
    """
    Return the bytes of a module.

    Raises:
        UsageError: It cannot be read, or is larger than *limit*.
    """
    try:
        with opened(path) as file:
            module = file.read(limit + 1)
    except OSError as exc:
        raise _unreadable(path, exc) from None
    if len(module) > limit:
        raise UsageError(
            f"the module {shown(path)} is larger than {limit} bytes",
            fix="build a smaller one, or raise limits.module of the agent",
        )
    return module


def _unreadable(
    path: Path,
    exc: OSError,
    what: str = "module",
    fix: str = "name a file that exists; caxton agent build makes one",
) -> UsageError:
    alike = [one.name for one in path.parent.glob(f"*{path.suffix}")]
    meant = None if path.name in alike else nearest(path.name, alike)
    hint = f"; did you mean {shown(path.with_name(meant))}?" if meant else ""
    return UsageError(
        f"cannot read the {what} {shown(path)}: {exc.strerror}{hint}", fix=fix
    )


def read_program(path: Path, language: Language) -> Program:
    """
    Return the program in a file, with its locked packages.

    Raises:
        UsageError: It cannot be read, `program_of` refuses it, or its packages are not
            locked.
    """
    try:
        with opened(path) as file:
            source = file.read(LARGEST + 1)
    except OSError as exc:
        fix = "name a file that exists, and that you may read"
        raise _unreadable(path, exc, "program", fix) from None
    program = program_of(path.name, source, language=language)
    if language != "python":
        return program
    packages, locked = read_locked(path, program.source.decode())
    return replace(program, packages=packages, locked=locked)


def read_instead(
    path: Path, started: RunStarted, limit: int
) -> tuple[bytes | None, Program | None]:
    """
    Return the module or the program in a file, to replace that of a recorded run.

    Args:
        path: Its suffix tells which of the two it is.

        started: The first event of the run.

        limit: Most bytes of a module.

    Raises:
        UsageError: It cannot be read, or is a program for another runtime.
    """
    language = language_of(path.name)
    if language is None:
        return read_module(path, limit), None
    check_replaces(language, started)
    return None, read_program(path, language)


def check_replaces(language: Language, started: RunStarted) -> None:
    """
    Return if a program in *language* may replace that of a recorded run.

    Raises:
        UsageError: The run executed none, or one for another runtime.
    """
    before = started.program
    if before is None or runtime_of(cast("Language", before["language"])) != runtime_of(
        language
    ):
        raise UsageError(
            f"the run did not execute a program in {language}",
            fix="name a file of the same kind as the agent's",
        )


def files_of(path: Path, what: bytes | Program) -> dict[Path, bytes]:
    """Return the files that a module or a program was read from."""
    if isinstance(what, bytes):
        return {path: what}
    packages = {packages_of(path): what.packages} if what.packages else {}
    return {path: what.source, **packages}


def shown(path: Path) -> Path:
    """Return a path relative to the working directory, if it is below that."""
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path


_NODES = 10_000


def parse_manifest(content: bytes) -> Manifest:
    """
    Return the manifest that is *content*.

    Raises:
        BadBytes: It is not a manifest, or has a schema that cannot be used.
    """
    manifest = Manifest.of(load_json(content, limit=LIMIT, nodes=_NODES))
    for key in ("input_schema", "output_schema"):
        schema = getattr(manifest, key)
        if schema is not None:
            try:
                check(bounded(schema))
            except BadBytes as exc:
                raise BadBytes(f"{key}: {exc}") from None
    return manifest


@lru_cache(maxsize=16)
def read_manifest(module: bytes) -> Manifest | None:
    """
    Return the manifest of a core module or a component, or ``None`` without one.

    Raises:
        ModuleRefused: It has one that cannot be used.
    """
    try:
        content = find(module)
        return None if content is None else parse_manifest(content)
    except BadBytes as exc:
        raise ModuleRefused(
            f"the manifest of the module cannot be used: {exc}",
            fix="correct agent.toml and build the module again",
        ) from None


def check_input(module: bytes, value: JSON) -> None:
    """
    Check the input of a run against the manifest of its module.

    Args:
        module: What is to run. Without a manifest, or without a schema in it, it
            takes anything.

        value: The input.

    Raises:
        UsageError: The value does not match the schema, or the manifest cannot be
            used.
    """
    manifest = read_manifest(module)
    if manifest is None or manifest.input_schema is None:
        return
    try:
        wrong = mismatch(manifest.input_schema, value)
    except BadBytes as exc:
        raise UsageError(
            f"the input cannot be compared with the input_schema: {exc}",
            fix="pass less, or make the schema in agent.toml simpler",
        ) from None
    if wrong:
        raise UsageError(
            f"the input is not what the agent takes: {wrong}",
            fix="pass what input_schema asks for; caxton agent inspect shows it",
        )


def output_mismatch(module: bytes, value: JSON) -> str:
    """
    Return where the output of a run differs from its schema, or "".

    Never raises: the run is over, and its output is final.
    """
    try:
        manifest = read_manifest(module)
        if manifest is None or manifest.output_schema is None:
            return ""
        wrong = mismatch(manifest.output_schema, value)
    except (BadBytes, ModuleRefused) as exc:
        return str(exc)
    return str(wrong or "")


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentDescription:
    """
    The description of an agent for its callers.

    Attributes:
        name: The agent.

        tool: Its name as a tool, or ``None`` if it is not offered as one.

        description: What it does, or ``""``.

        version: Of its module, or ``""``.

        input_schema: JSON Schema of its input, or ``None`` if it takes anything.

        output_schema: JSON Schema of its result, or ``None``.

        tasks: See `Expose`.
    """

    name: str
    tool: str | None
    description: str
    version: str
    input_schema: Mapping[str, JSON] | None
    output_schema: Mapping[str, JSON] | None
    tasks: TaskSupport = "optional"


@dataclass(frozen=True, slots=True)
class _Kept:
    stamp: tuple[int, int, int]
    module: bytes
    manifest: Manifest | None


#: Returns the file of a runtime, which it may have to make.
Runtimes: TypeAlias = Callable[[Runtime], Path]

#: Bytes of a runtime, which the host made or an operator imported.
LARGEST_RUNTIME = 64 * 1024 * 1024


def not_installed(runtime: Runtime) -> UsageError:
    """Return the refusal of a program whose runtime is not there."""
    return UsageError(
        f"the {runtime} runtime is not installed",
        fix=f"caxton runtime install {runtime}",
    )


def no_runtimes(runtime: Runtime) -> Path:
    """Refuse every runtime. For hosts that run modules only."""
    raise not_installed(runtime)


@dataclass(frozen=True, slots=True, kw_only=True)
class Code:
    """
    What a run of an agent executes.

    Attributes:
        module: The agent's, or a runtime.

        program: What that executes, or ``None``.

        input: Of the run.

        command: What a WASI program is given.

        files: The bytes of its files, by their digests.

        narrow: Rules that the caller narrows the run by, or ``None``.

        signatures: See `RunStarted`.
    """

    module: bytes = field(repr=False)
    program: Program | None
    input: JSON
    narrow: JSON = None
    command: Command = field(default_factory=Command)
    files: Mapping[str, bytes] = field(default_factory=dict[str, bytes], repr=False)
    signatures: tuple[JSON, ...] = ()


@dataclass(slots=True)
class Library:
    """
    Reads modules and programs, and keeps modules until their files change.

    Attributes:
        runtimes: Where runtimes are.
    """

    runtimes: Runtimes = no_runtimes
    _kept: dict[Path, _Kept] = field(default_factory=dict[Path, _Kept], init=False)

    def module(self, agent: Agent) -> bytes:
        """
        Return the module of an agent.

        Raises:
            UsageError: It has none, or that cannot be read, or its pin refuses it.
        """
        return self._read(agent)[0].module

    def code(self, agent: Agent, value: JSON) -> Code:
        """
        Return what a run of an agent executes.

        Args:
            agent: Its program is read anew each time.

            value: What the caller passes.

        Raises:
            UsageError: A file cannot be read, a runtime is not installed, or the
                caller passes no program to an agent that takes one.
        """
        language, program = agent.language, None
        narrow: JSON = None
        signatures: tuple[JSON, ...] = ()
        if language is None:
            kept, signatures = self._read(agent)
            module = kept.module
        else:
            if isinstance(agent.program, Path):
                program, signatures = _pinned_program(agent, agent.program, language)
            else:
                program, value, only = called_with(value, language)
                if only is not None:
                    narrow = {"allow": [{"tools": only}]}
            module = self.runtime(program)
        command, files = command_of(agent)
        return Code(
            module=module,
            program=program,
            input=value,
            narrow=narrow,
            command=command,
            files=files,
            signatures=signatures,
        )

    def check(self, agent: Agent) -> None:
        """
        Check that the files of an agent can be read, and are those of its pin.

        Raises:
            UsageError: One cannot, or is not. The message names files of this host.
        """
        self.check_pin(agent)
        if agent.language is not None:
            self.runtimes(runtime_of(agent.language))

    def check_pin(self, agent: Agent) -> None:
        """Do the same without its runtime."""
        if agent.language is None:
            self.module(agent)
        elif isinstance(agent.program, Path):
            _pinned_program(agent, agent.program, agent.language)

    def runtime(self, program: Program) -> bytes:
        """
        Return the module that executes a program.

        Raises:
            UsageError: It is not installed, or cannot be read.
        """
        path = self.runtimes(program.runtime)
        return self._load(path, LARGEST_RUNTIME).module

    def card(self, agent: Agent) -> AgentDescription:
        """
        Return the description of an agent. The configuration overrides the manifest.

        Raises:
            UsageError: Its module or its manifest cannot be read.
        """
        expose = agent.expose
        if agent.language is not None:
            self.check(agent)
            manifest, takes = None, CODE_SCHEMA if agent.program == CALLER else None
        else:
            manifest, takes = self._read(agent)[0].manifest, None
        own = manifest or Manifest(name=agent.name)
        return AgentDescription(
            name=agent.name,
            tool=agent.tool,
            description=agent.description or own.description,
            version=own.version,
            input_schema=expose.input_schema or takes or _schema(own.input_schema),
            output_schema=expose.output_schema or _schema(own.output_schema),
            tasks=expose.tasks,
        )

    def _read(self, agent: Agent) -> tuple[_Kept, tuple[JSON, ...]]:
        path = located(agent)
        kept = self._load(path, agent.limits.module)
        return kept, check_files(agent, files_of(path, kept.module))

    def _load(self, path: Path, limit: int) -> _Kept:
        found = stamp(path)
        kept = self._kept.get(path)
        if kept is None or kept.stamp != found:
            module = read_module(path, limit)
            kept = self._kept[path] = _Kept(found, module, read_manifest(module))
        return kept


def _pinned_program(
    agent: Agent, path: Path, language: Language
) -> tuple[Program, tuple[JSON, ...]]:
    program = read_program(path, language)
    return program, check_files(agent, files_of(path, program))


def _schema(schema: Mapping[str, JSON] | bool | None) -> Mapping[str, JSON] | None:  # noqa: FBT001 -- a JSON Schema may be one
    return None if isinstance(schema, bool) else schema
