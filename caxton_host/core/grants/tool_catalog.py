"""The catalogue of a run: the offered tools, by their exposed names."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace

from ...errors import ConfigError
from ..calls import JSON, Completed, Effect, OverLimit, Record, Reply, Retry, Route
from ..names import exposed_name, is_method, meant_tool
from ..tools.servers import OnToolChange, ToolOptions
from .decisions import may_ever
from .grants import Grant

#: Effects in order of strictness: from repeatable to not.
_STRICTER: tuple[Effect, ...] = ("read", "idempotent", "keyed", "unsafe")

_UNSAID = ToolOptions()
_ONCE = Retry()
_NO_OPTIONS: Mapping[tuple[str, str], ToolOptions] = {}
_SCHEMA = "input_schema"
_NONE_ACCEPTED: Mapping[tuple[str, str], str] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """
    One tool of one server.

    Attributes:
        exposed: The exposed name, unless the agent has a name of its own for it.

        definition: The canonical msgpack of the definition by the server:
            ``name``, ``description``, ``inputSchema`` and the rest;
            ``definition_sha256`` is its digest.

        overridden: The description is configured, or the name of a tool without one.

        output_schema: That of the server, for the structured content of answers.

        schema: The configured schema, which replaces that of the server.

        record: What the log keeps of its answers.

        reply: What agent and log get of its answers.

        retry: How often a call is sent.

        over_limit: How an answer that is too large is handled.

        key_argument: The parameter in which the idempotency key is sent.

        on_change: Whether it is offered with a definition that was not accepted;
            ``None``: it is configured, and needs no acceptance.
    """

    server: str
    tool: str
    exposed: str
    description: str
    input_schema: dict[str, JSON]
    definition: bytes
    definition_sha256: str
    effect: Effect = "unsafe"
    overridden: bool = False
    output_schema: dict[str, JSON] | None = None
    schema: dict[str, JSON] | None = None
    record: Record = "full"
    reply: Reply = "full"
    retry: Retry = field(default_factory=Retry)
    over_limit: OverLimit = "fail"
    key_argument: str | None = None
    on_change: OnToolChange | None = None

    @property
    def parameters(self) -> dict[str, JSON]:
        """The effective schema of its parameters: configured, or by the server."""
        return self.input_schema if self.schema is None else self.schema


@dataclass(frozen=True, slots=True, kw_only=True)
class Offered:
    """
    The tools that servers offer now.

    Attributes:
        offers: Every tool of every server that could be reached.

        servers: For ``RunStarted.servers``: name to ``{transport, address, name,
            version, protocol}``. A server that is down has ``None`` for the last
            three. If it could not list its tools, ``problem`` says why.

        options: Configured options of tools, by ``(server, tool)``. They hold while
            the server is down.

        accepted: Digest of the accepted definition, by ``(server, tool)``, of tools
            that are not offered. A call of one requires that definition.
    """

    offers: tuple[Offer, ...] = ()
    options: Mapping[tuple[str, str], ToolOptions] = field(
        default_factory=dict[tuple[str, str], ToolOptions]
    )
    servers: Mapping[str, dict[str, JSON]] = field(
        default_factory=dict[str, dict[str, JSON]]
    )
    accepted: Mapping[tuple[str, str], str] = field(
        default_factory=dict[tuple[str, str], str]
    )

    @property
    def unlisted(self) -> tuple[str, ...]:
        """The servers that could not list their tools."""
        return tuple(name for name, said in self.servers.items() if "problem" in said)


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalogue:
    """
    The exposed names of one run. Pinned when it starts; never changes.

    Attributes:
        routes: Exposed name to route, granted or not.

        visible: Exposed name to offer, of tools that the grant may allow.
    """

    routes: Mapping[str, Route] = field(default_factory=dict[str, Route])
    visible: Mapping[str, Offer] = field(default_factory=dict[str, Offer])

    @property
    def schemas(self) -> dict[str, dict[str, JSON]]:
        """The schema of the parameters of each visible tool."""
        return {name: offer.parameters for name, offer in self.visible.items()}

    def to_payload(self) -> dict[str, JSON]:
        """
        Return the catalogue as ``RunStarted.catalogue`` holds it.

        Visible tools are marked; the others name the tools of denied calls.
        Description and schema are included if they are configured.
        """
        payload: dict[str, JSON] = {}
        for name, route in self.routes.items():
            entry: dict[str, JSON] = {
                "server": route.server,
                "tool": route.tool,
                "definition_sha256": route.definition_sha256,
                "effect": route.effect,
            }
            if route.record != "full":
                entry["record"] = route.record
            if route.reply != "full":
                entry["reply"] = route.reply
            if route.retry != _ONCE:
                entry["retry"] = {**asdict(route.retry)}
            if route.over_limit != "fail":
                entry["over_limit"] = route.over_limit
            if offer := self.visible.get(name):
                entry["visible"] = True
                if offer.overridden:
                    entry["description"] = offer.description
                if offer.schema is not None:
                    entry["input_schema"] = offer.schema
            payload[name] = entry
        return payload


def catalogue_for(  # noqa: PLR0913 -- each may be left out
    grant: Grant,
    names: Mapping[str, tuple[str, str]],
    offers: Iterable[Offer],
    options: Mapping[tuple[str, str], ToolOptions] = _NO_OPTIONS,
    accepted: Mapping[tuple[str, str], str] = _NONE_ACCEPTED,
    *,
    others: Sequence[Grant] = (),
) -> Catalogue:
    """
    Return the catalogue of a run.

    Args:
        grant: The grant of the run. A tool that a rule names without a star keeps its
            name while its server is down: its calls fail, and are recorded.

        names: The agent's own names, to ``(server, tool)``.

        offers: The offers of the servers of the grant.

        options: Configured options of tools whose server is down.

        accepted: Definitions of tools that are not offered. See `Offered`.

        others: The other grants that bind the run. A tool that one of them can never
            allow is not visible.

    Raises:
        ConfigError: Two tools would have the same name.
    """
    by_tool = {(offer.server, offer.tool): offer for offer in offers}
    own: dict[tuple[str, str], list[str]] = {}
    for name, target in names.items():
        own.setdefault(target, []).append(name)
    routes: dict[str, Route] = {}
    visible: dict[str, Offer] = {}
    targets = [*by_tool, *grant.literals(), *names.values()]
    for target in dict.fromkeys(targets):
        offer = by_tool.get(target)
        default = offer.exposed if offer else _default_name(target, options)
        shown = own.get(target, [default])
        route = _offered(offer) if offer else _unseen(target, options, accepted)
        for name in dict.fromkeys((default, *shown)):
            if name in routes:
                taken = routes[name]
                raise ConfigError(
                    f"two tools would be called {name!r}: "
                    f"{taken.server}/{taken.tool} and {target[0]}/{target[1]}",
                    fix="give one of them another name with expose_as or names",
                )
            routes[name] = route
            ever = all(may_ever(one, route) for one in (grant, *others))
            if offer and ever and name in shown:
                visible[name] = offer
    return Catalogue(routes=routes, visible=visible)


def _offered(offer: Offer) -> Route:
    return Route(
        server=offer.server,
        tool=offer.tool,
        definition_sha256=offer.definition_sha256,
        effect=offer.effect,
        record=offer.record,
        reply=offer.reply,
        retry=offer.retry,
        over_limit=offer.over_limit,
        key_argument=offer.key_argument,
    )


def _effect(target: tuple[str, str], said: ToolOptions) -> Effect:
    return said.effect or ("read" if is_method(target[1]) else "unsafe")


def _default_name(
    target: tuple[str, str], options: Mapping[tuple[str, str], ToolOptions]
) -> str:
    return options.get(target, _UNSAID).expose_as or exposed_name(*target)


def _unseen(
    target: tuple[str, str],
    options: Mapping[tuple[str, str], ToolOptions],
    accepted: Mapping[tuple[str, str], str],
) -> Route:
    """Return the route of a tool that is not offered, by its configured options."""
    said = options.get(target, _UNSAID)
    effect = _effect(target, said)
    return Route(
        server=target[0],
        tool=target[1],
        definition_sha256=accepted.get(target),
        effect=effect,
        record=said.record,
        reply=said.reply,
        retry=said.retrying(effect),
        over_limit=said.over_limit or "fail",
        key_argument=said.key_argument,
    )


def reaching(
    routes: Mapping[str, Route], unlisted: Collection[JSON], offered: Offered
) -> Mapping[str, Route]:
    """
    Return *routes*, extended to tools of servers that could not list them.

    A call of such a tool is judged by its server and name, like any other. If it is
    granted, it fails because the server is down; an outage is not a denial.

    Args:
        routes: The catalogue of a run. It takes precedence.

        unlisted: Servers that could not list their tools when the run began.

        offered: What is known of tools now.
    """
    return _Reaching(routes, {*map(str, unlisted)}, offered) if unlisted else routes


class _Reaching(Mapping[str, Route]):
    """See `reaching`."""

    def __init__(
        self, known: Mapping[str, Route], unlisted: Collection[str], offered: Offered
    ) -> None:
        self._known = known
        self._unlisted = unlisted
        self._offered = offered
        self._named: dict[str, list[tuple[str, str]]] = {}
        for target in dict.fromkeys((*offered.options, *offered.accepted)):
            if target[0] in unlisted:
                name = _default_name(target, offered.options)
                self._named.setdefault(name, []).append(target)

    def __getitem__(self, name: str) -> Route:
        if name in self._known:
            return self._known[name]
        options, named = self._offered.options, self._named.get(name, [])
        guessed = None if named else meant_tool(name, self._unlisted)
        if guessed and _default_name(guessed, options) == name:
            named = [guessed]
        if len(named) != 1:  # No tool, or several.
            raise KeyError(name)
        route = _unseen(named[0], options, self._offered.accepted)
        return replace(route, guessed=guessed is not None)

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)


def routes_from_payload(payload: Mapping[str, JSON]) -> dict[str, Route]:
    """Return the routes that a ``RunStarted`` holds."""
    keys = (
        *("server", "tool", "definition_sha256", "effect"),
        *("record", "reply", "over_limit"),
    )
    return {
        name: Route(
            **{key: entry[key] for key in keys if key in entry},  # type: ignore[arg-type]  # JSON
            retry=_retry(entry.get("retry")),
        )
        for name, entry in payload.items()
        if isinstance(entry, dict)
    }


def shown(payload: Mapping[str, JSON], name: str, done: Completed) -> Completed:
    """Return what agent and log get of an answer to *name*, by a ``RunStarted``."""
    route = routes_from_payload(payload).get(name)
    return route.shown(done) if route else done


def _retry(said: JSON) -> Retry:
    return Retry(**said) if isinstance(said, dict) else _ONCE  # type: ignore[arg-type]  # JSON


def pinned(payload: Mapping[str, JSON], offered: Offered) -> dict[str, Route]:
    """
    Return the routes that a ``RunStarted`` holds, for a resumed run.

    The recorded options and the configured ones are combined to the stricter: of
    effect, of what is kept and shown of answers, and of the number of sends.
    """
    now = {
        (offer.server, offer.tool): (
            offer.effect,
            offer.record,
            offer.reply,
            offer.retry,
            offer.key_argument,
        )
        for offer in offered.offers
    }
    routes = routes_from_payload(payload)
    for name, route in routes.items():
        target = route.server, route.tool
        said = offered.options.get(target, _UNSAID)
        unsaid = _effect(target, said)
        known = (
            *(unsaid, said.record, said.reply),
            *(said.retrying(unsaid), said.key_argument),
        )
        effect, record, reply, retry, key = now.get(target, known)
        routes[name] = replace(
            route,
            effect=max(route.effect, effect, key=_STRICTER.index),
            record="hash" if "hash" in {route.record, record} else "full",
            reply="message" if "message" in {route.reply, reply} else "full",
            retry=min(route.retry, retry, key=lambda one: one.attempts),
            key_argument=key,
        )
    return routes


def listing(
    payload: Mapping[str, JSON], definitions: Mapping[str, Mapping[str, JSON]]
) -> list[JSON]:
    """
    Return the result of the agent's ``tools()``: the visible tools, by name.

    Args:
        payload: ``RunStarted.catalogue``.

        definitions: Digest to definition.
    """
    tools: list[JSON] = []
    for name, entry in sorted(payload.items()):
        if not isinstance(entry, dict) or not entry.get("visible"):
            continue
        known = definitions[str(entry["definition_sha256"])]
        tools.append(
            {
                "name": name,
                "description": entry.get("description", known.get("description")),
                "input_schema": entry.get("input_schema", known.get("inputSchema")),
            }
        )
    return tools


def definitions(
    payload: Mapping[str, JSON], known: Mapping[str, Mapping[str, JSON]]
) -> list[dict[str, JSON]]:
    """
    Return the visible tools as a client of MCP is shown them, by name.

    Args:
        payload: ``RunStarted.catalogue``.

        known: Digest to definition.
    """
    tools: list[dict[str, JSON]] = []
    for name, entry in sorted(payload.items()):
        if not isinstance(entry, dict) or not entry.get("visible"):
            continue
        tool = {**known[str(entry["definition_sha256"])], "name": name}
        for key, own in (("description", "description"), ("inputSchema", _SCHEMA)):
            if own in entry:
                tool[key] = entry[own]
        if _is_partial(entry):
            tool.pop("outputSchema", None)
        tools.append(tool)
    return tools


def _is_partial(entry: Mapping[str, JSON]) -> bool:
    """Return whether answers may lack what their schema promises."""
    return entry.get("reply", "full") != "full" or entry.get("over_limit") == "cut"


def tool_document(
    offer: Offer, accepted: Mapping[tuple[str, str], str]
) -> dict[str, JSON]:
    """Return the ``caxton.tool/v1`` document of a tool."""
    before = accepted.get((offer.server, offer.tool))
    return {
        "$type": "caxton.tool/v1",
        "server": offer.server,
        "tool": offer.tool,
        "exposed": offer.exposed,
        "description": offer.description,
        "input_schema": offer.parameters,
        "output_schema": offer.output_schema,
        "effect": offer.effect,
        "definition_sha256": offer.definition_sha256,
        "accepted": None if before is None else before == offer.definition_sha256,
        "on_change": offer.on_change,
    }
