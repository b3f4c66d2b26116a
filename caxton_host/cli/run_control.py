"""``caxton runs`` resume, resolve, fork, cancel, hold, release, simulate-crash."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.exceptions import Exit

from ..core.calls import JSON
from ..core.grants.approvals import NOBODY
from ..core.log.events import (
    ApprovalDecided,
    ApprovalRequested,
    CallResolved,
    LogWritten,
    Recorded,
    ToolInvoked,
)
from ..core.log.projection import summarise
from ..errors import (
    NotKeptError,
    UsageError,
)
from .context import (
    Choice,
    ForkOptions,
    HostApi,
    ResolveOptions,
    ResumeOptions,
    on_host,
    wait,
)
from .options import narrow_option, overrides, variable_option
from .output import (
    FAILED,
    complain,
    note,
    plain,
    say,
    show,
)
from .overrides import check_text
from .run_report import resolving
from .run_text import remark

if TYPE_CHECKING:
    from ..runs.recording import Recording


@on_host(click.command("resume"))
@click.argument("run", required=False)
@click.option(
    "--all", "all_", is_flag=True, help="Resume every run that no host drives."
)
@click.option(
    "--restored", is_flag=True, help="Resume although the log was restored from a copy."
)
@variable_option
@overrides
def resume(
    host: HostApi,
    run: str | None,
    all_: bool,
    **more: Any,  # noqa: ANN401 -- the other fields of ResumeOptions
) -> None:
    """
    Resume RUN after a crash or a decision.

    The agent is executed again over its log; recorded calls are not sent again. It
    then continues, under the recorded grants and those that the configuration gives
    it now. Its variables are in the log, except private ones: give those again.

    If the log was restored from a copy, resuming needs --restored: what the run did
    after the copy was made is not in the log, and is done again.

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
    raise Exit(host.resume(ResumeOptions(run=run, **more)))


@on_host(click.command("resolve"))
@click.argument("run")
@click.argument("seq", type=click.IntRange(min=1))
@click.option("--retry", is_flag=True, help="Send the call again.")
@click.option(
    "--result",
    "file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="A file with the answer: an MCP CallToolResult in JSON.",
)
@click.option("--fail", is_flag=True, help="Report a failed call to the agent.")
@click.option("--abort", is_flag=True, help="End the run.")
@click.option("--reason", required=True, help="The reason; recorded.")
@click.option(
    "--no-resume", is_flag=True, help="Record it only; a serving host resumes the run."
)
@variable_option
@overrides
def resolve(
    host: HostApi,
    retry: bool,
    file: Path | None,
    fail: bool,
    abort: bool,
    reason: str,
    **more: Any,  # noqa: ANN401 -- the other fields of ResolveOptions
) -> None:
    """
    Resolve a call in doubt; SEQ is its ToolInvoked event.

    A call is in doubt if a host died between sending it and recording the answer.
    Check the tool's own records, then choose a resolution. The run continues at
    once, with its variables, except private ones: give those again.

    \b
    Exit codes: as of caxton run.

    \b
    Examples:
      caxton runs resolve @last 3 --retry --reason "the bank has no such payment"
      caxton runs resolve 0198 7 --result paid.json --reason "paid, see statement"
      caxton runs resolve 0198 7 --abort --reason "ordered by phone instead"
    """
    choices: dict[Choice, bool] = {
        "retry": retry,
        "result": file is not None,
        "fail": fail,
        "abort": abort,
    }
    chosen: list[Choice] = [
        choice for choice, is_chosen in choices.items() if is_chosen
    ]
    if len(chosen) != 1:
        raise UsageError(
            "say one of --retry, --result, --fail and --abort",
            fix="caxton runs resolve --help",
        )
    check_text("--reason", [reason])
    options = ResolveOptions(choice=chosen[0], file=file, reason=reason, **more)
    raise Exit(host.resolve(options))


@on_host(click.command("fork"))
@click.argument("run")
@click.option(
    "--at",
    "seq",
    required=True,
    type=click.IntRange(min=1),
    metavar="SEQ",
    help="The last event of RUN to inherit.",
)
@click.option(
    "--set-result",
    "result",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="A file with another answer: an MCP CallToolResult in JSON.",
)
@click.option(
    "--agent",
    "module",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Another module or program than that of RUN.",
)
@variable_option
@narrow_option
@overrides
def fork(
    host: HostApi,
    **options: Any,  # noqa: ANN401 -- the fields of ForkOptions
) -> None:
    """
    Start a run that inherits RUN up to event SEQ.

    The agent is executed over the inherited events; their calls are not made again.
    From there it continues under the grants that the configuration gives the agent
    now. No call may be open after SEQ; with --set-result it is any event of the call
    whose answer is replaced. Variables are those of RUN, except private ones: give
    those again. --narrow is as of caxton run, and what narrows RUN narrows the fork.

    \b
    Exit codes: as of caxton run.

    \b
    Examples:
      caxton runs fork @last --at 7
      caxton runs fork 0198 --at 6 --set-result storm.json
      caxton runs fork 0198 --at 7 --agent fixed.wasm --allow demo/echo
      caxton runs fork 0198 --at 7 --narrow 'demo/get_*'
    """
    raise Exit(host.fork(ForkOptions(**options)))


@on_host(click.command("cancel"))
@click.argument("run")
@click.option("--reason", default="", help="The reason; recorded.")
def cancel(host: HostApi, run: str, reason: str, as_json: bool) -> None:
    """
    Cancel RUN, and record who asked for it and why.

    The host that drives the run is asked to stop it; this command waits until it
    has. A run that is suspended, or whose host has died, is ended here; the outcome
    of its open calls remains unknown.

    \b
    Exit codes: 0 cancelled; 1 it ended by itself first; 2 it had ended before.

    \b
    Examples:
      caxton runs cancel @last
      caxton runs cancel 0198 --reason "the wrong customer"
    """
    check_text("--reason", [reason])
    run_id, history = host.cancel(run, reason)
    ended = summarise(run_id, history)
    if as_json:
        show(ended.to_document())
    if ended.state == "cancelled":
        note(f"cancelled {run_id}")
        return
    complain(
        f"run {run_id} has {ended.state} before it could be cancelled",
        f"{host.command()} runs show {run_id}",
    )
    raise Exit(FAILED)


@on_host(click.command("hold"))
@click.argument("run")
@click.option("--reason", required=True, help="The reason; recorded.")
def hold(host: HostApi, run: str, reason: str, as_json: bool) -> None:
    """
    Put RUN on hold: nobody can erase or archive it.

    Neither can the runs that it was forked from, since it begins with their events.
    An event records who holds the run and why; caxton runs show shows both.

    \b
    Exit codes: 0 recorded; 2 no such run, on hold already, or erased.

    \b
    Examples:
      caxton runs hold 0198 --reason "litigation 4711"
    """
    _hold(host, run, reason, release=False, as_json=as_json)


@on_host(click.command("release"))
@click.argument("run")
@click.option("--reason", required=True, help="The reason; recorded.")
def release(host: HostApi, run: str, reason: str, as_json: bool) -> None:
    """
    Release RUN from its hold.

    \b
    Exit codes: 0 recorded; 2 no such run, or not on hold.

    \b
    Examples:
      caxton runs release 0198 --reason "litigation 4711 is settled"
    """
    _hold(host, run, reason, release=True, as_json=as_json)


def _hold(
    host: HostApi, run: str, reason: str, *, release: bool, as_json: bool
) -> None:
    check_text("--reason", [reason])
    found = host.hold(run, reason, release=release)
    if as_json:
        show({**found})
    else:
        say(f"run {found['run_id']} is {'not ' if release else ''}on hold")


_NEXT = {
    "said": "is sent again, as resolved by a person",
    "read": "is sent again: it only reads",
    "idempotent": "is sent again: twice is the same as once",
    "keyed": "is sent again, with the same idempotency key",
    "unsafe": "is left to a person: the run will be suspended",
}


@on_host(click.command("simulate-crash"))
@click.argument("run")
@click.option(
    "--at",
    type=click.IntRange(min=1),
    required=True,
    metavar="SEQ",
    help="The last event that the host stored before it died.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The new database; default a temporary file.",
)
def simulate_crash(
    host: HostApi, run: str, at: int, output: Path | None, as_json: bool
) -> None:
    """
    Simulate a crash of the host after event SEQ.

    Creates a new database with the log of the run up to there, prints which call is
    in doubt, and the command that resumes the copy. The run itself is not changed.
    Resuming the copy has real effects: its calls are sent, with the idempotency keys
    of the run.

    \b
    Examples:
      caxton runs simulate-crash @last --at 4
      caxton runs simulate-crash 0198 --at 4 -o crashed.db
    """
    document = wait(_simulate(host, run, at, output))
    if as_json:
        show(document)
        return
    _tell(document)


async def _simulate(
    host: HostApi, run: str, at: int, output: Path | None
) -> dict[str, JSON]:
    from ..runs.recording import Recording
    from ..store.copies import copy_cut

    async with host.log() as store:
        recording = await Recording.load(await store.reader.find_run(run), store.reader)
        left = _left(recording, at)
        target = _target(output)
        await copy_cut(store.reader, left, target)
    run_id, last = left.run_id, left.own[-1]
    copy = host.over(f"sqlite:///{target}")
    return {
        "$type": "caxton.crash/v1",
        "run_id": run_id,
        "asked_at": at,
        "at": last.seq,
        "events": len(recording.own),
        "last": f"{last.type} {remark(last)}".rstrip(),
        "database": str(target),
        "in_doubt": [
            {
                "call": doubt.invoked.call,
                "seq": doubt.seq,
                "name": doubt.invoked.name,
                "params": doubt.invoked.params,
                "effect": doubt.invoked.effect,
                "resolved": doubt.resolved,
                "resolve": resolving(copy, run_id, doubt.seq),
            }
            for doubt in left.journal().in_doubt
        ],
        "resume": f"{copy.command()} runs resume {run_id}",
    }


def _left(recording: Recording, at: int) -> Recording:
    """Return the log up to event *at*, with the rest of its transaction."""
    end = recording.until(at).own[-1].seq
    while _goes_on(recording.own, end):
        end += 1
    left = recording.until(end)
    if error := left.journal().not_kept:
        raise NotKeptError(str(error), fix="name an earlier event")
    if left.end:
        raise UsageError(
            f"event {end} ends the run: a crash after that leaves nothing to do",
            fix="name an earlier event; caxton events list shows them",
        )
    return left


def _goes_on(history: Sequence[Recorded], end: int) -> bool:
    """Return whether the next event is in the same transaction as event *end*."""
    event = history[end - 1].event
    after = history[end].event if end < len(history) else None
    match event:
        case ToolInvoked(rule=None) | ApprovalRequested():
            return True
        case ApprovalDecided(actor=actor):
            return actor == NOBODY
        case CallResolved(verdict=verdict):
            return verdict != "retry"
        case LogWritten():
            return isinstance(after, LogWritten) and after.level == "truncated"
        case _:
            # An aborted run: its end is in the same transaction.
            before = history[end - 2].event if end > 1 else None
            return isinstance(before, CallResolved) and before.verdict == "abort"


def _target(output: Path | None) -> Path:
    if output is None:
        return Path(tempfile.mkdtemp(prefix="caxton-crash-")) / "crashed.db"
    if output.exists():
        raise UsageError(f"{output} already exists", fix="name a new file")
    return output.absolute()


def _tell(document: dict[str, JSON]) -> None:
    if document["at"] != document["asked_at"]:
        note(f"what follows event {document['asked_at']} is stored with it")
    at, count = document["at"], document["events"]
    say(f"the host dies after event {at} of {count}: {plain(document['last'])}")
    waiting = document["in_doubt"]
    assert isinstance(waiting, list)  # noqa: S101 -- made above
    for call in waiting:
        assert isinstance(call, dict)  # noqa: S101 -- made above
        params = plain(call["params"])
        where = f"call {call['call']} (event {call['seq']})"
        say(f"in doubt: {where} {call['name']} {params}")
        what = _NEXT["said" if call["resolved"] else str(call["effect"])]
        say(f"  it {what}")
    if not waiting:
        say("no call is in doubt")
    say(f"the copy is {document['database']}; resuming the copy has real effects")
    say(f"to go on: {document['resume']}")


COMMANDS = (resume, resolve, fork, cancel, hold, release, simulate_crash)
