"""``caxton mcp``: MCP clients behind this host."""

from __future__ import annotations

import click

from . import completion
from .context import HostApi, wait
from .mcp_install import install, uninstall


@click.group("mcp")
def command() -> None:
    """
    Put MCP clients behind this host, or offer it to them.

    \b
    Examples:
      caxton mcp install claude-code --session dev --take-over
      caxton mcp uninstall claude-code
      caxton mcp install claude-desktop
      caxton mcp connect dev
    """


command.add_command(install)
command.add_command(uninstall)


@command.command("connect")
@click.argument("session", metavar="SESSION", shell_complete=completion.sessions)
@click.pass_obj
def connect(host: HostApi, session: str) -> None:
    """
    Serve SESSION to an MCP client over stdin and stdout.

    The client sees the tools that [sessions.SESSION] grants, and each of its calls is
    checked and recorded. You are the principal. This is accounting, not containment: a
    client that runs as you can read the configuration, the keys and the log.

    \b
    Examples:
      caxton mcp connect dev
      caxton -c /etc/caxton/caxton.toml mcp connect dev
    """
    from ..app.serve_app import connect_session

    wait(connect_session(session, host.load(), host.paths(), load=host.load))
