"""``caxton run``: one run, from its start to its end."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..core.calls import JSON
from ..core.log.events import RunCompleted
from ..core.log.runs import summarise
from ..core.names import is_server_name, nearest
from ..errors import BadBytes, ModuleRefused, NotFoundError, UsageError
from ..lib.machine import local_actor
from ..runs.modules import located, read_module, shown
from .context import Frame, as_json
from .exits import FAILED
from .interrupt import began, drive
from .output import note, patience
from .overrides import Overrides, overrides
from .remote_runs import refuse_options, start, told_there
from .run_report import Told
from .variables import option, typed, variables_of

if TYPE_CHECKING:
    from ..config import Agent, Config
    from ..runs.recording import Recording
    from ..runs.run_request import RunRequest
    from .host_option import There


_MAX_INPUT = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    """What the command line says about one run."""

    target: str
    input: str | None
    variables: Sequence[str]
    given: Overrides
    entry: str | None


@click.command("run")
@click.argument("target", metavar="AGENT|FILE.wasm")
@click.option(
    "-i", "--input", "input_", metavar="JSON|@FILE|-", help="The input of the run."
)
@option
@overrides
@click.option("--entry", help="The exported function to call. Default: run.")
@click.option("--fail-on-denied", is_flag=True, help="Exit 1 if a call was denied.")
@click.option("-q", "--quiet", is_flag=True, help="Print the output only.")
@as_json
@click.pass_obj
@click.pass_context
def command(
    ctx: click.Context,
    frame: Frame,
    target: str,
    input_: str | None,
    variables: tuple[str, ...],
    given: Overrides,
    entry: str | None,
    fail_on_denied: bool,
    quiet: bool,
    as_json: bool,
) -> None:
    """
    Run an agent of the configuration, or a module, to its end.

    The output goes to stdout, what happened to stderr. A module that is no agent
    has no grants but those given here.

    \b
    Exit codes: 0 the agent returned 0; 1 it failed; 2 usage or configuration;
    3 the run is suspended; 6 a required server is unavailable.

    \b
    Examples:
      caxton run weather -i '{"location": "Seattle"}'
      caxton run hello.wasm --server time="python -m mcp_server_time" \\
          --allow time/get_current_time
      caxton run report -i @input.json --var customer_id=42 --json
      caxton run weather --wire-log=wire.log
    """
    wanted = _Wanted(
        target=target,
        input=input_,
        variables=variables,
        given=given,
        entry=entry,
    )
    if frame.there is None:
        code, recording = _here(frame, wanted, quiet=quiet, as_json=as_json)
    else:
        code, recording = _there(
            frame, frame.there, wanted, quiet=quiet, as_json=as_json
        )
    calls = summarise(recording.run_id, recording.own).calls
    if code == 0 and fail_on_denied and calls["denied"]:
        code = FAILED
    ctx.exit(code)


def _here(
    frame: Frame, wanted: _Wanted, *, quiet: bool, as_json: bool
) -> tuple[int, Recording]:
    config, request = _request(frame.load(), wanted)
    told = Told(
        frame=frame,
        config=config,
        given=wanted.given,
        private=request.private,
        quiet=quiet or as_json,
        as_json=as_json,
    )
    try:
        recording = drive(_run(told, request), frame.command())
    except ModuleRefused as exc:
        named = shown(_agent(config, wanted.target).module or Path(wanted.target))
        raise ModuleRefused(f"{named}: {exc}", fix=exc.fix) from None
    code = told.ending(recording)
    if not told.quiet:
        _warn_of_output(request.module, recording)
    return code, recording


def _there(
    frame: Frame, there: There, wanted: _Wanted, *, quiet: bool, as_json: bool
) -> tuple[int, Recording]:
    refuse_options(wanted.given, entry=wanted.entry)
    told = told_there(frame, quiet=quiet or as_json, as_json=as_json)
    variables = typed(wanted.variables)
    recording = start(told, there, wanted.target, _input(wanted.input), variables)
    return told.ending(recording), recording


async def _run(told: Told, request: RunRequest) -> Recording:
    from ..app.bootstrap import running
    from ..core.text.redact import Redactor
    from ..runs.recording import Recording
    from ..runs.run_request import check_request
    from .approval_prompt import ask_here

    config, frame = told.config, told.frame
    check_request(request, Redactor(config.secrets))

    def started(run_id: str) -> None:
        began(run_id)
        if not told.quiet:
            note(f"run {run_id}  {request.agent}")

    needed = {server for server, _ in request.names.values()}
    needed.update(request.grant.servers(config.servers))
    with contextlib.ExitStack() as shown:
        doing = shown.enter_context(patience(f"running {request.agent}"))
        first = f"compiling {request.agent}: only its first run here has to"
        async with running(
            config,
            frame.paths(),
            start=needed,
            watch=told.watch,
            load=told.again,
            compiling=partial(doing.part, first),
        ) as up:
            run_id = await up.host.start(request, on_started=started)
            shown.close()
            return await ask_here(
                told, up, await Recording.load(run_id, up.store.reader)
            )


def _warn_of_output(module: bytes, recording: Recording) -> None:
    from ..runs.modules import output_mismatch

    end = recording.own[-1].event
    if isinstance(end, RunCompleted) and (wrong := output_mismatch(module, end.output)):
        note(f"warning: the output is not what the manifest promises: {wrong}")


def _request(config: Config, wanted: _Wanted) -> tuple[Config, RunRequest]:
    from ..runs.run_request import RunRequest

    config = wanted.given.servers_in(config)
    agent = _agent(config, wanted.target)
    grant = wanted.given.added_to(agent.grant, config)
    module = read_module(located(agent), agent.limits.module)
    context, private = variables_of(config, wanted.variables)
    return config, RunRequest(
        agent=agent.name,
        module=module,
        entry=wanted.entry or agent.entry,
        input=_input(wanted.input),
        context=context,
        private=private,
        prompt=agent.prompt,
        limits=agent.limits,
        grant=grant,
        names=agent.names,
        actor=local_actor(),
    )


def _agent(config: Config, target: str) -> Agent:
    from ..config import Agent

    if target in config.agents:
        return config.agents[target]
    if target.endswith(".wasm") or Path(target).is_file():
        stem = Path(target).stem
        name = stem if is_server_name(stem) else "agent"
        return Agent(name=name, module=Path(target))
    meant = nearest(target, list(config.agents))
    known = ", ".join(sorted(config.agents)) or "none"
    raise NotFoundError(
        f"no agent {target!r}; the configuration has: {known}",
        fix=f"caxton run {meant}" if meant else "name an agent, or a .wasm file",
    )


def _input(text: str | None) -> JSON:
    from ..lib.codec import load_json

    if text is None:
        return None
    try:
        if text == "-":
            raw = sys.stdin.buffer.read(_MAX_INPUT + 1)
        elif text.startswith("@"):
            with Path(text[1:]).open("rb") as file:
                raw = file.read(_MAX_INPUT + 1)
        else:
            raw = os.fsencode(text)
        return load_json(raw, limit=_MAX_INPUT)
    except OSError as exc:
        raise UsageError(
            f"cannot read the input {text[1:]}: {exc.strerror}",
            fix="name a file that exists, after @",
        ) from None
    except BadBytes as exc:
        raise UsageError(
            f"--input: {exc}", fix='pass JSON, for example \'{"location": "Seattle"}\''
        ) from None
