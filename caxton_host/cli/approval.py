"""``caxton approval``: list, approve and deny calls that wait for approval."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import update_wrapper
from typing import TYPE_CHECKING, Any

import click
from click.exceptions import Exit

from ..core.calls import JSON
from ..core.grants.approvals import VERDICTS, Verdict
from ..core.log.events import ApprovalRequested
from ..errors import BadBytes, UsageError
from ..runs.approvals import Waiting, waiting_in
from . import completion
from .context import AnswerOptions, DecideOptions, HostApi, as_json, on_host, wait
from .options import overrides, variable_option
from .output import clipped, note, plain, say, show, table, to_json
from .overrides import check_text
from .run_report import deciding, described
from .run_text import second

if TYPE_CHECKING:
    from ..runs.questions import Question

_WIDTH = 60


@click.group("approval")
def command() -> None:
    """
    List, approve and deny calls that wait for approval.

    A rule with approve = {...} allows a call only after a person approved it. Until
    then its run is suspended: nothing is sent, and no process is needed.

    \b
    Examples:
      caxton approval list
      caxton approval show @last
      caxton approval approve @last --as ops --reason "the customer asked for it"
    """


def _now() -> int:
    from ..lib.machine import SystemClock

    return SystemClock().now()


def _named(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the arguments that name a call which waits."""
    seq = click.argument("seq", type=click.IntRange(min=1), required=False)
    return click.argument("run", shell_complete=completion.suspended)(seq(function))


@on_host(command.command("list"))
@click.option("--agent", help="Only runs of this agent.")
@click.option(
    "-n",
    "--limit",
    default=100,
    show_default=True,
    type=click.IntRange(1, 10_000),
    help="The number of calls and questions to show.",
)
def list_(host: HostApi, agent: str | None, limit: int, as_json: bool) -> None:
    """
    List the calls and questions that wait for people, oldest first.

    The column "approved" counts the people who approved, of those that are needed. A
    call past its deadline is "expired": its run continues with a denial when it is
    resumed. A "question" is one of a tool server: answer it.

    \b
    Examples:
      caxton approval list
      caxton approval list --agent payer --json
    """
    found = host.inbox(agent, limit)
    if found.next:
        note(f"more than {limit} wait; -n NUMBER shows more")
    if as_json:
        show([one.to_document() for one in (*found.calls, *found.questions)])
        return
    table(
        ("run", "event", "agent", "tool", "params", "by", "approved", "until (UTC)"),
        (*map(_row, found.calls), *map(_question_row, found.questions)),
    )
    if not found.calls and not found.questions:
        note("nothing waits for an approval")


def _row(one: Waiting) -> Sequence[object]:
    return (
        one.run_id,
        one.asked.seq,
        one.agent,
        f"{one.call.server}/{one.call.tool}",
        _short(one.call),
        ", ".join(map(str, one.call.by)),
        f"{len(one.asked.counted)} of {one.call.count}",
        _until(one),
    )


def _question_row(one: Question) -> Sequence[object]:
    asked = one.asked
    return (
        one.run_id,
        one.seq,
        one.agent,
        f"{asked.server}/{asked.tool}",
        clipped(plain(asked.message), _WIDTH),
        ", ".join(map(str, asked.by)),
        "question",
        second(asked.until),
    )


def _until(one: Waiting) -> str:
    if one.call.until is None:
        return ""
    at = second(one.call.until)
    return f"{at}, expired" if one.is_over else at


def _short(call: ApprovalRequested) -> str:
    return clipped(plain(to_json(call.params)), _WIDTH)


@on_host(command.command("show"))
@_named
def show_(host: HostApi, run: str, seq: int | None, as_json: bool) -> None:
    """
    Show all that an approval would send.

    SEQ is the event of the question.

    \b
    Examples:
      caxton approval show @last
      caxton approval show 0198 7 --json
    """
    found, asked = wait(_found(host, run, seq))
    if as_json:
        show([one.to_document() for one in (*found, *asked)])
        return
    for question in asked:
        _show_question(host, question)
    for one in found:
        say(f"run    {one.run_id}  {one.agent}")
        for line in described(one.asked):
            say(line)
        say(f"asked  {second(one.asked_at)} UTC")
        say(f"until  {_until(one) or 'a decision'}")
    for one in found:
        for line in _commands(host, one):
            note(line)


def _show_question(host: HostApi, one: Question) -> None:
    asked = one.asked
    say(f"run    {one.run_id}  {one.agent}")
    say(f"call   {asked.call} (event {one.seq})  {asked.server}/{asked.tool}")
    say(f"by     {' or '.join(map(str, asked.by)) or 'anybody'}")
    say(f"asks   {plain(asked.message)}")
    for line in to_json(asked.form, indent=2).split("\n"):
        say(line)
    say(f"until  {second(asked.until)} UTC")
    command = f"{host.command()} approval answer {one.run_id} {one.seq}"
    roles = " ".join(host.role_options(asked.by))
    command = f"{command} {roles}".rstrip()
    note(f"to answer it: {command} --data '{{...}}'")
    note(f"to decline it: {command} --decline")


def _commands(host: HostApi, one: Waiting) -> list[str]:
    if one.is_over:
        return [f"to go on without it: {host.command()} runs resume {one.run_id}"]
    return [
        f"to {verdict} it: {deciding(host, one.run_id, one.asked, verdict)}"
        for verdict in VERDICTS
    ]


async def _found(
    host: HostApi, run: str, seq: int | None
) -> tuple[list[Waiting], list[Question]]:
    from ..runs.questions import questions_in
    from ..runs.recording import Recording

    async with host.history() as store:
        recording = await Recording.load(await store.find_run(run), store)
    waiting = waiting_in(recording, _now())
    questions = questions_in(recording, _now())
    found = [one for one in waiting if seq in {None, one.asked.seq}]
    asked = [one for one in questions if seq in {None, one.seq}]
    if not found and not asked:
        numbers = [one.asked.seq for one in waiting] + [one.seq for one in questions]
        known = ", ".join(map(str, numbers)) or "none"
        raise UsageError(
            f"run {recording.run_id}: events that wait for an approval: {known}",
            fix="caxton approval list shows what waits",
        )
    return found, asked


@on_host(command.command("answer"))
@_named
@click.option("--data", help="The fields of the answer: a JSON object.")
@click.option("--decline", is_flag=True, help="Decline the question.")
@click.option("--as", "role", default="", metavar="ROLE", help="Your role; recorded.")
@click.option("--reason", default="", help="The reason; recorded.")
def answer(
    host: HostApi,
    run: str,
    seq: int | None,
    data: str | None,
    decline: bool,
    role: str,
    reason: str,
    as_json: bool,
) -> None:
    """
    Answer a question of a tool server.

    SEQ is the event of the question, if there are several. The call goes on with the
    answer.

    \b
    Examples:
      caxton approval answer @last --data '{"sure": true}'
      caxton approval answer 0198 7 --as ops --decline --reason "not ours"
    """
    if decline == (data is not None):
        raise UsageError(
            "an answer is needed", fix="add --data with a JSON object, or --decline"
        )
    check_text("--reason", [reason, role])
    content = None if data is None else _fields(data)
    host.answer(
        AnswerOptions(run=run, seq=seq, content=content, role=role, reason=reason)
    )
    if as_json:
        show({"$type": "caxton.answer/v1", "declined": decline})
    note("declined" if decline else "answered")


def _fields(data: str) -> dict[str, JSON]:
    from ..core.questions import BYTES
    from ..lib.codec import load_json

    try:
        found = load_json(data, limit=BYTES)
    except BadBytes as exc:
        raise UsageError(f"--data: {exc}", fix="give it a JSON object") from None
    if not isinstance(found, dict):
        raise UsageError("--data is no object", fix="give it a JSON object")
    return found


def _deciding(verdict: Verdict) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that makes a function the command for *verdict*."""

    def decided(
        host: HostApi,
        **said: Any,  # noqa: ANN401 -- the other fields of DecideOptions
    ) -> None:
        options = DecideOptions(verdict=verdict, **said)
        if options.variables and options.no_resume:
            raise UsageError(
                "--var is for a run that goes on", fix="leave out --var, or --no-resume"
            )
        check_text("--reason", [options.reason, options.role])
        raise Exit(host.decide(options))

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        return _with_options(update_wrapper(decided, function))

    return decorate


def _with_options(command: Callable[..., None]) -> Callable[..., None]:
    for added in (
        click.pass_obj,
        as_json,
        overrides,
        variable_option,
        click.option(
            "--no-resume",
            is_flag=True,
            help="Record it only; a serving host resumes the run.",
        ),
        click.option("--reason", default="", help="The reason; recorded."),
        click.option(
            "--as", "role", default="", metavar="ROLE", help="Your role; recorded."
        ),
        _named,
    ):
        command = added(command)
    return command


@command.command("approve")
@_deciding("approve")
def approve() -> None:
    """
    Approve a call.

    SEQ is the event of the question, if there are several. An approval covers exactly
    these parameters. The grants are checked again, then the run continues at once.

    \b
    Exit codes: as of caxton run.

    \b
    Examples:
      caxton approval approve @last --reason "the customer asked for it"
      caxton approval approve 0198 7 --as ops --no-resume
    """


@command.command("deny")
@_deciding("deny")
def deny() -> None:
    """
    Deny a call.

    SEQ is the event of the question, if there are several. The agent receives a denial,
    and continues at once.

    \b
    Exit codes: as of caxton run.

    \b
    Examples:
      caxton approval deny @last --reason "twice the usual amount"
      caxton approval deny 0198 7 --as ops --no-resume
    """
