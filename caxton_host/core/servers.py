"""What the operator says about a tool server, as frozen values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias

from .calls import JSON, Effect, Record

__all__ = [
    "BreakerOptions",
    "OnToolChange",
    "Rate",
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

        reset_after: Seconds that are a healthy while.
    """

    enabled: bool = True
    max_restarts: int = 5
    backoff: float = 1.0
    reset_after: float = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerOptions:
    """
    When a server that fails is asked no more for a while.

    Attributes:
        failures: How often in a row it did not answer; 0: it is asked for ever.

        pause: Seconds until one call is let through, to see.
    """

    failures: int = 5
    pause: float = 30.0


class Rate(NamedTuple):
    """
    How often something may happen.

    Attributes:
        number: So often at once.

        seconds: After these, as often again; bit by bit.
    """

    number: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig:
    """
    One tool server.

    Attributes:
        command: Program and arguments, never read by a shell. Or else *url*.

        env: What the process gets beside the few variables every one gets.

        timeout: Seconds a call may take in all.

        start_timeout: Seconds the server may take until its tools are listed.

        health: Seconds of rest after which it is asked whether it still answers; 0:
            never.

        required: Nothing runs without it.

        eager: Start it with the host, not with the first call.

        trust_annotations: Take the server's word for the effect of its tools.

        max_result: Bytes of one answer.

        concurrency: Calls at a time.

        rate: Calls in a time; more of them wait.

        tools: Options by the server's own tool names.

        wire_log: The file that gets every message, ``-`` for standard error.

        on_tool_change: Whether runs that begin later see a tool that has changed,
            before a person accepts it.
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
    breaker: BreakerOptions = field(default_factory=BreakerOptions)
    health: float = 30.0
    required: bool = False
    eager: bool = False
    trust_annotations: bool = False
    max_result: int = _MIB
    concurrency: int = 16
    rate: Rate | None = None
    tools: Mapping[str, ToolOptions] = field(default_factory=dict[str, ToolOptions])
    wire_log: str | None = None
    on_tool_change: OnToolChange = "refuse"
