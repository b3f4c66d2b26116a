"""``caxton config``: check, show, import and reload the configuration."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.exceptions import Exit

from ..core.calls import JSON
from ..errors import ConfigError, UnsetError, UsageError
from ..runs.cancellation import reload_document
from .context import HostApi, as_json, on_host
from .options import only_option
from .output import (
    FAILED,
    USAGE,
    complain,
    counted,
    note,
    patience,
    plain,
    say,
    show,
    to_json,
)
from .overrides import check_text

if TYPE_CHECKING:
    from ..config import Agent, Config


_OPTIONS = {"config": "--config", "store.url": "--db"}


@click.group("config")
def command() -> None:
    """
    Check, show, import and reload the configuration.

    \b
    Examples:
      caxton config check
      caxton config show
      caxton config import --from ava ai-agent.yaml
      caxton config reload
    """


@on_host(command.command("show"))
def show_(host: HostApi, as_json: bool) -> None:
    """
    Show the effective configuration, with secrets masked.

    The key origins names the source of each setting that an option or an environment
    variable can override: the option, the variable, the line of the file, or default.

    \b
    Examples:
      caxton config show
      caxton --config other.toml config show --json
    """
    from ..config import describe
    from ..config.show import origins

    config = host.load()
    given = host.given()
    options = {key: option for key, option in _OPTIONS.items() if option in given}
    document: JSON = {
        "$type": "caxton.config/v1",
        **describe(config),
        "state": {"folder": str(host.paths().state)},
        "origins": {**origins(config, os.environ, options)},
    }
    if as_json:
        show(document)
    else:
        say(to_json(document, indent=2))


@command.command("schema")
@as_json
def schema_(as_json: bool) -> None:
    """
    Print the JSON Schema of caxton.toml, for editors.

    Editors use it to complete keys and to mark unknown keys and wrong types. caxton
    config check finds more mistakes.

    \b
    Examples:
      caxton config schema > caxton.schema.json
    """
    from ..config import json_schema

    if as_json:
        show(json_schema())
    else:
        say(to_json(json_schema(), indent=2))


@on_host(command.command("import"))
@click.option(
    "--from",
    "kind",
    type=click.Choice(["signalwire", "ava"]),
    required=True,
    help="The format of FILE.",
)
@click.option("--write", is_flag=True, help="Add them to caxton.toml.")
@click.argument("file", type=click.Path(path_type=Path))
def import_(host: HostApi, kind: str, write: bool, file: Path, as_json: bool) -> None:
    """
    Print the tool servers of FILE as tables of caxton.toml.

    FILE is JSON or YAML: a SignalWire document with SWAIG.mcp_servers, or the
    ai-agent.yaml of AVA. Importing grants nothing. Secrets are not copied: notes name
    the environment variables for them. Files like .mcp.json need no translation:
    write import = [".mcp.json"].

    \b
    Examples:
      caxton config import --from signalwire agent.json
      caxton config import --from ava config/ai-agent.yaml --write
    """
    from ..config.edit import append_servers
    from ..config.importers import import_foreign

    found = import_foreign(kind, file, environ=os.environ)
    path: Path | None = None
    if write:
        path = host.load().path or Path("caxton.toml")
        append_servers(path, found.servers, found.text, environ=os.environ)
    for text in found.notes:
        note(f"note: {text}")
    if as_json:
        show(
            {
                "$type": "caxton.config-import/v1",
                "servers": [*found.servers],
                "toml": found.text,
                "notes": [*found.notes],
                "file": str(path) if path else None,
            }
        )
    elif path:
        say(f"added {counted(len(found.servers), 'server')} to {path.name}")
        note("they grant nothing yet; caxton server test NAME shows their tools")
    else:
        say(found.text.strip("\n"))


_NAMED = 10


@on_host(command.command("check"))
@click.option("--allow-unset", is_flag=True, help="Accept unset environment variables.")
def check(host: HostApi, allow_unset: bool, as_json: bool) -> None:
    """
    List all mistakes in the configuration, with lines and fixes.

    Reads the configuration, the files that it imports, and the modules of agents.
    Starts no server and connects to nothing. Checks that compare several keys run once
    each of these keys is valid.

    \b
    Exit codes: 0 no mistakes; 2 mistakes.

    \b
    Examples:
      caxton config check
      caxton config check --allow-unset --json
    """
    from ..config.sections import TOP, restart_sections

    config, found = _load(host)
    unset = [one for one in found if isinstance(one, UnsetError)] if allow_unset else []
    wrong = [one for one in found if one not in unset]
    wrong += [one for agent in _agents(config) for one in _against_pin(agent)]
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
        raise Exit(USAGE)


def _load(host: HostApi) -> tuple[Config | None, Sequence[ConfigError]]:
    try:
        return host.load(quiet=True), ()
    except ConfigError as exc:
        return None, exc.each


def _agents(config: Config | None) -> Iterable[Agent]:
    return config.executed.values() if config else ()


def _against_pin(agent: Agent) -> Iterable[ConfigError]:
    from ..runs.modules import Library

    try:
        if agent.pin:
            Library().check_pin(agent)
    except UsageError as exc:
        yield ConfigError(str(exc), fix=exc.fix, key=f"agents.{agent.name}")


def _odd(agent: Agent) -> list[str]:
    """Return warnings about an agent: no module, or input of any type."""
    from ..core.tools.schemas import untyped
    from ..runs.modules import read_manifest, read_module, read_program

    where = f"agents.{agent.name}"
    schema: JSON = {**(agent.expose.input_schema or {})} or None
    if schema is None and agent.module:
        try:
            manifest = read_manifest(read_module(agent.module, agent.limits.module))
        except UsageError as exc:
            return [f"{where}.module: {exc}"]
        schema = manifest.input_schema if manifest else None
    odd = without_type(untyped(schema))
    if agent.module is None and agent.program is None:
        odd.append('names no module, so it cannot run; add module = "FILE.wasm"')
    if isinstance(agent.program, Path) and agent.language:
        try:
            read_program(agent.program, agent.language)
        except UsageError as exc:
            odd.append(f"program: {exc}")
    return [f"{where}: {problem}" for problem in odd]


def without_type(names: Sequence[str]) -> list[str]:
    """Return the warning about properties without a type, as a list of at most one."""
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
    if not wrong:
        note(
            f"restart hosts to apply changes of {', '.join(late)}; "
            "run caxton config reload for the rest"
        )


@on_host(command.command("reload"))
@only_option
@click.option("--reason", default="", help="The reason; recorded.")
def reload(api: HostApi, host: str | None, reason: str, as_json: bool) -> None:
    """
    Reload the configuration of running hosts.

    Runs in progress keep their tools; new runs get the new ones. A server whose table
    is unchanged is not restarted. A host that cannot load its file keeps its old
    configuration, and reports why.

    \b
    Exit codes: 0 all reloaded; 1 one did not; 2 the local configuration has mistakes.

    \b
    Examples:
      caxton config reload
      caxton config reload --reason "the key of crm has changed"
    """
    check_text("--reason", [reason])
    with patience("asking the hosts"):
        answers = api.reload(host, reason)
    if as_json:
        show([reload_document(name, answer) for name, answer in answers.items()])
    else:
        for name, answer in answers.items():
            say(f"{name}: {plain(answer.text)}")
    if not answers:
        note("no host is running; the next one reads the file as it is")
    if any(answer.state == "failed" for answer in answers.values()):
        complain(
            "a host keeps its old configuration",
            "correct what it reports, then repeat the command",
        )
        raise Exit(FAILED)
