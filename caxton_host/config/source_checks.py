"""Checks of sources of values: which tools rules may name, and who may write there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple
from urllib.parse import urlsplit

from ..core.calls import Route
from ..core.grants.decisions import may_ever
from ..core.grants.grants import Grant
from ..core.names import AGENTS, nearest
from ..core.provenance import Origin, Wanted
from ..core.text.globs import Pattern
from ..core.tools.contexts import PROMPT
from ..core.tools.servers import ServerConfig
from ..core.tools.webhooks import SERVER as WEBHOOK
from ..errors import UsageError
from .model import Config
from .source import At, ErrorCollector


class _Problem(NamedTuple):
    keys: tuple[str, ...]
    message: str
    fix: str


def check_sources(config: Config, at: At) -> None:
    """
    Check that rules name marked tools as sources, and that no agent writes there.

    Raises:
        ConfigError: One does not. It points at the rule, or at the mark.
    """
    several = ErrorCollector()
    for name, agent in config.agents.items():
        trusted = Wanted(tuple(map(Origin.parse, agent.trusted)))
        listed = [*_misnamed(("agents", name, "trusted"), [trusted], config)]
        # A rule that names trusted has the same sources.
        known = {one.message for one in listed}
        of_rules = _problems(name, agent.grant, config)
        found = [*listed, *(one for one in of_rules if one.message not in known)]
        for keys, message, fix in found:
            several.found.append(at.below(keys).error(message, fix))
    several.settle()


def check_grant(grant: Grant, config: Config) -> None:
    """
    Check the same of a grant that an agent has from elsewhere.

    Raises:
        UsageError: It names a tool that is not marked, or may write to a source.
    """
    for keys, message, fix in _problems("", grant, config):
        raise UsageError(f"{'.'.join(filter(None, keys))} {message}", fix=fix)


def _problems(agent: str, grant: Grant, config: Config) -> Iterator[_Problem]:
    for rule in (*grant.allow, *grant.deny):
        keys = ("agents", agent, rule.id, "params")
        wanted = [one for conditions in rule.conditions for one in conditions.wanted]
        yield from _misnamed(keys, wanted, config)
    servers = config.servers
    for server, known in servers.items():
        for tool, options in known.tools.items():
            if options.source and not options.shared_writes:
                for rule_id in _writing(grant, known, servers.values()):
                    yield _Problem(
                        ("servers", server, "tools", tool, "source"),
                        f"is true, and {rule_id} of {agent or 'the agent'} may "
                        "write what this tool reads",
                        'add shared_writes = "accepted" there, or narrow the rule to '
                        'tools with effect = "read"',
                    )


def _misnamed(
    keys: tuple[str, ...], wanted: Iterable[Wanted], config: Config
) -> Iterator[_Problem]:
    """Yield the sources that rules may not name, or that do not exist."""
    every, agent = tuple(wanted), config.agents.get(keys[1])
    template = agent.prompt if agent else None
    for origin in dict.fromkeys(o for one in every for o in one.all_origins):
        if origin.kind == "context" and (
            wrong := _no_variable(origin.name, template, config)
        ):
            yield _Problem(keys, *wrong)
    for tool in dict.fromkeys(tool for one in every for tool in one.own):
        if wrong := _uncreating(tool, config):
            yield _Problem(keys, *wrong)
    for tool in dict.fromkeys(tool for one in every for tool in one.tools):
        if wrong := _unmarked(tool, config):
            yield _Problem(keys, *wrong)


def _no_variable(
    name: str, template: str | None, config: Config
) -> tuple[str, str] | None:
    if name == PROMPT and template is None:
        return None  # Who starts the run by the library may give it one.
    if name == PROMPT:
        return (
            f"names context.{PROMPT}, a template that is filled with other values",
            "name the variables that it is filled with",
        )
    if name in config.context:
        return None
    meant = nearest(name, [*config.context])
    return (
        f"names context.{name}, which is no variable of the configuration",
        f"write context.{meant}" if meant else f"add [context.{name}]",
    )


def _uncreating(tool: tuple[str, str], config: Config) -> tuple[str, str] | None:
    server, name = tool
    own = f"own:{server}/{name}"
    if server == WEBHOOK:
        hook = config.webhooks.get(name)
        table, effect = f"[webhooks.{name}]", hook and hook.effect
    elif known := config.servers.get(server):
        table, effect = f"[servers.{server}.tools.{name}]", known.options(name).effect
    else:
        return _no_server(server, own, config)
    if effect not in {None, "read"}:
        return None
    # What a tool that reads answers was not created by this run.
    return (
        f"names {own}, which is not known to create anything",
        f'add effect = "unsafe" to {table}, if it creates what it returns',
    )


def _unmarked(tool: tuple[str, str], config: Config) -> tuple[str, str] | None:
    server, name = tool
    source = f"the source {server}/{name}"
    if server == WEBHOOK:
        return f"names {source}", "a webhook is never a source"
    known = config.servers.get(server)
    if known is None:
        return _no_server(server, source, config)
    if known.options(name).source:
        return None
    return (
        f"names {source}, which is not marked as one",
        f"add source = true to [servers.{server}.tools.{name}]",
    )


def _no_server(server: str, source: str, config: Config) -> tuple[str, str]:
    if server == AGENTS:
        return f"names {source}", "an agent is never a source"
    meant = nearest(server, [*config.servers])
    return (
        f"names {source}, and there is no server {server}",
        f"write {meant}" if meant else f"add [servers.{server}]",
    )


def _writing(
    grant: Grant, source: ServerConfig, servers: Iterable[ServerConfig]
) -> Iterator[str]:
    """Yield the rules that may allow a call there that is not known to read only."""
    same = [one for one in servers if _place(one) == _place(source)]
    for rule in grant.allow:
        if any(_writes(pattern, grant, one) for pattern in rule.tools for one in same):
            yield rule.id


def _writes(pattern: Pattern, grant: Grant, server: ServerConfig) -> bool:
    if not pattern.covers_server(server.name):
        return False
    if (literal := pattern.literal) is None:
        return True
    said = server.tools.get(literal[1])
    reads = said is not None and said.effect == "read"
    return not reads and may_ever(grant, Route(server=server.name, tool=literal[1]))


def _place(server: ServerConfig) -> tuple[str, ...]:
    """Return the address of a server, or what stands for it."""
    if server.url is None:
        return (server.name,)
    parts = urlsplit(server.url)
    return (parts.scheme, parts.netloc.lower(), parts.path)
