"""Tables that say where tools are: ``[servers.NAME]`` and ``[webhooks.NAME]``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace
from functools import partial
from typing import Any, cast

from ..core.calls import JSON, Retry
from ..core.names import is_server_name, is_tool_name
from ..core.text.urls import in_the_clear
from ..core.tools.servers import (
    USUAL,
    BreakerOptions,
    Resources,
    Restart,
    ServerConfig,
    ToolOptions,
)
from ..core.tools.webhooks import SERVER, Webhook, placeholders
from ..errors import UsageError
from . import fields as f
from .oauth import check_oauth, oauth
from .schema import (
    DURATION,
    INTEGER,
    SIZE,
    STRING,
    Shape,
    array,
    either,
    mapping,
    object_,
    one_of,
    shaped,
)
from .secrets import sounds_secret
from .source import At, Complaints

_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_EXPOSED_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_RESERVED = "caxton__"
_TRANSPORTS = {
    "stdio": "stdio",
    "http": "http",
    "streamable-http": "http",
    "streamable_http": "http",
    "streamableHttp": "http",
    "sse": "sse",
}
#: Of a JSON Schema that is a table.
SCHEMA_OF_OBJECT: Shape = {
    "type": "object",
    "properties": {"type": {"const": "object"}},
    "required": ["type"],
    "description": "a JSON Schema of an object",
}
_EFFECT = f.choice("read", "idempotent", "keyed", "unsafe")
_RECORD = f.choice("full", "hash")
_ELICITATION = f.choice("refuse", "defaults")
_OVER_LIMIT = f.choice("fail", "cut")
#: What is wrong, and how to go on.
_Problem = tuple[str, str]
_PLACES = {"command", "url", "nested"}
_NO_PLACE: _Problem = (
    "needs either a command or a url, and not both",
    'write command = "python", or url = "https://..."',
)
_NO_URL: _Problem = ("needs a url", 'write url = "https://HOST/{param}"')
_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
_SENDS_BODY = frozenset({"POST", "PUT", "PATCH"})


def server_name(name: str, at: At) -> None:
    """Refuse a name that no server may have."""
    if name == SERVER:
        raise at.error(
            "the name is reserved for [webhooks.NAME]", fix="give it another name"
        )
    if not is_server_name(name):
        raise at.error(
            "is no name for a server",
            fix="use letters, digits, '-', '.' and single '_'; at most 64",
        )


def webhook_name(name: str, at: At) -> None:
    """Refuse a name that no webhook may have."""
    if not is_tool_name(name) or "/" in name:
        raise at.error(
            "is no name for a webhook",
            fix="use letters, digits, '-', '.' and '_'; at most 128",
        )


@shaped(STRING)
def exposed(value: object, at: At) -> str:
    """Read a name that agents use."""
    name = f.text(value, at)
    exposed_name(name, at)
    return name


def exposed_name(name: str, at: At) -> None:
    """Refuse a name that not every provider of models takes, or that is the host's."""
    if name.lower().startswith(_RESERVED):
        raise at.error(
            f"names that begin with {_RESERVED} are reserved for the host",
            fix="give it another name",
        )
    if not _EXPOSED_NAME.fullmatch(name):
        raise at.error(
            "is no name for a tool",
            fix="use letters, digits, '-' and '_'; at most 64",
        )


def _env_name(name: str, at: At) -> None:
    if not _ENV_NAME.fullmatch(name):
        raise at.error("is no name of a variable", fix="write it like: LOG_LEVEL")


@shaped(mapping(STRING))
def _env(value: object, at: At) -> dict[str, str]:
    found: dict[str, str] = f.mapped(f.text, _env_name)(value, at)
    for name, content in found.items():
        if sounds_secret(name):
            at.source.secrets.note(content, name, at)
    return found


@shaped(either(STRING, {**array(STRING), "minItems": 1}))
def _command(value: object, at: At) -> tuple[str, ...]:
    words: tuple[str, ...] = (
        f.listed(f.text)(cast("object", value), at)
        if isinstance(value, list)
        else (f.text(value, at),)
    )
    if not words or not words[0]:
        raise at.error("is empty", fix='write it like: command = "python"')
    program, *rest = words
    # Without a slash it is looked up in PATH.
    return str(f.resolved(program, at)) if "/" in program else program, *rest


def _transport(value: object, at: At) -> dict[str, Any]:
    """Read the name of a transport, or a whole nested table of one."""
    if isinstance(value, dict):
        return f.read(cast("object", value), _ENDPOINT, at)
    return {"transport": _transport_name(value, at)}


@shaped(one_of(_TRANSPORTS))
def _transport_name(value: object, at: At) -> str:
    f.choice(*_TRANSPORTS)(value, at)
    return _TRANSPORTS[str(value)]


@shaped(one_of(("eager", "lazy")))
def _start(value: object, at: At) -> bool:
    return bool(f.choice("eager", "lazy")(value, at) == "eager")


@shaped(SCHEMA_OF_OBJECT)
def _object_schema(value: object, at: At) -> JSON:
    schema: JSON = f.json_value(value, at)
    if not isinstance(schema, dict) or schema.get("type") != "object":
        raise at.error(
            "is no JSON Schema of an object",
            fix='write input_schema = { type = "object", properties = { ... } }',
        )
    return schema


@shaped(either({"const": "off"}, DURATION))
def _health(value: object, at: At) -> float:
    return 0.0 if value == "off" else f.duration(value, at)


@shaped(STRING)
def _file(value: object, at: At) -> str:
    return str(f.path(value, at))


_RESTART: f.Fields = {
    "enabled": ("enabled", f.flag),
    "max_restarts": ("max_restarts", f.number),
    "backoff": ("backoff", f.duration),
    "backoff_ms": ("backoff", f.milliseconds),
    "reset_after": ("reset_after", f.duration),
    "reset_after_ms": ("reset_after", f.milliseconds),
}

_BREAKER: f.Fields = {
    "failures": ("failures", f.number),
    "pause": ("pause", f.duration),
    "pause_ms": ("pause", f.milliseconds),
}


def _up_to(most: int, fix: str) -> f.Reader:
    """Return a reader of a number from 1 to *most*."""

    @shaped({"type": "integer", "minimum": 1, "maximum": most})
    def reader(value: object, at: At) -> int:
        found = f.number(value, at)
        if not 1 <= found <= most:
            raise at.error(f"is not 1 to {most}", fix=fix)
        return found

    return reader


_RETRY: f.Fields = {
    "attempts": ("attempts", _up_to(10, "write 1 to send a call once")),
    "backoff": ("backoff", f.duration),
    "backoff_ms": ("backoff", f.milliseconds),
}
_RETRIED = f.tables(_RETRY, partial(Retry, attempts=USUAL.attempts))


@shaped(either({"const": False}, DURATION))
def _threshold(value: object, at: At) -> float:
    return 0.0 if value is False else f.duration(value, at)


@shaped(either({"const": False}, INTEGER))
def _threshold_ms(value: object, at: At) -> float:
    return f.milliseconds(value, at) if value else 0.0


@shaped(either({"const": False}, SIZE))
def _blobs_over(value: object, at: At) -> int | None:
    return None if value is False else f.size(value, at)


_SHARED: f.Fields = {
    "retry": ("retry", _RETRIED),
    "over_limit": ("over_limit", _OVER_LIMIT),
    "slow_response_threshold": ("slow_response_threshold", _threshold),
    "slow_response_threshold_ms": ("slow_response_threshold", _threshold_ms),
    "slow_response_message": ("slow_response_message", f.text),
}

_RESOURCES: f.Fields = {
    "include": ("include", f.listed(f.text)),
    "exclude": ("exclude", f.listed(f.text)),
    "merge": ("merge", f.choice("server", "flat")),
    "max_count": ("max_count", f.number),
    "max_bytes": ("max_bytes", f.size),
    "lenient": ("lenient", f.flag),
    "required": ("required", f.flag),
}


@shaped(either({"type": "boolean"}, object_(_RESOURCES)))
def _resources(value: object, at: At) -> Resources | None:
    """Read whether resources are read, or a table that says which."""
    if isinstance(value, dict):
        found: Resources = f.tables(_RESOURCES, Resources)(cast("object", value), at)
        return found
    return Resources() if f.flag(value, at) else None


_MESSAGE: f.Fields = {
    "message_field": ("message_field", f.text),
    "message_template": ("message_template", f.text),
    "speech_field": ("message_field", f.text),
    "speech_template": ("message_template", f.text),
}


_CACHE: f.Fields = {"ttl": ("ttl", f.duration)}


@shaped(object_(_CACHE, "ttl"))
def _cache(value: object, at: At) -> float:
    found = f.read(value, _CACHE, at)
    if "ttl" not in found:
        raise at.error("needs a ttl", fix='write cache = { ttl = "60s" }')
    return float(found["ttl"])


def _check_cache(options: ToolOptions | Webhook, at: At) -> None:
    """Refuse to keep answers of a tool that does more than to read."""
    if options.cache is not None and options.effect != "read":
        raise at.key("cache").error(
            "is only for a tool that reads",
            fix='write effect = "read" beside it, or remove cache',
        )


_TOOL: f.Fields = {
    "expose_as": ("expose_as", exposed),
    "effect": ("effect", _EFFECT),
    "key_argument": ("key_argument", f.text),
    "description": ("description", f.text),
    "input_schema": ("input_schema", _object_schema),
    "timeout": ("timeout", f.duration),
    "timeout_ms": ("timeout", f.milliseconds),
    "record": ("record", _RECORD),
    "reply": ("reply", f.choice("full", "message")),
    "cache": ("cache", _cache),
    **_SHARED,
    **_MESSAGE,
}


@shaped(object_(_TOOL))
def _tool(value: object, at: At) -> ToolOptions:
    found = ToolOptions(**f.read(value, _TOOL, at))
    _check_cache(found, at)
    return found


_TOOLS = f.mapped(_tool)

_ENDPOINT: f.Fields = {
    "command": ("command", _command),
    "args": ("args", f.listed(f.text)),
    "env": ("env", _env),
    "cwd": ("cwd", f.path),
    "url": ("url", f.url),
    "headers": ("headers", f.header_map),
    "oauth": ("oauth", oauth),
    "type": ("transport", _transport_name),
}

shaped(either(one_of(_TRANSPORTS), object_(_ENDPOINT)))(_transport)

_SERVER: f.Fields = {
    **_ENDPOINT,
    "transport": ("nested", _transport),
    "timeout": ("timeout", f.duration),
    "timeout_ms": ("timeout", f.milliseconds),
    "connect_timeout": ("connect_timeout", f.duration),
    "start_timeout": ("start_timeout", f.duration),
    "restart": ("restart", f.tables(_RESTART, Restart)),
    "breaker": ("breaker", f.tables(_BREAKER, BreakerOptions)),
    "health": ("health", _health),
    "required": ("required", f.flag),
    "start": ("eager", _start),
    "trust_annotations": ("trust_annotations", f.flag),
    "max_result": ("max_result", f.size),
    "blobs_over": ("blobs_over", _blobs_over),
    "elicitation": ("elicitation", _ELICITATION),
    "concurrency": ("concurrency", f.some),
    **_SHARED,
    "on_tool_change": ("on_tool_change", f.choice("refuse", "accept")),
    "rate": ("rate", f.rate),
    "tools": ("tools", _TOOLS),
    "wire_log": ("wire_log", _file),
    "public": ("", f.listed(f.text)),
    "enabled": ("", f.flag),
    "resources": ("resources", _resources),
    "resource_vars": ("resource_vars", f.mapped(f.text)),
}

#: What other programs write, beside the above.
_FOREIGN: f.Fields = {
    **_SERVER,
    "httpUrl": ("url", f.url),
    "serverUrl": ("url", f.url),
    "disabled": ("", f.flag),
}


def server_keys() -> set[str]:
    """Return the keys of ``[servers.NAME]``."""
    return {*_SERVER}


def tool_keys() -> set[str]:
    """Return the keys of ``[servers.NAME.tools.TOOL]``."""
    return {*_TOOL}


def disabled(values: object, at: At) -> bool:
    """Return whether the table of a server says not to use it."""
    table = f.table(values, at)
    return table.get("enabled") is False or table.get("disabled") is True


@shaped(object_(_SERVER))
def server(values: object, at: At, name: str | None = None) -> ServerConfig:
    """
    Return the server that a table describes.

    Args:
        values: The table.

        at: Where it stands.

        name: What it is called, if not by its key.

    Raises:
        ConfigError: It says what cannot be.
    """
    at = _with_public(values, at)
    fields = _FOREIGN if at.source.imported else _SERVER
    found = _collected(values, fields, at, _PLACES, _NO_PLACE)
    for key, value in found.pop("nested", {}).items():
        # Some programs write the environment beside the nested table.
        found[key] = {**value, **found.get(key, {})} if key == "env" else value
    command, words = found.pop("command", ()), found.pop("args", ())
    if bool(command) == ("url" in found):
        raise at.error(*_NO_PLACE)
    transport = found.setdefault("transport", "http" if "url" in found else "stdio")
    if (transport == "stdio") != bool(command):
        raise at.error(
            f"the transport {transport} does not go with what it has",
            fix="stdio goes with a command, http and sse go with a url",
        )
    if "url" in found and found.get("headers") and in_the_clear(found["url"]):
        at.key("url").warn("is not https, so its headers can be read on the way")
    if "oauth" in found:
        check_oauth(found, at)
    _check_answers(found, at)
    if "url" in found:
        # Somebody else looks after it, and each look is a request.
        found.setdefault("health", 0.0)
    if command:
        found["command"] = (*command, *words)
        found["cwd"] = str(found.get("cwd", at.source.folder))
    return ServerConfig(name=name or at.name, **found)


def tools_alone(values: object, at: At) -> ServerConfig:
    """
    Return what a table of a server says of its tools, and nothing to reach it by.

    Raises:
        ConfigError: It says what cannot be.
    """
    tools = f.table(values, at).get("tools", {})
    return ServerConfig(name=at.name, tools=_TOOLS(tools, at.key("tools")))


def _check_answers(found: Mapping[str, Any], at: At) -> None:
    """Refuse to keep answers that are for one run alone."""
    if not any("${context." in text for text in found.get("headers", {}).values()):
        return
    for tool, options in found.get("tools", {}).items():
        if options.cache is not None:
            place = at.key("tools").key(tool).key("cache")
            raise place.error(
                "cannot be: the headers of the server refer to the context of a run",
                fix="remove it",
            )


def _collected(
    values: object,
    fields: f.Fields,
    at: At,
    needed: AbstractSet[str],
    otherwise: _Problem,
) -> dict[str, Any]:
    """Return what a table says, of which some attribute of *needed* has to be."""
    several = Complaints()
    found = f.collect(values, fields, at, several)
    keys = f.table(values, at).keys()
    # A key that is not known may be one that is needed, misspelt.
    said = {fields[key][0] for key in keys & fields.keys()}
    if not said & needed and keys <= fields.keys():
        several.found.append(at.error(*otherwise))
    several.settle()
    return found


def _with_public(values: object, at: At) -> At:
    names = f.listed(f.text)(f.table(values, at).get("public", []), at.key("public"))
    return replace(at, public=frozenset(name.upper() for name in names))


@shaped(one_of(_METHODS))
def _method(value: object, at: At) -> str:
    return str(f.choice(*_METHODS)(value, at))


@shaped(STRING)
def _template(value: object, at: At) -> str:
    address = f.text(value, at)
    try:
        placeholders(address)
    except UsageError as exc:
        raise at.error(str(exc), exc.fix) from None
    f.check_url(re.sub(r"[{}]", "_", address), at)
    return address


_WEBHOOK: f.Fields = {
    "url": ("url", _template),
    "method": ("method", _method),
    "description": ("description", f.text),
    "params": ("params", f.json_value),
    "headers": ("headers", f.header_map),
    "body": ("body", f.choice("json", "none")),
    "timeout": ("timeout", f.duration),
    "timeout_ms": ("timeout", f.milliseconds),
    "concurrency": ("concurrency", _up_to(1000, "write 16, which is the default")),
    "effect": ("effect", _EFFECT),
    "expose_as": ("expose_as", exposed),
    "allow_private": ("allow_private", f.flag),
    "max_result": ("max_result", f.size),
    "record": ("record", _RECORD),
    "reply": ("reply", f.choice("full", "message")),
    "cache": ("cache", _cache),
    "retry": ("retry", _RETRIED),
    "public": ("", f.listed(f.text)),
    **_MESSAGE,
}


@shaped(object_(_WEBHOOK, "url"))
def webhook(values: object, at: At) -> Webhook:
    """
    Return the webhook that a table describes.

    Raises:
        ConfigError: It says what cannot be.
    """
    at = _with_public(values, at)
    found = _collected(values, _WEBHOOK, at, {"url"}, _NO_URL)
    method = found.setdefault("method", "POST")
    found.setdefault("body", "json" if method in _SENDS_BODY else "none")
    found["params"] = _schema(found.get("params"), found["url"], at.key("params"))
    hook = Webhook(name=at.name, **found)
    _check_cache(hook, at)
    return hook


def _schema(schema: JSON, url: str, at: At) -> dict[str, JSON]:
    """Return the JSON Schema of a webhook: what it says, or what its address takes."""
    names = list(dict.fromkeys(placeholders(url)))
    if schema is None:
        return {
            "type": "object",
            "properties": {name: {"type": "string"} for name in names},
            "required": [*names],
        }
    if not isinstance(schema, dict) or schema.get("type", "object") != "object":
        raise at.error(
            "is no JSON Schema of an object",
            fix='write params = { type = "object", properties = { ... } }',
        )
    properties = schema.get("properties", {})
    if not isinstance(properties, dict):
        raise at.key("properties").error("wanted a table", fix="write { NAME = {...} }")
    for name in names:
        if name not in properties:
            raise at.error(
                f"says nothing of {name}, which the url takes",
                fix=f'add properties.{name} = {{ type = "string" }}',
            )
    return {"type": "object", **schema}
