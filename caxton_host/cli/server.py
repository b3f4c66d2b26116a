"""``caxton server``: the tool servers of a configuration."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.exceptions import Exit

from ..core.calls import JSON
from ..core.text.redact import Redactor
from ..core.tools.servers import SERVERS_OFF, server_test_document
from ..errors import NotFoundError, ServerUnavailable, UsageError
from ..lib.machine import SystemClock
from ..runs.cancellation import restart_document
from . import completion
from .context import HostApi, on_host, wait
from .options import Duration, only_option, variable_option, wire_log
from .output import (
    FAILED,
    awaiting,
    complain,
    counted,
    note,
    patience,
    plain,
    say,
    show,
    table,
)
from .overrides import check_text
from .server_probe import check_server
from .tool import Document, headline, print_tools, tell_changed

if TYPE_CHECKING:
    from ..config import Config
    from ..mcp.auth.login import Asked
    from ..mcp.auth.tokens import Login, TokenFile


#: Columns of the list, and their keys in the document.
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
    List, add, remove and test tool servers.

    Adding a server grants nothing: agents call what their grants name.

    \b
    Examples:
      caxton server add time -- python -m mcp_server_time
      caxton server test time
      caxton server list --json
      caxton server tools time
      caxton server logs time
    """


@on_host(command.command("list"))
def list_(host: HostApi, as_json: bool) -> None:
    """
    List the configured servers without starting any.

    State, protocol, median latency of the newest calls, restarts, breaker and the
    number of tool lists come from the log. If a host that uses the server is up, they
    are current; otherwise the last column says how old they are. A server that no host
    ever connected to has dashes.

    \b
    Examples:
      caxton server list
      caxton server list --json
    """
    servers, is_off = host.servers()
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
        note(host.named("no servers; caxton server add NAME -- COMMAND adds one"))


def _known_of(live: JSON, as_of: JSON) -> str:
    """Return the age of what is known about a server."""
    if live:
        return "now"
    if not isinstance(as_of, int):
        return "-"
    return _ago((SystemClock().now() - as_of) / 1e6)


_UNITS = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))


def _ago(seconds: float) -> str:
    """
    Return how long ago something was, roughly.

    >>> _ago(7300), _ago(59.9), _ago(-1)
    ('2 h ago', '59 s ago', '0 s ago')
    """
    unit, length = next((u for u in _UNITS if seconds >= u[1]), _UNITS[-1])
    return f"{max(int(seconds / length), 0)} {unit} ago"


@on_host(command.command("add", context_settings={"ignore_unknown_options": True}))
@click.argument("name")
@click.option(
    "--env",
    "env",
    metavar="KEY=VALUE",
    multiple=True,
    help="An environment variable of the server. Repeatable.",
)
@click.option(
    "--url",
    help="A remote server instead of a command; sse+URL for SSE.",
)
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[--] [COMMAND]...")
def add(
    host: HostApi,
    name: str,
    env: tuple[str, ...],
    url: str | None,
    words: tuple[str, ...],
    as_json: bool,
) -> None:
    """
    Add the server NAME to caxton.toml.

    Write the command after --. It is confined: it may read its program and the folders
    that its arguments name, and has no network. The file says how to let it do more.

    \b
    Examples:
      caxton server add time -- python -m mcp_server_time
      caxton server add crm --env 'TOKEN=${env:CRM_TOKEN}' -- crm-server
      caxton server add old --url sse+https://tools.example/sse
    """
    from ..config.edit import add_server
    from ..sandbox.confine import confines_servers

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
    path = host.load().path or Path("caxton.toml")
    older = url is not None and url.startswith(_OLDER)
    add_server(
        path,
        name,
        command=words,
        url=url and url.removeprefix(_OLDER),
        transport="sse" if older else None,
        env=pairs,
        environ=os.environ,
        confines=confines_servers(),
    )
    if as_json:
        show(_change("added", name, path))
        return
    say(f"added {name} to {path.name}")
    hint = f"no agent may call it yet; to list its tools: caxton server test {name}"
    note(host.named(hint))


@on_host(command.command("remove"))
@click.argument("name", shell_complete=completion.servers)
def remove(host: HostApi, name: str, as_json: bool) -> None:
    """
    Remove the server NAME from caxton.toml.

    \b
    Examples:
      caxton server remove time
    """
    from ..config.edit import remove_server

    path = host.load().path
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


@on_host(command.command("test"))
@click.argument("name", shell_complete=completion.servers)
@variable_option
@wire_log
def test(
    host: HostApi,
    name: str,
    variables: tuple[str, ...],
    wire_log: str | None,
    as_json: bool,
) -> None:
    """
    Start the server NAME, list its tools, and stop it.

    Resources that runs get are read too, with a warning for each that cannot be read.
    --var sets the variables of a run.

    \b
    Exit codes: 0 it answers; 2 there is no such server; 6 it does not answer.

    \b
    Examples:
      caxton server test time
      caxton server test time --wire-log
    """
    started = time.monotonic()
    with awaiting(f"starting {name}"):
        try:
            facts, tools = host.test_server(name, variables, wire_log)
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
    confined: Mapping[str, str] = facts.get("confinement") or {}
    for what, how in confined.items():
        say(f"  confined  {what:<12}  {how}")


@on_host(command.command("tools"))
@click.argument("name", shell_complete=completion.servers)
@variable_option
def tools(host: HostApi, name: str, variables: tuple[str, ...], as_json: bool) -> None:
    """
    Start the server NAME and list its tools.

    \b
    Exit codes: 0 it answers; 2 there is no such server; 6 it does not answer.

    \b
    Examples:
      caxton server tools time
      caxton server tools time --json
    """
    print_tools(host.server_tools(name, variables), as_json=as_json)


@on_host(command.command("restart"))
@click.argument("name", shell_complete=completion.servers)
@only_option
@click.option("--reason", default="", help="The reason; recorded.")
def restart(
    api: HostApi,
    name: str,
    host: str | None,
    reason: str,
    as_json: bool,
) -> None:
    """
    Restart the server NAME on running hosts.

    Calls in progress fail as if the server had died. A server that was given up is
    tried again. A server with a url is reconnected.

    \b
    Exit codes: 0 all restarted it; 1 one could not; 2 there is no such server.

    \b
    Examples:
      caxton server restart crm
      caxton server restart crm --reason "new version installed" --json
    """
    check_text("--reason", [reason])
    with patience("asking the hosts"):
        answers = api.restart_server(name, host, reason)
    if as_json:
        show([restart_document(name, *answer) for answer in answers.items()])
    else:
        for one, answer in answers.items():
            say(f"{one}: {plain(answer.text)}")
    if not answers:
        note("no host is running; the next one starts it when it is needed")
    if any(answer.state == "failed" for answer in answers.values()):
        see = (
            f"check the command or url of [servers.{name}]; "
            f"caxton server logs {name} shows what it said"
        )
        complain(f"{name} could not be started everywhere", see)
        raise Exit(FAILED)


#: Seconds between two reads of a followed file.
_PAUSE = 0.2


@on_host(command.command("logs"))
@click.argument("name", shell_complete=completion.servers)
@click.option(
    "-n",
    "--lines",
    "number",
    type=click.IntRange(0, 100_000),
    default=100,
    show_default=True,
    help="The number of last lines to show.",
)
@click.option("-f", "--follow", is_flag=True, help="Wait for more until Ctrl-C.")
def logs(host: HostApi, name: str, number: int, follow: bool, as_json: bool) -> None:
    """
    Show the redacted standard error of the server NAME.

    Every host of this user writes to the same file, and so does caxton server test.
    Lines that begin with -- are from the host.

    \b
    Examples:
      caxton server logs demo
      caxton server logs demo -n 20 --follow
    """
    from ..mcp.transport.serverlog import LogFile, Tail

    config = host.load()
    check_server(config, name)
    if config.servers[name].url is not None:
        raise NotFoundError(
            f"{name} has a url, so this host does not have its standard error",
            fix=f"look where it runs; caxton server test {name} shows if it answers",
        )
    file = LogFile(host.paths().logs, name)
    if not follow and not any(path.exists() for path in file.paths):
        raise NotFoundError(
            f"nothing of {name} is kept: it was not started yet",
            fix=f"caxton server test {name} starts it",
        )
    # A value may have become a secret since it was written.
    redact = Redactor(config.secrets)

    def tell(lines: Iterable[str]) -> None:
        shown = [redact.text(line) for line in lines]
        if as_json:
            show({"$type": "caxton.server-logs/v1", "server": name, "lines": [*shown]})
        elif shown:
            say("\n".join(shown))

    with closing(Tail(file)) as tail:
        tell(deque(tail.more(), maxlen=number))
        # Ctrl-C is the normal end of following.
        with suppress(KeyboardInterrupt):
            while follow:
                time.sleep(_PAUSE)
                if lines := [*tail.more()]:
                    tell(lines)


@on_host(command.command("login"))
@click.argument("name")
@click.option(
    "--wait",
    "seconds",
    type=Duration(),
    default="5m",
    show_default=True,
    help="How long to wait for the login.",
)
def login(host: HostApi, name: str, seconds: float, as_json: bool) -> None:
    """
    Log in at the server NAME with a browser.

    Prints an address to open in a browser on this machine, and waits until the issuer
    of the tokens sends the browser back. The tokens are stored for all runs, and
    refreshed before they expire.

    \b
    Exit codes: 0 logged in; 2 the server takes no logins; 6 the login failed.

    \b
    Examples:
      caxton server login crm
      caxton server login crm --wait 15m
    """
    config = host.load()
    check_server(config, name)
    found = wait(_log_in(config, name, _file(config, name, host), seconds))
    if as_json:
        show(
            {
                "$type": "caxton.login/v1",
                "server": name,
                "issuer": found.issuer,
                "scope": found.scope,
                "refreshes": found.refresh_token is not None,
                "expires": _moment(found.expires_at),
            }
        )
        return
    say(f"logged in at {plain(found.issuer)}; scope {plain(found.scope) or 'not said'}")
    if found.refresh_token is None:
        note(f"the login lasts until {_moment(found.expires_at) or 'it is taken back'}")


async def _log_in(config: Config, name: str, file: TokenFile, seconds: float) -> Login:
    from ..mcp.auth.login import log_in
    from ..mcp.auth.redirect import browser
    from ..sandbox.confine import harden_host

    harden_host()
    server = config.servers[name]
    port = server.oauth.redirect_port if server.oauth else 0

    def tell(asked: Asked) -> None:
        note(f"{name} takes tokens of {plain(asked.issuer)}")
        note(f"scope: {plain(asked.scope) or 'not named'}")
        note("open this address in a browser on this machine:")
        note(plain(asked.address))

    async with browser(tell, wait=seconds, port=port) as person:
        return await log_in(
            server, person, file, redact=Redactor(config.secrets), proxy=config.proxy
        )


@on_host(command.command("logout"))
@click.argument("name")
def logout(host: HostApi, name: str, as_json: bool) -> None:
    """
    Revoke and delete the tokens of the server NAME.

    Running hosts drop them too. They are deleted even if the issuer cannot revoke them;
    then they may be valid until they expire, and a warning says so.

    \b
    Examples:
      caxton server logout crm
    """
    from ..mcp.auth.login import log_out

    config = host.load()
    check_server(config, name)
    file = _file(config, name, host)
    forgotten, problem = wait(log_out(config.servers[name], file, proxy=config.proxy))
    if as_json:
        said: dict[str, JSON] = {"server": name, "forgotten": forgotten}
        show({"$type": "caxton.logout/v1", **said, "problem": problem or None})
    elif not forgotten:
        say(f"{name}: was not logged in")
    else:
        say(f"{name}: forgotten{'' if problem else ', and revoked'}")
        if problem:
            note(f"warning: not revoked, so valid until they expire: {plain(problem)}")


def _file(config: Config, name: str, host: HostApi) -> TokenFile:
    from ..mcp.auth.tokens import TokenFile

    return TokenFile(host.paths().tokens, config.servers[name])


def _moment(seconds: float | None) -> str | None:
    if seconds is None:
        return None
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
