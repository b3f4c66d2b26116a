"""The pages of tool servers, and what their forms do."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ...core.calls import JSON
from ...core.names import AGENTS
from ...core.tools.webhooks import SERVER as WEBHOOK
from ...lib.params import Words, types_of
from .asking import Action, Asking, Fields, Shown, View
from .forms import json_of
from .render import visible

_PARAM = "param:"
#: Fields of a form for parameters, characters of a name, and choices of one.
_FIELDS, _NAME, _CHOICES = 30, 100, 50
_PLAIN = frozenset({"string", "integer", "number", "boolean", "null"})
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """
    A parameter of a tool in a form.

    Attributes:
        about: Its type, and its description.

        choices: Its possible values, if these are few.
    """

    name: str
    about: str
    is_needed: bool
    choices: tuple[str, ...] = ()


def fields_of(schema: Mapping[str, JSON]) -> list[Field]:
    """
    Return a field for each parameter that a line of text can say.

    Returns:
        No field if these do not suffice: the parameters have to be typed as JSON.

    >>> part = {"type": "integer", "description": "How many"}
    >>> fields_of({"properties": {"n": part}, "required": ["n"]})
    [Field(name='n', about='integer. How many', is_needed=True, choices=())]
    >>> fields_of({"properties": {"list": {"type": "array"}}, "required": ["list"]})
    []
    """
    properties, required = schema.get("properties"), schema.get("required")
    parts = properties if isinstance(properties, dict) else {}
    needed = required if isinstance(required, list) else []
    found = [
        _field(name, part, kinds, is_needed=name in needed)
        for name, part in parts.items()
        if isinstance(part, dict)
        and (kinds := types_of(part, schema))
        and _is_typed(name, kinds)
    ]
    suffices = {*map(str, needed)} <= {one.name for one in found}
    return found if suffices and len(found) <= _FIELDS else []


def _is_typed(name: str, kinds: Iterable[str]) -> bool:
    # A name that is shown otherwise would come back otherwise.
    is_clear = len(name) <= _NAME and name.isprintable() and visible(name) == name
    return is_clear and _PLAIN.issuperset(kinds)


def _field(
    name: str, part: Mapping[str, JSON], kinds: Iterable[str], *, is_needed: bool
) -> Field:
    values, told = part.get("enum"), part.get("description")
    choices = [str(one) for one in values] if isinstance(values, list) else []
    if [*kinds] == ["boolean"]:
        choices = ["true", "false"]
    fits = len(choices) <= _CHOICES and all(visible(one) == one for one in choices)
    about = f"{' or '.join(kinds)}. {told if isinstance(told, str) else ''}"
    return Field(
        name=name,
        about=about.strip(),
        is_needed=is_needed,
        choices=tuple(choices) if fits else (),
    )


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
        schema: Mapping[str, JSON] = known.get(tool, {}).get("input_schema", {})
        texts = {
            key.removeprefix(_PARAM): text
            for key, text in fields.items()
            if key.startswith(_PARAM) and text
        }
        params = Words(texts=texts).params(schema)
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
