"""The variables of a run: what is given, and what the configuration says of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ..core.calls import JSON
from ..core.names import nearest
from ..core.tools.contexts import RESERVED
from ..errors import UsageError
from .model import Config

_NONE: Mapping[str, JSON] = {}


def run_variables(
    config: Config, given: Mapping[str, JSON]
) -> tuple[dict[str, JSON], dict[str, JSON]]:
    """
    Return what a run is given, and what of that only its servers get to see.

    Raises:
        UsageError: One is none that the configuration knows, or a required one is
            missing.
    """
    known_variables(config, given)
    whole = {**given}
    for key, variable in config.context.items():
        if key in whole:
            continue
        if variable.required:
            raise UsageError(
                f"the run variable {key!r} is required", fix=f"add --var {key}=VALUE"
            )
        if variable.default is not None:
            whole[key] = variable.default
    hidden = {key for key, variable in config.context.items() if variable.private}
    private = {key: whole.pop(key) for key in hidden & whole.keys()}
    return whole, private


def private_variables(
    config: Config, given: Mapping[str, JSON] = _NONE
) -> dict[str, JSON]:
    """
    Return what only the servers of a run get to see, of one that has begun.

    Raises:
        UsageError: One of *given* is another: those are recorded, and stay. Or one
            that is required is missing.
    """
    known_variables(config, given)
    hidden = {key: one for key, one in config.context.items() if one.private}
    for key in given:
        if key not in hidden:
            raise UsageError(
                f"the run variable {key!r} is recorded, and stays what it is",
                fix="name private ones alone",
            )
    return run_variables(replace(config, context=hidden), given)[1]


def known_variables(config: Config, given: Mapping[str, JSON]) -> None:
    """
    Refuse variables that no run of this configuration can have.

    Raises:
        UsageError: There is one.
    """
    for key in given:
        if key in RESERVED:
            raise UsageError(
                f"the host gives {key!r} a value itself", fix="give it another name"
            )
        if config.context and key not in config.context:
            meant = nearest(key, list(config.context))
            raise UsageError(
                f"no run variable {key!r} under [context]",
                fix=f"write {meant}" if meant else f"add {key} = {{}} to [context]",
            )
