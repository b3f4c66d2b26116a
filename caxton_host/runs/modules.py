"""Modules: their files, their manifests, and the descriptions of agents."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import UsageError

if TYPE_CHECKING:
    from ..config import Agent
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from ..config import Agent
from ..core.calls import JSON
from ..core.tools.manifest import LIMIT, Manifest, find
from ..core.tools.schemas import bounded
from ..errors import BadBytes, ModuleRefused
from ..lib.codec import load_json
from ..lib.json_schema import check, mismatch


def located(agent: Agent) -> Path:
    """
    Return the file of an agent's module.

    Raises:
        UsageError: The configuration names none.
    """
    if agent.module is None:
        raise UsageError(
            f"[agents.{agent.name}] names no module", fix='add module = "FILE.wasm"'
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
        with path.open("rb") as file:
            module = file.read(limit + 1)
    except OSError as exc:
        raise _unreadable(path, exc) from None
    if len(module) > limit:
        raise UsageError(
            f"the module {shown(path)} is larger than {limit} bytes",
            fix="build a smaller one, or raise limits.module of the agent",
        )
    return module


def _unreadable(path: Path, exc: OSError) -> UsageError:
    return UsageError(
        f"cannot read the module {shown(path)}: {exc.strerror}",
        fix="name a file that exists; caxton agent build makes one",
    )


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
    """

    name: str
    tool: str | None
    description: str
    version: str
    input_schema: Mapping[str, JSON] | None
    output_schema: Mapping[str, JSON] | None


@dataclass(frozen=True, slots=True)
class _Kept:
    stamp: tuple[int, int, int]
    module: bytes
    manifest: Manifest | None


@dataclass(slots=True)
class Library:
    """Reads modules, and keeps them until their files change."""

    _kept: dict[Path, _Kept] = field(default_factory=dict[Path, _Kept], init=False)

    def module(self, agent: Agent) -> bytes:
        """
        Return the module of an agent.

        Raises:
            UsageError: It has none, or that cannot be read.
        """
        return self._read(agent).module

    def card(self, agent: Agent) -> AgentDescription:
        """
        Return the description of an agent. The configuration overrides the manifest.

        Raises:
            UsageError: Its module or its manifest cannot be read.
        """
        manifest, expose = self._read(agent).manifest, agent.expose
        own = manifest or Manifest(name=agent.name)
        return AgentDescription(
            name=agent.name,
            tool=agent.tool,
            description=agent.description or own.description,
            version=own.version,
            input_schema=expose.input_schema or _schema(own.input_schema),
            output_schema=expose.output_schema or _schema(own.output_schema),
        )

    def _read(self, agent: Agent) -> _Kept:
        path = located(agent)
        found = stamp(path)
        kept = self._kept.get(path)
        if kept is None or kept.stamp != found:
            module = read_module(path, agent.limits.module)
            kept = self._kept[path] = _Kept(found, module, read_manifest(module))
        return kept


def _schema(schema: Mapping[str, JSON] | bool | None) -> Mapping[str, JSON] | None:  # noqa: FBT001 -- a JSON Schema may be one
    return None if isinstance(schema, bool) else schema
