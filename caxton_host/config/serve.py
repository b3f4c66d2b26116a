"""Reader of ``[serve]`` and of the variables that override it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from ipaddress import ip_network
from typing import Any

from ..core.grants.principals import SIGNATURES
from ..core.text.urls import is_loopback, parts_of
from ..core.tools.servers import Rate
from ..errors import ConfigError
from . import fields as f
from .fields import RATE, STRING, array, either, object_, one_of, shaped
from .model import OAuth, Serve
from .source import At, ErrorCollector

_LAST_PORT = 65535
_MINUTE = 60
_ADDRESS = re.compile(r"[A-Za-z0-9._:%-]{1,255}")
_NAME = re.compile(r"(?:[a-z0-9._-]{1,253}|\[[0-9a-f:.]{2,45}\])(?::[0-9]{1,5})?")
_ORIGIN = re.compile(rf"https?://{_NAME.pattern}")
_AUDIENCE = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]{1,1024}")
_CLIENT_WORD = re.compile(r"[\x20-\x7e]{1,500}")
_CLAIM = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]{1,255}")
#: Variables of the environment that come before the file, by their keys.
VARIABLES = {
    "host": "CAXTON_SERVE_HOST",
    "port": "CAXTON_SERVE_PORT",
    "mcp": "CAXTON_SERVE_MCP",
    "api": "CAXTON_SERVE_API",
    "ui": "CAXTON_SERVE_UI",
}
_LINK = re.compile(r"(?:tcp|udp|sctp)://")
_PORT = re.compile(r"[0-9]{1,5}")
_FLAGS = {"true": True, "1": True, "false": False, "0": False}


@shaped(STRING)
def _address(value: object, at: At) -> str:
    address = f.text(value, at)
    if not _ADDRESS.fullmatch(address):
        raise at.error(
            "is not an address to listen on", fix='write it like: "127.0.0.1"'
        )
    return address


@shaped({"type": "integer", "minimum": 0, "maximum": _LAST_PORT})
def _port(value: object, at: At) -> int:
    if (number := f.number(value, at)) > _LAST_PORT:
        raise at.error("is not a valid port", fix=f"write 0 to {_LAST_PORT}; 0 is any")
    return number


@shaped(STRING)
def _host_name(value: object, at: At) -> str:
    name = f.text(value, at).lower()
    if not _NAME.fullmatch(name):
        raise at.error(
            "is not a valid host name",
            fix='write it like: "agents.example.com" or "agents.example.com:8443"',
        )
    return name


@shaped(STRING)
def _network(value: object, at: At) -> str:
    try:
        return str(ip_network(f.text(value, at)))
    except ValueError:
        raise at.error(
            "is not a network", fix='write it like: "10.1.0.0/16", or "127.0.0.1"'
        ) from None


@shaped(STRING)
def _origin(value: object, at: At) -> str:
    origin = f.text(value, at).lower()
    if not _ORIGIN.fullmatch(origin):
        raise at.error(
            "is not a valid origin", fix='write it like: "https://app.example.com"'
        )
    return origin


@shaped(RATE)
def _per_minute(value: object, at: At) -> int:
    rate: Rate = f.rate(value, at)
    number = round(rate.number * _MINUTE / rate.seconds)
    if number < 1:
        raise at.error("is less than one per minute", fix='write it like: "600/min"')
    return number


@shaped(STRING)
def _audience(value: object, at: At) -> str:
    audience = f.text(value, at)
    if not _AUDIENCE.fullmatch(audience) or parts_of(audience) is None:
        raise at.error(
            "is not a valid audience",
            fix='write the address of this service: "https://agents.example.com/mcp"',
        )
    return audience


@shaped(STRING)
def _claim(value: object, at: At) -> str:
    claim = f.text(value, at)
    if not _CLAIM.fullmatch(claim):
        raise at.error("is not the name of a claim", fix='write it like: "org"')
    return claim


@shaped(STRING)
def _client_word(value: object, at: At) -> str:
    word = f.text(value, at)
    if not _CLIENT_WORD.fullmatch(word):
        raise at.error(
            "is empty, too long, or has characters that cannot be sent",
            fix="write it as the issuer shows it",
        )
    return word


@shaped(array(one_of(SIGNATURES)))
def _algorithms(value: object, at: At) -> tuple[str, ...]:
    names: tuple[str, ...] = f.listed(f.choice(*SIGNATURES))(value, at)
    if not names:
        raise at.error("is empty", fix='write algorithms = ["RS256", "ES256"]')
    return names


_OAUTH: f.Fields = {
    "issuer": ("issuer", f.safe_url),
    "audience": ("audience", _audience),
    "algorithms": ("algorithms", _algorithms),
    "jwks": ("jwks", f.safe_url),
    "tenant_claim": ("tenant_claim", _claim),
    "client_id": ("client_id", _client_word),
    "scope": ("scope", _client_word),
}


@shaped(object_(_OAUTH, "issuer", "audience"))
def _oauth(value: object, at: At) -> OAuth:
    found = f.read(value, _OAUTH, at)
    f.needs(value, at, issuer="https://...", audience="https://...")
    return OAuth(**found)


@shaped(either(one_of(["hand_over"]), f.shape_of(f.duration)))
def _drain(value: object, at: At) -> float | str:
    if value == "hand_over":
        return "hand_over"
    if isinstance(value, str) and f.parse_duration(at.expand(value)) is None:
        raise at.error(
            'is neither a duration nor "hand_over"',
            fix='write it like: "30s"; or "hand_over"',
        )
    return f.duration(value, at)


_SERVE: f.Fields = {
    "host": ("host", _address),
    "port": ("port", _port),
    "mcp": ("mcp", f.flag),
    "api": ("api", f.flag),
    "ui": ("ui", f.flag),
    "edit": ("edit", f.flag),
    "metrics": ("metrics", f.choice("read", "open")),
    "allowed_hosts": ("allowed_hosts", f.listed(_host_name)),
    "allowed_origins": ("allowed_origins", f.listed(_origin)),
    "runs": ("runs", f.some),
    "queue": ("queue", f.number),
    "concurrency": ("concurrency", f.some),
    "rate": ("rate", _per_minute),
    "tenant_concurrency": ("tenant_concurrency", f.some),
    "tenant_rate": ("tenant_rate", _per_minute),
    "body": ("body", f.size),
    "drain": ("drain", _drain),
    "oauth": ("oauth", _oauth),
    "trusted_proxies": ("trusted_proxies", f.listed(_network)),
    "client_ca": ("client_ca", f.file),
    "allow_unauthenticated": ("allow_unauthenticated", f.flag),
    "public_url": ("public_url", f.url),
}


@shaped(object_(_SERVE))
def serve(value: object, at: At) -> Serve:
    """
    Read ``[serve]``.

    Raises:
        ConfigError: The table is invalid.
    """
    found = Serve(**f.read(value, _SERVE, at))
    if found.allow_unauthenticated and not is_loopback(found.host):
        raise at.key("allow_unauthenticated").error(
            "would accept unauthenticated requests from other machines",
            fix='remove it, or write host = "127.0.0.1"',
        )
    return found


def from_environment(given: Serve, environ: Mapping[str, str]) -> Serve:
    """
    Return *given* with the overrides of the environment; see `VARIABLES`.

    Raises:
        ConfigError: It is invalid.
    """
    said: dict[str, Any] = {}
    several = ErrorCollector()
    for key, name in VARIABLES.items():
        if text := variable(environ, name):
            with several:
                said[key] = _READ.get(key, _flag)(name, text)
    several.settle()
    served = replace(given, **said)
    if "host" in said and served.allow_unauthenticated and not is_loopback(served.host):
        raise ConfigError(
            f"the variable {VARIABLES['host']} would accept unauthenticated "
            "requests from other machines, since allow_unauthenticated is set",
            fix="remove allow_unauthenticated from [serve], or unset the variable",
        )
    return served


def variable(environ: Mapping[str, str], name: str) -> str:
    """Return the value of a variable; ``""`` if Kubernetes set it for a service."""
    text = environ.get(name, "")
    return "" if _LINK.match(text) else text


def _flag(name: str, text: str) -> bool:
    if text.lower() not in _FLAGS:
        raise ConfigError(
            f"the variable {name} is neither true nor false",
            fix="set it to one of them, or unset it",
        )
    return _FLAGS[text.lower()]


def _host_said(name: str, text: str) -> str:
    if not _ADDRESS.fullmatch(text):
        raise ConfigError(
            f"the variable {name} is not an address to listen on",
            fix=f"set it like: {name}=0.0.0.0",
        )
    return text


def _port_said(name: str, text: str) -> int:
    if not _PORT.fullmatch(text) or int(text) > _LAST_PORT:
        raise ConfigError(
            f"the variable {name} is not a port", fix=f"set it to 0 to {_LAST_PORT}"
        )
    return int(text)


_READ: Mapping[str, Callable[[str, str], Any]] = {
    "host": _host_said,
    "port": _port_said,
}
