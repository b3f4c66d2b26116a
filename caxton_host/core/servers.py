"""What the operator says about a tool server, as frozen values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from .calls import Effect, Record

__all__ = [
    "OAuth",
    "OnToolChange",
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
class OAuth:
    """
    How a server's tokens are got, with the credentials of a client.

    Attributes:
        issuer: The authorization server that the credentials belong to, and the
            only one they are sent to.

        scope: What is asked for, instead of what the server names.

        method: Where a request for a token has the credentials: in its header
            or in its body.

        allow_private: The issuer may have an address that is not public.
    """

    client_id: str
    client_secret: str = field(repr=False)
    issuer: str
    scope: str | None = None
    method: Literal["basic", "post"] = "basic"
    allow_private: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig:
    """
    One tool server.

    Attributes:
        command: Program and arguments, never read by a shell. Or else *url*.

        env: What the process gets beside the few variables every one gets.

        oauth: How its tokens are got, if it wants any.

        timeout: Seconds a call may take in all.

        connect_timeout: Seconds for a connection to its address, for servers that
            have one.

        start_timeout: Seconds the server may take until its tools are listed.

        required: Nothing runs without it.

        eager: Start it with the host, not with the first call.

        trust_annotations: Take the server's word for the effect of its tools.

        max_result: Bytes of one answer.

        concurrency: Calls at a time.

        tools: Options by the server's own tool names.

        on_tool_change: Whether runs that begin later see a tool that has changed,
            before a person accepts it.
    """

    name: str
    command: tuple[str, ...] = field(default=(), repr=False)
    env: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    cwd: str | None = None
    url: str | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    oauth: OAuth | None = None
    transport: Transport = "stdio"
    timeout: float = 30.0
    connect_timeout: float = 10.0
    start_timeout: float = 20.0
    restart: Restart = field(default_factory=Restart)
    required: bool = False
    eager: bool = False
    trust_annotations: bool = False
    max_result: int = _MIB
    concurrency: int = 16
    tools: Mapping[str, ToolOptions] = field(default_factory=dict[str, ToolOptions])
    on_tool_change: OnToolChange = "refuse"
