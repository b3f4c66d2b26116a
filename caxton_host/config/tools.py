"""Options of tools, and plain HTTP tools: ``[webhooks.NAME]``."""

from __future__ import annotations

import re
from collections.abc import Set as AbstractSet
from dataclasses import replace
from functools import partial
from typing import Any

from ..core.calls import JSON, Retry
from ..core.names import is_tool_name
from ..core.tools.servers import (
    USUAL,
    ToolOptions,
)
from ..core.tools.webhooks import Webhook, placeholders
from ..errors import UsageError
from . import fields as f
from .fields import (
    DURATION,
    INTEGER,
    STRING,
    Shape,
    either,
    object_,
    one_of,
    shaped,
)
from .source import At, ErrorCollector

_EXPOSED_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_RESERVED = "caxton__"
#: Of a JSON Schema that is a table.
SCHEMA_OF_OBJECT: Shape = {
    "type": "object",
    "properties": {"type": {"const": "object"}},
    "required": ["type"],
    "description": "a JSON Schema of an object",
}
_EFFECT = f.choice("read", "idempotent", "keyed", "unsafe")
_RECORD = f.choice("full", "hash")
_OVER_LIMIT = f.choice("fail", "cut")
#: A problem and its fix.
Problem = tuple[str, str]
_NO_URL: Problem = ("needs a url", 'write url = "https://HOST/{param}"')
_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
_SENDS_BODY = frozenset({"POST", "PUT", "PATCH"})


def webhook_name(name: str, at: At) -> None:
    """Check the name of a webhook."""
    if not is_tool_name(name) or "/" in name:
        raise at.error(
            "is not a valid webhook name",
            fix="use letters, digits, '-', '.' and '_'; at most 128",
        )


@shaped(STRING)
def exposed(value: object, at: At) -> str:
    """Read an exposed tool name."""
    name = f.text(value, at)
    exposed_name(name, at)
    return name


def exposed_name(name: str, at: At) -> None:
    """Check an exposed name: portable across model providers, not reserved."""
    if name.lower().startswith(_RESERVED):
        raise at.error(
            f"names that begin with {_RESERVED} are reserved for the host",
            fix="give it another name",
        )
    if not _EXPOSED_NAME.fullmatch(name):
        raise at.error(
            "is not a valid tool name",
            fix="use letters, digits, '-' and '_'; at most 64",
        )


@shaped(SCHEMA_OF_OBJECT)
def _object_schema(value: object, at: At) -> JSON:
    schema: JSON = f.json_value(value, at)
    if not isinstance(schema, dict) or schema.get("type") != "object":
        raise at.error(
            "is not a JSON Schema of an object",
            fix='write input_schema = { type = "object", properties = { ... } }',
        )
    return schema


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


SHARED: f.Fields = {
    "retry": ("retry", _RETRIED),
    "over_limit": ("over_limit", _OVER_LIMIT),
    "slow_response_threshold": ("slow_response_threshold", _threshold),
    "slow_response_threshold_ms": ("slow_response_threshold", _threshold_ms),
    "slow_response_message": ("slow_response_message", f.text),
}


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
    """Check that only answers of reading tools are cached."""
    if options.cache is not None and options.effect != "read":
        raise at.key("cache").error(
            "is only valid for a tool that reads",
            fix='write effect = "read" beside it, or remove cache',
        )


@shaped(one_of(("accepted",)))
def _accepted(value: object, at: At) -> bool:
    return bool(f.choice("accepted")(value, at))


_TOOL: f.Fields = {
    "source": ("source", f.flag),
    "shared_writes": ("shared_writes", _accepted),
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
    **SHARED,
    **_MESSAGE,
}


@shaped(object_(_TOOL))
def _tool(value: object, at: At) -> ToolOptions:
    found = ToolOptions(**f.read(value, _TOOL, at))
    _check_cache(found, at)
    _check_source(found, at)
    return found


def _check_source(options: ToolOptions, at: At) -> None:
    """Check that only tools that read, and whose answers are kept, are sources."""
    if options.shared_writes and not options.source:
        raise at.key("shared_writes").error(
            "has no effect without source = true", fix="remove it"
        )
    needed = {"effect": "read", "record": "full", "reply": "full"}
    for key, value in needed.items() if options.source else ():
        if getattr(options, key) != value:
            raise at.key("source").error(
                f'is only valid for a tool with {key} = "{value}"',
                fix=f'write {key} = "{value}" beside it, or remove source',
            )


TOOLS = f.mapped(_tool)


def tool_keys() -> set[str]:
    """Return the keys of ``[servers.NAME.tools.TOOL]``."""
    return {*_TOOL}


def collected(
    values: object,
    fields: f.Fields,
    at: At,
    needed: AbstractSet[str],
    otherwise: Problem,
) -> dict[str, Any]:
    """Read a table that must set one of the attributes *needed*."""
    several = ErrorCollector()
    found = f.collect(values, fields, at, several)
    keys = f.table(values, at).keys()
    # A key that is not known may be one that is needed, misspelt.
    said = {fields[key][0] for key in keys & fields.keys()}
    if not said & needed and keys <= fields.keys():
        several.found.append(at.error(*otherwise))
    several.settle()
    return found


def with_public(values: object, at: At) -> At:
    """Return *at* with the names that the key ``public`` lists."""
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
        ConfigError: It is invalid.
    """
    at = with_public(values, at)
    found = collected(values, _WEBHOOK, at, {"url"}, _NO_URL)
    method = found.setdefault("method", "POST")
    found.setdefault("body", "json" if method in _SENDS_BODY else "none")
    found["params"] = _schema(found.get("params"), found["url"], at.key("params"))
    hook = Webhook(name=at.name, **found)
    _check_cache(hook, at)
    return hook


def _schema(schema: JSON, url: str, at: At) -> dict[str, JSON]:
    """Return the JSON Schema of a webhook: configured, or from its URL."""
    names = list(dict.fromkeys(placeholders(url)))
    if schema is None:
        return {
            "type": "object",
            "properties": {name: {"type": "string"} for name in names},
            "required": [*names],
        }
    if not isinstance(schema, dict) or schema.get("type", "object") != "object":
        raise at.error(
            "is not a JSON Schema of an object",
            fix='write params = { type = "object", properties = { ... } }',
        )
    properties = schema.get("properties", {})
    if not isinstance(properties, dict):
        raise at.key("properties").error("wanted a table", fix="write { NAME = {...} }")
    for name in names:
        if name not in properties:
            raise at.error(
                f"does not describe {name}, which the url needs",
                fix=f'add properties.{name} = {{ type = "string" }}',
            )
    return {"type": "object", **schema}
