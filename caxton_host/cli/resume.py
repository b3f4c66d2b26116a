"""``caxton runs resume``: a run goes on where its log ends."""

from __future__ import annotations

import asyncio
import shlex
from typing import TYPE_CHECKING

import click

from ..core.grants.approvals import Unapproved
from ..core.grants.grants import Grant
from ..core.log.runs import RunSummary, summarise
from ..errors import CaxtonError, RestoredError, Suspend, UsageError
from ..lib.machine import local_actor
from .context import Frame, as_json
from .exits import exit_code, remedy
from .interrupt import began, drive
from .output import complain, counted, note, patience, show, table
from .overrides import Overrides, overrides
from .remote_runs import refuse_options, resume, told_there
from .run_report import Told, code_of, deciding
from .variables import option, private_of

if TYPE_CHECKING:
    from ..app.bootstrap import Running
    from ..runs.recording import Recording


#: How many runs go on at a time.
_AT_ONCE = 16
_MOST = 10_000


@click.command("resume")
@click.argument("run", required=False)
@click.option("--all", "all_", is_flag=True, help="Every run that no host drives.")
@click.option(
    "--restored", is_flag=True, help="Also what waits since a copy was restored."
)
@option
@overrides
@as_json
@click.pass_obj
@click.pass_context
def command(
    ctx: click.Context,
    frame: Frame,
    run: str | None,
    all_: bool,
    restored: bool,
    variables: tuple[str, ...],
    given: Overrides,
    as_json: bool,
) -> None:
    """
    Let RUN go on after a crash, or after a person had the word it waited for.

    The agent is executed again over what the log holds; nothing of that is sent
    again. From there it goes on, under the grants that were recorded and those
    that the configuration gives it now. Its variables are in the log, but for the
    private ones: give those again.

    A run of a log that was restored from a copy goes on with --restored only: what it
    did after the copy was made is not in the log, and is done again.

    \b
    Exit codes: as of caxton run; with --all, 0 if each run completed.

    \b
    Examples:
      caxton runs resume @last
      caxton runs resume --all
      caxton runs resume --restored @last
      caxton runs resume 0198 --server time="python -m mcp_server_time" \\
          --allow time/get_current_time
    """
    if (run is None) is not all_:
        raise UsageError(
            "name a run, or say --all", fix="caxton runs list shows the runs"
        )
    if frame.there is not None:
        refuse_options(given, var=variables, all=all_)
        told = told_there(frame, quiet=as_json, as_json=as_json)
        going_on = resume(told, frame.there, str(run), restored=restored)
        ctx.exit(told.ending(drive(going_on, frame.command())))
    config = given.servers_in(frame.load())
    told = Told(
        frame=frame,
        config=config,
        given=given,
        private=private_of(config, variables),
        quiet=as_json,
        as_json=as_json,
        restored=restored,
    )
    if run is not None:
        ctx.exit(told.ending(drive(_resume_one(told, run), frame.command())))
    ctx.exit(drive(_resume_all(told), frame.command()))


async def _resume_one(told: Told, run: str) -> Recording:
    from ..app.bootstrap import running
    from .approval_prompt import see_through

    async with running(
        told.config, told.frame.paths(), watch=told.watch, load=told.again
    ) as up:
        run_id = await up.store.reader.find_run(run)
        return await see_through(told, up, run_id)


async def go_on(told: Told, up: Running, run_id: str) -> Recording:
    """Resume a run, see it to its end, and return what it did."""
    from ..runs.recording import Recording

    recording = await Recording.load(run_id, up.store.reader)

    def started(run_id: str) -> None:
        began(run_id)
        if not told.quiet:
            note(f"run {run_id}  {recording.started.agent}, resumed")

    grant = Grant() if recording.end else _todays(told, recording)
    try:
        with patience(f"running {recording.started.agent}"):
            await up.host.resume(
                run_id,
                actor=local_actor(),
                grant=grant,
                private=told.private,
                on_started=started,
                restored=told.restored,
            )
    except Unapproved as exc:
        # Those that it waits for now: it may have gone on since.
        waits = (await Recording.load(run_id, up.store.reader)).journal().waiting
        fixes = [
            deciding(told.frame, run_id, asked, "approve", told.given)
            for asked in waits
            if asked.requested.call == exc.call
        ]
        raise Suspend(exc.call, str(exc), fix=fixes[0] if fixes else exc.fix) from None
    except Suspend as exc:
        waiting = recording.journal().in_doubt
        seq = next(doubt.seq for doubt in waiting if doubt.invoked.call == exc.call)
        raise Suspend(exc.call, str(exc), fix=told.resolving(run_id, seq)) from None
    return await Recording.load(run_id, up.store.reader)


def _todays(told: Told, recording: Recording) -> Grant:
    """Return what the operator grants the agent of a run now."""
    name = recording.started.agent
    recorded = Grant.from_payload(recording.started.grants)
    if name not in told.config.agents and recorded.allow and not told.given.allow:
        again = " ".join(
            f"--allow {shlex.quote(pattern.text)}"
            for rule in recorded.allow
            for pattern in rule.tools
        )
        raise UsageError(
            f"no agent {name!r} in the configuration: nothing is granted to it now",
            fix=f"{told.frame.command()} runs resume {recording.run_id} {again} "
            "and the --server options of its start",
        )
    return told.todays(name)


async def _resume_all(told: Told) -> int:
    from ..app.bootstrap import running

    places = asyncio.Semaphore(_AT_ONCE)
    async with running(
        told.config, told.frame.paths(), watch=told.watch, load=told.again
    ) as up:

        async def one(run_id: str) -> RunSummary | CaxtonError:
            async with places:
                try:
                    recording = await go_on(told, up, run_id)
                except CaxtonError as exc:
                    return exc
            run = summarise(run_id, recording.own)
            if run.state == "suspended":
                told.suspension(recording)
            return run

        # Of those that are suspended, some may have had their word.
        rows = await up.store.leases.idle() + await up.store.reader.runs(
            _MOST, state="suspended"
        )
        done = await asyncio.gather(*(one(row.run_id) for row in rows))
    waiting = sum(isinstance(item, Suspend) for item in done)
    held = sum(isinstance(item, RestoredError) for item in done)
    done = [item for item in done if not isinstance(item, Suspend | RestoredError)]
    failed = [item for item in done if isinstance(item, CaxtonError)]
    runs = [item for item in done if isinstance(item, RunSummary)]
    if told.as_json:
        show([run.to_document() for run in runs])
    else:
        table(("run", "agent", "state"), ((r.run_id, r.agent, r.state) for r in runs))
    for error in failed:
        complain(str(error), remedy(error))
    if waiting:
        note(f"{counted(waiting, 'run')} suspended: caxton runs list --state suspended")
    if held:
        note(
            f"{counted(held, 'run')} suspended since the log was restored from a copy: "
            f"{told.frame.command()} runs resume --all --restored"
        )
    if not done:
        note("no run waits for a host")
    codes = [*map(exit_code, failed), *(code_of(run) for run in runs)]
    return max(codes, default=0)
