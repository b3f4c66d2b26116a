"""The configuration of a tool server, and the documents that describe one."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, TypeAlias

from ..calls import JSON, REPEATABLE, Effect, OverLimit, Record, Reply, Retry
from ..questions import To
from .confinement import Confine
from .contexts import ServerResource

#: The answer to a server that asks a person something.
Elicitation: TypeAlias = Literal["refuse", "defaults", "ask", "client"]
#: Who is asked what a server asks; otherwise nobody is.
ASKED: Mapping[Elicitation, To] = {"ask": "people", "client": "client"}

Transport: TypeAlias = Literal["stdio", "http", "sse"]

#: Whether a tool with a definition that was not accepted is offered to new runs.
OnToolChange: TypeAlias = Literal["refuse", "accept"]

_MIB = 1024 * 1024

#: Calls to a server at a time, if its configuration does not say.
PLACES = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolOptions:
    """
    The configuration of one tool.

    Attributes:
        expose_as: Its exposed name, instead of ``mcp__<server>__<tool>``.

        effect: The effect class: what repeating a call may do.

        key_argument: The argument in which the idempotency key is sent; it replaces
            the value of the agent. ``None``: none.

        description: Replaces the description of the server.

        input_schema: Replaces the schema of the server.

        message_field: Dotted path of the message in the structured content.

        message_template: The message, with ``{dotted.path}`` placeholders.

        timeout: Most seconds of one send, instead of the server's.

        record: What the log keeps of its answers.

        reply: What agent and log get of its answers.

        cache: Seconds for which an answer may be given to the same call again.

        retry: How often a call is sent, instead of the server's.

        over_limit: How an answer that is too large is handled.

        slow_response_threshold: Seconds after which a call is reported as slow; 0:
            never.

        slow_response_message: The text of that report; ``{tool}`` is the tool's name.

        source: Rules may name its answers as sources of values.

        shared_writes: It is a source although agents may write what it reads.
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
    source: bool = False
    shared_writes: bool = False

    def retrying(self, effect: Effect) -> Retry:
        """Return how often a call of a tool with that effect is sent."""
        if self.retry is not None:
            return self.retry
        return USUAL if effect in REPEATABLE else _ONCE


#: The default for calls that may be repeated.
USUAL = Retry(attempts=3)
_ONCE = Retry()


@dataclass(frozen=True, slots=True, kw_only=True)
class Restart:
    """
    How a server is restarted that died.

    Attributes:
        max_restarts: Most restarts in a row.

        backoff: Seconds before the second restart; doubled for each further one.

        reset_after: Seconds of health after which the count starts again.
    """

    enabled: bool = True
    max_restarts: int = 5
    backoff: float = 1.0
    reset_after: float = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerOptions:
    """
    The circuit breaker of a server.

    Attributes:
        failures: Calls without an answer in a row that open it; 0: it never opens.

        pause: Seconds until one call is let through as a test.
    """

    failures: int = 5
    pause: float = 30.0


class Rate(NamedTuple):
    """
    A rate: so many at once, refilled over a time.

    Attributes:
        number: Most at once.

        seconds: Seconds in which that number is refilled, evenly.
    """

    number: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class OAuth:
    """
    How the tokens of a server are obtained.

    Attributes:
        flow: ``credentials``: with the client's own credentials; ``code``: a person
            logs in once; ``exchange``: for the access token of a run's caller.

        client_id: The registered client; with ``code``, ``""``: a client is registered
            at the login.

        client_secret: Its secret; with ``code``, ``""``: none.

        private_key: A key in PEM form that signs for the client, instead of a secret.

        key_id: Its name at the authorization server.

        client_metadata: The URL of a document that describes the client, for
            authorization servers that accept one.

        issuer: The authorization server that the credentials belong to, and the
            only one they are sent to; with ``code``, ``""``: the one the server names.

        endpoints: Other origins at which the issuer may have endpoints.

        scope: The requested scope, instead of the one that the server names.

        method: Whether a token request has the credentials in its header or its body.

        redirect_port: The port on which a login waits for the code; 0: a free one.

        allow_private: The issuer may have an address in a private network.

        principal: With ``exchange``, whose tokens they are; set for each run.
    """

    flow: Literal["credentials", "code", "exchange"] = "credentials"
    client_id: str = ""
    client_secret: str = field(default="", repr=False)
    private_key: str = field(default="", repr=False)
    key_id: str = ""
    client_metadata: str | None = None
    issuer: str = ""
    endpoints: tuple[str, ...] = ()
    scope: str | None = None
    method: Literal["basic", "post"] = "basic"
    redirect_port: int = 0
    allow_private: bool = False
    principal: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """
    The resources of a server that become variables of runs.

    Attributes:
        include: Patterns of URIs, with ``*``. Without any, all are read.

        exclude: Patterns of URIs that are not read.

        merge: ``server``: under the name of the server. ``flat``: at the top of the
            context, where they replace variables of the same name.

        max_count: Most resources.

        max_bytes: Most bytes of all resources.

        lenient: A placeholder without a value is kept in the requested URI.

        required: No run starts without them.
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
        command: Program and arguments, without a shell. Alternative to *url*.

        env: Environment of the process, besides the few variables that all get.

        confine: What the process may do; ``None``: all that the host may.

        client_cert: A PEM file: the certificate that the host shows it.

        client_key: A PEM file: the key of that, unless it is in the same file.

        oauth: How its tokens are obtained, if it requires any.

        timeout: Most seconds of one send of a call; also of the wait for its turn.

        connect_timeout: Most seconds for a connection to its URL.

        start_timeout: Most seconds until its tools are listed.

        health: Seconds without a message after which it is pinged; 0: never.

        required: No run starts without it.

        eager: Start it with the host, not with the first call.

        trust_annotations: Accept the effects that the server declares for its tools.

        max_result: Most bytes of one answer.

        blobs_over: Binary parts of an answer with more bytes are kept as blobs, by
            digest; ``None``: none.

        elicitation: ``defaults``: a form for a person is answered with its defaults;
            ``ask``: by the people who decide about calls; ``client``: by the user of
            the session's client; ``refuse``: it is refused.

        concurrency: Most calls at a time, of all hosts; ``None``: `PLACES` of each.

        rate: Most calls in a time, of all hosts. Further calls wait.

        tools: Options by the server's own tool names.

        retry: How often a call is sent; ``None``: three times if its effect allows
            repeating it, else once.

        over_limit: As for a tool.

        slow_response_threshold: As for a tool.

        slow_response_message: As for a tool.

        on_tool_change: Whether later runs see a changed tool before a person accepts
            it.

        wire_log: The file that every message is written to; ``-``: standard error.

        resources: The resources that are read for each run, or ``None``.

        resource_vars: Values for URI templates. They may refer to variables of the run.
    """

    name: str
    command: tuple[str, ...] = field(default=(), repr=False)
    env: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    cwd: str | None = None
    confine: Confine | None = None
    url: str | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    client_cert: str | None = None
    client_key: str | None = None
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
    concurrency: int | None = None
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
        """Return the options of a tool, with the defaults of its server."""
        said = self.tools.get(tool, _UNSAID)
        own: dict[str, Any] = {
            name: getattr(self, name) for name in _SHARED if getattr(said, name) is None
        }
        return replace(said, **own)

    @property
    def places(self) -> int:
        """Most calls of one host at a time."""
        return self.concurrency or PLACES

    @property
    def cuts(self) -> bool:
        """Whether an answer that is too large may be cut."""
        tools = self.tools.values()
        return "cut" in {self.over_limit, *(tool.over_limit for tool in tools)}


_UNSAID = ToolOptions()

#: Options of a server that are the defaults of its tools.
_SHARED = ("retry", "over_limit", "slow_response_threshold", "slow_response_message")

#: The problem and the fix where all servers are disabled.
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


def server_test_document(  # noqa: PLR0913 -- a document with these keys
    name: str,
    facts: Mapping[str, JSON],
    tools: list[str],
    resources: Sequence[ServerResource],
    problem: str | None = None,
    *,
    confinement: Mapping[str, str] | None = None,
) -> dict[str, JSON]:
    """
    Return the ``caxton.server-test/v1`` document of a server.

    Args:
        name: The server.

        facts: Its name, version and protocol.

        tools: The names of its tools.

        resources: The resources that a run would read.

        problem: Why it does not answer, or ``None``.

        confinement: What is in force of its confinement; ``None``: it is not confined.
    """
    return {
        "$type": "caxton.server-test/v1",
        "server": name,
        "answers": problem is None,
        "problem": problem,
        **{key: facts.get(key) for key in ("name", "version", "protocol")},
        "confinement": None if confinement is None else {**confinement},
        "tools": [*tools],
        "resources": [
            {"key": one.key, "uri": one.uri, "bytes": one.size, "error": one.error}
            for one in resources
        ],
    }
