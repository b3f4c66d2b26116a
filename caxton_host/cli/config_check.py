"""``caxton config check``: everything that is wrong with the configuration."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..core.calls import JSON
from ..errors import ConfigError, UnsetError, UsageError
from .context import Frame, as_json
from .exits import USAGE
from .output import counted, note, plain, say, show

if TYPE_CHECKING:
    from ..config import Agent, Config


_NAMED = 10


@click.command("check")
@click.option(
    "--allow-unset", is_flag=True, help="Accept environment variables that are unset."
)
@as_json
@click.pass_obj
@click.pass_context
def command(ctx: click.Context, frame: Frame, allow_unset: bool, as_json: bool) -> None:
    """
    List everything that is wrong with the configuration, with lines and fixes.

    Reads the configuration, the files that it imports, and the modules of agents.
    Starts no server and connects to nothing. Checks that compare several keys run once
    each of these keys is right.

    \b
    Exit codes: 0 nothing is wrong; 2 something is.

    \b
    Examples:
      caxton config check
      caxton config check --allow-unset --json
    """
    from ..config.sections import TOP, restart_sections

    frame.here()
    config, found = _load(frame)
    unset = [one for one in found if isinstance(one, UnsetError)] if allow_unset else []
    wrong = [one for one in found if one not in unset]
    warnings = [*(config.warnings if config else ()), *(str(one) for one in unset)]
    warnings += [text for one in _agents(config) for text in _odd(one)]
    if config and config.path is None:
        warnings.append("there is no configuration file, so the defaults apply")
    late = restart_sections()
    if as_json:
        show(
            {
                "$type": "caxton.config-check/v1",
                "ok": not wrong,
                "mistakes": [_document(one) for one in wrong],
                "warnings": [*warnings],
                "restart": [*late],
                "reload": [key for key in TOP if key not in late],
            }
        )
    else:
        _tell(wrong, warnings, late)
    if wrong:
        ctx.exit(USAGE)


def _load(frame: Frame) -> tuple[Config | None, Sequence[ConfigError]]:
    from ..config import load

    path = Path(frame.config) if frame.config else None
    try:
        config = load(path, environ=os.environ, cwd=Path.cwd(), store_url=frame.db)
    except ConfigError as exc:
        return None, exc.each
    return config, ()


def _agents(config: Config | None) -> Iterable[Agent]:
    return config.agents.values() if config else ()


def _odd(agent: Agent) -> list[str]:
    """Return what is odd about an agent: no module, or input of any type."""
    from ..core.tools.schemas import untyped
    from ..runs.modules import read_manifest, read_module

    where = f"agents.{agent.name}"
    schema: JSON = {**(agent.expose.input_schema or {})} or None
    if schema is None and agent.module:
        try:
            manifest = read_manifest(read_module(agent.module, agent.limits.module))
        except UsageError as exc:
            return [f"{where}.module: {exc}"]
        schema = manifest.input_schema if manifest else None
    odd = without_type(untyped(schema))
    if agent.module is None:
        odd.append('names no module, so it cannot run; add module = "FILE.wasm"')
    return [f"{where}: {problem}" for problem in odd]


def without_type(names: Sequence[str]) -> list[str]:
    """Return what to say of properties without a type: one line, or none."""
    if not names:
        return []
    more = f" and {len(names) - _NAMED} more" if names[_NAMED:] else ""
    named = plain(", ".join(names[:_NAMED]))
    problem = f"input_schema says no type of {named}{more}, so any value is taken"
    return [f'{problem}; add a type such as "string" under properties']


def _document(one: ConfigError) -> dict[str, JSON]:
    return {
        "file": one.file or None,
        "line": one.line,
        "key": one.key or None,
        "problem": one.problem,
        "fix": one.fix,
    }


def _tell(
    wrong: Sequence[ConfigError], warnings: Sequence[str], late: Sequence[str]
) -> None:
    for one in wrong:
        place = f"{one.file}:{one.line}" if one.line else one.file
        say(plain(": ".join(filter(None, (place, one.key, one.problem)))))
        say(f"  To fix: {plain(one.fix)}")
    for text in warnings:
        note(f"warning: {text}")
    note(counted(len(wrong), "mistake"))
    note(
        f"a change of {', '.join(late)} takes effect when hosts restart; "
        "caxton config reload does the rest"
    )
