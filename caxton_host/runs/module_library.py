"""The modules of configured agents, and what these say of themselves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ..config import Agent
from ..core.calls import JSON
from ..core.tools.manifest import Manifest
from .manifests import read
from .modules import located, read_module, stamp


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """
    What others are told of an agent.

    Attributes:
        name: The agent.

        tool: Its name as a tool, or ``None``: it is none.

        description: What it does, or ``""``.

        version: Of its module, or ``""``.

        input_schema: JSON Schema of its input, or ``None``: anything.

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
    """Reads modules once, as long as their files stay the same."""

    _kept: dict[Path, _Kept] = field(default_factory=dict[Path, _Kept], init=False)

    def module(self, agent: Agent) -> bytes:
        """
        Return the module of an agent.

        Raises:
            UsageError: It has none, or that cannot be read.
        """
        return self._read(agent).module

    def card(self, agent: Agent) -> Card:
        """
        Return what others are told of an agent. The configuration comes first.

        Raises:
            UsageError: Its module cannot be read, or has a manifest that is none.
        """
        manifest, expose = self._read(agent).manifest, agent.expose
        own = manifest or Manifest(name=agent.name)
        return Card(
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
            kept = self._kept[path] = _Kept(found, module, read(module))
        return kept


def _schema(schema: Mapping[str, JSON] | bool | None) -> Mapping[str, JSON] | None:  # noqa: FBT001 -- a JSON Schema may be one
    return None if isinstance(schema, bool) else schema
