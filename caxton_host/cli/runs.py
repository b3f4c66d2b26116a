"""``caxton runs``: what ran, and why its calls were decided as they were."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import click

from ..core.log.events import RunErased
from ..core.log.runs import RESTORED, RunSummary, call_list, summarise
from ..core.names import nearest, run_of, stream_of
from ..errors import RestoredError, UsageError
from ..runs.recording import BROKEN, summary_of
from . import cancel, diff, explain, fork, resolve, resume, simulate_crash
from .context import Frame, as_json, wait
from .events import history_of
from .exits import AUDIT
from .output import complain, counted, note, on_terminal, plain, say, show, table
from .run_outcome import call_lines, error_lines
from .run_report import deciding, resolving, stopped
from .show import moment

_MOST = 10_000
_TO_THE_SECOND = len("2026-01-31 23:59:59")
_TIME_LENGTH = len("018bcfe5-6800")


@click.group("runs")
def command() -> None:
    """
    List, show, explain, resume, resolve, fork and compare runs.

    \b
    Examples:
      caxton runs list --agent weather
      caxton runs show @last
      caxton runs explain @last event 2
    """


command.add_command(resume.command)
command.add_command(resolve.command)
command.add_command(cancel.command)
command.add_command(fork.command)
command.add_command(diff.command)
command.add_command(simulate_crash.command)
command.add_command(explain.of_run)


@command.command("list")
@click.option("--agent", help="Only runs of this agent.")
@click.option(
    "--state",
    type=click.Choice(["running", "suspended", "completed", "failed", "cancelled"]),
    help="Only runs in this state.",
)
@click.option(
    "-n",
    "--limit",
    default=20,
    show_default=True,
    type=click.IntRange(1, _MOST),
    help="How many.",
)
@as_json
@click.pass_obj
@click.pass_context
def list_(
    ctx: click.Context,
    frame: Frame,
    agent: str | None,
    state: str | None,
    limit: int,
    as_json: bool,
) -> None:
    """
    Show the newest runs first. One whose log is damaged is "broken".

    \b
    Exit codes: 0 fine; 5 a run is broken.

    \b
    Examples:
      caxton runs list --limit 5
      caxton runs list --agent weather --state failed --json
    """
    found, known = wait(_list(frame, agent, state, limit))
    if as_json:
        show([run.to_document() for run in found])
    else:
        _rows(found)
        if not found:
            note(_none(frame, agent, some=bool(agent or state)))
        if any(run.waits_for == RESTORED for run in found):
            note(
                "the log was restored from a copy; to go on: "
                f"{frame.command()} runs resume --restored RUN"
            )
    if len(found) < known:
        total = f"more than {limit}" if frame.there or known == _MOST else known
        note(f"showing {len(found)} of {total} runs; -n NUMBER shows more")
    if broken := [run.run_id for run in found if run.state == BROKEN]:
        complain(
            f"run {broken[0]} is broken"
            + (f", and {len(broken) - 1} more" if broken[1:] else ""),
            frame.named("caxton audit verify; restore the database from a copy"),
        )
        ctx.exit(AUDIT)


def _none(frame: Frame, agent: str | None, *, some: bool) -> str:
    """Return what is told where nothing is found; *some*: not all were looked for."""
    if frame.there:
        return "no runs there that you may see"
    if agent and agent not in (known := wait(_agents(frame))):
        meant = nearest(agent, sorted(known))
        return f"no agent {agent!r} is known" + (
            f"; did you mean {meant}?" * bool(meant)
        )
    return "no such runs" if some else "no runs yet; caxton demo makes one"


async def _agents(frame: Frame) -> set[str]:
    """Return the agents that ran, and those of the configuration if it can be read."""
    async with frame.log() as store:
        known = {row.agent for row in await store.reader.runs(limit=_MOST)}
    with suppress(UsageError):
        known |= frame.look("agents").agents.keys()
    return known


def _rows(found: Sequence[RunSummary]) -> None:
    names = [run.run_id for run in found]
    table(
        ("run", "agent", "state", "calls", "denied", "started at (UTC)", "ms"),
        (
            (
                name,
                run.agent,
                _state(run),
                run.calls.get("total", ""),
                run.calls.get("denied", ""),
                moment(run.started_at)[:_TO_THE_SECOND],
                round(run.duration_ms),
            )
            for name, run in zip(
                shortened(names) if on_terminal() else names, found, strict=True
            )
        ),
    )


def _state(run: RunSummary) -> str:
    if run.erased:
        return f"{run.state}, erased"
    return f"{run.state}, {RESTORED}" if run.waits_for == RESTORED else run.state


def shortened(names: Sequence[str]) -> list[str]:
    """
    Return the beginnings of run ids that tell them apart, the time in each.

    >>> shortened(["018bcfe5-6800-7000-8000-0", "018bcfe5-6800-7000-9000-0"])
    ['018bcfe5-6800-7000-8', '018bcfe5-6800-7000-9']
    """
    length = _TIME_LENGTH
    while len({name[:length] for name in names}) < len(names):
        length += 1
    return [name[:length] for name in names]


async def _list(
    frame: Frame, agent: str | None, state: str | None, limit: int
) -> tuple[list[RunSummary], int]:
    """Return the newest runs, and how many there are; of a host, if there are more."""
    if frame.there is not None:
        async with frame.there.log() as log:
            found = await log.summaries(limit + 1, agent=agent, state=state)
            return found[:limit], len(found)
    async with frame.log() as store:
        known = await store.reader.runs(limit=_MOST, agent=agent, state=state)
        return [await summary_of(store.reader, row) for row in known[:limit]], len(
            known
        )


@command.command("show")
@click.argument("run")
@as_json
@click.pass_obj
def show_(frame: Frame, run: str, as_json: bool) -> None:
    """
    Show one run: its calls, its end, its output.

    \b
    Examples:
      caxton runs show @last
      caxton runs show 0198 --json
    """
    history = wait(history_of(frame, run))
    summary = summarise(run_of(history[0].stream), history)
    if summary.erased:
        _show_erased(summary, wait(_erasure(frame, summary)), as_json=as_json)
        return
    if as_json:
        show({**summary.to_document(), "call_list": call_list(history)})
        return
    say(f"run     {summary.run_id}")
    say(f"agent   {summary.agent}  {summary.module_sha256[:12]}")
    say(f"actor   {summary.actor.get('kind')} {summary.actor.get('id')}")
    say(f"state   {_state(summary)}, {summary.duration_ms:.0f} ms")
    if fork := summary.forked_from:
        say(f"forked  from run {fork['run']} at event {fork['seq']}")
    for line in call_lines(history):
        say(f"  {line}")
    if summary.error:
        say(f"error   {summary.error['kind']}: {plain(summary.error['message'])}")
        for line in error_lines(history):
            say(f"        {line}")
    say(f"output  {plain(summary.output)}")
    if summary.state == "suspended":
        for command in wait(_commands(frame, summary.run_id)):
            note(f"to go on: {command}")


async def _commands(frame: Frame, run_id: str) -> list[str]:
    """Return what lets a suspended run go on."""
    from ..lib.machine import SystemClock
    from ..runs.approvals import open_questions
    from ..runs.recording import Recording

    async with frame.history() as store:
        recording = await Recording.load(run_id, store)
    going_on = f"{frame.command()} runs resume {run_id}"
    if recording.is_restored:
        note(str(RestoredError(run_id)))
        return [f"{going_on} --restored"]
    if stopped(recording):
        return [going_on]
    asked = open_questions(recording, SystemClock().now())
    return [
        *(resolving(frame, run_id, one.seq) for one in recording.journal().in_doubt),
        *(deciding(frame, run_id, one, "approve") for one in asked),
    ] or [going_on]


async def _erasure(frame: Frame, run: RunSummary) -> RunErased | None:
    if frame.there is not None:
        async with frame.there.log() as log:
            return await log.erasure(run.run_id)
    async with frame.log() as store:
        return (await store.reader.erased()).get(stream_of(run.run_id))


def _show_erased(run: RunSummary, erased: RunErased | None, *, as_json: bool) -> None:
    if erased:
        run.agent = erased.agent
    if as_json:
        show(run.to_document())
        return
    say(f"run     {run.run_id}")
    say(f"agent   {plain(run.agent)}")
    say(
        f"state   {run.state}, {run.duration_ms:.0f} ms, {counted(run.events, 'event')}"
    )
    if erased is None:
        say("erased  by nobody who left a record: see caxton audit verify")
        return
    who = f"{erased.actor.get('kind')} {erased.actor.get('id')}"
    say(f"erased  by {plain(who)}: {plain(erased.reason)}")
    if erased.bundle:
        say(f"bundle  {plain(erased.bundle['name'])}")
