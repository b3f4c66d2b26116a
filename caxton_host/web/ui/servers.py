"""The pages of tool servers, and what their forms do."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from ...core.calls import JSON
from ...core.names import AGENTS
from ...core.tools.webhooks import SERVER as WEBHOOK
from .asking import Action, Asking, Fields, Shown, View
from .forms import fields_of, json_of, typed

#: Fields of a server that are a table: what parts a line in two.
_TABLES = {"env": "=", "headers": ":"}


# -- pages


async def servers(asking: Asking) -> Shown:
    """Show the tool servers, and the tools of those that are up."""
    found: list[dict[str, Any]] = (await asking.of("listServers"))["servers"]
    up = [one["name"] for one in found if _is_up(one)]
    asked = [_tools(asking, name) for name in (*up, WEBHOOK, AGENTS)]
    known = [tool for tools in await asyncio.gather(*asked) for tool in tools]
    wanted = asking.query.get("q", "").lower()
    listed = [
        one
        for one in known
        if wanted in f"{one['server']}/{one['tool']} {one['description']}".lower()
    ]
    values: dict[str, Any] = {
        "servers": found,
        "tools": listed,
        "q": wanted,
        "server": None,
        "linked": {one["name"] for one in found},
    }
    return Shown(
        template="servers", title="Servers", values=values | await _may(asking)
    )


async def server(asking: Asking) -> Shown:
    """Show a tool server: why it is down, what it wrote, its tools, and one of them."""
    name = asking.request.path_params["name"]
    found = await asking.of("showServer", name=name)
    tools = await _tools(asking, name) if _is_up(found) else []
    logs: Any = await asking.maybe("serverLogs", name=name)
    wanted = asking.query.get("tool")
    tool = next((one for one in tools if one["tool"] == wanted), None)
    values: dict[str, Any] = {
        "server": found,
        "is_up": _is_up(found),
        "logs": "\n".join(logs["lines"]) if logs else None,
        "tools": tools,
        "tool": tool,
    }
    if tool:
        values["fields"] = fields_of(tool["input_schema"])
        if tool["accepted"] is False:
            given = {"name": name, "tool": tool["tool"]}
            values["changed"] = await asking.of("compareTool", **given)
    return Shown(template="server", title=name, values=values | await _may(asking))


def _is_up(server: Mapping[str, Any]) -> bool:
    # Others would be started by the question, which takes long if they hang.
    return bool(server["live"]) and server["state"] == "connected"


async def _tools(asking: Asking, server: str) -> list[dict[str, Any]]:
    found = await asking.maybe("listTools", server=server)
    return found["tools"] if found else []


async def _may(asking: Asking) -> dict[str, bool]:
    edit = (await asking.of("showCaller"))["edit"]
    return {"edit": edit, "admin": asking.who.may("admin")}


# -- forms


async def _test(asking: Asking, fields: Fields) -> None:
    await asking.of("testServer", name=fields["name"])


async def _call(asking: Asking, fields: Fields) -> str:
    server, tool = fields["name"], fields["tool"]
    params: JSON
    if whole := fields.get("params", "").strip():
        params = json_of(whole, "params")
    else:
        known = {one["tool"]: one for one in await _tools(asking, server)}
        schema: JSON = known.get(tool, {}).get("input_schema", {})
        params = typed(schema, fields)
    body: JSON = {"tool": tool, "params": params, **_reason(fields)}
    made = await asking.of("callTool", body, name=server)
    return f"/ui/runs/{made['run_id']}?seq={made['seq']}"


async def _accept(asking: Asking, fields: Fields) -> None:
    body: JSON = {key: fields[key] for key in ("tool", "definition_sha256")}
    await asking.of("acceptTool", body, name=fields["name"])


def _to_hosts(
    id_: str, body: Callable[[Fields], dict[str, JSON]], *in_path: str
) -> Action:
    """Return the action of an operation that each host answers."""

    async def act(asking: Asking, fields: Fields) -> Shown:
        path = {name: fields[name] for name in in_path}
        found = await asking.of(id_, body(fields), **path)
        hosts = [
            {**one, "done": one.get("reloaded", one.get("restarted"))}
            for one in found["hosts"]
        ]
        title = "What the hosts answered"
        return Shown(template="outcomes", title=title, values={"hosts": hosts})

    return act


def _reason(fields: Fields) -> dict[str, JSON]:
    return {"reason": fields.get("reason", "")}


def _named(fields: Fields) -> dict[str, JSON]:
    return {"name": fields.get("name", ""), **_keys(fields)}


def _nothing(_: Fields) -> dict[str, JSON]:
    return {}


def _keys(fields: Fields) -> dict[str, JSON]:
    """Return the keys of a server that a form has."""
    body: dict[str, JSON] = {}
    if program := fields.get("program", "").strip():
        body["command"] = [program, *_lines(fields, "words")]
    for name in ("url", "transport"):
        if text := fields.get(name, "").strip():
            body[name] = text
    for name, mark in _TABLES.items():
        pairs = (line.partition(mark) for line in _lines(fields, name))
        table: dict[str, JSON] = {key.strip(): said.strip() for key, _, said in pairs}
        if table:
            body[name] = table
    return body


def _lines(fields: Fields, name: str) -> list[str]:
    return [line for line in fields.get(name, "").splitlines() if line.strip()]


#: See `caxton_host.web.ui.views.VIEWS`.
VIEWS: Mapping[str, View] = {"/servers": servers, "/servers/{name}": server}

#: See `caxton_host.web.ui.actions.ACTIONS`.
ACTIONS: Mapping[str, tuple[Action, str]] = {
    "testServer": (_test, "The server was asked. This is its state now."),
    "callTool": (_call, "The tool was called; this is the record."),
    "acceptTool": (_accept, "The definition is accepted for new runs."),
    "restartServer": (_to_hosts("restartServer", _reason, "name"), ""),
    "reloadConfig": (_to_hosts("reloadConfig", _reason), ""),
    "addServer": (_to_hosts("addServer", _named), ""),
    "changeServer": (_to_hosts("changeServer", _keys, "name"), ""),
    "removeServer": (_to_hosts("removeServer", _nothing, "name"), ""),
}
