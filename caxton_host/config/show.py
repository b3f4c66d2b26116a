"""The configuration as a document without secrets, and the origin of settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, replace

from ..core.calls import JSON, Retry
from ..core.text.redact import MASK, Redactor
from ..core.tools.confinement import Confine
from ..core.tools.servers import ServerConfig
from ..core.tools.webhooks import Webhook
from .key_lines import Lines
from .load import STORE_VARIABLE
from .model import Agent, Config, Serve, Session
from .paths import CONFIG_VARIABLE, STATE_VARIABLE
from .serve import VARIABLES, variable
from .source import sounds_secret

_HIDDEN = "***"
_SECRET = frozenset({"client_secret", "private_key"})


def describe(config: Config) -> dict[str, JSON]:
    """Return *config* as ``caxton config show`` prints it."""
    redact = Redactor(config.secrets)

    def mask(text: str) -> str:
        if any(secret in text for secret in config.short_secrets):
            return _HIDDEN
        return redact.text(text).replace(MASK, _HIDDEN)

    def masked(text: str | None) -> str | None:
        return None if text is None else mask(text)

    return {
        "path": str(config.path) if config.path else None,
        "sha256": config.sha256 or None,
        "version": config.version,
        "store": {"url": mask(config.store_url)},
        "sandbox": asdict(config.places),
        "audit": {
            "anchor": masked(config.audit.anchor),
            "trusted_keys": [key.hex() for key in config.audit.trusted_keys],
            "witnesses": [
                {"url": mask(one.url), "key": one.key.text()}
                for one in config.audit.witnesses
            ],
            "quorum": config.audit.quorum or None,
        },
        "retention": {
            "archive": masked(str(config.retention.archive or "") or None),
            "every": config.retention.every,
            "rules": [
                {**asdict(rule), "agents": [*rule.agents], "states": [*rule.states]}
                for rule in config.retention.rules
            ],
        },
        "http": {"proxy": masked(config.proxy)},
        "telemetry": {
            "endpoint": masked(config.telemetry.endpoint),
            "trace_url": config.telemetry.trace_url,
            "baggage": [*config.telemetry.baggage],
        },
        "serve": _serve(config.serve, mask),
        "placement": {"engine": config.engine},
        "mcp": {"enabled": config.mcp},
        "servers": {
            name: {"origin": str(config.origins[name]), **_server(server, mask)}
            for name, server in config.servers.items()
        },
        "webhooks": {
            name: _webhook(webhook, mask) for name, webhook in config.webhooks.items()
        },
        "context": {
            name: {
                "default": _HIDDEN
                if variable.private and variable.default is not None
                else variable.default,
                "required": variable.required,
                "private": variable.private,
                "caller": variable.caller,
                "from": f"claim:{variable.claim}" if variable.claim else None,
            }
            for name, variable in config.context.items()
        },
        "agents": {name: _agent(agent) for name, agent in config.executed.items()},
        "sessions": {
            name: _session(agent, agent.session)
            for name, agent in config.agents.items()
            if agent.session
        },
        "schedules": {name: asdict(one) for name, one in config.schedules.items()},
        "notify": {
            name: {
                "url": mask(one.url),
                "secret": _HIDDEN,
                "events": [*one.events],
                "window": one.window,
                "max_age": one.max_age,
            }
            for name, one in config.notify.items()
        },
        "warnings": [*config.warnings],
    }


def _serve(serve: Serve, mask: Callable[[str], str]) -> dict[str, JSON]:
    shown = asdict(replace(serve, concurrency=serve.each, rate=serve.a_minute))
    if oauth := shown["oauth"]:
        places = {key: mask(oauth[key]) for key in ("issuer", "audience")}
        oauth |= places | {"jwks": oauth["jwks"] and mask(oauth["jwks"])}
    return shown


def _confine(confine: Confine | None) -> JSON:
    if confine is None:
        return False
    said = asdict(confine)
    del said["guarded"]
    return _given(said)


def _server(server: ServerConfig, mask: Callable[[str], str]) -> dict[str, JSON]:
    shown: dict[str, JSON] = {"transport": server.transport}
    if server.url is None:
        shown["command"] = [mask(word) for word in server.command]
        shown["cwd"] = server.cwd
        shown["confine"] = _confine(server.confine)
        shown["env"] = {
            name: _HIDDEN if sounds_secret(name) else mask(value)
            for name, value in server.env.items()
        }
    else:
        shown["url"] = mask(server.url)
        shown["headers"] = dict.fromkeys(server.headers, _HIDDEN)
        if server.oauth is not None:
            said = asdict(server.oauth).items()
            oauth = {key: it for key, it in said if it not in {"", ()}}
            shown["oauth"] = _given(
                oauth | dict.fromkeys(oauth.keys() & _SECRET, _HIDDEN)
            )
        shown["connect_timeout"] = server.connect_timeout
    shown |= {
        "timeout": server.timeout,
        "start_timeout": server.start_timeout,
        "restart": asdict(server.restart),
        "breaker": asdict(server.breaker),
        "health": server.health or "off",
        "required": server.required,
        "start": "eager" if server.eager else "lazy",
        "trust_annotations": server.trust_annotations,
        "max_result": server.max_result,
        "blobs_over": server.blobs_over,
        "elicitation": server.elicitation,
        "concurrency": server.places,
        "rate": server.rate and server.rate._asdict(),
        "retry": _retry(server.retry),
        "over_limit": server.over_limit,
        "slow_response_threshold": server.slow_response_threshold,
        "slow_response_message": server.slow_response_message,
        "resources": asdict(server.resources) if server.resources else False,
        "resource_vars": {
            name: _HIDDEN if sounds_secret(name) else mask(value)
            for name, value in server.resource_vars.items()
        },
        "tools": {name: _given(asdict(tool)) for name, tool in server.tools.items()},
        "wire_log": server.wire_log,
    }
    return shown


def _retry(retry: Retry | None) -> JSON:
    return asdict(retry) if retry else None


def _given(options: Mapping[str, JSON]) -> dict[str, JSON]:
    return {name: value for name, value in options.items() if value is not None}


def _webhook(webhook: Webhook, mask: Callable[[str], str]) -> dict[str, JSON]:
    return {
        "method": webhook.method,
        "url": mask(webhook.url),
        "description": webhook.description,
        "params": dict(webhook.params),
        "headers": dict.fromkeys(webhook.headers, _HIDDEN),
        "body": webhook.body,
        "timeout": webhook.timeout,
        "concurrency": webhook.concurrency,
        "effect": webhook.effect,
        "expose_as": webhook.expose_as,
        "allow_private": webhook.allow_private,
        "max_result": webhook.max_result,
        "record": webhook.record,
        "reply": webhook.reply,
        "cache": webhook.cache,
        "retry": _retry(webhook.retry),
    }


def _agent(agent: Agent) -> dict[str, JSON]:
    return {
        "module": str(agent.module) if agent.module else None,
        "program": str(agent.program) if agent.program else None,
        "runtime": agent.runtime,
        "entry": agent.entry,
        "description": agent.description,
        "prompt": agent.prompt,
        "limits": agent.limits.to_payload(),
        "names": agent.own_names,
        "grant": agent.grant.to_payload(),
        "expose": _given(asdict(agent.expose)),
        "args": [*agent.args],
        "env": {**agent.env},
        "files": [*agent.files],
    }


def _session(agent: Agent, session: Session) -> dict[str, JSON]:
    of_agent = ("description", "limits", "names", "grant")
    known = _agent(agent)
    return {key: known[key] for key in of_agent} | {**asdict(session)}


#: Settings by their dotted keys, with their variables. ``config`` and ``state`` have no
#: key: these are the file itself, and the folder of keys and tokens.
SETTINGS: Mapping[str, str] = {
    "config": CONFIG_VARIABLE,
    "state": STATE_VARIABLE,
    "store.url": STORE_VARIABLE,
    **{f"serve.{key}": name for key, name in VARIABLES.items()},
}


def origins(
    config: Config, environ: Mapping[str, str], options: Mapping[str, str]
) -> dict[str, str]:
    """
    Return the origin of each setting: an option, variable, line or ``default``.

    Args:
        config: What was loaded.

        environ: What it was loaded with.

        options: Settings that the command line made, to the option.
    """
    text = config.path.read_text("utf-8-sig") if config.path else ""
    lines, file = Lines(text), config.path.name if config.path else ""
    found: dict[str, str] = {}
    for setting, name in SETTINGS.items():
        line = lines.known.get(tuple(setting.split(".")))
        given = options.get(setting) or (name if variable(environ, name) else "")
        found[setting] = given or (f"{file}:{line}" if line else "default")
    return found
