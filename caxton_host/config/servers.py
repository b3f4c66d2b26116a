"""Reader of ``[servers.NAME]``: transports, OAuth, supervision, resources."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, cast
from urllib.parse import quote, urlsplit

from ..core.names import AGENTS, is_server_name
from ..core.text.urls import in_the_clear
from ..core.tools.servers import (
    BreakerOptions,
    OAuth,
    Resources,
    Restart,
    ServerConfig,
)
from ..core.tools.webhooks import SERVER
from ..lib.signing import jwt_algorithm
from . import fields as f
from .confinement import confinement
from .fields import (
    DURATION,
    SIZE,
    STRING,
    array,
    either,
    mapping,
    object_,
    one_of,
    shaped,
)
from .source import At, sounds_secret
from .tools import SHARED, TOOLS, Problem, collected, with_public

_OAUTH: f.Fields = {
    "flow": ("flow", f.choice("credentials", "code", "exchange")),
    "client_id": ("client_id", f.text),
    "client_secret": ("client_secret", f.text),
    "private_key": ("private_key", f.text),
    "key_id": ("key_id", f.text),
    "client_metadata": ("client_metadata", f.url),
    "issuer": ("issuer", f.url),
    "endpoints": ("endpoints", f.listed(f.url)),
    "scope": ("scope", f.text),
    "method": ("method", f.choice("basic", "post")),
    "redirect_port": ("redirect_port", f.number),
    "allow_private": ("allow_private", f.flag),
}
_LOGIN_ONLY = ("client_metadata", "redirect_port")
_LAST_PORT = 65535


@shaped(object_(_OAUTH))
def oauth(value: object, at: At) -> OAuth:
    """Read ``[servers.NAME.oauth]``."""
    found = f.read(value, _OAUTH, at)
    by_login = found.get("flow") == "code"
    # A secret without its issuer would go wherever the server says.
    secret, signed = found.get("client_secret", ""), found.get("private_key", "")
    needed = "client_id", "private_key" if signed else "client_secret", "issuer"
    for key in needed if not by_login or secret else ():
        if not found.get(key):
            raise at.error(f"needs its {key}", fix=f'write {key} = "..."')
    for key in _LOGIN_ONLY:
        if key in found and not by_login:
            raise at.key(key).error(
                "is only valid for logins", fix=f'write flow = "code", or remove {key}'
            )
    at.source.secrets.note(signed, "private_key", at)
    # The second is what the header of a request for a token is made of.
    for form in (secret, quote(secret, safe="")):
        at.source.secrets.note(form, "client_secret", at)
    issuer = found.get("issuer", "")
    for address in (issuer, *found.get("endpoints", ())):
        if address and in_the_clear(address):
            raise at.key("issuer" if address == issuer else "endpoints").error(
                "is not https: the credentials could be read in transit",
                fix="write its https address",
            )
    _check_client(found, at)
    if signed:
        _check_key(found, at)
    return OAuth(**found)


def _check_key(found: dict[str, Any], at: At) -> None:
    at = at.key("private_key")
    if found.get("flow") == "code" or found.get("client_secret"):
        why = 'cannot be combined with client_secret, nor with flow = "code"'
        raise at.error(why, fix="remove one of them")
    if jwt_algorithm(found["private_key"]) is None:
        keys = "RSA of 2048 bits or more, P-256, or Ed25519"
        raise at.error(
            "is not a private key that can sign tokens",
            fix=f'write "${{file:PATH}}", of a PEM key without a password: {keys}',
        )


def _check_client(found: dict[str, Any], at: At) -> None:
    document = found.get("client_metadata")
    if document is not None:
        if found.get("client_id"):
            raise at.key("client_metadata").error(
                "cannot be combined with client_id", fix="remove one of them"
            )
        where = urlsplit(str(document))
        if where.scheme.lower() != "https" or where.path in {"", "/"}:
            raise at.key("client_metadata").error(
                "is not a valid client URL",
                fix="write an https address with a path",
            )
    if found.get("redirect_port", 0) > _LAST_PORT:
        raise at.key("redirect_port").error(
            "is not a valid port", fix=f"write 1 to {_LAST_PORT}"
        )


def check_oauth(found: dict[str, Any], at: At) -> None:
    """Check that the other keys of a server are compatible with OAuth."""
    if "url" not in found:
        raise at.key("oauth").error(
            "is for servers that have a url", fix="remove it, or use env"
        )
    if any(name.lower() == "authorization" for name in found.get("headers", {})):
        raise at.key("oauth").error(
            "cannot be combined with a header Authorization", fix="remove one of them"
        )
    if in_the_clear(found["url"]):
        raise at.key("url").error(
            "is not https: its tokens could be read in transit",
            fix="write its https address",
        )


_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_TRANSPORTS = {
    "stdio": "stdio",
    "http": "http",
    "streamable-http": "http",
    "streamable_http": "http",
    "streamableHttp": "http",
    "sse": "sse",
}
_ELICITATION = f.choice("refuse", "defaults", "ask", "client")
_PLACES = {"command", "url", "nested"}
_NO_PLACE: Problem = (
    "needs either a command or a url, and not both",
    'write command = "python", or url = "https://..."',
)


def server_name(name: str, at: At) -> None:
    """Check the name of a server."""
    if name == SERVER:
        raise at.error(
            "the name is reserved for [webhooks.NAME]", fix="give it another name"
        )
    if name == AGENTS:
        raise at.error(
            "the name is reserved for [agents.NAME]", fix="give it another name"
        )
    if not is_server_name(name):
        raise at.error(
            "is not a valid server name",
            fix="use letters, digits, '-', '.' and single '_'; at most 64",
        )


def _env_name(name: str, at: At) -> None:
    if not _ENV_NAME.fullmatch(name):
        raise at.error("is not a valid variable name", fix="write it like: LOG_LEVEL")


@shaped(mapping(STRING))
def env(value: object, at: At) -> dict[str, str]:
    """Read environment variables. Values are secrets if their names sound so."""
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


@shaped(either({"const": "off"}, DURATION))
def _health(value: object, at: At) -> float:
    return 0.0 if value == "off" else f.duration(value, at)


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


@shaped(either({"const": False}, SIZE))
def _blobs_over(value: object, at: At) -> int | None:
    return None if value is False else f.size(value, at)


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


_ENDPOINT: f.Fields = {
    "command": ("command", _command),
    "args": ("args", f.listed(f.text)),
    "env": ("env", env),
    "cwd": ("cwd", f.path),
    "confine": ("confine", confinement),
    "url": ("url", f.url),
    "headers": ("headers", f.header_map),
    "client_cert": ("client_cert", f.file),
    "client_key": ("client_key", f.file),
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
    **SHARED,
    "on_tool_change": ("on_tool_change", f.choice("refuse", "accept")),
    "rate": ("rate", f.rate),
    "tools": ("tools", TOOLS),
    "wire_log": ("wire_log", f.file),
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


def disabled(values: object, at: At) -> bool:
    """Return whether the table of a server disables it."""
    table = f.table(values, at)
    return table.get("enabled") is False or table.get("disabled") is True


@shaped(object_(_SERVER))
def server(values: object, at: At, name: str | None = None) -> ServerConfig:
    """
    Return the server that a table describes.

    Args:
        values: The table.

        at: Its place.

        name: What it is called, if not by its key.

    Raises:
        ConfigError: It is invalid.
    """
    at = with_public(values, at)
    fields = _FOREIGN if at.source.imported else _SERVER
    found = collected(values, fields, at, _PLACES, _NO_PLACE)
    for key, value in found.pop("nested", {}).items():
        # Some programs write the environment beside the nested table.
        found[key] = {**value, **found.get(key, {})} if key == "env" else value
    command, words = found.pop("command", ()), found.pop("args", ())
    if bool(command) == ("url" in found):
        raise at.error(*_NO_PLACE)
    transport = found.setdefault("transport", "http" if "url" in found else "stdio")
    if (transport == "stdio") != bool(command):
        raise at.error(
            f"the transport {transport} does not match its command or url",
            fix="stdio needs a command, http and sse need a url",
        )
    if "url" in found and found.get("headers") and in_the_clear(found["url"]):
        at.key("url").warn("is not https: its headers can be read in transit")
    if "oauth" in found:
        check_oauth(found, at)
    _check_certificate(found, at)
    _check_answers(found, at)
    if "url" in found:
        if found.get("confine"):
            raise at.key("confine").error(
                "is for servers that have a command", fix="remove it"
            )
        # Somebody else looks after it, and each look is a request.
        found.setdefault("health", 0.0)
    if command:
        found["command"] = (*command, *words)
        found["cwd"] = str(found.get("cwd", at.source.folder))
    return ServerConfig(name=name or at.name, **found)


def tools_alone(values: object, at: At) -> ServerConfig:
    """
    Read only the options of tools of a server, without its address.

    Raises:
        ConfigError: It is invalid.
    """
    tools = f.table(values, at).get("tools", {})
    return ServerConfig(name=at.name, tools=TOOLS(tools, at.key("tools")))


def _check_certificate(found: Mapping[str, Any], at: At) -> None:
    if "client_key" in found and "client_cert" not in found:
        raise at.key("client_key").error(
            "has no certificate", fix='write client_cert = "FILE"'
        )
    if "client_cert" in found and urlsplit(str(found.get("url", ""))).scheme != "https":
        raise at.key("client_cert").error(
            "is for servers that have an https url", fix="remove it"
        )


def _check_answers(found: Mapping[str, Any], at: At) -> None:
    """Check that no answer is cached if headers or tokens depend on the run."""
    exchanged = "oauth" in found and found["oauth"].flow == "exchange"
    headers = found.get("headers", {}).values()
    if not exchanged and not any("${context." in text for text in headers):
        return
    for tool, options in found.get("tools", {}).items():
        if options.cache is not None:
            place = at.key("tools").key(tool).key("cache")
            raise place.error(
                "cannot be used: the server's headers or tokens are those of a run",
                fix="remove it",
            )
