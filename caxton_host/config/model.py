"""The configuration as frozen values, and the variables of runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Literal, TypeAlias

from ..core.calls import JSON
from ..core.clients import table_of
from ..core.grants.budgets import Period
from ..core.grants.grants import Grant
from ..core.limits import Limits, Places
from ..core.log.checkpoint import Verifier
from ..core.log.notices import CAUSES
from ..core.log.retention import Retention
from ..core.names import AGENTS, nearest
from ..core.pins import Pin
from ..core.programs import Language, language_of
from ..core.tools.contexts import RESERVED
from ..core.tools.servers import ServerConfig, ToolOptions
from ..core.tools.webhooks import SERVER, Webhook
from ..errors import BadBytes, UsageError
from ..lib.codec import decode, encode


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextVar:
    """
    A variable that every run has.

    Attributes:
        default: Its value if the run is given none.

        required: A run must be given one.

        private: Hidden from the agent, its prompt and the log.

        caller: A caller over the network may give it, as it may one that is required.

        claim: The claim of the caller's token that it comes from; callers cannot give
            it then.
    """

    default: JSON = field(default=None, repr=False)
    required: bool = False
    private: bool = False
    caller: bool = False
    claim: str | None = None


TaskSupport: TypeAlias = Literal["optional", "required", "forbidden"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Expose:
    """
    How an agent is exposed as a tool.

    Attributes:
        mcp: As a tool of `caxton serve`, to clients of MCP.

        name: Its name as a tool; ``None``: that of the agent.

        input_schema: JSON Schema of its input, instead of its manifest's.

        output_schema: JSON Schema of its result, instead of its manifest's.

        chat: Its name for the model that it chats with; its completed runs can be
            continued then.

        tasks: Whether a call of it is a task: if its client can (``optional``), always
            (``required``), or never (``forbidden``).
    """

    mcp: bool = False
    name: str | None = None
    input_schema: Mapping[str, JSON] | None = None
    output_schema: Mapping[str, JSON] | None = None
    chat: str | None = None
    tasks: TaskSupport = "optional"


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """
    How an agent is served that is a client.

    Attributes:
        idle: Seconds without a call after which its stream ends.

        reset: The period after which its limits are whole again; ``None``: never.

        search_above: Its client searches for tools if there are more than that.

        context: Variables of its runs.
    """

    idle: float = 1800.0
    reset: Period | None = None
    search_above: int = 40
    context: Mapping[str, JSON] = field(default_factory=dict[str, JSON])


#: The value of `Agent.program` if each call passes one.
CALLER: Final = "caller"


@dataclass(frozen=True, slots=True, kw_only=True)
class Agent:
    """
    One agent.

    Attributes:
        module: The file of its module, or ``None`` if it is named when it is run.

        program: The file of its program, or ``"caller"``: who calls it passes one.

        runtime: The language of the program, if its suffix does not say.

        entry: The function to call.

        prompt: A text for it, with ``{name}`` for variables of the run.

        names: Its own names for tools, to ``(server, tool)``. They grant nothing.

        expose: How it is offered to others.

        args: Arguments of a WASI program, without its name.

        env: Its environment.

        files: The paths that it has for files and folders of the machine.

        trusted: The sources that rules name together as ``trusted``.

        pin: Which files its module or program may be.

        authority: Which grants bind it when another agent calls it: its own and those
            of its caller, or its own alone.

        session: Its clients make its calls, and nothing is executed; ``None``: it is
            executed.

        priority: The class of its runs where they wait: a higher one comes first.

        rule_texts: Its rules as TOML, by id.
    """

    name: str
    module: Path | None = None
    program: Path | Literal["caller"] | None = None
    runtime: Language | None = None
    entry: str = "run"
    description: str = ""
    prompt: str | None = None
    limits: Limits = field(default_factory=Limits)
    grant: Grant = field(default_factory=Grant)
    names: Mapping[str, tuple[str, str]] = field(
        default_factory=dict[str, tuple[str, str]]
    )
    expose: Expose = field(default_factory=Expose)
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    files: Mapping[str, Path] = field(default_factory=dict[str, Path])
    trusted: tuple[str, ...] = ()
    pin: Pin = field(default_factory=Pin)
    authority: Literal["both", "own"] = "both"
    session: Session | None = None
    priority: int = 0
    rule_texts: Mapping[str, str] = field(
        default_factory=dict[str, str], repr=False, compare=False
    )

    @property
    def own_names(self) -> dict[str, JSON]:
        """Its own names for tools, to ``SERVER/TOOL``."""
        return {name: f"{server}/{tool}" for name, (server, tool) in self.names.items()}

    def to_document(self) -> dict[str, JSON]:
        """Return its ``caxton.agent/v1`` document, with the path of its module."""
        return {
            "$type": "caxton.agent/v1",
            "name": self.name,
            "module": str(self.module) if self.module else None,
            "grants": self.grant.to_payload(),
            "names": self.own_names,
            "pin": self.pin.to_document(),
        }

    @property
    def language(self) -> Language | None:
        """The language of its program; ``None`` if it has none."""
        if isinstance(self.program, Path):
            return language_of(self.program.name) or self.runtime
        return self.runtime

    @property
    def table(self) -> str:
        """The table that describes it."""
        return table_of(self.name, session=self.session is not None)

    @property
    def tool(self) -> str | None:
        """Its name as a tool; ``None`` if it is not exposed."""
        return (self.expose.name or self.name) if self.expose.mcp else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Witness:
    """
    A witness of the log.

    Attributes:
        url: Its submission prefix.

        key: What its signatures are verified with.
    """

    url: str = field(repr=False)
    key: Verifier


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """
    How checkpoints of the log are published and trusted.

    Attributes:
        anchor: Where checkpoints are sent: ``file:`` and a path, or an address.

        trusted_keys: Public keys of other hosts whose checkpoints are believed.

        witnesses: Who cosigns checkpoints.

        quorum: How many of them are enough; 0: more than half.
    """

    anchor: str | None = field(default=None, repr=False)
    trusted_keys: tuple[bytes, ...] = ()
    witnesses: tuple[Witness, ...] = ()
    quorum: int = 0

    @property
    def enough(self) -> int:
        """How many witnesses are enough."""
        return self.quorum or len(self.witnesses) // 2 + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class TelemetrySettings:
    """
    Where spans go, and where people look at them.

    Attributes:
        endpoint: Base URL of an OTLP receiver, or ``None``.

        trace_url: A page that shows a trace, with `TRACE_ID` in place of its id; or
            ``None``.

        baggage: The names of W3C baggage that is passed on from callers to tool
            servers.
    """

    endpoint: str | None = field(default=None, repr=False)
    trace_url: str | None = None
    baggage: tuple[str, ...] = ()


#: What a URL of a trace has in place of the id.
TRACE_ID = "{trace_id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class OAuth:
    """
    Which access tokens are accepted.

    Attributes:
        issuer: The ``iss`` of its tokens; its metadata is found there.

        audience: What must be in ``aud``: the address of this service.

        algorithms: Of signatures that are taken; never ``none`` or a shared secret.

        jwks: Where its keys are, or ``None``: as its metadata says.

        tenant_claim: The claim that names the tenant of a caller; ``None``: callers
            have none.

        client_id: What the console is called there, to sign people in; ``None``: they
            bring an access token.

        scope: What the console asks for; ``None``: ``openid`` and every scope.
    """

    issuer: str
    audience: str
    algorithms: tuple[str, ...] = ("RS256", "ES256", "EdDSA")
    jwks: str | None = None
    tenant_claim: str | None = None
    client_id: str | None = None
    scope: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Serve:
    """
    Settings of a serving host: ``[serve]``.

    Attributes:
        host: The address to listen on.

        port: The port; 0 for any that is free.

        mcp: Offer agents at ``/mcp``.

        api: Offer the control API at ``/api/v1``.

        ui: Offer the console at ``/ui``, where the control API is.

        edit: Allow changing servers over the control API, with the scope admin.

        metrics: Access to ``/metrics``: ``read`` requires that scope;
            ``open`` requires no token.

        allowed_hosts: Names that requests may be for, besides those of the address.

        allowed_origins: Of pages whose requests are taken.

        runs: Runs under way at a time; others wait.

        queue: How many may wait.

        concurrency: Requests under way of one principal, on all hosts; ``None``: 64 of
            each host.

        rate: How many runs one principal may start in a minute, on all hosts; ``None``:
            6000 of each host.

        tenant_concurrency: Runs under way of one tenant, on all hosts.

        tenant_rate: How many runs one tenant may start in a minute, on all hosts.

        body: Bytes of a request.

        drain: Seconds that runs get to end when the host is stopped; or they are
            suspended at their next call, for another host.

        oauth: Whose access tokens are taken, or ``None``.

        trusted_proxies: Networks of proxies that say for whom they ask.

        client_ca: The file of the authorities of clients' certificates, without which
            nobody connects; ``None``: none are asked for.

        allow_unauthenticated: Treat unauthenticated callers as the local user.

        public_url: Where people reach the console, for links to it; ``None``: unknown.
    """

    host: str = "127.0.0.1"
    port: int = 8080
    mcp: bool = True
    api: bool = True
    ui: bool = True
    edit: bool = False
    metrics: Literal["read", "open"] = "read"
    allowed_hosts: tuple[str, ...] = ()
    allowed_origins: tuple[str, ...] = ()
    runs: int = 256
    queue: int = 256
    concurrency: int | None = None
    rate: int | None = None
    tenant_concurrency: int | None = None
    tenant_rate: int | None = None
    body: int = 4 * 1024 * 1024
    drain: float | Literal["hand_over"] = 30.0
    oauth: OAuth | None = None
    trusted_proxies: tuple[str, ...] = ()
    client_ca: str | None = None
    allow_unauthenticated: bool = False
    public_url: str | None = None

    @property
    def each(self) -> int:
        """Requests under way of one principal, on one host."""
        return 64 if self.concurrency is None else self.concurrency

    @property
    def a_minute(self) -> int:
        """How many runs one principal may start in a minute, on one host."""
        return 6000 if self.rate is None else self.rate


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """
    When runs start by the clock: ``[schedules.NAME]``.

    Attributes:
        agent: What runs.

        cron: Its ticks: minute, hour, day, month and weekday.

        timezone: Whose clocks *cron* means.

        input: Of each run.

        variables: Of each run.

        overlap: Whether a run starts while an earlier one goes on.

        catch_up: What starts late: nothing, the last tick, or all of them.
    """

    name: str
    agent: str
    cron: str
    timezone: str = "UTC"
    input: JSON = None
    variables: Mapping[str, JSON] = field(default_factory=dict[str, JSON])
    overlap: Literal["skip", "allow"] = "skip"
    catch_up: Literal["none", "last", "all"] = "none"

    @property
    def actor(self) -> dict[str, JSON]:
        """The actor of its runs."""
        return {"kind": "schedule", "id": self.name, "authenticated": False}


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """
    Where notices are sent: ``[notify.NAME]``.

    Attributes:
        url: Takes them, as webhooks.

        secrets: What each is signed with; one signature for each.

        events: The types of notices; see `core.log.notices.CAUSES`.

        window: Seconds in which notices that are alike are counted, not sent.

        max_age: Seconds after which a notice is not sent any more.
    """

    name: str
    url: str = field(repr=False)
    secrets: tuple[bytes, ...] = field(repr=False)
    events: tuple[str, ...] = CAUSES
    window: float = 300.0
    max_age: float = 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """
    A whole configuration. Its repr shows no server and no secret.

    Attributes:
        path: The file it was read from, or ``None`` for the defaults.

        version: Of the format: 1.

        store_url: Where events are kept, as SQLAlchemy spells it.

        mcp: Whether tool servers are used; if not, `servers` is empty.

        servers: By name.

        origins: Name of a server to the file that describes it.

        webhooks: By name.

        context: Variables of a run, by name.

        agents: By name; those too whose clients are the agent.

        places: How much runs at a time.

        audit: How checkpoints of the log are published and trusted.

        retention: How long ended runs are kept.

        proxy: Where requests of webhooks go through, or ``None``.

        telemetry: Where spans go, and where people look at them.

        secrets: Values to mask everywhere, each of 8 bytes or more.

        short_secrets: Those that are too short to be looked for in texts.

        warnings: What is odd, for people.

        sha256: Digest of the file's bytes, in hex; ``""`` without a file.

        files: Every file that it was read from.

        watch: Read it again when one of them changes.

        serve: How the host is served.

        engine: What decides which host starts a run that waits.

        schedules: By name.
    """

    path: Path | None = None
    version: int = 1
    store_url: str = field(repr=False)
    mcp: bool = True
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
    retention: Retention = field(default_factory=Retention)
    proxy: str | None = field(default=None, repr=False)
    telemetry: TelemetrySettings = field(default_factory=TelemetrySettings)
    secrets: frozenset[str] = field(default=frozenset(), repr=False)
    short_secrets: frozenset[str] = field(default=frozenset(), repr=False)
    warnings: tuple[str, ...] = ()
    sha256: str = ""
    files: tuple[Path, ...] = ()
    watch: bool = False
    serve: Serve = field(default_factory=Serve)
    engine: Literal["in process", "procrastinate"] = "in process"
    schedules: Mapping[str, Schedule] = field(default_factory=dict[str, Schedule])
    notify: Mapping[str, Destination] = field(default_factory=dict[str, Destination])

    @property
    def sessions(self) -> dict[str, Agent]:
        """The agents that are clients, by name."""
        return {name: one for name, one in self.agents.items() if one.session}

    @property
    def executed(self) -> dict[str, Agent]:
        """The agents that are executed, by name: all but sessions."""
        found = self.agents.items()
        return {name: agent for name, agent in found if agent.session is None}

    @property
    def granted_servers(self) -> tuple[str, ...]:
        """The server names for grants: MCP servers, webhooks, and the agents."""
        webhooks = (SERVER,) if self.webhooks else ()
        return (*self.servers, *webhooks, *((AGENTS,) if self.executed else ()))

    def options(self, server: str, tool: str) -> ToolOptions:
        """Return the configured options of a tool of a server or webhook."""
        if server == SERVER and (hook := self.webhooks.get(tool)):
            return hook.options
        said = self.servers.get(server)
        return said.options(tool) if said else ToolOptions()


_NONE: Mapping[str, JSON] = {}
#: Bytes of the variables that a caller gives.
_VARIABLES = 256 * 1024


def run_variables(
    config: Config, given: Mapping[str, JSON]
) -> tuple[dict[str, JSON], dict[str, JSON]]:
    """
    Return the variables of a run: public ones, and private ones for its servers.

    Raises:
        UsageError: One is unknown to the configuration, or a required one is
            missing.
    """
    known_variables(config, given)
    whole = {**given}
    for key, variable in config.context.items():
        if key in whole:
            continue
        if variable.required:
            claim = f", as the claim {variable.claim!r}" if variable.claim else ""
            raise UsageError(
                f"the run variable {key!r} is required{claim}",
                fix=f"add --var {key}=VALUE",
            )
        if variable.default is not None:
            whole[key] = variable.default
    hidden = {key for key, variable in config.context.items() if variable.private}
    private = {key: whole.pop(key) for key in hidden & whole.keys()}
    return whole, private


def called_variables(
    config: Config, given: Mapping[str, JSON], claims: Mapping[str, JSON]
) -> dict[str, JSON]:
    """
    Return the variables that a caller over the network gives, and those of its claims.

    Args:
        config: What is configured.

        given: What it gives.

        claims: Of its token.

    Raises:
        UsageError: It may not give one of them, or they are too large.
    """
    for key in given:
        variable = config.context.get(key, ContextVar())
        if variable.claim or not (variable.caller or variable.required):
            raise UsageError(
                f"a caller cannot give the run variable {key[:64]!r}",
                fix="leave it out, or add caller = true to it in [context]",
            )
    known = ((key, one.claim) for key, one in config.context.items() if one.claim)
    whole = {**given, **{key: claims[claim] for key, claim in known if claim in claims}}
    try:
        decode(encode(whole), limit=_VARIABLES)
    except BadBytes:
        # What is wrong may be private.
        raise UsageError(
            f"the run variables are no JSON, too deep, or over {_VARIABLES} bytes",
            fix="give fewer or smaller ones",
        ) from None
    return whole


def private_variables(
    config: Config, given: Mapping[str, JSON] = _NONE
) -> dict[str, JSON]:
    """
    Return the private variables of a run that has begun.

    Raises:
        UsageError: One of *given* is another: those are recorded, and stay. Or one
            that is required is missing.
    """
    known_variables(config, given)
    hidden = {key: one for key, one in config.context.items() if one.private}
    for key in given:
        if key not in hidden:
            raise UsageError(
                f"the run variable {key!r} is recorded and cannot be changed",
                fix="pass only private variables",
            )
    return run_variables(replace(config, context=hidden), given)[1]


def known_variables(config: Config, given: Mapping[str, JSON]) -> None:
    """
    Check that variables are known to this configuration.

    Raises:
        UsageError: There is one.
    """
    for key in given:
        if key in RESERVED:
            raise UsageError(
                f"the host sets the run variable {key!r}", fix="give it another name"
            )
        if config.context and key not in config.context:
            meant = nearest(key, list(config.context))
            raise UsageError(
                f"no run variable {key!r} under [context]",
                fix=f"write {meant}" if meant else f"add {key} = {{}} to [context]",
            )
