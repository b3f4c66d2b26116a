"""``caxton runs fork``: a run that begins with what another did."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..core.calls import JSON
from ..core.grants.forks import forking_point
from ..core.limits import Limits
from ..errors import ModuleRefused
from ..lib.machine import local_actor
from ..runs.modules import read_module
from . import remote_runs
from .answers import Answers, read_answer
from .context import Frame, as_json
from .interrupt import began, drive
from .output import note, patience
from .overrides import Overrides, overrides
from .run_report import Told
from .variables import option, private_of

if TYPE_CHECKING:
    from ..app.bootstrap import Running
    from ..core.calls import Completed
    from ..runs.recording import Recording


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    run: str
    seq: int
    result: Path | None
    module: Path | None


@click.command("fork")
@click.argument("run")
@click.option(
    "--at",
    "seq",
    required=True,
    type=click.IntRange(min=1),
    metavar="SEQ",
    help="The last event of RUN that counts.",
)
@click.option(
    "--set-result",
    "result",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="What the call of that event answers: an MCP CallToolResult in JSON.",
)
@click.option(
    "--agent",
    "module",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE.wasm",
    help="Another module, instead of the one of RUN.",
)
@option
@overrides
@as_json
@click.pass_obj
@click.pass_context
def command(
    ctx: click.Context,
    frame: Frame,
    run: str,
    seq: int,
    result: Path | None,
    module: Path | None,
    variables: tuple[str, ...],
    given: Overrides,
    as_json: bool,
) -> None:
    """
    Start a run that begins with what RUN did, up to event SEQ.

    Its agent is given the same once more and executed over these events; none of
    their calls is made again. From there it goes on by itself, under the grants
    that the configuration gives the agent now. SEQ is an event behind which no call
    is open, or with --set-result any event of the call whose answer is replaced.
    Variables are those of RUN, but for the private ones: give those again.

    \b
    Exit codes: as of caxton run.

    \b
    Examples:
      caxton runs fork @last --at 7
      caxton runs fork 0198 --at 6 --set-result storm.json
      caxton runs fork 0198 --at 7 --agent fixed.wasm --allow demo/echo
    """
    if frame.there is not None:
        remote_runs.refuse_options(given, agent=module, var=variables)
        told = remote_runs.told_there(frame, quiet=as_json, as_json=as_json)
        body: dict[str, JSON] = {"seq": seq}
        if result is not None:
            body["result"] = read_answer(result, "--set-result", Limits().result)
        forking = remote_runs.fork(told, frame.there, run, body)
        ctx.exit(told.ending(drive(forking, frame.command())))
    config = given.servers_in(frame.load())
    told = Told(
        frame=frame,
        config=config,
        given=given,
        private=private_of(config, variables),
        quiet=as_json,
        as_json=as_json,
    )
    wanted = _Wanted(run=run, seq=seq, result=result, module=module)
    try:
        ctx.exit(told.ending(drive(_fork(told, wanted), frame.command())))
    except ModuleRefused as exc:
        named = f"{module.name}: " if module else ""
        raise ModuleRefused(f"{named}{exc}", fix=exc.fix) from None


async def _fork(told: Told, wanted: _Wanted) -> Recording:
    from ..app.bootstrap import running
    from ..runs.recording import Recording
    from ..runs.run_request import ForkRequest

    async with running(
        told.config, told.frame.paths(), watch=told.watch, load=told.again
    ) as up:
        parent_id = await up.store.reader.find_run(wanted.run)
        parent = await Recording.load(parent_id, up.store.reader)
        agent = parent.started.agent

        def started(run_id: str) -> None:
            began(run_id)
            if not told.quiet:
                note(f"run {run_id}  {agent}, forked from run {parent_id}")

        if agent not in told.config.agents and not told.given.allow:
            note(
                f"warning: no agent {agent!r} in the configuration: nothing is granted "
                "to the fork; add --allow SERVER/TOOL"
            )
        limit = parent.limits.module
        request = ForkRequest(
            run_id=parent_id,
            seq=wanted.seq,
            actor=local_actor(),
            grant=told.todays(agent),
            module=read_module(wanted.module, limit) if wanted.module else None,
            edited=_edited(told, up, parent, wanted),
            private=told.private,
        )
        with patience(f"running {agent}"):
            run_id = await up.host.fork(request, on_started=started)
        return await Recording.load(run_id, up.store.reader)


def _edited(
    told: Told, up: Running, parent: Recording, wanted: _Wanted
) -> Completed | None:
    if wanted.result is None:
        return None
    point = forking_point(parent.history, wanted.seq, edit=True)
    answers = Answers(told.config, up.redact, parent.limits.result)
    return answers.read(wanted.result, "--set-result", point.edited)
