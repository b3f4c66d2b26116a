"""``caxton completion``: names of commands and options, in the shell."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from .frame import as_json
from .screen import show

__all__ = ["command"]


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@as_json
@click.pass_context
def command(ctx: click.Context, shell: str, as_json: bool) -> None:
    """
    Print the completion script of SHELL.

    \b
    Examples:
      caxton completion bash > ~/.local/share/bash-completion/completions/caxton
      caxton completion fish > ~/.config/fish/completions/caxton.fish
    """
    made = get_completion_class(shell)
    assert made is not None  # noqa: S101 -- one of the choices above
    root = ctx.find_root().command
    script = made(root, {}, "caxton", "_CAXTON_COMPLETE").source()
    if as_json:
        show({"$type": "caxton.completion/v1", "shell": shell, "script": script})
    else:
        click.echo(script)
