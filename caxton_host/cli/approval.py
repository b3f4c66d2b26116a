"""``caxton approval``: calls that wait for a person, and the person's word."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import update_wrapper
from typing import TYPE_CHECKING, Any

import click

from ..core.grants.approvals import VERDICTS, Verdict
from ..core.log.events import ApprovalRequested
from ..core.log.runs import summarise
from ..core.text.redact import Redactor
from ..errors import StoreError, UsageError
from ..lib.machine import local_actor
from ..runs.approvals import Waiting, waiting_in
from . import completion, remote_runs
from .context import Frame, as_json, wait
from .interrupt import drive
from .output import clipped, note, plain, say, show, table, to_json
from .overrides import Overrides, check_text, overrides
from .run_report import Told, deciding, described, named
from .show import moment
from .variables import option, private_of

if TYPE_CHECKING:
    from ..runs.approvals import Word
    from ..runs.recording import Recording
    from ..store.sql import SqlStore
    from .host_option import There


_MOST = 10_000
_WIDTH = 60
_TO_THE_SECOND = len("2026-01-31 23:59:59")


@click.group("approval")
def command() -> None:
    """
    List and decide calls that wait for a person.

    A rule with approve = {...} allows a call only after somebody's word. Until then
    its run is suspended: nothing is sent, and no process has to live.

    \b
    Examples:
      caxton approval list
      caxton approval show @last
      caxton approval approve @last --as ops --reason "the customer asked for it"
    """


def _now() -> int:
    from ..lib.machine import SystemClock

    return SystemClock().now()


async def _all(store: SqlStore, agent: str | None = None) -> list[Waiting]:
    from ..runs.recording import Recording

    found: list[Waiting] = []
    for row in reversed(await store.reader.runs(_MOST, agent=agent, state="suspended")):
        try:
            found += waiting_in(await Recording.load(row.run_id, store.reader), _now())
        except StoreError as exc:
            # The others wait nevertheless.
            note(f"warning: run {row.run_id} cannot be read: {exc}")
    return found


async def _listed(frame: Frame, agent: str | None) -> list[Waiting]:
    if frame.there is not None:
        async with frame.there.log() as log:
            return await log.waiting(agent)
    async with frame.log() as store:
        return await _all(store, agent)


def _named(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the arguments that name a call which waits."""
    seq = click.argument("seq", type=click.IntRange(min=1), required=False)
    return click.argument("run", shell_complete=completion.suspended)(seq(function))


@command.command("list")
@click.option("--agent", help="Only runs of this agent.")
@as_json
@click.pass_obj
def list_(frame: Frame, agent: str | None, as_json: bool) -> None:
    """
    Show the calls that wait, the oldest first.

    One whose time is over is "expired": its run goes on with a denial as soon as it
    is resumed.

    \b
    Examples:
      caxton approval list
      caxton approval list --agent payer --json
    """
    found = wait(_listed(frame, agent))
    if as_json:
        show([one.to_document() for one in found])
        return
    table(
        ("run", "event", "agent", "tool", "params", "by", "until (UTC)"),
        (
            (
                one.run_id,
                one.asked.seq,
                one.agent,
                f"{one.call.server}/{one.call.tool}",
                _short(one.call),
                ", ".join(map(str, one.call.by)),
                _until(one),
            )
            for one in found
        ),
    )
    if not found:
        note("nothing waits for an approval")


def _until(one: Waiting) -> str:
    if one.call.until is None:
        return ""
    at = moment(one.call.until)[:_TO_THE_SECOND]
    return f"{at}, expired" if one.is_over else at


def _short(call: ApprovalRequested) -> str:
    return clipped(plain(to_json(call.params)), _WIDTH)


@command.command("show")
@_named
@as_json
@click.pass_obj
def show_(frame: Frame, run: str, seq: int | None, as_json: bool) -> None:
    """
    Show what is asked: all that would be sent. SEQ is the event of the question.

    \b
    Examples:
      caxton approval show @last
      caxton approval show 0198 7 --json
    """
    found = wait(_found(frame, run, seq))
    if as_json:
        show([one.to_document() for one in found])
        return
    for one in found:
        say(f"run    {one.run_id}  {one.agent}")
        for line in described(one.asked):
            say(line)
        say(f"asked  {moment(one.asked_at)[:_TO_THE_SECOND]} UTC")
        say(f"until  {_until(one) or 'somebody decides'}")
    for one in found:
        for line in _commands(frame, one):
            note(line)


def _commands(frame: Frame, one: Waiting) -> list[str]:
    if one.is_over:
        return [f"to go on without it: {frame.command()} runs resume {one.run_id}"]
    return [
        f"to {verdict} it: {deciding(frame, one.run_id, one.asked, verdict)}"
        for verdict in VERDICTS
    ]


async def _found(frame: Frame, run: str, seq: int | None) -> list[Waiting]:
    from ..runs.recording import Recording

    async with frame.history() as store:
        recording = await Recording.load(await store.find_run(run), store)
    waiting = waiting_in(recording, _now())
    found = [one for one in waiting if seq in {None, one.asked.seq}]
    if not found:
        known = ", ".join(str(one.asked.seq) for one in waiting) or "none"
        raise UsageError(
            f"run {recording.run_id}: events that wait for an approval: {known}",
            fix="caxton approval list shows what waits",
        )
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class _Said:
    """What the command line says of a call."""

    run: str
    seq: int | None
    role: str
    reason: str
    no_resume: bool
    variables: tuple[str, ...]
    given: Overrides
    as_json: bool


def _deciding(
    function: Callable[[click.Context, Frame, _Said], None],
) -> Callable[..., None]:
    """Add what both verdicts take."""

    def decided(
        ctx: click.Context,
        frame: Frame,
        *,
        run: str,
        seq: int | None,
        role: str,
        reason: str,
        no_resume: bool,
        variables: tuple[str, ...],
        given: Overrides,
        as_json: bool,
    ) -> None:
        said = _Said(
            run=run,
            seq=seq,
            role=role,
            reason=reason,
            no_resume=no_resume,
            variables=variables,
            given=given,
            as_json=as_json,
        )
        function(ctx, frame, said)

    command: Callable[..., None] = update_wrapper(decided, function)
    for added in (
        click.pass_context,
        click.pass_obj,
        as_json,
        overrides,
        option,
        click.option(
            "--no-resume",
            is_flag=True,
            help="Record it only; a host that serves goes on.",
        ),
        click.option("--reason", default="", help="Why; it is recorded."),
        click.option(
            "--as", "role", default="", metavar="ROLE", help="Who you are; recorded."
        ),
        _named,
    ):
        command = added(command)
    return command


@command.command("approve")
@_deciding
def approve(ctx: click.Context, frame: Frame, said: _Said) -> None:
    """
    Let a call be made. SEQ is the event of the question, if there are several.

    The word is for these parameters, byte by byte. The grants are asked once more,
    then the run goes on at once.

    \b
    Exit codes: as of caxton run.

    \b
    Examples:
      caxton approval approve @last --reason "the customer asked for it"
      caxton approval approve 0198 7 --as ops --no-resume
    """
    _decide(ctx, frame, "approve", said)


@command.command("deny")
@_deciding
def deny(ctx: click.Context, frame: Frame, said: _Said) -> None:
    """
    Refuse a call. SEQ is the event of the question, if there are several.

    The agent is told that the call was not approved, and goes on at once.

    \b
    Exit codes: as of caxton run.

    \b
    Examples:
      caxton approval deny @last --reason "twice the usual amount"
      caxton approval deny 0198 7 --as ops --no-resume
    """
    _decide(ctx, frame, "deny", said)


def _decide(ctx: click.Context, frame: Frame, verdict: Verdict, said: _Said) -> None:
    from ..runs.approvals import Word, open_questions

    if said.variables and said.no_resume:
        raise UsageError(
            "--var is for a run that goes on", fix="leave out --var, or --no-resume"
        )
    check_text("--reason", [said.reason, said.role])
    if frame.there is not None:
        ctx.exit(_decide_there(frame, frame.there, verdict, said))
    config = (
        frame.look(guarded=True)
        if said.no_resume
        else said.given.servers_in(frame.load())
    )
    redact = Redactor(config.secrets)
    word = Word(
        verdict=verdict,
        actor=local_actor(),
        reason=redact.text(said.reason),
        role=redact.text(said.role),
    )
    told = Told(
        frame=frame,
        config=config,
        given=said.given,
        private={} if said.no_resume else private_of(config, said.variables),
        quiet=said.as_json,
        as_json=said.as_json,
    )
    recording = wait(_recorded(told, said, word))
    if said.no_resume:
        if said.as_json:
            show(summarise(recording.run_id, recording.own).to_document())
        note(f"to go on: {frame.command()} runs resume {recording.run_id}")
        return
    if not open_questions(recording, _now()):
        recording = drive(_go_on(told, recording.run_id), frame.command())
    ctx.exit(told.ending(recording))


def _decide_there(frame: Frame, there: There, verdict: Verdict, said: _Said) -> int:
    more = {"as": said.role, "no_resume": said.no_resume, "var": said.variables}
    remote_runs.refuse_options(said.given, **more)
    told = remote_runs.told_there(frame, quiet=said.as_json, as_json=said.as_json)
    word = remote_runs.decide(told, there, said.run, said.seq, verdict, said.reason)
    return told.ending(drive(word, frame.command()))


async def _recorded(told: Told, said: _Said, word: Word) -> Recording:
    """Record a word, and return what the run has by then."""
    from ..app.bootstrap import open_store
    from ..lib.machine import SystemClock
    from ..runs.approvals import say
    from ..runs.cancellation import tell_hosts
    from ..runs.recording import Recording

    # Looked for first: a database is not made for a run that it cannot have.
    async with open_store(told.config, write=False) as store:
        run_id = await store.reader.find_run(said.run)
    async with open_store(
        told.config, write=True, state=told.frame.paths().state
    ) as store:
        call = await say(store, run_id, said.seq, word, now=SystemClock().now())
        note(f"{word.verdict} is recorded of {named(call)}")
        if said.no_resume:
            await tell_hosts(store, run_id, word.actor, word.reason)
        return await Recording.load(run_id, store.reader)


async def _go_on(told: Told, run_id: str) -> Recording:
    from ..app.bootstrap import running
    from .approval_prompt import see_through

    async with running(
        told.config, told.frame.paths(), watch=told.watch, load=told.again
    ) as up:
        return await see_through(told, up, run_id, shared=True)
