"""``caxton mcp install`` and ``uninstall``: the host in the files of MCP clients."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.exceptions import Exit

from ..config.clients import (
    CLIENTS,
    TOKEN,
    Client,
    Scope,
    command_entry,
    session_entry,
)
from ..core.calls import JSON
from ..core.clients import table_of
from ..core.names import nearest
from ..core.text.toml_text import value_text
from ..core.text.urls import in_the_clear
from ..errors import ConfigError, NotFoundError, UsageError
from . import completion
from .approval_prompt import can_ask
from .context import HostApi, on_host
from .output import FAILED, USAGE, complain, note, say, show, to_json

if TYPE_CHECKING:
    from ..lib.files import Change
    from .mcp_plan import Plan


_client = click.argument("client", metavar="CLIENT", type=click.Choice([*CLIENTS]))
_scope = click.option(
    "--scope",
    type=click.Choice(["project", "user"]),
    help="Whose file; default the project's if its folder is there.",
)
_file = click.option(
    "--file",
    "file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The client's file, if it is elsewhere.",
)
_yes = click.option("-y", "--yes", is_flag=True, help="Write without asking.")


@on_host(click.command("install"))
@_client
@click.option(
    "--session",
    metavar="NAME",
    shell_complete=completion.sessions,
    help="The session that the client is; default agents as tools.",
)
@click.option("--url", metavar="URL", help="A served host, instead of a command.")
@click.option(
    "--take-over",
    is_flag=True,
    help="Move the client's servers into caxton.toml.",
)
@_scope
@_file
@click.option(
    "--name", default="caxton", show_default=True, help="The name of the entry."
)
@_yes
@click.option(
    "--print", "only_print", is_flag=True, help="Print the entry and change nothing."
)
@click.option("--force", is_flag=True, help="Replace another server with that name.")
def install(
    host: HostApi,
    client: str,
    session: str | None,
    url: str | None,
    take_over: bool,
    scope: Scope | None,
    file: Path | None,
    name: str,
    yes: bool,
    only_print: bool,
    force: bool,
    as_json: bool,
) -> None:
    """
    Put this host into the configuration of a client.

    With --session, the client's MCP server is the session NAME: its calls are checked
    against the rules of [sessions.NAME] and recorded. Without it, the client is offered
    the agents, as by caxton serve --stdio. --take-over moves the other servers of the
    file into caxton.toml, so that the client reaches them only through the host. It
    grants nothing.

    Shows what will change, asks, and keeps a copy of the file as FILE.before-caxton.
    Everything else in the file stays as it is. The entry of "generic" is printed.

    \b
    Files: claude-code .mcp.json or ~/.claude.json; cursor .cursor/mcp.json, here or in
    your home folder; vscode .vscode/mcp.json or that of your profile; claude-desktop
    that of your profile.

    \b
    Exit codes: 0 written, or nothing to change; 1 you said no; 2 shown only, because
    there is no terminal to ask at, or a file or an argument is wrong.

    \b
    Examples:
      caxton mcp install claude-code --session dev
      caxton mcp install cursor --session dev --take-over --yes
      caxton mcp install vscode --session dev --url https://host:8080
      caxton mcp install claude-desktop
      caxton mcp install generic --session dev
    """
    from .mcp_plan import place_of, plan_install, start

    chosen = CLIENTS[client]
    _check_session(host, session, url)
    if only_print or not (file or chosen.user or chosen.project):
        entry = _entry(host, chosen, session, url, {})
        _print(client, {chosen.key: {name: entry}}, as_json=as_json)
        return
    plan = start(client, name, place_of(chosen, scope, file))
    if url and in_the_clear(url):
        plan.notes.append("--url is not https: the token can be read in transit")
    plan_install(
        plan,
        host,
        lambda env: _entry(host, chosen, session, url, env),
        takes=take_over,
        force=force,
    )
    if session and url is None and (servers := plan.moved or _configured(host)):
        tools = value_text([f"{one}/*" for one in servers])
        plan.allow = f"[[{table_of(session, session=True)}.allow]]\ntools = {tools}"
    if not _carry_out(plan, "install", yes=yes, as_json=as_json):
        return
    note(f"restart {chosen.title}")
    if url:
        token = f"caxton serve token create --session {session}"
        note(f"set {TOKEN} to a token where {chosen.title} starts: {token}")
    if plan.allow:
        note("this grants nothing; to allow all tools, add to caxton.toml:")
        note(plan.allow)


@on_host(click.command("uninstall"))
@_client
@_scope
@_file
@click.option("--name", help="The name of the entry, if there are several.")
@_yes
def uninstall(
    host: HostApi,
    client: str,
    scope: Scope | None,
    file: Path | None,
    name: str | None,
    yes: bool,
    as_json: bool,
) -> None:
    """
    Take this host out of the configuration of a client.

    Gives back the servers that were taken over. If nothing else has changed the file
    since, it is again what it was, byte for byte; if something has, only the entry is
    removed and the servers are added again. caxton.toml keeps its servers.

    \b
    Exit codes: 0 written; 1 you said no; 2 shown only, because there is no terminal to
    ask at, or this host is not in the file.

    \b
    Examples:
      caxton mcp uninstall claude-code
      caxton mcp uninstall cursor --scope user --yes
    """
    from .mcp_plan import places_of, plan_uninstall

    chosen = CLIENTS[client]
    plan = plan_uninstall(host, client, name, places_of(chosen, scope, file))
    if _carry_out(plan, "uninstall", yes=yes, as_json=as_json):
        note(f"restart {chosen.title}")
        if plan.moved:
            note("caxton.toml keeps its servers; caxton server remove NAME removes one")


# -- what is installed ---------------------------------------------------------


def _entry(
    host: HostApi,
    client: Client,
    session: str | None,
    url: str | None,
    env: Mapping[str, str],
) -> dict[str, JSON]:
    from .mcp_plan import configuration

    if url is not None:
        assert session is not None  # noqa: S101 -- checked before
        return session_entry(client, url, session)
    words = ["mcp", "connect", session] if session else ["serve", "--stdio"]
    command = [*_program(), "--config", str(configuration(host).resolve()), *words]
    return command_entry(client, command, env)


def _program() -> list[str]:
    program = Path(sys.executable).with_name("caxton")
    return [str(program)] if program.exists() else [sys.executable, "-m", "caxton_host"]


def _check_session(host: HostApi, session: str | None, url: str | None) -> None:
    if url is not None:
        if session is None:
            raise UsageError("--url needs --session", fix="name a session of that host")
        return  # That host has its own configuration.
    if session is None:
        return
    known = [one.name for one in host.look("sessions").agents.values() if one.session]
    if session in known:
        return
    close = nearest(session, known)
    raise NotFoundError(
        f"there is no session {session}",
        fix=f"name {close}" if close else f"add [sessions.{session}] to caxton.toml",
    )


def _configured(host: HostApi) -> list[str]:
    """Return the servers of the host: imported ones as well, if all can be read."""
    try:
        return [*host.load(quiet=True).servers]
    except ConfigError:
        return [*host.look("tools").servers]


def _print(client: str, entry: Mapping[str, JSON], *, as_json: bool) -> None:
    if as_json:
        show({"$type": "caxton.mcp-entry/v1", "client": client, "entry": {**entry}})
    else:
        say(to_json({**entry}, indent=2))


# -- show, ask, write ----------------------------------------------------------


def _carry_out(plan: Plan, action: str, *, yes: bool, as_json: bool) -> bool:
    """Show a plan, ask, and write it; return whether it was written."""
    changes, diff = plan.changes(), plan.diff()
    if not as_json and diff:
        say(diff)
    for text in plan.notes:
        note(f"note: {text}")
    for path in plan.secrets:
        note(f"secret: {path}")
    agreed = yes or not changes or _ask()
    if agreed:
        _write(plan, changes)
    if as_json:
        show(_document(plan, action, diff, written=bool(changes and agreed)))
    if not changes:
        note(f"nothing to change in {plan.path}")
    elif agreed is None:
        complain(
            "nothing was written: there is no terminal to ask at",
            "repeat the command with --yes",
        )
        raise Exit(USAGE)
    elif not agreed:
        note("nothing was written")
        raise Exit(FAILED)
    else:
        done = "has" if action == "install" else "no longer has"
        note(f"{plan.path} {done} {plan.name}")
        if plan.keeps is not None and action == "install":
            note(f"what was there is in {plan.copy}")
    return bool(changes)


def _ask() -> bool | None:
    """Return the answer of the person at the terminal, or ``None`` without one."""
    return click.confirm("Write this?", err=True) if can_ask() else None


def _write(plan: Plan, changes: list[Change]) -> None:
    from ..lib.files import read_if_there, replace_files

    seen = [(plan.path, plan.before), (plan.copy, plan.copied)]
    seen += [plan.config[:2]] if plan.config else []
    for path, before in seen:
        if read_if_there(path) != before:
            raise UsageError(
                f"{path} was changed by another program meanwhile",
                fix="repeat the command",
            )
    replace_files(changes)


def _document(plan: Plan, action: str, diff: str, *, written: bool) -> JSON:
    return {
        "$type": "caxton.install/v1",
        "action": action,
        "client": plan.client,
        "name": plan.name,
        "file": str(plan.path),
        "copy": None if plan.keeps is None else str(plan.copy),
        "config": str(plan.config[0]) if plan.config else None,
        "servers": [*plan.moved],
        "secrets": [str(path) for path in plan.secrets],
        "allow": plan.allow,
        "diff": diff,
        "notes": [*plan.notes],
        "written": written,
    }
