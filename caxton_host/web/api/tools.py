"""Tools: what servers offer, changes of it, and calls that a person makes."""

from __future__ import annotations

from dataclasses import replace

from starlette.responses import Response

from ...core.calls import JSON, reply
from ...core.grants.tool_catalog import Offer, tool_document
from ...core.log.events import ToolInvoked, ToolsChanged
from ...core.names import BY_HAND, nearest, stream_of
from ...core.tools.servers import SERVERS_OFF, SERVERS_ON
from ...errors import NotFoundError, UsageError
from ...ports.tools import RunScope
from ...runs.tool_pinning import acceptance, compared
from ...service.by_hand import ByHand, call_by_hand
from .operations import Answer, Asked, Operation, Parameter, answer, takes
from .runs import REASON

_TOOL: dict[str, JSON] = {"type": "string", "pattern": "^[A-Za-z0-9_.-]{1,128}$"}


def named(asked: Asked) -> str:
    """
    Return the server that the path names.

    Raises:
        NotFoundError: No server has that name, or servers are off.
    """
    config = asked.service.config()
    name, known = asked.path["name"], config.servers
    if not config.mcp:
        raise NotFoundError(SERVERS_OFF, fix=SERVERS_ON)
    if name not in known:
        meant = nearest(name, [*known])
        raise NotFoundError(
            f"no server {name!r}",
            fix=f"did you mean {meant}?" if meant else "ask for the list of servers",
        )
    return name


def by_hand(asked: Asked) -> RunScope:
    """Return a scope without a run: the defaults of variables."""
    context = asked.service.config().context
    return RunScope(
        run_id=BY_HAND,
        agent=BY_HAND,
        context={
            key: one.default for key, one in context.items() if one.default is not None
        },
        private={key for key, one in context.items() if one.private},
        trigger="api",
    )


async def list_(asked: Asked) -> Response:
    """Return all tools of all servers, which are started if necessary."""
    known = asked.service.config().granted_servers
    wanted = asked.text("server")
    if wanted is not None and wanted not in known:
        raise NotFoundError(f"no server {wanted!r}", fix="ask for the list of servers")
    names = known if wanted is None else (wanted,)
    async with asked.desk.tools.open(by_hand(asked)) as opened:
        offered = await opened.offered(names)
    offered = replace(
        offered, accepted=await asked.service.store.definitions.accepted(names)
    )
    found: list[JSON] = [tool_document(o, offered.accepted) for o in offered.offers]
    return answer({"$type": "caxton.tools/v1", "tools": found})


async def _offer(asked: Asked, tool: str) -> Offer:
    server = named(asked)
    async with asked.desk.tools.open(by_hand(asked)) as opened:
        offered = await opened.offered([server])
    known = {offer.tool: offer for offer in offered.offers}
    if tool not in known:
        why = offered.servers.get(server, {}).get("problem")
        raise NotFoundError(
            f"{server} offers no tool {tool!r}" + (f": {why}" if why else ""),
            fix="ask for the list of tools",
        )
    return known[tool]


async def compare(asked: Asked) -> Response:
    """Return how a tool differs from what was accepted of it."""
    offer = await _offer(asked, asked.text("tool") or "")
    before, found = await compared(asked.service.store, offer)
    state = "same" if before == offer.definition_sha256 else "changed"
    return answer(acceptance(offer, before, state, found))


async def accept(asked: Asked) -> Response:
    """Accept a definition for runs that start from now on."""
    service, who = asked.service, asked.who
    offer = await _offer(asked, str(asked.body["tool"]))
    if offer.definition_sha256 != asked.body["definition_sha256"]:
        raise UsageError(
            f"{offer.server}/{offer.tool} has changed again since you looked",
            fix="look at the difference again",
        )
    before, found = await compared(service.store, offer)
    if before == offer.definition_sha256:
        return answer(acceptance(offer, before, "same", found))
    target = offer.server, offer.tool
    changed = ToolsChanged(server=offer.server, changed=(offer.tool,), actor=who.actor)
    await service.record(changed)
    await service.store.definitions.accept(
        {target: offer.definition}, who.actor, anew=True
    )
    state = "accepted" if before else "new"
    return answer(acceptance(offer, before, state, found))


async def call(asked: Asked) -> Response:
    """Call a tool for the caller: a run of its own."""
    scope, redact = by_hand(asked), asked.service.host.redact
    params = asked.body["params"]
    assert isinstance(params, dict)  # noqa: S101 -- its schema says so
    wanted = ByHand(
        target=(named(asked), str(asked.body["tool"])),
        params=params,
        reason=redact.text(str(asked.body["reason"])),
        context={k: v for k, v in scope.context.items() if k not in scope.private},
        private={k: v for k, v in scope.context.items() if k in scope.private},
    )
    run_id, outcome = await call_by_hand(asked.service, asked.who, wanted)
    events = await asked.service.store.reader.read(stream_of(run_id))
    (seq,) = [one.seq for one in events if isinstance(one.event, ToolInvoked)]
    _, said = reply(outcome)
    return answer({"$type": "caxton.call/v1", "run_id": run_id, "seq": seq, **said})


_SERVER = Parameter(
    name="server",
    about="Only the tools of this server.",
    schema={"type": "string", "maxLength": 200},
)
_OF = Parameter(name="tool", about="The name of the tool.", schema=_TOOL, required=True)
_ACCEPTANCE = Answer(
    about="Each field that differs: `a` was accepted, `b` is offered.",
    schema="Acceptance",
)
_UNKNOWN = ("not-found", "server-unavailable")

OPERATIONS: tuple[Operation, ...] = (
    Operation(
        id="listTools",
        method="GET",
        path="/tools",
        about="List all tools of all servers. Servers are started if necessary.",
        scopes=("admin",),
        handler=list_,
        parameters=(_SERVER,),
        answers={200: Answer(about="The tools.", schema="Tools")},
        problems=_UNKNOWN,
    ),
    Operation(
        id="compareTool",
        method="GET",
        path="/servers/{name}/definition",
        about="Compare a tool with what was accepted of it. Its server is started if "
        "necessary.",
        scopes=("admin",),
        handler=compare,
        parameters=(_OF,),
        answers={200: _ACCEPTANCE},
        problems=_UNKNOWN,
    ),
    Operation(
        id="acceptTool",
        method="POST",
        path="/servers/{name}/accept",
        about="Accept the definition of a tool with that digest, for runs that start "
        "from now on. An event records who accepted it.",
        scopes=("admin",),
        handler=accept,
        body=takes(
            ("tool", "definition_sha256"),
            tool=_TOOL,
            definition_sha256={"type": "string", "pattern": "^[0-9a-f]{64}$"},
        ),
        answers={200: _ACCEPTANCE},
        problems=(*_UNKNOWN, "refused"),
    ),
    Operation(
        id="callTool",
        method="POST",
        path="/servers/{name}/call",
        about="Call a tool by hand, whatever agents may do. The call passes the "
        "gateway and is recorded, as a run of the agent `by-hand` with the caller and "
        "the reason. Sending the request again calls the tool again.",
        scopes=("admin",),
        handler=call,
        body=takes(
            ("tool", "params", "reason"),
            tool=_TOOL,
            params={"type": "object"},
            reason=REASON,
        ),
        answers={
            200: Answer(
                about="What an agent would get, and where the call is recorded.",
                schema="Call",
            )
        },
        problems=("not-found", "waiting", "conflict"),
    ),
)
