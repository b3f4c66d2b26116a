"""
Changes of the servers in the configuration, by who may run code on the host.

The command of a server is a program that the host starts. So this needs the scope
admin, somebody who is vouched for, and ``[serve] edit = true`` in the file itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from starlette.responses import Response

from ...config.edit import add_server, change_server, check_references, remove_server
from ...core.calls import JSON
from ...errors import ForbiddenError, UsageError
from ...runs.host_requests import ask_hosts, reload_document
from .operations import Answer, Asked, Operation, answer

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
    "env": {**_PAIRS, "description": "Secrets only as `${env:NAME}`, `${file:PATH}`."},
    "headers": {**_PAIRS, "description": "Their values likewise."},
}
_ONE_OF: list[JSON] = [{"required": ["command"]}, {"required": ["url"]}]
_NAMED: dict[str, JSON] = {"name": {"type": "string", "minLength": 1, "maxLength": 64}}


def may_edit(asked: Asked) -> bool:
    """Return whether who asks may change servers."""
    who = asked.who
    return asked.desk.edit and who.authenticated and who.may("admin")


async def add(asked: Asked) -> Response:
    """Add a server, and have hosts read the configuration again."""
    name, keys = str(asked.body["name"]), _given(asked)
    return await _edit(asked, "added", name, partial(add_server, **keys))


async def change(asked: Asked) -> Response:
    """Change how a server is reached, and have hosts read the configuration again."""
    name, keys = asked.path["name"], _given(asked)
    return await _edit(asked, "changed", name, partial(change_server, **keys))


async def remove(asked: Asked) -> Response:
    """Remove a server, and have hosts read the configuration again."""
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
            "servers are not changed over the network here",
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
            "the host has no configuration file", fix="run caxton init where it runs"
        )
    try:
        edit(path, name, environ=environ)
    except OSError:
        raise UsageError(
            f"{path.name} cannot be written", fix="let the host write its folder"
        ) from None


_ANSWERS = {
    200: Answer(about="It stands in the file; what hosts say.", schema="ServerEdit")
}
_ABOUT = (
    "The rest of the file stays as it is; a result that would not load is refused, and "
    "nothing is written. Needs `edit = true` in `[serve]`."
)

OPERATIONS: tuple[Operation, ...] = (
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
        about="Change how a tool server is reached. What is left out stays as it is; "
        f"`env` and `headers` are each replaced whole. {_ABOUT}",
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
