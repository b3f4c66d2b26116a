"""The configuration of a tool server, and the documents that describe one."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, TypeAlias

from ..calls import JSON, REPEATABLE, Effect, OverLimit, Record, Reply, Retry
from .contexts import ServerResource

#: What a server gets that asks a person something.
Elicitation: TypeAlias = Literal["refuse", "defaults"]

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

        timeout: Seconds for each send of a call, instead of the server's.

        record: What the log keeps of its answers.

        reply: What agent and log get of its answers.

        cache: Seconds for which an answer may be given to the same call again.

        retry: How often a call is sent, instead of what the server says.

        over_limit: What becomes of an answer that is too large.

        slow_response_threshold: Seconds after which a call is told to be slow; 0 is
            never.

        slow_response_message: What is told then; ``{tool}`` is the name of the tool.
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
    reply: Reply = "full"
    cache: float | None = None
    retry: Retry | None = None
    over_limit: OverLimit | None = None
    slow_response_threshold: float | None = None
    slow_response_message: str | None = None

    def retrying(self, effect: Effect) -> Retry:
        """Return how often a call of a tool with that effect is sent."""
        if self.retry is not None:
            return self.retry
        return USUAL if effect in REPEATABLE else _ONCE


#: How often a call that may be repeated is sent, where nobody says otherwise.
USUAL = Retry(attempts=3)
_ONCE = Retry()


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
class OAuth:
    """
    How a server's tokens are got: with the credentials of a client, or by a person.

    Attributes:
        flow: ``credentials``, which are a client's own; or ``code``, for which
            somebody logs in once.

        client_id: What the authorization server registered; with ``code``, ``""`` is
            a client that is registered when somebody logs in.

        client_secret: Its secret; with ``code``, ``""`` is none.

        client_metadata: The address of a document that describes the client, where
            an authorization server takes one.

        issuer: The authorization server that the credentials belong to, and the
            only one they are sent to; with ``code``, ``""`` is the server's own word.

        scope: What is asked for, instead of what the server names.

        method: Where a request for a token has the credentials: in its header
            or in its body.

        redirect_port: Where a login waits for the code; 0 is any that is free.

        allow_private: The issuer may have an address that is not public.
    """

    flow: Literal["credentials", "code"] = "credentials"
    client_id: str = ""
    client_secret: str = field(default="", repr=False)
    client_metadata: str | None = None
    issuer: str = ""
    scope: str | None = None
    method: Literal["basic", "post"] = "basic"
    redirect_port: int = 0
    allow_private: bool = False


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

        oauth: How its tokens are got, if it wants any.

        timeout: Seconds for each send of a call, and before that for its turn.

        connect_timeout: Seconds for a connection to its address, for servers that
            have one.

        start_timeout: Seconds the server may take until its tools are listed.

        health: Seconds of rest after which it is asked whether it still answers; 0:
            never.

        required: Nothing runs without it.

        eager: Start it with the host, not with the first call.

        trust_annotations: Take the server's word for the effect of its tools.

        max_result: Bytes of one answer.

        blobs_over: Binary parts of an answer that have more bytes are kept by digest,
            apart from it; ``None``: none is.

        elicitation: ``defaults``: a form that it asks a person to fill is answered
            with its own defaults, and not refused.

        concurrency: Calls at a time.

        rate: Calls in a time; more of them wait.

        tools: Options by the server's own tool names.

        retry: How often a call is sent; ``None``: three times, if its effect allows
            it to be repeated, and else once.

        over_limit: As for a tool.

        slow_response_threshold: As for a tool.

        slow_response_message: As for a tool.

        on_tool_change: Whether runs that begin later see a tool that has changed,
            before a person accepts it.

        wire_log: The file that gets every message, ``-`` for standard error.

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
    oauth: OAuth | None = None
    transport: Transport = "stdio"
    timeout: float = 30.0
    connect_timeout: float = 10.0
    start_timeout: float = 20.0
    restart: Restart = field(default_factory=Restart)
    breaker: BreakerOptions = field(default_factory=BreakerOptions)
    health: float = 30.0
    required: bool = False
    eager: bool = False
    trust_annotations: bool = False
    max_result: int = _MIB
    blobs_over: int | None = 64 * 1024
    elicitation: Elicitation = "refuse"
    concurrency: int = 16
    rate: Rate | None = None
    tools: Mapping[str, ToolOptions] = field(default_factory=dict[str, ToolOptions])
    on_tool_change: OnToolChange = "refuse"
    retry: Retry | None = None
    over_limit: OverLimit = "fail"
    slow_response_threshold: float = 2.0
    slow_response_message: str = "Still working on {tool}..."
    wire_log: str | None = None
    resources: Resources | None = None
    resource_vars: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)

    def options(self, tool: str) -> ToolOptions:
        """Return what holds for a tool: its own options, or those of the server."""
        said = self.tools.get(tool, _UNSAID)
        own: dict[str, Any] = {
            name: getattr(self, name) for name in _SHARED if getattr(said, name) is None
        }
        return replace(said, **own)

    @property
    def cuts(self) -> bool:
        """Whether an answer that is too large may be cut."""
        tools = self.tools.values()
        return "cut" in {self.over_limit, *(tool.over_limit for tool in tools)}


_UNSAID = ToolOptions()

#: What a server says for all its tools, unless one says otherwise.
_SHARED = ("retry", "over_limit", "slow_response_threshold", "slow_response_message")

#: Why no server of a configuration is there, and what mends it.
SERVERS_OFF = "[mcp] enabled = false turns every tool server off"
SERVERS_ON = "remove enabled = false from [mcp]"


def server_document(name: str, described: JSON) -> dict[str, JSON]:
    """Return the ``caxton.server/v1`` document of a server, secrets masked."""
    assert isinstance(described, dict)  # noqa: S101 -- a table
    command = described.get("command")
    words = [str(word) for word in command] if isinstance(command, list) else []
    return {
        "$type": "caxton.server/v1",
        "name": name,
        "transport": described["transport"],
        "address": shlex.join(words) if words else described["url"],
        "required": described["required"],
        "origin": described["origin"],
    }


def server_test_document(
    name: str,
    facts: Mapping[str, JSON],
    tools: list[str],
    resources: Sequence[ServerResource],
    problem: str | None = None,
) -> dict[str, JSON]:
    """
    Return the ``caxton.server-test/v1`` document of a server that was asked.

    Args:
        name: The server.

        facts: What it says of itself.

        tools: The names of its tools.

        resources: What a run would read of it.

        problem: Why it does not answer, or ``None``.
    """
    return {
        "$type": "caxton.server-test/v1",
        "server": name,
        "answers": problem is None,
        "problem": problem,
        **{key: facts.get(key) for key in ("name", "version", "protocol")},
        "tools": [*tools],
        "resources": [
            {"key": one.key, "uri": one.uri, "bytes": one.size, "error": one.error}
            for one in resources
        ],
    }
