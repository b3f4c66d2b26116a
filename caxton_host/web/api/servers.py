"""Tool servers, what they offer, and the configuration that names them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from starlette.responses import Response

from ...config import describe
from ...core.calls import JSON
from ...core.grants.tool_catalog import Offered, tool_document
from ...core.log.server_history import (
    HOST,
    LOOKED_AT,
    OF_HOSTS,
    OF_RUNS,
    server_records,
)
from ...core.names import RUN, nearest
from ...core.tools.contexts import ServerResource
from ...core.tools.servers import (
    SERVERS_OFF,
    SERVERS_ON,
    server_document,
    server_test_document,
)
from ...core.tools.webhooks import SERVER as WEBHOOK
from ...errors import NotFoundError, ServerUnavailable
from ...ports import RunScope
from ...runs.cancellation import Answer as Outcome
from ...runs.cancellation import ask_hosts, reload_document, restart_document
from .operations import Answer, Asked, Operation, Parameter, answer
from .run_actions import REASON

_ACTION: Mapping[str, JSON] = {
    "type": "object",
    "additionalProperties": False,
    "properties": {"reason": REASON},
}


async def list_(asked: Asked) -> Response:
    """Return the servers, and how they did."""
    servers = await _servers(asked)
    return answer({"$type": "caxton.servers/v1", "servers": [*servers.values()]})


async def show(asked: Asked) -> Response:
    """Return a server, and how it did."""
    return answer((await _servers(asked))[_name(asked)])


async def _servers(asked: Asked) -> dict[str, JSON]:
    config, store = asked.service.config(), asked.service.store
    described = describe(config)["servers"]
    assert isinstance(described, dict)  # noqa: S101 -- a table
    known = server_records(
        config.servers,
        await store.reader.newest(HOST, OF_HOSTS, LOOKED_AT),
        await store.reader.newest(RUN, OF_RUNS, LOOKED_AT),
        await store.leases.hosts(),
    )
    return {
        name: server_document(name, one) | known[name].document()
        for name, one in sorted(described.items())
    }


def _name(asked: Asked) -> str:
    """Return the server that the path names."""
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


async def test(asked: Asked) -> Response:
    """Ask a server what it has, as the host has it; start it if it is not up."""
    name = _name(asked)
    try:
        offered, found = await _asked(asked, name)
    except ServerUnavailable as exc:
        return answer(server_test_document(name, {}, [], [], problem=str(exc)))
    facts = offered.servers.get(name, {})
    assert isinstance(facts, dict)  # noqa: S101 -- what a server says of itself
    why = facts.get("problem")
    problem = None if why is None else f"the server {name} is down: {why}"
    tools = [offer.tool for offer in offered.offers]
    return answer(server_test_document(name, facts, tools, found, problem=problem))


async def _asked(asked: Asked, name: str) -> tuple[Offered, list[ServerResource]]:
    scope = _by_hand(asked)
    async with asked.desk.tools.open(scope) as tools:
        offered = await tools.offered([name])
        return offered, [*await tools.resources([name], scope)]


def _by_hand(asked: Asked) -> RunScope:
    """Return what is known of a run where there is none: what variables are else."""
    context = asked.service.config().context
    return RunScope(
        run_id="by-hand",
        agent="by-hand",
        context={
            key: one.default for key, one in context.items() if one.default is not None
        },
        private={key for key, one in context.items() if one.private},
        trigger="api",
    )


async def restart(asked: Asked) -> Response:
    """Have every host start a server anew."""
    name = _name(asked)
    outcomes = await _ask(asked, "restart", name)
    hosts: list[JSON] = [restart_document(name, *one) for one in outcomes.items()]
    return answer({"$type": "caxton.restarts/v1", "hosts": hosts})


async def reload(asked: Asked) -> Response:
    """Have every host read its configuration again."""
    outcomes = await _ask(asked, "reload")
    hosts: list[JSON] = [reload_document(*one) for one in outcomes.items()]
    return answer({"$type": "caxton.reloads/v1", "hosts": hosts})


async def _ask(
    asked: Asked, kind: str, subject: str | None = None
) -> dict[str, Outcome]:
    service = asked.service
    reason = service.host.redact.text(str(asked.body.get("reason", "")))
    return await ask_hosts(
        service.store,
        kind,
        asked.who.actor,
        reason,
        subject=subject,
        only=asked.text("host"),
    )


async def tools(asked: Asked) -> Response:
    """Return every tool of every server, starting those that are not up."""
    config = asked.service.config()
    known = (*config.servers, *((WEBHOOK,) if config.webhooks else ()))
    wanted = asked.text("server")
    if wanted is not None and wanted not in known:
        raise NotFoundError(f"no server {wanted!r}", fix="ask for the list of servers")
    names = known if wanted is None else (wanted,)
    async with asked.desk.tools.open(_by_hand(asked)) as opened:
        offered = await opened.offered(names)
    offered = replace(
        offered, accepted=await asked.service.store.definitions.accepted(names)
    )
    found: list[JSON] = [tool_document(o, offered.accepted) for o in offered.offers]
    return answer({"$type": "caxton.tools/v1", "tools": found})


_HOST = Parameter(
    name="host",
    about="Only this host; default: all that share the log.",
    schema={"type": "string", "maxLength": 100},
)
_SERVER = Parameter(
    name="server",
    about="Only the tools of this server.",
    schema={"type": "string", "maxLength": 200},
)

OPERATIONS: tuple[Operation, ...] = (
    Operation(
        id="listServers",
        reads=True,
        method="GET",
        path="/servers",
        about="The tool servers, and how they are as far as the log knows.",
        scopes=("admin",),
        handler=list_,
        answers={200: Answer(about="The servers.", schema="Servers")},
    ),
    Operation(
        id="showServer",
        reads=True,
        method="GET",
        path="/servers/{name}",
        about="A tool server, and how it is as far as the log knows.",
        scopes=("admin",),
        handler=show,
        answers={200: Answer(about="The server.", schema="Server")},
        problems=("not-found",),
    ),
    Operation(
        id="testServer",
        method="POST",
        path="/servers/{name}/test",
        about="Ask a server what it has. It is started if it is not up.",
        scopes=("admin",),
        handler=test,
        answers={200: Answer(about="What it says, or why not.", schema="ServerTest")},
        problems=("not-found", "server-unavailable"),
    ),
    Operation(
        id="restartServer",
        method="POST",
        path="/servers/{name}/restart",
        about="Have hosts start a server anew. Calls under way there fail.",
        scopes=("admin",),
        handler=restart,
        parameters=(_HOST,),
        body=_ACTION,
        answers={200: Answer(about="What came of it.", schema="Restarts")},
        problems=("not-found",),
    ),
    Operation(
        id="listTools",
        method="GET",
        path="/tools",
        about="Every tool of every server. Servers that are not up are started.",
        scopes=("admin",),
        handler=tools,
        parameters=(_SERVER,),
        answers={200: Answer(about="The tools.", schema="Tools")},
        problems=("not-found", "server-unavailable"),
    ),
    Operation(
        id="reloadConfig",
        method="POST",
        path="/config/reload",
        about="Have hosts read their configuration again. Runs under way keep theirs.",
        scopes=("admin",),
        handler=reload,
        parameters=(_HOST,),
        body=_ACTION,
        answers={200: Answer(about="What came of it.", schema="Reloads")},
        problems=("not-found",),
    ),
)
