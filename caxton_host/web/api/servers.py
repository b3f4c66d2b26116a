"""Tool servers: state, tools, tests, restarts and edits of the configuration."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from starlette.responses import Response

from ...config import describe
from ...config.edit import add_server, change_server, check_references, remove_server
from ...core.calls import JSON
from ...core.grants.tool_catalog import Offered, tool_document
from ...core.log.server_history import (
    HOST,
    LOOKED_AT,
    OF_HOSTS,
    OF_RUNS,
    server_records,
)
from ...core.names import AGENTS, RUN, nearest
from ...core.tools.contexts import ServerResource
from ...core.tools.servers import (
    SERVERS_OFF,
    SERVERS_ON,
    server_document,
    server_test_document,
)
from ...core.tools.webhooks import SERVER as WEBHOOK
from ...errors import ForbiddenError, NotFoundError, ServerUnavailable, UsageError
from ...ports.tools import RunScope
from ...runs.cancellation import Answer as Outcome
from ...runs.cancellation import ask_hosts, reload_document, restart_document
from .operations import Answer, Asked, Operation, Parameter, answer, takes
from .runs import REASON

_ACTION = takes(reason=REASON)


async def list_(asked: Asked) -> Response:
    """Return the servers with their last known state."""
    servers = await _servers(asked)
    return answer({"$type": "caxton.servers/v1", "servers": [*servers.values()]})


async def show(asked: Asked) -> Response:
    """Return a server with its last known state."""
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
    """Ask a server for its tools and resources; start it if necessary."""
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
    """Return a scope without a run: the defaults of variables."""
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
    """Restart a server on all hosts."""
    name = _name(asked)
    outcomes = await _ask(asked, "restart", name)
    hosts: list[JSON] = [restart_document(name, *one) for one in outcomes.items()]
    return answer({"$type": "caxton.restarts/v1", "hosts": hosts})


async def reload(asked: Asked) -> Response:
    """Reload the configuration on all hosts."""
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
    """Return all tools of all servers, which are started if necessary."""
    config = asked.service.config()
    known = (
        *config.servers,
        *((WEBHOOK,) if config.webhooks else ()),
        *((AGENTS,) if config.executed else ()),
    )
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
    about="Only this host. Default: all hosts that share the log.",
    schema={"type": "string", "maxLength": 100},
)
_SERVER = Parameter(
    name="server",
    about="Only the tools of this server.",
    schema={"type": "string", "maxLength": 200},
)


_LINE: dict[str, JSON] = {"type": "string", "minLength": 1, "maxLength": 4096}
_PAIRS: dict[str, JSON] = {
    "type": "object",
    "maxProperties": 100,
    "propertyNames": {"maxLength": 200},
    "additionalProperties": {"type": "string", "maxLength": 4096},
}
_KEYS: Mapping[str, JSON] = {
    "command": {
        "type": "array",
        "items": {"type": "string", "maxLength": 4096},
        "minItems": 1,
        "maxItems": 100,
        "description": "The program, and its arguments.",
    },
    "url": _LINE,
    "transport": {"enum": ["stdio", "http", "sse"]},
    "env": {
        **_PAIRS,
        "description": "Secrets only as `${env:NAME}` or `${file:PATH}`.",
    },
    "headers": {
        **_PAIRS,
        "description": "Secrets only as `${env:NAME}` or `${file:PATH}`.",
    },
}
_ONE_OF: list[JSON] = [{"required": ["command"]}, {"required": ["url"]}]
_NAMED: dict[str, JSON] = {"name": {"type": "string", "minLength": 1, "maxLength": 64}}


def may_edit(asked: Asked) -> bool:
    """Return whether the caller may change servers."""
    who = asked.who
    return asked.desk.edit and who.authenticated and who.may("admin")


async def add(asked: Asked) -> Response:
    """Add a server, and reload the configuration on all hosts."""
    name, keys = str(asked.body["name"]), _given(asked)
    return await _edit(asked, "added", name, partial(add_server, **keys))


async def change(asked: Asked) -> Response:
    """Change how a server is reached, and reload the configuration."""
    name, keys = asked.path["name"], _given(asked)
    return await _edit(asked, "changed", name, partial(change_server, **keys))


async def remove(asked: Asked) -> Response:
    """Remove a server, and reload the configuration on all hosts."""
    return await _edit(asked, "removed", asked.path["name"], remove_server)


def _given(asked: Asked) -> dict[str, Any]:
    keys: dict[str, Any] = {k: v for k, v in asked.body.items() if k in _KEYS}
    check_references(keys.get("url"), keys.get("env"), keys.get("headers"))
    return keys


async def _edit(
    asked: Asked, done: str, name: str, edit: Callable[..., None]
) -> Response:
    desk, service = asked.desk, asked.service
    if not may_edit(asked):
        raise ForbiddenError(
            "this host does not allow changing servers over the network",
            fix="write edit = true into [serve] of caxton.toml, start the host again, "
            "and use a token with the scope admin",
        )
    async with desk.editing:
        await asyncio.to_thread(_write, service.config().path, name, edit, desk.environ)
    outcomes = await ask_hosts(
        service.store, "reload", asked.who.actor, f"server {name} {done}"
    )
    hosts: list[JSON] = [reload_document(*one) for one in outcomes.items()]
    return answer(
        {
            "$type": "caxton.server-edit/v1",
            "change": done,
            "name": name,
            "hosts": hosts,
        }
    )


def _write(
    path: Path | None, name: str, edit: Callable[..., None], environ: Mapping[str, str]
) -> None:
    if path is None:
        raise UsageError(
            "the host has no configuration file", fix="run caxton init on the host"
        )
    try:
        edit(path, name, environ=environ)
    except OSError:
        raise UsageError(
            f"{path.name} cannot be written",
            fix="give the host write access to its folder",
        ) from None


_ANSWERS = {
    200: Answer(
        about="The file was changed; the outcome per host.", schema="ServerEdit"
    )
}
_ABOUT = (
    "The rest of the file is unchanged. A result that would not load is refused, and "
    "nothing is written. Requires `edit = true` in `[serve]`."
)


OPERATIONS: tuple[Operation, ...] = (
    Operation(
        id="listServers",
        reads=True,
        method="GET",
        path="/servers",
        about="List the tool servers, with their last known state.",
        scopes=("auditor",),
        handler=list_,
        answers={200: Answer(about="The servers.", schema="Servers")},
    ),
    Operation(
        id="showServer",
        reads=True,
        method="GET",
        path="/servers/{name}",
        about="Show a tool server, with its last known state.",
        scopes=("auditor",),
        handler=show,
        answers={200: Answer(about="The server.", schema="Server")},
        problems=("not-found",),
    ),
    Operation(
        id="testServer",
        method="POST",
        path="/servers/{name}/test",
        about="Ask a server for its tools and resources. It is started if necessary.",
        scopes=("admin",),
        handler=test,
        answers={200: Answer(about="Its answer, or the problem.", schema="ServerTest")},
        problems=("not-found", "server-unavailable"),
    ),
    Operation(
        id="restartServer",
        method="POST",
        path="/servers/{name}/restart",
        about="Restart a server on all hosts. Its calls in progress fail.",
        scopes=("admin",),
        handler=restart,
        parameters=(_HOST,),
        body=_ACTION,
        answers={200: Answer(about="The outcome per host.", schema="Restarts")},
        problems=("not-found",),
    ),
    Operation(
        id="listTools",
        method="GET",
        path="/tools",
        about="List all tools of all servers. Servers are started if necessary.",
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
        about="Reload the configuration on all hosts. Runs in progress keep theirs.",
        scopes=("admin",),
        handler=reload,
        parameters=(_HOST,),
        body=_ACTION,
        answers={200: Answer(about="The outcome per host.", schema="Reloads")},
        problems=("not-found",),
    ),
    Operation(
        id="addServer",
        method="POST",
        path="/servers",
        about=f"Add a tool server to the configuration. It grants nothing. {_ABOUT}",
        scopes=("admin",),
        handler=add,
        body={
            "type": "object",
            "additionalProperties": False,
            "required": ["name"],
            "oneOf": _ONE_OF,
            "properties": {**_NAMED, **_KEYS},
        },
        answers=_ANSWERS,
        problems=("refused",),
    ),
    Operation(
        id="changeServer",
        method="PUT",
        path="/servers/{name}",
        about="Change how a tool server is reached. Keys that are left out are "
        "unchanged; "
        f"`env` and `headers` are each replaced as a whole. {_ABOUT}",
        scopes=("admin",),
        handler=change,
        body={
            "type": "object",
            "additionalProperties": False,
            "minProperties": 1,
            "not": {"required": ["command", "url"]},
            "properties": {**_KEYS},
        },
        answers=_ANSWERS,
        problems=("not-found", "refused"),
    ),
    Operation(
        id="removeServer",
        method="DELETE",
        path="/servers/{name}",
        about="Remove a tool server from the configuration, and the options of its "
        f"tools. {_ABOUT}",
        scopes=("admin",),
        handler=remove,
        answers=_ANSWERS,
        problems=("not-found", "refused"),
    ),
)
