"""The top-level sections of ``caxton.toml`` and their readers."""

from __future__ import annotations

import re
from urllib.parse import unquote, unquote_plus, urlsplit

from ..core.calls import JSON
from ..core.limits import Places
from ..core.log.checkpoint import COSIGNATURE, Verifier, parse_key
from ..core.log.witnesses import MAX_WITNESSES
from ..core.text.templates import texts
from ..core.text.trace_context import BAGGAGE
from ..core.tools.contexts import RESERVED
from ..core.tools.servers import ServerConfig
from ..errors import BadBytes
from . import fields as f
from .agents import agent, agent_name, session
from .fields import STRING, array, object_, shape_of, shaped
from .model import TRACE_ID, Audit, ContextVar, TelemetrySettings, Witness
from .notify import destination
from .retention import retention
from .rules import DEFS
from .schedules import schedule
from .serve import serve
from .servers import disabled, server, server_name
from .source import At, sounds_secret
from .tools import webhook, webhook_name

_FILE = "file:"
_HERE = {"localhost", "127.0.0.1", "::1"}


@shaped(STRING)
def _anchor(value: object, at: At) -> str:
    target = f.text(value, at)
    if target.startswith(_FILE):
        path = target.removeprefix(_FILE)
        return f"{_FILE}{f.resolved(path.removeprefix('//'), at)}"
    f.check_url(target, at)
    found = urlsplit(target)
    if found.scheme.lower() != "https" and found.hostname not in _HERE:
        raise at.error(
            "is not https: it could be changed in transit",
            fix='write it like: "https://HOST/PATH" or "file:PATH"',
        )
    return target


@shaped(STRING)
def _key(value: object, at: At) -> bytes:
    key = parse_key(f.text(value, at))
    if key is None:
        raise at.error(
            "is not a public key", fix="copy the 64 digits that caxton audit key shows"
        )
    return key


@shaped(STRING)
def _verifier(value: object, at: At) -> Verifier:
    try:
        return Verifier.parse(f.text(value, at), COSIGNATURE)
    except BadBytes as exc:
        raise at.error(
            f"is not the key of a witness: {exc}",
            fix="copy the line that caxton witness key shows there",
        ) from None


_WITNESS: f.Fields = {"url": ("url", f.safe_url), "key": ("key", _verifier)}


@shaped(object_(_WITNESS, "url", "key"))
def _witness(value: object, at: At) -> Witness:
    found = f.read(value, _WITNESS, at)
    if len(found) < len(_WITNESS):
        raise at.error("needs url and key", fix='write { url = "...", key = "..." }')
    return Witness(**found)


_AUDIT: f.Fields = {
    "anchor": ("anchor", _anchor),
    "trusted_keys": ("trusted_keys", f.listed(_key)),
    "witnesses": ("witnesses", f.listed(_witness)),
    "quorum": ("quorum", f.some),
}


@shaped(object_(_AUDIT))
def _audit(value: object, at: At) -> Audit:
    audit = Audit(**f.read(value, _AUDIT, at))
    keys = [one.key for one in audit.witnesses]
    number = min(len({one.name for one in keys}), len({one.public_key for one in keys}))
    if number < len(keys):
        raise at.key("witnesses").error(
            "names one twice", fix="one witness counts once: remove the other"
        )
    if number > MAX_WITNESSES:
        raise at.key("witnesses").error(
            f"has more than {MAX_WITNESSES}", fix="remove some"
        )
    if audit.quorum > number:
        raise at.key("quorum").error(
            f"is more than the witnesses: {number}", fix="lower it, or add some"
        )
    return audit


@shaped(STRING)
def _trace_url(value: object, at: At) -> str:
    address = f.url(value, at)
    if TRACE_ID not in address:
        raise at.error(
            f"has no {TRACE_ID} in it",
            fix=f'write it like: "https://jaeger.example.com/trace/{TRACE_ID}"',
        )
    return address


@shaped(STRING)
def _member(value: object, at: At) -> str:
    name = f.text(value, at)
    if not BAGGAGE.fullmatch(name):
        raise at.error("is not a name in W3C baggage", fix='write it like: "tenant"')
    return name


@shaped(array(STRING))
def _baggage(value: object, at: At) -> tuple[str, ...]:
    names: tuple[str, ...] = f.listed(_member)(value, at)
    if len(names) > _MEMBERS:
        raise at.error(f"has more than {_MEMBERS} names", fix="pass on fewer")
    return names


#: What takes effect with the next host: these are opened when a host comes up.
FIXED = ("store_url", "places", "audit", "telemetry", "serve", "engine")

_DRIVER = re.compile(r"([\w+]+)://")
_SQLITE = frozenset({"sqlite", "sqlite+pysqlite"})
_SQLITE_PATH = re.compile(r"[^:]+://(?:[/?].*)?", re.DOTALL)
_POSTGRESQL = frozenset({"postgresql", "postgresql+psycopg"})
_SERVER = re.compile(
    r"[^:]+://(?:[^:/]*(?::[^@]*)?@)?(?:\[[^\[\]/?@]+\]|[^\[\]/:?]*)(?::([^/?]*))?"
    r"(?:[/?].*)?",
    re.DOTALL,
)
_LAST_PORT = 65535
_MEMBERS = 16
_LIKE_SQLITE = '"sqlite:///caxton.db"'
_LIKE_POSTGRESQL = '"postgresql+psycopg://USER@HOST:5432/NAME"'
_SQLITE_FILE = re.compile(r"(sqlite(?:\+[a-z0-9_]+)?):///(?!:memory:)([^?]+)(.*)")
_PROXY = re.compile(r"https?://(?:[^\s/@]+@)?[^\s/@?#]+/?")
_PASSWORDS = (
    re.compile(r"^https?://[^/@:]*:([^/]+)@"),
    # As SQLAlchemy reads it: up to the first @.
    re.compile(r"^(?!https?:)[^:]*://[^:/]*:([^@]*)@"),
    # As it was meant.
    re.compile(r"^(?!https?:)[^:]*://[^:/]*:(.*)@", re.DOTALL),
    re.compile(r"://[^:/@]*%3A([^@]*)@", re.IGNORECASE),
)
_TOKEN = re.compile(r"://([^/@:]+)@")
_PARAMETER = re.compile(r"[?&]([^=&]+)=([^&]*)")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}")


@shaped({"const": 1})
def _version(value: object, at: At) -> int:
    if isinstance(value, bool) or value != 1:
        raise at.error("is not a known version of the format", fix="write version = 1")
    return 1


@shaped(STRING)
def _store_url(value: object, at: At) -> str:
    address = f.text(value, at)
    _note_password(address, at)
    if wrong := store_mistake(address):
        raise at.error(*wrong)
    if found := _SQLITE_FILE.fullmatch(address):
        return f"{found[1]}:///{f.resolved(found[2], at)}{found[3]}"
    return address


def store_mistake(address: str) -> tuple[str, str] | None:
    """
    Return the problem with the URL of a store and its fix, or ``None``.

    >>> store_mistake("postgresql://h:99999/log")[0]
    'has an invalid port'
    """
    like = f"write it like {_LIKE_SQLITE} or {_LIKE_POSTGRESQL}"
    driver = found[1] if (found := _DRIVER.match(address)) else ""
    if driver in _SQLITE:
        named = _SQLITE_PATH.fullmatch(address)
        return None if named else ("names a host", f"write it like {_LIKE_SQLITE}")
    if driver not in _POSTGRESQL:
        is_server = driver.startswith("postgres")
        return (
            f"names {driver}, which is not supported"
            if driver
            else "is not a database URL",
            f"write it like {_LIKE_POSTGRESQL}" if is_server else like,
        )
    if address.partition("?")[0].count("@") > 1:
        # A piece of the password would be read as the host, and shown.
        return "has more than one @", "write the @ of a user or password as %40"
    server = _SERVER.fullmatch(address)
    if server is None:
        return "names no host", f"write it like {_LIKE_POSTGRESQL}"
    port = server[1]
    known = port is None or re.fullmatch("[0-9]{1,5}", port)
    if not known or not 1 <= int(port or 1) <= _LAST_PORT:
        return "has an invalid port", f"write it like {_LIKE_POSTGRESQL}"
    return None


@shaped(STRING)
def _proxy(value: object, at: At) -> str:
    address = f.text(value, at)
    if not _PROXY.fullmatch(address):
        raise at.error("is not a proxy URL", fix="write it like: http://HOST:PORT")
    _note_password(address, at)
    if token := _TOKEN.search(address):
        at.source.secrets.note(token[1], "", at)
    return address


def _note_password(address: str, at: At) -> None:
    for secret in passwords(address):
        at.source.secrets.note(secret, "", at)


def passwords(address: str) -> set[str]:
    """
    Return the secrets in the URL of a database or proxy.

    >>> sorted(passwords("postgresql://me:hunter%202@db/log?sslpassword=3"))
    ['3', 'hunter 2', 'hunter%202']
    """
    found = [match[1] for one in _PASSWORDS if (match := one.search(address))]
    given = [v for k, v in _PARAMETER.findall(address) if sounds_secret(unquote(k))]
    decoded = *map(unquote, found), *map(unquote_plus, given)
    return {secret for secret in (*found, *given, *decoded) if secret}


@shaped(shape_of(server))
def _server(value: object, at: At) -> ServerConfig | None:
    return None if disabled(value, at) else server(value, at)


def _variable_name(name: str, at: At) -> None:
    if not _VARIABLE.fullmatch(name):
        raise at.error("is not a valid variable name", fix="write it like: customer_id")
    if name in RESERVED:
        raise at.error("is a variable that the host sets", fix="give it another name")


@shaped(STRING)
def _claim(value: object, at: At) -> str:
    kind, _, claim = f.text(value, at).partition(":")
    if kind != "claim" or not claim:
        raise at.error("names no claim of a token", fix='write it like: "claim:sub"')
    return claim


_CONTEXT: f.Fields = {
    "default": ("default", f.json_value),
    "required": ("required", f.flag),
    "private": ("private", f.flag),
    "caller": ("caller", f.flag),
    "from": ("claim", _claim),
}


@shaped(object_(_CONTEXT))
def _variable(value: object, at: At) -> ContextVar:
    found: ContextVar = f.tables(_CONTEXT, ContextVar)(value, at)
    if found.private:
        for text in texts(found.default):
            at.source.secrets.note(text, at.name, at)
    return found


_MCP: f.Fields = {"enabled": ("value", f.flag)}


@shaped(object_(_MCP))
def _mcp(value: object, at: At) -> bool:
    return bool(f.read(value, _MCP, at).get("value", True))


_PLACES: f.Fields = {
    key: (key, f.some) for key in ("runs", "workers", "guests", "compute")
}

TOP: f.Fields = {
    "version": ("version", _version),
    "import": ("imports", f.listed(f.path)),
    "watch": ("watch", f.flag),
    "store": ("store_url", f.single({"url": ("value", _store_url)})),
    "sandbox": ("places", f.tables(_PLACES, Places)),
    "audit": ("audit", _audit),
    "retention": ("retention", retention),
    "http": ("proxy", f.single({"proxy": ("value", _proxy)})),
    "telemetry": (
        "telemetry",
        f.tables(
            {
                "endpoint": ("endpoint", f.url),
                "trace_url": ("trace_url", _trace_url),
                "baggage": ("baggage", _baggage),
            },
            TelemetrySettings,
        ),
    ),
    "mcp": ("mcp", _mcp),
    "servers": ("servers", f.mapped(_server, server_name)),
    "webhooks": ("webhooks", f.mapped(webhook, webhook_name)),
    "serve": ("serve", serve),
    "placement": (
        "engine",
        f.single({"engine": ("value", f.choice("in process", "procrastinate"))}),
    ),
    "context": ("context", f.mapped(_variable, _variable_name)),
    "agents": ("agents", f.mapped(agent, agent_name)),
    "sessions": ("sessions", f.mapped(session, agent_name)),
    "schedules": ("schedules", f.mapped(schedule, agent_name)),
    "notify": ("notify", f.mapped(destination, agent_name)),
}


def restart_sections() -> list[str]:
    """Return the sections whose changes take effect when a host restarts."""
    return [key for key, (attribute, _) in TOP.items() if attribute in FIXED]


def json_schema() -> dict[str, JSON]:
    """Return the JSON Schema of a ``caxton.toml``, for editors."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "caxton.toml",
        **object_(TOP),
        "$defs": {**DEFS},
    }
