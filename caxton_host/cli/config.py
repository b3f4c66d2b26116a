"""``caxton config``: what the configuration says."""

from __future__ import annotations

import click

from . import reload
from .frame import Frame, as_json
from .screen import say, show, to_json

__all__ = ["command"]


@click.group("config")
def command() -> None:
    """
    Show what the configuration says, and have hosts read it again.

    \b
    Examples:
      caxton config show
      caxton config reload
    """


command.add_command(reload.command)


@command.command("show")
@as_json
@click.pass_obj
def show_(frame: Frame, as_json: bool) -> None:
    """
    Show the configuration as it is understood, with secrets masked.

    \b
    Examples:
      caxton config show
      caxton --config other.toml config show --json
    """
    from ..config import describe

    document = {"$type": "caxton.config/v1", **describe(frame.load())}
    if as_json:
        show(document)
    else:
        say(to_json(document, indent=2))
