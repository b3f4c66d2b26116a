"""What the operator says about a tool server, as frozen values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from .calls import JSON, Effect, Record

__all__ = [
    "OnToolChange",
    "Resources",
    "Restart",
    "ServerConfig",
    "ToolOptions",
    "Transport",
]

Transport: TypeAlias = Literal["stdio", "http", "sse"]

#: What becomes of a tool that is not the one that was accepted.
OnToolChange: TypeAlias = Literal["refuse", "accept"]

_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolOptions:
    """
    The operator's word about one tool.

    Attributes:
        expose_as: What agents call it, instead of ``mcp__<server>__<tool>``.

        effect: What repeating a call may do.

        key_argument: The argument that takes the idempotency key, whatever an agent
            puts there, or ``None``.

        description: Shown to agents instead of the server's own.

        input_schema: The same. The server is asked with whatever fits it.

        message_field: Dotted path into the structured content; what is found
            there is the message.

        message_template: The message, with ``{dotted.path}`` placeholders.

        timeout: Seconds a call may take in all, instead of the server's.

        record: What the log keeps of its answers.
    """

    expose_as: str | None = None
    effect: Effect | None = None
    key_argument: str | None = None
    description: str | None = None
    input_schema: dict[str, JSON] | None = None
    message_field: str | None = None
    message_template: str | None = None
    timeout: float | None = None
    record: Record = "full"


@dataclass(frozen=True, slots=True, kw_only=True)
class Restart:
    """
    What happens when a server dies.

    Attributes:
        max_restarts: How often in a row. A healthy while starts the count anew.

        backoff: Seconds before the second restart; doubled for each further one.
    """

    enabled: bool = True
    max_restarts: int = 5
    backoff: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """
    Which resources of a server become variables of runs.

    Attributes:
        include: Patterns of addresses, with ``*``. Without any, all are read.

        exclude: The same, of those that are not read.

        merge: ``server``: under the name of the server. ``flat``: beside the
            variables of the run, in the place of those with that name.

        max_count: How many are read.

        max_bytes: Of all that is read.

        lenient: A placeholder without a value stays, and is asked for like that.

        required: Nothing runs without them.
    """

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    merge: Literal["server", "flat"] = "server"
    max_count: int = 100
    max_bytes: int = _MIB
    lenient: bool = False
    required: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig:
    """
    One tool server.

    Attributes:
        command: Program and arguments, never read by a shell. Or else *url*.

        env: What the process gets beside the few variables every one gets.

        timeout: Seconds a call may take in all.

        start_timeout: Seconds the server may take until its tools are listed.

        required: Nothing runs without it.

        eager: Start it with the host, not with the first call.

        trust_annotations: Take the server's word for the effect of its tools.

        max_result: Bytes of one answer.

        concurrency: Calls at a time.

        tools: Options by the server's own tool names.

        on_tool_change: Whether runs that begin later see a tool that has changed,
            before a person accepts it.

        resources: What is read of it for each run, or ``None``.

        resource_vars: Values for templates of addresses, which may name variables of
            the run.
    """

    name: str
    command: tuple[str, ...] = field(default=(), repr=False)
    env: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    cwd: str | None = None
    url: str | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    transport: Transport = "stdio"
    timeout: float = 30.0
    start_timeout: float = 20.0
    restart: Restart = field(default_factory=Restart)
    required: bool = False
    eager: bool = False
    trust_annotations: bool = False
    max_result: int = _MIB
    concurrency: int = 16
    tools: Mapping[str, ToolOptions] = field(default_factory=dict[str, ToolOptions])
    on_tool_change: OnToolChange = "refuse"
    resources: Resources | None = None
    resource_vars: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
