"""Tool servers: state, logs, tests, restarts and edits of the configuration."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from starlette.responses import Response

from ...config import Paths, describe
from ...config.edit import add_server, change_server, check_references, remove_server
from ...core.calls import JSON
from ...core.grants.tool_catalog import Offered
from ...core.log.events import Recorded
from ...core.log.server_history import (
    HOST,
    LOOKED_AT,
    OF_HOSTS,
    OF_RUNS,
    failures,
    server_records,
)
from ...core.names import RUN
from ...core.tools.contexts import ServerResource
from ...core.tools.servers import server_document, server_test_document
from ...errors import (
    ForbiddenError,
    NotFoundError,
    ServerUnavailable,
    ToolError,
    UsageError,
)
from ...mcp.auth.tokens import TokenFile
from ...mcp.transport.confining import confinement_of
from ...mcp.transport.serverlog import newest_lines
from ...runs.cancellation import Answer as Outcome
from ...runs.cancellation import ask_hosts, reload_document, restart_document
from ...sandbox.confine import confines_servers
from .operations import Answer, Asked, Operation, Parameter, answer, takes
from .runs import REASON
from .tools import by_hand, named

_ACTION = takes(reason=REASON)


async def list_(asked: Asked) -> Response:
    """Return the servers with their last known state."""
    servers = await _servers(asked, *await _events(asked))
    return answer({"$type": "caxton.servers/v1", "servers": [*servers.values()]})


async def show(asked: Asked) -> Response:
    """Return a server with its last known state, its last failures, and its login."""
    name = named(asked)
    hosts, runs = await _events(asked)
    found = (await _servers(asked, hosts, runs))[name]
    found["failures"] = [*failures(name, hosts, runs)]
    found["login"] = await asyncio.to_thread(_login, asked, name)
    return answer(found)


async def _events(asked: Asked) -> tuple[Sequence[Recorded], Sequence[Recorded]]:
    """Return the newest events of hosts, and of runs, that concern servers."""
    newest = asked.service.store.reader.newest
    return (
        await newest(HOST, OF_HOSTS, LOOKED_AT),
        await newest(RUN, OF_RUNS, LOOKED_AT),
    )


def _login(asked: Asked, name: str) -> JSON:
    """Return whether this machine is logged in at a server that takes logins."""
    config = asked.service.config().servers[name]
    if config.oauth is None or config.oauth.flow != "code":
        return None
    problem, found = None, None
    try:
        found = TokenFile(_paths(asked).tokens, config).read()
    except ToolError as exc:
        problem = str(exc)
    return {
        "logged_in": found is not None,
        "issuer": found.issuer if found else None,
        "scope": found.scope if found else None,
        "refreshes": bool(found and found.refresh_token),
        "expires": round(found.expires_at * 1e6)
        if found and found.expires_at
        else None,
        "problem": problem,
        "command": f"caxton server login {name}",
    }


def _paths(asked: Asked) -> Paths:
    return Paths.of(asked.desk.environ)


async def logs(asked: Asked) -> Response:
    """Return the newest lines of the standard error of a server on this machine."""
    name, redact = named(asked), asked.service.host.redact
    if asked.service.config().servers[name].url is not None:
        raise NotFoundError(
            f"{name} has a url, so this host does not have its standard error",
            fix="look where it runs",
        )
    folder, number = _paths(asked).logs, asked.number("lines")
    found = await asyncio.to_thread(newest_lines, folder, name, number)
    # A value may have become a secret since it was written.
    lines: list[JSON] = [redact.text(line) for line in found]
    return answer({"$type": "caxton.server-logs/v1", "server": name, "lines": lines})


async def _servers(
    asked: Asked, hosts: Sequence[Recorded], runs: Sequence[Recorded]
) -> dict[str, dict[str, JSON]]:
    config, store = asked.service.config(), asked.service.store
    described = describe(config)["servers"]
    assert isinstance(described, dict)  # noqa: S101 -- a table
    known = server_records(config.servers, hosts, runs, await store.leases.hosts())
    return {
        name: server_document(name, one) | known[name].document()
        for name, one in sorted(described.items())
    }


async def test(asked: Asked) -> Response:
    """Ask a server for its tools and resources; start it if necessary."""
    name = named(asked)
    try:
        offered, found = await _asked(asked, name)
    except ServerUnavailable as exc:
        return answer(server_test_document(name, {}, [], [], problem=str(exc)))
    finally:
        # Who asks next for its state is told of this start.
        await asked.service.record()
    facts = offered.servers.get(name, {})
    assert isinstance(facts, dict)  # noqa: S101 -- what a server says of itself
    why = facts.get("problem")
    problem = None if why is None else f"the server {name} is down: {why}"
    tools = [offer.tool for offer in offered.offers]
    server = asked.service.config().servers[name]
    return answer(
        server_test_document(
            name,
            facts,
            tools,
            found,
            problem=problem,
            confinement=await asyncio.to_thread(confinement_of, server),
        )
    )


async def _asked(asked: Asked, name: str) -> tuple[Offered, list[ServerResource]]:
    scope = by_hand(asked)
    async with asked.desk.tools.open(scope) as tools:
        offered = await tools.offered([name])
        return offered, [*await tools.resources([name], scope)]


async def restart(asked: Asked) -> Response:
    """Restart a server on all hosts."""
    name = named(asked)
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


_HOST = Parameter(
    name="host",
    about="Only this host. Default: all hosts that share the log.",
    schema={"type": "string", "maxLength": 100},
)
_LINES = Parameter(
    name="lines",
    about="How many.",
    schema={"type": "integer", "minimum": 1, "maximum": 500, "default": 100},
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
    return await _edit(
        asked, "added", name, partial(add_server, confines=confines_servers(), **keys)
    )


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
        about="Show a tool server, with its last known state, its last failures, and "
        "whether this machine is logged in there.",
        scopes=("auditor",),
        handler=show,
        answers={200: Answer(about="The server.", schema="ServerShown")},
        problems=("not-found",),
    ),
    Operation(
        id="serverLogs",
        method="GET",
        path="/servers/{name}/logs",
        about="Return the last lines that a server wrote to its standard error on this "
        "machine, without secrets.",
        scopes=("admin",),
        handler=logs,
        parameters=(_LINES,),
        answers={200: Answer(about="The lines, oldest first.", schema="ServerLogs")},
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
