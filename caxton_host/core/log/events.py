"""
The events of runs and hosts, and how the log stores them.

Append fields with defaults; never rename or remove a field: every log that was ever
written must replay. A new meaning needs a new schema version and an entry in
`UPCASTERS`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, TypeAlias, cast

from ...errors import LogBrokenError
from ..calls import JSON, Completed, Denied, Failed, Outcome
from ..commands import Command
from ..programs import digests_of

Payload: TypeAlias = dict[str, JSON]


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Base of every event. The class name is the type in the log."""

    schema: ClassVar[int] = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """
    An event in its place in the log.

    Attributes:
        position: Storage order over all streams. Not reliable on PostgreSQL. 0 if it
            is withheld.

        stream: ``run/<uuid7>``, ``host/<uuid7>`` or ``freezes``.

        seq: 1.. within the stream, without gaps.

        recorded_at: Microseconds since 1970, UTC. Never goes back in a stream.

        trace_id: 32 hex digits, or ``None``.

        span_id: 16 hex digits, or ``None``.

        hash: SHA-256 that binds the event to all before it in the stream.

        event: The event; ``None`` if its payload was erased.
    """

    position: int
    stream: str
    seq: int
    type: str
    schema_version: int
    recorded_at: int
    trace_id: str | None
    span_id: str | None
    hash: bytes
    event: Event | None


# -- a run ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStarted(Event):
    """
    A run started. It records everything that the run was given.

    Attributes:
        abi: ``core/1``, ``component/1``, ``wasi/1``; ``client/1`` of a session.

        entry: The exported function that was called.

        input: The input, or ``None``.

        seed: 32 bytes in hex; all randomness of the agent comes from it.

        catalogue: Exposed name to ``{server, tool, definition_sha256, effect}``.

        servers: Name to ``{transport, address, name, version, protocol}``; of one that
            could not list its tools, ``problem`` says why.

        host: The stream of the host process that started the run.

        engine: Version and fingerprint of the sandbox; fuel is exact under it.

        parent: The run that started this one, or ``None``.

        forked_from: ``{run, seq, hash}`` of a fork, or ``None``.

        resources: The resources in the context: name of a server to a list of
            ``{key, uri, sha256, bytes}``, with ``error`` instead of the last two, or
            ``replaced``. ``None``: there are none.

        unlisted: Servers that could not list their tools. Their tools are not in the
            catalogue; names are compared with ``mcp__<server>__<tool>`` instead.

        command: ``{args, env, files}`` of a WASI program, or ``None``; ``files`` is
            the path of each to the SHA-256 of its bytes. See `Command`.

        program: What the module, a runtime, executes: ``{language, name, sha256}``,
            with ``packages``; ``None``: the module is a program itself.

        bounds: The grants that bind the run beside *grants*: ``{name, grants, owner}``
            of each. See `Bound`.

        vouched: ``{input, context}``: JSON paths of the parts of the input that are a
            source of values, since no agent made them, and the names of the variables
            that are, since no caller gave them. Without *context*, all variables are;
            ``None``: all of both.

        called_by: The number of the call of *parent* that this run answers.

        callers: The runs that wait for it: the first is the one that a person or a
            client started, the last is *parent*.

        carried: Of a session, what the one before it counted; see `Tally.carried`.

        task_ttl: Milliseconds from its start for which its client may ask for it as a
            task; ``None``: as long as for any run.

        signatures: ``{sha256, signer, signature}`` of each file that its agent wants
            signed: the digest, the public key, and the text of the signature file.
    """

    agent: str
    actor: Payload
    module_sha256: str
    abi: str
    entry: str
    input: JSON
    context: Payload
    limits: Payload
    seed: str
    grants: Payload
    grants_sha256: str
    catalogue: Payload
    servers: Payload
    host: str | None
    engine: str
    parent: str | None = None
    forked_from: Payload | None = None
    resources: Payload | None = None
    unlisted: tuple[JSON, ...] = ()
    program: Payload | None = None
    command: Payload | None = None
    bounds: tuple[JSON, ...] = ()
    vouched: Payload | None = None
    called_by: int | None = None
    callers: tuple[JSON, ...] = ()
    carried: Payload | None = None
    task_ttl: int | None = None
    signatures: tuple[JSON, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunQueued(Event):
    """
    A run was accepted, and waits for a place. `RunStarted` follows, or its end.

    Attributes:
        module_sha256: Of the module; the log keeps it.

        grants: What its agent was granted then. The run needs that, too.

        trigger: ``api``, ``mcp`` or ``schedule``.

        unvouched: The names of variables that a caller gave.

        trace: The W3C trace context of the caller.

        priority: Its class: a run of a higher one comes first.

        host: The stream of the host whose queue it is in; ``None``: any host's.

        input, context, command, program, bounds, task_ttl, signatures: As in
        `RunStarted`; without what is only known at the start.
    """

    agent: str
    actor: Payload
    module_sha256: str
    input: JSON
    context: Payload
    grants: Payload
    grants_sha256: str
    trigger: str
    host: str | None
    priority: int = 0
    program: Payload | None = None
    command: Payload | None = None
    bounds: tuple[JSON, ...] = ()
    unvouched: tuple[JSON, ...] = ()
    trace: Payload | None = None
    task_ttl: int | None = None
    signatures: tuple[JSON, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolInvoked(Event):
    """
    The agent attempted a call. Open until one of three events closes it.

    Attributes:
        name: The exposed name, as the agent wrote it.

        server: The server of the tool; ``None`` if the name leads to no tool.

        params: The parameters, redacted; ``None`` if the bytes were invalid.

        params_sha256: Digest of the agent's own bytes.

        rule: The rule that allowed it, or ``None`` if none did.

        fuel: The fuel that the agent had used when it called.

        spends: What it takes of the budgets of the rules that allow it: account and
            budget to an amount; sums in millionths. Of another agent's budgets, the
            account begins with ``@AGENT/``.

        sources: Where the values came from that rules looked for: the JSON path of
            each parameter to a list of ``{call, path, source}``; ``url`` names the one
            of a text. Empty: from no source.
    """

    call: int
    name: str
    server: str | None
    tool: str | None
    params: Payload | None
    params_sha256: str
    effect: str
    rule: str | None
    idempotency_key: str
    fuel: int
    spends: Payload | None = None
    sources: Payload | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolRetried(Event):
    """
    An open call is sent again. It stays open.

    Attributes:
        attempt: 2 for the second send, and so on.

        reason: ``transport``: the previous send failed in a way that allows another;
            ``input``: the server asked for another; ``resolved`` or ``resumed``.
    """

    call: int
    attempt: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCompleted(Event):
    """
    The tool answered. The agent got this, unless it is cut.

    Attributes:
        cut: Only the digest of the answer is kept, by configuration. See `Completed`.

        cached: It is the answer to an earlier call. Nothing was sent.

        withheld: ``{"sha256", "bytes"}`` of the data, if the agent got the message
            only. See `withheld`.

        settles: What the call has spent in truth, by those keys of ``spends`` that its
            answer settles. The other amounts stand.

        reached: ``SERVER/TOOL`` of what the run of an agent called to answer.
    """

    call: int
    is_error: bool
    message: str
    data: JSON
    blobs: tuple[JSON, ...] = ()
    duration_us: int = 0
    attempts: int = 1
    bytes: int = 0
    cut: bool = False
    cached: bool = False
    withheld: Payload | None = None
    settles: Payload | None = None
    reached: tuple[JSON, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolDenied(Event):
    """The call was denied. See `Denied`."""

    call: int
    code: str
    rule: str | None
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolFailed(Event):
    """The call had no answer. The agent got this failure. See `Failed`."""

    call: int
    kind: str
    sent: str
    message: str
    code: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolProgress(Event):
    """The tool reported progress."""

    call: int
    message: str
    progress: float | None = None
    total: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionAsked(Event):
    """
    The tool asked a person something. The call stays open.

    Attributes:
        question: 1 for the first question of the call.

        name: What the tool calls it.

        message: Its text, redacted and cut.

        form: The fields of the answer, as a flat JSON schema; ``None``: it cannot be
            answered, and is declined.

        to: Who is asked: ``people`` who decide about calls, or the ``client`` of the
            session.

        by: The roles that may answer; empty: any role.

        until: When it is cancelled: microseconds since 1970.
    """

    call: int
    question: int
    name: str
    server: str
    tool: str
    message: str
    form: Payload | None
    to: str
    by: tuple[JSON, ...]
    until: int


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionAnswered(Event):
    """
    A question was answered. The tool is told after this.

    Attributes:
        action: ``accept``, ``decline`` or ``cancel``.

        content: The fields, as they are sent; ``None`` unless it was accepted.

        role: The role that the actor claims.
    """

    call: int
    question: int
    action: str
    content: Payload | None
    actor: Payload
    reason: str
    role: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogWritten(Event):
    """The agent wrote a log line. ``n`` counts from 1 within the run."""

    n: int
    level: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalRequested(Event):
    """
    The call needs the approval of a person.

    Attributes:
        params: The parameters, redacted.

        params_sha256: Digest of the agent's own bytes. An approval covers exactly
            these.

        rule: The rule that requires it.

        by: The roles that may approve; empty: any role.

        until: When the request expires, which is a denial: microseconds since 1970;
            ``None``: never.

        count: How many people have to approve.

        not_by: The actor who may not approve: who started the run; ``None``: anyone
            may.
        sources: As of a `ToolInvoked`.

        fresh: Seconds within which one who approves has to have signed in; ``None``:
            any sign-in will do.
    """

    call: int
    name: str
    server: str
    tool: str
    params: Payload
    params_sha256: str
    rule: str
    fuel: int
    by: tuple[JSON, ...]
    until: int | None
    count: int = 1
    not_by: Payload | None = None
    sources: Payload | None = None
    fresh: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalDecided(Event):
    """
    A person decided about a call, or the request expired.

    Attributes:
        verdict: ``approve`` or ``deny``. The first denial ends the request.

        role: The role that the actor claims.

        signed_in_for: Seconds from the sign-in of the actor to the decision;
            ``None``: there was none.
    """

    call: int
    verdict: str
    actor: Payload
    reason: str
    role: str = ""
    signed_in_for: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CallResolved(Event):
    """A person resolved a call in doubt."""

    call: int
    verdict: str
    actor: Payload
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSuspended(Event):
    """
    The run is suspended.

    Attributes:
        reason: ``approval`` or ``in_doubt``: it waits for a person; ``host_stopped``:
            the next host may take it over at once; ``restored``: the log is a copy, and
            a person has to resume the run; ``frozen``: it goes on once it is thawed;
            ``child``: the run that answers *call* is suspended.

        call: The call that a person has to decide about, or that is frozen; or
            ``None``.

        frozen: ``{kind, name}`` of what is frozen, or ``None``.

        unsent: Calls that are open and were certainly not sent.
    """

    reason: str
    call: int | None = None
    frozen: Payload | None = None
    unsent: tuple[JSON, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResumed(Event):
    """A host resumed the run."""

    actor: Payload
    host: str | None
    epoch: int
    reason: str
    grants_sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCompleted(Event):
    """The agent returned 0."""

    output: JSON
    output_sha256: str
    fuel: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFailed(Event):
    """
    The run failed.

    Attributes:
        kind: ``trap``, ``limit``, ``agent_error``, ``diverged``, ``worker`` or
            ``host``.

        message: The reason; of a limit, its name first.

        fuel: The fuel used; ``None`` if a time limit ended the run.
    """

    kind: str
    message: str
    fuel: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCancelled(Event):
    """A person or a client cancelled the run."""

    actor: Payload
    reason: str


# -- a host process ------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class HostStarted(Event):
    """
    A host process opened the log.

    Attributes:
        public_key: Its Ed25519 key, 32 bytes in hex.

        guards: The confinement of its workers, by name.

        actor: Who started it; ``None`` in logs of older versions.
    """

    version: str
    engine: str
    public_key: str
    guards: tuple[JSON, ...] = ()
    actor: Payload | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigLoaded(Event):
    """
    The host loaded its configuration. The digest is of the bytes of the file.

    Attributes:
        actor: Who loaded it; ``None`` in logs of older versions.
    """

    path: str
    sha256: str
    actor: Payload | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerEvent(Event):
    """
    Base of what happens to one process of a tool server, or one connection to it.

    Attributes:
        domain: The trust domain that has it alone; ``None``: agents share it.
    """

    server: str
    domain: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConnected(ServerEvent):
    """A tool server connected and listed its tools."""

    name: str
    version: str
    protocol: str
    tools: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerLost(ServerEvent):
    """The connection to a server was lost."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFailed(ServerEvent):
    """A server could not be started or connected to. Recorded once per outage."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerRestarted(ServerEvent):
    """A lost server is restarted."""

    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerDisabled(ServerEvent):
    """A server failed too often and is not restarted."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EgressAllowed(ServerEvent):
    """
    A confined server connected to a host that it may connect to.

    The first connection to a host is recorded before it is made. What follows within a
    minute is added up in one event.

    Attributes:
        host: As the server named it; ``*``: several that are not recorded singly.

        connections: Connections since the event before.

        failed: Those of them that could not be made.

        sent: Bytes from the server since the event before.

        received: Bytes to the server.
    """

    host: str
    port: int
    connections: int = 0
    failed: int = 0
    sent: int = 0
    received: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class EgressRefused(ServerEvent):
    """
    A confined server tried to connect to what it may not connect to.

    Attributes:
        host: As of `EgressAllowed`; empty: the request was invalid.

        reason: ``unlisted``, ``private`` (the name has an address that is not public)
            or ``invalid``.

        attempts: Since the event before.
    """

    host: str
    port: int
    reason: str
    attempts: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerOpened(Event):
    """The circuit breaker of a server opened: it gets no calls for a while."""

    server: str
    failures: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerClosed(Event):
    """The circuit breaker of a server closed: it answered again."""

    server: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolsChanged(Event):
    """
    The tools of a server changed, or a person accepted the change.

    Attributes:
        actor: Who accepted them; ``None``: the server reported the change.
    """

    server: str
    added: tuple[JSON, ...] = ()
    removed: tuple[JSON, ...] = ()
    changed: tuple[JSON, ...] = ()
    actor: Payload | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GrantChanged(Event):
    """
    A reload changed the grants of an agent.

    An agent that is not configured has an empty grant.

    Attributes:
        grants_sha256: Digest of the grants of new runs.

        former_sha256: Digest of the grants until now.
    """

    agent: str
    actor: Payload
    grants_sha256: str
    former_sha256: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRotated(Event):
    """
    The signing key of the log changed. Keys are public keys, 32 bytes in hex.

    Attributes:
        former: The key until now. It signed a checkpoint that holds this event.

        public_key: The key from now on. It signed the same checkpoint.
    """

    former: str
    public_key: str
    actor: Payload


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditFailed(Event):
    """
    A served host found the log broken, or nobody outside vouches for it any more.

    Attributes:
        what: ``verify``: it was verified on request, and is not intact; ``anchor`` or
            ``witness``: its checkpoints are not accepted there, recorded once per
            outage.
    """

    what: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRestored(Event):
    """
    The log was restored from a copy, which lacks the events after it.

    Attributes:
        size: The number of events in the copy.

        root: The root of the tree over them, in hex.

        had_size: The size of the newest checkpoint that this machine signed; ``None``:
            unknown.

        had_root: The root of that checkpoint.

        runs: The number of unfinished runs, which are suspended now.
    """

    size: int
    root: str
    actor: Payload
    had_size: int | None = None
    had_root: str | None = None
    runs: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RunErased(Event):
    """
    The payloads of a run were deleted; its hashes stay.

    Attributes:
        agent: The agent of the run.

        events: The number of events of the run.

        bundle: Name and digest of the archived bundle, ``{name, sha256}``, if the run
            was moved to an archive.
    """

    run: str
    actor: Payload
    reason: str
    agent: str = ""
    events: int = 0
    bundle: Payload | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenCreated(Event):
    """
    A token was created. Its secret is not stored.

    Attributes:
        id: The id of the token and of its principal.

        expires_at: Microseconds since 1970, UTC; ``None``: never.

        tenant: The tenant of its principal, if it has one.

        digest: SHA-256 of the digest that the store keeps; ``""`` in older events.
    """

    id: str
    name: str
    scopes: tuple[JSON, ...]
    agents: tuple[JSON, ...]
    roles: tuple[JSON, ...] = ()
    expires_at: int | None = None
    actor: Payload
    tenant: str | None = None
    digest: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRevoked(Event):
    """A token was revoked."""

    id: str
    actor: Payload


# -- what is kept ---------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class RunHeld(Event):
    """A run is on hold: nobody may erase or archive it, nor what it was forked from."""

    run: str
    actor: Payload
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReleased(Event):
    """The hold of a run ended. See `RunHeld`."""

    run: str
    actor: Payload
    reason: str


# -- who reads -----------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRead(Event):
    """
    A caller read what a run did, over the control API or as an MCP resource.

    Attributes:
        run: Its id; ``""``: runs of a list, or events of all runs that it may see.

        what: ``run``, ``output``, ``events``, ``blob``, ``explanation``, ``approval``,
            ``runs``, ``approvals``.
    """

    run: str
    what: str
    actor: Payload


# -- what is frozen ------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Frozen(Event):
    """
    An operator stopped the calls of an agent, a token, a server or a schedule.

    Attributes:
        kind: ``agent``, ``token``, ``server`` or ``schedule``.

        name: Of a token, its id; of a subject of an authorization server,
            ``oauth/SUBJECT``, or ``@TENANT/oauth/SUBJECT``.
    """

    kind: str
    name: str
    actor: Payload
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Thawed(Event):
    """What was frozen may make calls again. See `Frozen`."""

    kind: str
    name: str
    actor: Payload
    reason: str


EVENT_TYPES: Mapping[str, type[Event]] = {
    cls.__name__: cls
    for base in (Event, ServerEvent)
    for cls in base.__subclasses__()
    if cls.__name__ != ServerEvent.__name__  # with slots, there are two of it
}


#: Converts a payload of a schema version to the next one, by type and version.
UPCASTERS: dict[tuple[str, int], Callable[[Payload], Payload]] = {}

_KEYS: Mapping[str, tuple[str, ...]] = {
    name: tuple(f.name for f in fields(cls)) for name, cls in EVENT_TYPES.items()
}

_KNOWN = {name: frozenset(keys) for name, keys in _KEYS.items()}
_TUPLES = frozenset(
    {"blobs", "by", "guards", "added", "removed", "changed"}
    | {
        "scopes",
        "agents",
        "roles",
        "unlisted",
        "bounds",
        "unsent",
        "callers",
        "reached",
        "unvouched",
        "signatures",
    }
)
#: Keys that are omitted from a payload if they are empty.
_RARE = {
    "ToolInvoked": ("spends", "sources"),
    "ToolCompleted": ("cached", "withheld", "settles", "reached"),
    "ApprovalRequested": ("not_by", "sources", "fresh"),
    "ApprovalDecided": ("signed_in_for",),
    "RunSuspended": ("frozen", "unsent"),
    "TokenCreated": ("tenant", "digest"),
    "RunStarted": (
        *("unlisted", "program", "command"),
        *("bounds", "vouched", "called_by", "callers", "carried", "task_ttl"),
        "signatures",
    ),
    "RunQueued": ("signatures",),
}
_LISTS = {name: tuple(_TUPLES.intersection(keys)) for name, keys in _KEYS.items()}


def to_payload(event: Event) -> Payload:
    """
    Return the keys and values of *event*, in the order of its fields.

    >>> from caxton_host.core.log.events import RunSuspended
    >>> to_payload(RunSuspended(reason="approval", call=3))
    {'reason': 'approval', 'call': 3}
    """
    name = type(event).__name__
    payload = {key: getattr(event, key) for key in _KEYS[name]}
    for key in _LISTS[name]:
        payload[key] = list(payload[key])
    for key in _RARE.get(name, ()):
        if payload[key] in (None, []) or payload[key] is False:
            del payload[key]
    return payload


def code_of(event: Event) -> set[str]:
    """Return the digests of the module and the program that *event* names."""
    if not isinstance(event, RunQueued | RunStarted):
        return set()
    return {event.module_sha256, *digests_of(event.program)}


def blobs_of(event: Event) -> set[str]:
    """
    Return the digests of the blobs that *event* names.

    Of a `RunQueued`: the module, the program and the files; of a `RunStarted`, also the
    definitions of tools and the resources; of a `ToolCompleted`: the parts that are
    stored apart.
    """
    named: list[tuple[JSON, str]] = []
    digests: list[str] = []
    if isinstance(event, RunQueued | RunStarted):
        digests = [*code_of(event)]
        digests += Command.from_payload(event.command).files.values()
    if isinstance(event, RunStarted):
        named += [(entry, "definition_sha256") for entry in event.catalogue.values()]
        read = cast("dict[str, list[JSON]]", event.resources or {})
        named += [(entry, "sha256") for entries in read.values() for entry in entries]
    elif isinstance(event, ToolCompleted):
        named = [(part, "sha256") for part in event.blobs]
    found = {
        str(entry[key])
        for entry, key in named
        if isinstance(entry, dict) and key in entry
    }
    return found.union(digests)


def from_payload(type_: str, version: int, payload: Payload) -> Event:
    """
    Return the event that was stored as *payload*.

    Unknown keys are ignored, since later versions add some. Missing keys have their
    defaults.

    Raises:
        LogBrokenError: The type or its schema version is unknown, or a key without a
            default is missing.
    """
    cls = EVENT_TYPES.get(type_)
    if cls is None:
        raise _unknown(f"event type {type_!r}")
    while upcast := UPCASTERS.get((type_, version)):
        payload, version = upcast(payload), version + 1
    if version != cls.schema:
        raise _unknown(f"schema version {version} of {type_}")
    known = _KNOWN[type_]
    if payload.keys() <= known:
        given: dict[str, object] = dict(payload)
    else:
        given = {key: value for key, value in payload.items() if key in known}
    for key in _LISTS[type_]:
        value = given.get(key)
        if isinstance(value, list):
            given[key] = tuple(cast("list[JSON]", value))
    try:
        return cls(**given)
    except TypeError as exc:
        raise LogBrokenError(f"{type_} does not fit version {version}: {exc}") from exc


def _unknown(what: str) -> LogBrokenError:
    return LogBrokenError(
        f"unknown {what}",
        fix="if a later version of caxton-host wrote it, use that one",
    )


#: The event that records each outcome: the call, and fields of the outcome.
_RECORDS: Mapping[type[Outcome], type[ToolCompleted | ToolFailed | ToolDenied]] = {
    Completed: ToolCompleted,
    Failed: ToolFailed,
    Denied: ToolDenied,
}
_OUTCOMES = {record: outcome for outcome, record in _RECORDS.items()}
_SHARED = {
    record: [key for key in _KEYS[record.__name__] if key != "call"]
    for record in _OUTCOMES
}


def settled(call: int, outcome: Outcome) -> ToolCompleted | ToolFailed | ToolDenied:
    """Return the event that records *outcome* as the end of *call*."""
    record = _RECORDS[type(outcome)]
    told: dict[str, Any] = {key: getattr(outcome, key) for key in _SHARED[record]}
    if record is ToolCompleted:
        told["settles"] = told["settles"] or None
    return record(call=call, **told)


def outcome_of(event: Event) -> tuple[int, Outcome] | None:
    """Return the call that *event* closes, and its outcome; ``None``: no call."""
    record = type(event)
    if record not in _OUTCOMES:
        return None
    told: dict[str, Any] = {key: getattr(event, key) for key in _KEYS[record.__name__]}
    if isinstance(event, ToolCompleted):
        told["blobs"] = tuple(b for b in event.blobs if isinstance(b, dict))
    return told.pop("call"), _OUTCOMES[record](**told)


def event_document(recorded: Recorded) -> dict[str, JSON]:
    """Return the ``caxton.event/v1`` document of an event."""
    event = recorded.event
    return {
        "$type": "caxton.event/v1",
        "position": recorded.position or None,
        "stream": recorded.stream,
        "seq": recorded.seq,
        "type": recorded.type,
        "schema_version": recorded.schema_version,
        "recorded_at": recorded.recorded_at,
        "trace_id": recorded.trace_id,
        "span_id": recorded.span_id,
        "payload": to_payload(event) if event else None,
        "hash": recorded.hash.hex(),
    }
