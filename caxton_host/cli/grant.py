"""``caxton grant``: for the person who writes down what an agent may do."""

from __future__ import annotations

import click

from . import budgets, check, grant_explain, matrix, suggest, what_if


@click.group("grant")
def command() -> None:
    """
    Check, explain and propose what agents may do.

    \b
    Examples:
      caxton grant check
      caxton grant explain weather demo/get_weather '{"location": "Oslo"}'
      caxton grant matrix
      caxton grant what-if new.toml --since 7d
      caxton grant suggest --manifest hello.wasm
      caxton grant budgets
    """


command.add_command(budgets.budgets)
command.add_command(check.command)
command.add_command(grant_explain.command)
command.add_command(matrix.command)
command.add_command(suggest.command)
command.add_command(what_if.command)
