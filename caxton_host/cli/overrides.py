"""Servers and grants that a command line adds, for one run."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import update_wrapper
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..core.grants.grants import Grant, Rule
from ..core.names import is_server_name, nearest
from ..core.text.globs import Pattern
from ..core.tools.servers import ServerConfig, Transport
from ..core.tools.webhooks import SERVER as WEBHOOK
from ..errors import UsageError
from . import completion
from .output import note

if TYPE_CHECKING:
    from ..config import Config


_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
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

    def added_to(self, grant: Grant, config: Config) -> Grant:
        """Return *grant* with these rules; what they name is warned of if unknown."""
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
        return replace(grant, allow=(*grant.allow, *extra))

    def options(self) -> str:
        """Return the same as it is typed, but for the log of the wire."""
        given = [("--server", text) for text in self.servers]
        given += [("--allow", text) for text in self.allow]
        return " ".join(f"{option} {shlex.quote(text)}" for option, text in given)


def overrides(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--server``, ``--allow``, ``--wire-log``, as one argument ``given``."""

    def gathered(
        *args: object,
        servers: tuple[str, ...],
        allow: tuple[str, ...],
        wire_log: str | None,
        **rest: object,
    ) -> object:
        given = Overrides(servers=servers, allow=allow, wire_log=wire_log)
        return function(*args, given=given, **rest)

    server = click.option(
        "--server",
        "servers",
        metavar="NAME=CMD|URL",
        multiple=True,
        help="A tool server for this run only.",
    )
    allow = click.option(
        "--allow",
        metavar="SERVER/TOOL",
        multiple=True,
        shell_complete=completion.tools,
        help="A grant for this run only.",
    )
    return server(allow(wire_log(update_wrapper(gathered, function))))


def wire_log(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--wire-log``, for `tapped`."""
    option = click.option(
        "--wire-log",
        "wire_log",
        metavar="[FILE]",
        is_flag=False,
        flag_value="-",
        help="Append each message to and from tool servers, redacted, to FILE; without "
        "one, as the last option, to stderr.",
    )
    return update_wrapper(option(function), function)


def tapped(config: Config, to: str | None) -> Config:
    """Return *config* with the messages of every server told *to* a file."""
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
    """Refuse what the shell passed on and no event can hold."""
    for value in values:
        try:
            value.encode()
        except UnicodeEncodeError:
            raise UsageError(
                f"{option} is not UTF-8", fix="write it in UTF-8"
            ) from None


def _warn_of_strangers(config: Config, rules: Sequence[Rule]) -> None:
    from ..app.tool_setup import server_names

    known = [*server_names(config)]
    for pattern in (pattern for rule in rules for pattern in rule.tools):
        if not any(map(pattern.covers_server, known)):
            meant = nearest(pattern.text.partition("/")[0], known)
            hint = f"; did you mean {meant}?" if meant else ""
            note(f"warning: --allow: no server is meant by {pattern.text}{hint}")


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
    if not is_server_name(name) or name == WEBHOOK or not words:
        raise UsageError(
            f"--server {spec!r} is not NAME=COMMAND or NAME=URL",
            fix='write for example --server time="python -m mcp_server_time"',
        )
    if _SCHEME.match(target):
        found = _ADDRESS.fullmatch(target)
        if not found:
            raise UsageError(
                f"--server {name}: that is no address of a server over HTTP",
                fix=f"write it like --server {name}=https://HOST/PATH",
            )
        transport: Transport = "sse" if found[1] else "http"
        return ServerConfig(name=name, url=found[2], transport=transport)
    return ServerConfig(name=name, command=words)
