"""What a configuration says, as frozen values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ..core.calls import JSON
from ..core.grants import Grant
from ..core.limits import Limits
from ..core.places import Places
from ..core.servers import ServerConfig
from ..core.webhooks import Webhook

__all__ = ["Agent", "Audit", "Config", "ContextVar"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextVar:
    """
    A variable that every run has.

    Attributes:
        default: Its value if the run is given none.

        required: A run must be given one.
    """

    default: JSON = None
    required: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Agent:
    """
    One agent.

    Attributes:
        module: The file of its module, or ``None`` if it is named when it is run.

        entry: The function to call.

        names: Its own names for tools, to ``(server, tool)``. They grant nothing.
    """

    name: str
    module: Path | None = None
    entry: str = "run"
    description: str = ""
    limits: Limits = field(default_factory=Limits)
    grant: Grant = field(default_factory=Grant)
    names: Mapping[str, tuple[str, str]] = field(
        default_factory=dict[str, tuple[str, str]]
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """
    How the log is proven.

    Attributes:
        anchor: Where checkpoints are sent: ``file:`` and a path, or an address.

        trusted_keys: Public keys of other hosts whose checkpoints are believed.
    """

    anchor: str | None = field(default=None, repr=False)
    trusted_keys: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """
    A whole configuration. Its repr shows no server and no secret.

    Attributes:
        path: The file it was read from, or ``None`` for the defaults.

        version: Of the format: 1.

        store_url: Where events are kept, as SQLAlchemy spells it.

        servers: By name.

        origins: Name of a server to the file that describes it.

        webhooks: By name.

        context: Variables of a run, by name.

        agents: By name.

        places: How much runs at a time.

        audit: How the log is proven.

        proxy: Where requests of webhooks go through, or ``None``.

        telemetry_endpoint: Base URL of an OTLP receiver, or ``None``.

        secrets: Values that nobody may see, each of 8 bytes or more.

        short_secrets: Those that are too short to be looked for in texts.

        warnings: What is odd, for people.

        sha256: Digest of the file's bytes, in hex; ``""`` without a file.

        files: Every file that it was read from.

        watch: Read it again when one of them changes.
    """

    path: Path | None = None
    version: int = 1
    store_url: str = field(repr=False)
    servers: Mapping[str, ServerConfig] = field(
        default_factory=dict[str, ServerConfig], repr=False
    )
    origins: Mapping[str, Path] = field(default_factory=dict[str, Path])
    webhooks: Mapping[str, Webhook] = field(
        default_factory=dict[str, Webhook], repr=False
    )
    context: Mapping[str, ContextVar] = field(
        default_factory=dict[str, ContextVar], repr=False
    )
    agents: Mapping[str, Agent] = field(default_factory=dict[str, Agent])
    places: Places = field(default_factory=Places)
    audit: Audit = field(default_factory=Audit)
    proxy: str | None = field(default=None, repr=False)
    telemetry_endpoint: str | None = field(default=None, repr=False)
    secrets: frozenset[str] = field(default=frozenset(), repr=False)
    short_secrets: frozenset[str] = field(default=frozenset(), repr=False)
    warnings: tuple[str, ...] = ()
    sha256: str = ""
    files: tuple[Path, ...] = ()
    watch: bool = False
