"""``caxton server``: the tool servers of a configuration."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..core.calls import JSON
from ..core.grants.tool_catalog import tool_document
from ..core.tools.servers import (
    SERVERS_OFF,
    SERVERS_ON,
    server_document,
    server_test_document,
)
from ..errors import NotFoundError, ServerUnavailable, UsageError
from ..lib.machine import SystemClock
from . import completion, variables
from .context import Frame, as_json, wait
from .login import login, logout
from .logs import logs
from .output import counted, note, patience, plain, say, show, table
from .overrides import Overrides, tapped, wire_log
from .remote_runs import refuse_options
from .restart import restart
from .server_probe import reached
from .server_state import seen
from .times import ago
from .tools import Document, check_known, headline, of_server, tell_changed
from .variables import by_hand

if TYPE_CHECKING:
    from ..config import Config
    from ..core.grants.tool_catalog import Offered
    from ..core.tools.contexts import ServerResource
    from ..ports import RunScope
    from .host_option import There


#: Columns of a list, and where they stand in a document.
_STATE = {
    "state": "state",
    "protocol": "protocol",
    "ms": "latency_ms",
    "restarts": "restarts",
    "breaker": "breaker",
    "generation": "generation",
}

_OLDER = "sse+"


@click.group("server")
def command() -> None:
    """
    List, add, remove and test tool servers, and read what they log.

    Adding a server grants nothing: agents call what their grants name.

    \b
    Examples:
      caxton server add time -- python -m mcp_server_time
      caxton server test time
      caxton server list --json
      caxton server tools time
      caxton server logs time
    """


command.add_command(login)
command.add_command(logout)
command.add_command(logs)
command.add_command(of_server)
command.add_command(restart)


def check(config: Config, name: str) -> None:
    """Complain if no server is called *name*, or all are off."""
    if not config.mcp:
        raise NotFoundError(SERVERS_OFF, fix=SERVERS_ON)
    otherwise = f"no server {name!r} in the configuration"
    check_known(name, config.servers, otherwise, "caxton server list")


@command.command("list")
@as_json
@click.pass_obj
def list_(frame: Frame, as_json: bool) -> None:
    """
    Show the servers of the configuration, without starting any.

    How a server did is what the log knows of it: state, protocol, median of the newest
    calls, restarts, breaker, and how many lists of tools there were. If a host that
    has it is up, that is how it is now. Else it is how it was, and the last column
    says how long ago. A server that no host was ever connected to has dashes.

    \b
    Examples:
      caxton server list
      caxton server list --json
    """
    is_off = False
    if frame.there is not None:
        servers = wait(_there(frame.there))
    else:
        config = frame.load()
        servers, is_off = _here(config), not config.mcp
    if as_json:
        show([{**server} for server in servers])
        return
    table(
        ("server", "transport", "address", *_STATE, "as of"),
        (
            (
                *(s[key] for key in ("name", "transport", "address")),
                *("-" if s[key] is None else s[key] for key in _STATE.values()),
                _known_of(s["live"], s["as_of"]),
            )
            for s in servers
        ),
    )
    for server in servers:
        if problem := server.get("problem"):
            note(f"{server['name']}: {plain(problem)}")
    if is_off:
        note(SERVERS_OFF)
    elif not servers:
        note(frame.named("no servers; caxton server add NAME -- COMMAND adds one"))


def _here(config: Config) -> Sequence[Mapping[str, JSON]]:
    from ..config import describe

    described = describe(config)["servers"]
    assert isinstance(described, dict)  # noqa: S101 -- a table
    known = seen(config)
    return [
        server_document(name, server) | known[name].document()
        for name, server in sorted(described.items())
    ]


async def _there(there: There) -> Sequence[Mapping[str, JSON]]:
    from ..remote.documents import mappings

    async with there.reach() as remote:
        return mappings(await remote.get("/servers"), "servers")


def _known_of(live: JSON, as_of: JSON) -> str:
    """Return when what is known of a server was so."""
    if live:
        return "now"
    if not isinstance(as_of, int):
        return "-"
    return ago((SystemClock().now() - as_of) / 1e6)


@command.command("add", context_settings={"ignore_unknown_options": True})
@click.argument("name")
@click.option(
    "--env", "env", metavar="KEY=VALUE", multiple=True, help="For the server."
)
@click.option(
    "--url",
    help="A remote server, instead of a command; sse+URL if it speaks SSE alone.",
)
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[--] [COMMAND]...")
@as_json
@click.pass_obj
def add(
    frame: Frame,
    name: str,
    env: tuple[str, ...],
    url: str | None,
    words: tuple[str, ...],
    as_json: bool,
) -> None:
    """
    Add the server NAME to caxton.toml. The command stands after --.

    \b
    Examples:
      caxton server add time -- python -m mcp_server_time
      caxton server add crm --env 'TOKEN=${env:CRM_TOKEN}' -- crm-server
      caxton server add old --url sse+https://tools.example/sse
    """
    from ..config.edit import add_server

    if bool(url) == bool(words):
        raise UsageError(
            "a server is a command or a URL",
            fix=f"caxton server add {name} -- COMMAND, or --url URL",
        )
    pairs: dict[str, str] = {}
    for item in env:
        key, equals, value = item.partition("=")
        if not equals or not key:
            # The value may be a secret, so it is not shown.
            raise UsageError("--env takes KEY=VALUE", fix="write --env KEY=VALUE")
        pairs[key] = value
    path = frame.load().path or Path("caxton.toml")
    older = url is not None and url.startswith(_OLDER)
    add_server(
        path,
        name,
        command=words,
        url=url and url.removeprefix(_OLDER),
        transport="sse" if older else None,
        env=pairs,
        environ=os.environ,
    )
    if as_json:
        show(_change("added", name, path))
        return
    say(f"added {name} to {path.name}")
    hint = f"it grants nothing yet; caxton server test {name} shows its tools"
    note(frame.named(hint))


@command.command("remove")
@click.argument("name", shell_complete=completion.servers)
@as_json
@click.pass_obj
def remove(frame: Frame, name: str, as_json: bool) -> None:
    """
    Remove the server NAME from caxton.toml.

    \b
    Examples:
      caxton server remove time
    """
    from ..config.edit import remove_server

    path = frame.load().path
    if path is None:
        raise NotFoundError("there is no configuration file", fix="caxton init")
    remove_server(path, name, environ=os.environ)
    if as_json:
        show(_change("removed", name, path))
        return
    say(f"removed {name} from {path.name}")


def _change(change: str, name: str, path: Path) -> dict[str, JSON]:
    return {
        "$type": "caxton.server-change/v1",
        "change": change,
        "name": name,
        "file": str(path),
    }


@command.command("test")
@click.argument("name", shell_complete=completion.servers)
@variables.option
@wire_log
@as_json
@click.pass_obj
def test(
    frame: Frame,
    name: str,
    variables: tuple[str, ...],
    wire_log: str | None,
    as_json: bool,
) -> None:
    """
    Start the server NAME, list its tools, and stop it.

    If runs are to have its resources, read those as well, and warn of each that
    cannot be read. --var says what a run would know.

    \b
    Exit codes: 0 it answers; 2 there is no such server; 6 it does not answer.

    \b
    Examples:
      caxton server test time
      caxton server test time --wire-log
    """
    started = time.monotonic()
    with patience(f"starting {name}"):
        try:
            if frame.there is not None:
                refuse_options(Overrides(wire_log=wire_log), var=variables)
                facts, tools = wait(_tested_there(frame.there, name))
            else:
                config = frame.load()
                check(config, name)
                facts, tools = _tested(tapped(config, wire_log), name, variables)
        except ServerUnavailable as exc:
            if as_json:
                show(server_test_document(name, {}, [], [], problem=str(exc)))
            raise
    tell_changed(tools)
    if as_json:
        show({**facts})
    else:
        _tell_test(facts, tools, (time.monotonic() - started) * 1000)


def _tell_test(
    facts: Mapping[str, Any], tools: Sequence[Document], took: float
) -> None:
    name = facts["server"]
    say(
        f"{name}: {facts['name']} {facts['version']}, protocol {facts['protocol']}, "
        f"{counted(len(tools), 'tool')}, {took:.0f} ms"
    )
    for tool in tools:
        say(f"  {name}/{tool['tool']}  {headline(str(tool['description']))}")
    for one in facts["resources"]:
        if one["error"] is None:
            say(f"  {one['uri']}  {one['key']}, {counted(one['bytes'], 'byte')}")


async def _tested_there(
    there: There, name: str
) -> tuple[Mapping[str, Any], Sequence[Document]]:
    from ..remote.client import path
    from ..remote.documents import mapping, mappings

    async with there.reach() as remote:
        facts = mapping(await remote.post(path("servers", name, "test")))
        if facts["problem"] is not None:
            raise ServerUnavailable(
                str(facts["problem"]),
                fix=f"check the command or url of [servers.{name}] there",
            )
        return facts, mappings(await remote.get("/tools", server=name), "tools")


def _tested(
    config: Config, name: str, variables: Sequence[str]
) -> tuple[Mapping[str, Any], Sequence[Document]]:
    offered, found = wait(_asked(config, name, by_hand(config, variables)))
    facts = offered.servers[name]
    names = [offer.tool for offer in offered.offers]
    tools = [tool_document(offer, offered.accepted) for offer in offered.offers]
    return server_test_document(name, facts, names, found), tools


async def _asked(
    config: Config, name: str, scope: RunScope
) -> tuple[Offered, Sequence[ServerResource]]:
    """Return what a server offers, and what a run with that *scope* would read."""
    server = config.servers[name]
    if server.resources is not None:
        # The reason why one cannot be read is what is asked for here.
        read = replace(server.resources, required=False)
        servers = {**config.servers, name: replace(server, resources=read)}
        config = replace(config, servers=servers)
    async with reached(config, [name], scope) as asked:
        offered = await asked.offered([name])
        return offered, await asked.tools.resources([name], scope)
