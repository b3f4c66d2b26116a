"""Servers, grants and variables that a command line adds to a run."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from ..core.analysis.checking import Known, idle, lacking
from ..core.calls import JSON
from ..core.grants.grants import Grant, Rule
from ..core.names import AGENTS, BY_HAND, is_server_name, nearest
from ..core.text.globs import Pattern
from ..core.text.redact import MIN_LENGTH
from ..core.text.templates import texts
from ..core.text.urls import parts_of
from ..core.tools.servers import ServerConfig, Transport
from ..core.tools.webhooks import SERVER as WEBHOOK
from ..errors import UsageError
from ..ports.tools import RunScope
from .output import note

if TYPE_CHECKING:
    from ..config import Config
    from ..config.narrowing import Narrowing


_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
Variables: TypeAlias = "dict[str, JSON]"
Given: TypeAlias = "Sequence[str] | Mapping[str, JSON]"

_ADDRESS = re.compile(r"(sse\+)?(https?://[^\s/?#].*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Overrides:
    """
    What ``--server``, ``--allow`` and ``--wire-log`` say.

    >>> Overrides(servers=("t=python -m t",), allow=("t/now",)).options()
    "--server 't=python -m t' --allow t/now"
    """

    servers: Sequence[str] = ()
    allow: Sequence[str] = ()
    wire_log: str | None = None

    def servers_in(self, config: Config) -> Config:
        """Return *config* with these servers."""
        check_text("--server", self.servers)
        servers = dict(config.servers)
        for spec in self.servers:
            server = parse_server(spec)
            servers[server.name] = server
        return tapped(replace(config, servers=servers), self.wire_log)

    def added_to(self, grant: Grant, config: Config, name: str) -> Grant:
        """Return the *grant* of an agent with these rules; warn of unknown servers."""
        check_text("--allow", self.allow)
        first = len(grant.allow) + 1
        try:
            extra = [
                Rule(id=f"allow[{n}]", tools=(Pattern.parse(text),), source="--allow")
                for n, text in enumerate(self.allow, first)
            ]
        except UsageError as exc:
            raise UsageError(f"--allow: {exc}", fix=exc.fix) from None
        _warn_of_strangers(config, extra)
        added = replace(grant, allow=(*grant.allow, *extra))
        if self.allow or self.servers:
            from ..config import check_grant

            check_grant(added, config)
        if extra:
            _check_cycle(config, name, added)
        return added

    def warn_of_tools(self, known: Known) -> None:
        """Warn about granted tools that no server offers."""
        for text in self.allow:
            found = lacking(Pattern.parse(text), known)
            if found and found[0] == "no_tool":
                note(f"warning: --allow {text}: {found[1]}. To fix: {found[2]}")

    def options(self) -> str:
        """Return the options as typed, without ``--wire-log``."""
        given = [("--server", text) for text in self.servers]
        given += [("--allow", text) for text in self.allow]
        return " ".join(f"{option} {shlex.quote(text)}" for option, text in given)


def tapped(config: Config, to: str | None) -> Config:
    """Return *config* with the messages of every server logged to a file."""
    if to is None:
        return config
    check_text("--wire-log", [to])
    path = Path(to).absolute()
    if to != "-" and (path.is_dir() or not path.parent.is_dir()):
        raise UsageError(
            f"--wire-log: no file can be written at {to}",
            fix="name a file in a folder that exists, as in --wire-log=wire.log",
        )
    name = to if to == "-" else str(path)
    servers = {
        server.name: replace(server, wire_log=name)
        for server in config.servers.values()
    }
    return replace(config, servers=servers)


def check_text(option: str, values: Sequence[str]) -> None:
    """Refuse text that no event can hold."""
    for value in values:
        try:
            value.encode()
        except UnicodeEncodeError:
            raise UsageError(
                f"{option} is not UTF-8", fix="write it in UTF-8"
            ) from None


def _check_cycle(config: Config, name: str, grant: Grant) -> None:
    from ..config.agents import cycle_of

    agent = config.agents.get(name)
    if agent is None:
        return
    agents = {**config.agents, name: replace(agent, grant=grant)}
    if cycle := cycle_of(replace(config, agents=agents)):
        raise UsageError(
            f"--allow: {cycle[0]} could call itself: {' -> '.join(cycle)}",
            fix="leave out one of these calls",
        )


def _warn_of_strangers(config: Config, rules: Sequence[Rule]) -> None:
    known = [*config.granted_servers]
    for pattern in (pattern for rule in rules for pattern in rule.tools):
        if not any(map(pattern.covers_server, known)):
            meant = nearest(pattern.text.partition("/")[0], known)
            hint = f"; did you mean {meant}?" if meant else ""
            note(f"warning: --allow: no server is meant by {pattern.text}{hint}")


def narrowed(values: Sequence[str], grant: Grant | None = None) -> Narrowing | None:
    """
    Return the narrowing that ``--narrow`` describes, if it is given.

    Args:
        values: Of the option.

        grant: Of the agent. A pattern that meets no rule of it is a warning.

    Raises:
        ConfigError: A value cannot be read, or is invalid.
    """
    from ..config import narrowing

    check_text("--narrow", values)
    found = narrowing.typed(values) if values else None
    for warning in idle(found.bound.grant, grant) if found and grant else ():
        note(f"warning: {warning}")
    return found


def parse_server(spec: str) -> ServerConfig:
    """
    Return the server that ``NAME=CMD`` or ``NAME=URL`` describes.

    >>> parse_server("time=python -m mcp_server_time").command
    ('python', '-m', 'mcp_server_time')
    >>> parse_server("old=sse+https://tools.example/sse").transport
    'sse'

    Raises:
        UsageError: It is neither.
    """
    name, _, target = spec.partition("=")
    try:
        words = tuple(shlex.split(target))
    except ValueError:
        words = ()
    if not is_server_name(name) or name in {WEBHOOK, AGENTS} or not words:
        raise UsageError(
            f"--server {spec!r} is not NAME=COMMAND or NAME=URL",
            fix='write for example --server time="python -m mcp_server_time"',
        )
    if _SCHEME.match(target):
        found = _ADDRESS.fullmatch(target)
        if not found or parts_of(found[2]) is None:
            raise UsageError(
                f"--server {name}: that is no address of a server over HTTP",
                fix=f"write it like --server {name}=https://HOST/PATH",
            )
        transport: Transport = "sse" if found[1] else "http"
        return ServerConfig(name=name, url=found[2], transport=transport)
    return ServerConfig(name=name, command=words)


def variables_of(config: Config, variables: Given) -> tuple[Variables, Variables]:
    """
    Return the variables of a run, and the private ones among them.

    Raises:
        UsageError: A variable is unknown, or a required one is missing.
    """
    from ..config.model import run_variables

    given, private = run_variables(config, _given(config, variables))
    _warn_of_short(private)
    return given, private


def private_of(config: Config, variables: Given) -> Variables:
    """
    Return the private variables of a run that has begun.

    Raises:
        UsageError: One of *variables* is not private: those are recorded.
    """
    from ..config.model import private_variables

    private = private_variables(config, _given(config, variables))
    _warn_of_short(private)
    return private


def _warn_of_short(private: Variables) -> None:
    for key, value in private.items():
        if any(len(text.encode()) < MIN_LENGTH for text in texts(value)):
            note(
                f"warning: {key} is shorter than {MIN_LENGTH} bytes, so it is not "
                "looked for in what servers answer"
            )


def by_hand(config: Config, variables: Given) -> RunScope:
    """
    Return the scope of a command without a run: given variables and defaults.

    Raises:
        UsageError: A variable is unknown.
    """
    defaults = {
        key: variable.default
        for key, variable in config.context.items()
        if variable.default is not None
    }
    return RunScope(
        run_id=BY_HAND,
        agent=BY_HAND,
        context={**defaults, **_given(config, variables)},
        private={key for key, one in config.context.items() if one.private},
    )


def _given(config: Config, variables: Given) -> Variables:
    from ..config.model import known_variables

    given = typed(variables)
    known_variables(config, given)
    return given


def typed(variables: Given) -> Variables:
    """
    Return variables as they are typed, or given.

    Raises:
        UsageError: One is no ``KEY=VALUE``.
    """
    if isinstance(variables, Mapping):
        return {**variables}
    check_text("--var", variables)
    given: Variables = {}
    for item in variables:
        key, equals, value = item.partition("=")
        if not equals or not key:
            # The value may be a secret, so it is not shown.
            raise UsageError("--var takes KEY=VALUE", fix="write --var k=v")
        given[key] = value
    return given
