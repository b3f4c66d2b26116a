"""``caxton runs resolve``: a person says what became of a call in doubt."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..core.calls import JSON
from ..core.limits import Limits
from ..core.log.events import ToolInvoked
from ..core.log.requests import Abort, Fail, GiveResult, Resend, Resolution
from ..core.log.runs import summarise
from ..errors import UsageError
from ..lib.machine import local_actor
from . import remote_runs
from .answers import Answers, read_answer
from .approval_prompt import see_through
from .context import Frame, as_json
from .interrupt import drive
from .output import note, show
from .overrides import Overrides, check_text, overrides
from .run_report import Told
from .variables import option, private_of

if TYPE_CHECKING:
    from ..config import Config
    from ..core.text.redact import Redactor
    from ..runs.recording import Recording
    from .host_option import There


@click.command("resolve")
@click.argument("run")
@click.argument("seq", type=click.IntRange(min=1))
@click.option("--retry", is_flag=True, help="Send the call once more.")
@click.option(
    "--result",
    "file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="This is what the tool answered: an MCP CallToolResult in JSON.",
)
@click.option("--fail", is_flag=True, help="Tell the agent that the call failed.")
@click.option("--abort", is_flag=True, help="End the run.")
@click.option("--reason", required=True, help="Why; it is recorded.")
@click.option(
    "--no-resume", is_flag=True, help="Record it only; a host that serves goes on."
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
    retry: bool,
    file: Path | None,
    fail: bool,
    abort: bool,
    reason: str,
    no_resume: bool,
    variables: tuple[str, ...],
    given: Overrides,
    as_json: bool,
) -> None:
    """
    Say what became of a call in doubt. SEQ is the event of its ToolInvoked.

    A call is in doubt if a host died between sending it and recording the answer.
    Look at the tool's own records, then say what is to be done. The run goes on at
    once, with its variables, but for the private ones: give those again.

    \b
    Exit codes: as of caxton run.

    \b
    Examples:
      caxton runs resolve @last 3 --retry --reason "the bank has no such payment"
      caxton runs resolve 0198 7 --result paid.json --reason "paid, see statement"
      caxton runs resolve 0198 7 --abort --reason "ordered by phone instead"
    """
    choices = [retry, file is not None, fail, abort]
    if sum(choices) != 1:
        raise UsageError(
            "say one of --retry, --result, --fail and --abort",
            fix="caxton runs resolve --help",
        )
    check_text("--reason", [reason])
    if frame.there is not None:
        remote_runs.refuse_options(given, var=variables, no_resume=no_resume)
        chosen = {"retry": retry, "fail": fail, "abort": abort}
        choice = next((name for name, is_it in chosen.items() if is_it), "result")
        body: dict[str, JSON] = {"seq": seq, "choice": choice, "reason": reason}
        if file is not None:
            body["result"] = read_answer(file, "--result", Limits().result)
        told = remote_runs.told_there(frame, quiet=as_json, as_json=as_json)
        ctx.exit(drive(_resolve_there(told, frame.there, run, body), frame.command()))
    config = given.servers_in(frame.load())
    resumes = not (no_resume or abort)
    if variables and not resumes:
        raise UsageError(
            "--var is for a run that goes on", fix="leave out --var, or --no-resume"
        )
    told = Told(
        frame=frame,
        config=config,
        given=given,
        private=private_of(config, variables) if resumes else {},
        quiet=as_json,
        as_json=as_json,
    )
    wanted = _Wanted(
        run=run,
        seq=seq,
        choice=Resend() if retry else Fail() if fail else Abort() if abort else None,
        file=file,
        reason=reason,
        resumes=resumes,
    )
    recording = drive(_resolve(told, wanted), frame.command())
    ctx.exit(told.ending(recording) if resumes else _recorded(told, recording))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    run: str
    seq: int
    choice: Resolution | None
    file: Path | None
    reason: str
    resumes: bool


async def _resolve(told: Told, wanted: _Wanted) -> Recording:
    from ..app.bootstrap import running
    from ..runs.cancellation import tell_hosts
    from ..runs.recording import Recording

    async with running(
        told.config, told.frame.paths(), watch=told.watch, load=told.again
    ) as up:
        run_id = await up.store.reader.find_run(wanted.run)
        recording = await Recording.load(run_id, up.store.reader)
        await up.host.resolve(
            run_id,
            wanted.seq,
            wanted.choice or _given_result(told.config, up.redact, recording, wanted),
            actor=local_actor(),
            reason=up.redact.text(wanted.reason),
        )
        if wanted.resumes:
            return await see_through(told, up, run_id)
        reason = up.redact.text(wanted.reason)
        await tell_hosts(up.store, run_id, local_actor(), reason)
        return await Recording.load(run_id, up.store.reader)


async def _resolve_there(
    told: Told, there: There, run: str, body: dict[str, JSON]
) -> int:
    recording = await remote_runs.resolve(told, there, run, body)
    if body["choice"] != "abort":
        return told.ending(recording)
    return _recorded(told, recording)


def _recorded(told: Told, recording: Recording) -> int:
    """Tell of a run that does not go on."""
    run = summarise(recording.run_id, recording.own)
    if told.as_json:
        show(run.to_document())
    note(f"recorded; run {recording.run_id} is {run.state}")
    return 0


def _given_result(
    config: Config, redact: Redactor, recording: Recording, wanted: _Wanted
) -> GiveResult:
    """Return the answer in a file, as if the tool had given it."""
    assert wanted.file is not None  # noqa: S101 -- no other choice was made
    answers = Answers(config, redact, recording.limits.result)
    found = next((item.event for item in recording.own if item.seq == wanted.seq), None)
    invoked = found if isinstance(found, ToolInvoked) else None
    return GiveResult(answers.read(wanted.file, "--result", invoked))
