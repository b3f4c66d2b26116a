"""``--var``: the variables of a run, as the command line and a configuration say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

import click

from ..core.calls import JSON
from ..core.text.redact import MIN_LENGTH
from ..core.text.templates import texts
from ..errors import UsageError
from ..ports import RunScope
from .output import note
from .overrides import check_text

if TYPE_CHECKING:
    from ..config import Config


Variables: TypeAlias = "dict[str, JSON]"

option = click.option(
    "--var", "variables", metavar="KEY=VALUE", multiple=True, help="A run variable."
)


def variables_of(
    config: Config, variables: Sequence[str]
) -> tuple[Variables, Variables]:
    """
    Return what a run is given, and what of that only its servers get to see.

    Raises:
        UsageError: One is none that the configuration knows, or a required one is
            missing.
    """
    from ..config.model import run_variables

    given, private = run_variables(config, _given(config, variables))
    _warn_of_short(private)
    return given, private


def private_of(config: Config, variables: Sequence[str]) -> Variables:
    """
    Return what only the servers of a run get to see, of one that has begun.

    Raises:
        UsageError: One of *variables* is another: those are recorded, and stay.
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


def by_hand(config: Config, variables: Sequence[str]) -> RunScope:
    """
    Return what a command without a run knows of one: what was given, and defaults.

    Raises:
        UsageError: A variable is none that the configuration knows.
    """
    defaults = {
        key: variable.default
        for key, variable in config.context.items()
        if variable.default is not None
    }
    return RunScope(
        run_id="by-hand",
        agent="by-hand",
        context={**defaults, **_given(config, variables)},
        private={key for key, one in config.context.items() if one.private},
    )


def _given(config: Config, variables: Sequence[str]) -> Variables:
    from ..config.model import known_variables

    given = typed(variables)
    known_variables(config, given)
    return given


def typed(variables: Sequence[str]) -> Variables:
    """
    Return variables as they are typed.

    Raises:
        UsageError: One is no ``KEY=VALUE``.
    """
    check_text("--var", variables)
    given: Variables = {}
    for item in variables:
        key, equals, value = item.partition("=")
        if not equals or not key:
            # The value may be a secret, so it is not shown.
            raise UsageError("--var takes KEY=VALUE", fix="write --var k=v")
        given[key] = value
    return given
