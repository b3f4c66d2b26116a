"""``caxton grant``: for the person who writes down what an agent may do."""

from __future__ import annotations

import click

from . import explain, suggest

__all__ = ["command"]


@click.group("grant")
def command() -> None:
    """
    Check, explain and propose what agents may do.

    \b
    Examples:
      caxton grant explain weather demo/get_weather '{"location": "Oslo"}'
      caxton grant suggest --manifest hello.wasm
    """


command.add_command(explain.of_agent)
command.add_command(suggest.command)
