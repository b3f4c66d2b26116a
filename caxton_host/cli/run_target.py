"""What ``caxton run`` names: an agent, a program or a module; and its request."""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ..core.names import is_server_name, nearest
from ..core.programs import (
    LARGEST,
    SUFFIXES,
    Language,
    Program,
    language_of,
    program_of,
)
from ..errors import NotFoundError, UsageError
from ..lib.machine import local_actor
from ..runs.modules import Code, Library
from .context import HostApi, StartOptions
from .overrides import narrowed, variables_of
from .runtime import installed

if TYPE_CHECKING:
    from ..config import Agent, Config
    from ..runs.run_request import RunRequest

#: The file of a program that is on stdin.
_STDIN = Path("-")


def request_of(
    host: HostApi, options: StartOptions, config: Config, agent: Agent
) -> RunRequest:
    """
    Return the request for a run of *agent*, with what the command line adds.

    Raises:
        UsageError: The input, a variable, a file or a grant cannot be used.
    """
    from ..config.narrowing import narrowings
    from ..runs.run_request import RunRequest

    if options.entry and agent.language is not None:
        raise UsageError(
            f"--entry is for a module, and {agent.name} is a program",
            fix="leave it out, and define run() in the program",
        )
    grant = options.given.added_to(agent.grant, config, agent.name)
    narrow = narrowed(options.narrow, grant)
    library = Library(runtimes=partial(installed, host, quiet=options.quiet))
    given = options.input()
    if agent.program == _STDIN:
        program = _from_stdin(agent.language or "python")
        what = Code(module=library.runtime(program), program=program, input=given)
    else:
        what = library.code(agent, given)
    context, private = variables_of(config, options.variables)
    return replace(
        RunRequest.of(agent, what, local_actor()),
        entry=options.entry or agent.entry,
        context=context,
        private=private,
        grant=grant,
        bounds=narrowings(narrow, what.narrow, trusted=agent.trusted),
    )


def agent_of(config: Config, target: str, language: Language | None) -> Agent:
    """
    Return the agent that *target* names.

    Args:
        config: The configuration.

        target: A configured agent, a file, or ``-``.

        language: Of a program whose suffix does not say.

    Raises:
        NotFoundError: There is no such agent or file.

        UsageError: *language* is another one than that of the target.
    """
    from ..config import Agent

    if target in config.agents:
        if language is not None:
            raise UsageError(
                f"--language is for a file, and {target} is a configured agent",
                fix="leave it out",
            )
        agent = config.agents[target]
        if agent.session:
            raise UsageError(
                f"{target} is a session: its clients make the calls",
                fix=f"caxton mcp connect {target}",
            )
        return agent
    file = Path(target)
    if file == _STDIN:
        return Agent(name="stdin", program=file, runtime=language or "python")
    if target.endswith((".wasm", *SUFFIXES)) or file.is_file():
        name = file.stem if is_server_name(file.stem) else "agent"
        if language or language_of(target):
            _check_language(file, language)
            return Agent(name=name, program=file, runtime=language)
        return Agent(name=name, module=file)
    meant = nearest(target, list(config.executed))
    known = ", ".join(sorted(config.executed)) or "none"
    raise NotFoundError(
        f"no agent {target!r}; the configuration has: {known}",
        fix=f"caxton run {meant}" if meant else "name an agent, a program or a module",
    )


def _check_language(file: Path, language: Language | None) -> None:
    if language not in {None, language_of(file.name) or language}:
        raise UsageError(
            f"--language is {language}, and the suffix of {file.name} is of "
            f"{language_of(file.name)}",
            fix="leave it out, or rename the file",
        )


def _from_stdin(language: Language) -> Program:
    source = sys.stdin.buffer.read(LARGEST + 1)
    return program_of("<stdin>", source, language=language)
