"""``caxton runs``: list, show and compare runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields
from typing import Any, cast

import click
from click.exceptions import Exit

from ..core.calls import JSON
from ..core.log.diff import Diff, diff
from ..core.log.events import RunErased
from ..core.log.projection import summarise
from ..core.log.runs import (
    RESTORED,
    RunFilter,
    RunRow,
    RunSummary,
    call_list,
)
from ..core.names import run_of
from ..errors import RestoredError
from ..runs.recording import Recording
from . import explain, run_control, trace
from .context import STALE, HostApi, on_host, wait
from .differences import tell_diff
from .events import history_of
from .options import of_list
from .output import (
    counted,
    note,
    on_terminal,
    plain,
    say,
    show,
    table,
)
from .run_report import deciding, going_on, halted_in, resolving, stopped
from .run_text import bound_lines, call_lines, error_lines, second
from .sample import replace, sample_
from .shifts import compare_of

_MOST = 10_000
_FIELDS = {field.name for field in fields(RunFilter)}
_TIME_LENGTH = len("018bcfe5-6800")


@click.group("runs")
def command() -> None:
    """
    List, show, explain, trace, resume, resolve, fork and compare runs.

    \b
    Examples:
      caxton runs list --agent weather
      caxton runs show @last
      caxton runs explain @last event 2
      caxton runs trace @last call 3
    """


for one in (*run_control.COMMANDS, explain.of_run, trace.command):
    command.add_command(one)


@on_host(command.command("list"))
@of_list
@click.option(
    "-n",
    "--limit",
    default=20,
    show_default=True,
    type=click.IntRange(1, _MOST),
    help="The number of runs to show.",
)
def list_(host: HostApi, limit: int, as_json: bool, **only: str | int | None) -> None:
    """
    List runs, newest first.

    A list finds runs and verifies nothing: see caxton audit verify. A run in progress
    has no counts of calls here: see caxton runs show. A time is ISO 8601, UTC unless
    it names a zone, or a duration: 2h is two hours ago.

    \b
    Examples:
      caxton runs list --limit 5
      caxton runs list --agent weather --state failed --json
      caxton runs list --tool crm/refund --outcome denied --since 7d
    """
    page = host.runs(RunFilter(**cast("dict[str, Any]", only)), limit)
    found = page.runs
    if as_json:
        show([run.to_document() for run in found])
    else:
        _rows(found)
        if not found:
            note(page.nothing)
        if any(run.reason == RESTORED for run in found):
            note(
                "the log was restored from a copy; to go on: "
                f"{host.command()} runs resume --restored RUN"
            )
    if page.more:
        note(f"there are more than {counted(limit, 'run')}; -n NUMBER shows more")
    if page.stale:
        note(f"warning: {STALE}")


_SELECT = {one.name: one for one in list_.params if one.name in _FIELDS}
for one in (compare_of(_SELECT), sample_, replace):
    command.add_command(one)


def _rows(found: Sequence[RunRow]) -> None:
    names = [run.run_id for run in found]
    short = dict(zip(names, shortened(names) if on_terminal() else names, strict=True))
    columns = ("run", "agent", "state", "calls", "denied", "started at (UTC)", "ms")
    # A terminal has no room for a column that would be empty.
    called = not on_terminal() or any(run.parent for run in found)
    table(
        (*columns, *(("caller",) if called else ())),
        (
            (
                name,
                run.agent,
                _state(run.state, run.reason, erased=run.is_erased),
                (run.numbers or {}).get("total", ""),
                (run.numbers or {}).get("denied", ""),
                second(run.started_at),
                "" if run.duration_ms is None else round(run.duration_ms),
                *((short.get(run.parent or "", run.parent or ""),) if called else ()),
            )
            for name, run in zip(short.values(), found, strict=True)
        ),
    )


def _state(state: str, about: str | None, *, erased: bool) -> str:
    about = "erased" if erased else about
    return state if about in {None, state} else f"{state}, {about}"


def shortened(names: Sequence[str]) -> list[str]:
    """
    Return the shortest distinct prefixes of run ids, with the time in each.

    >>> shortened(["018bcfe5-6800-7000-8000-0", "018bcfe5-6800-7000-9000-0"])
    ['018bcfe5-6800-7000-8', '018bcfe5-6800-7000-9']
    """
    length = _TIME_LENGTH
    while len({name[:length] for name in names}) < len(names):
        length += 1
    return [name[:length] for name in names]


@on_host(command.command("show"))
@click.argument("run")
def show_(host: HostApi, run: str, as_json: bool) -> None:
    """
    Show the calls, the end and the output of RUN.

    \b
    Examples:
      caxton runs show @last
      caxton runs show 0198 --json
    """
    history = wait(history_of(host, run))
    summary = summarise(run_of(history[0].stream), history)
    if summary.erased:
        _show_erased(summary, host.erasure(summary.run_id), as_json=as_json)
        return
    hold = host.hold_of(summary.run_id)
    if as_json:
        held: dict[str, JSON] = {"hold": hold} if hold else {}
        show({**summary.to_document(), "call_list": call_list(history), **held})
        return
    say(f"run     {summary.run_id}")
    say(f"agent   {summary.agent}  {summary.module_sha256[:12]}")
    if program := summary.program:
        say(f"program {plain(program['name'])}  {plain(program['sha256'])[:12]}")
    say(f"actor   {summary.actor.get('kind')} {summary.actor.get('id')}")
    state = _state(summary.state, summary.waits_for, erased=summary.erased)
    say(f"state   {state}, {summary.duration_ms:.0f} ms")
    for line in _origins(summary, hold):
        say(line)
    for line in (*bound_lines(summary.bounds), *call_lines(history)):
        say(f"  {line}")
    if summary.error:
        say(f"error   {summary.error['kind']}: {plain(summary.error['message'])}")
        for line in error_lines(history):
            say(f"        {line}")
    say(f"output  {plain(summary.output)}")
    if summary.state == "suspended":
        for line in wait(_going_on(host, summary.run_id)):
            note(line)


def _origins(run: RunSummary, hold: JSON) -> Iterator[str]:
    """Yield the lines that say who holds it, and which run it comes from."""
    if isinstance(hold, dict):
        yield f"held    by {_who(hold['actor'])}: {plain(hold['reason'])}"
    for one in dict.fromkeys(run.signed_by):
        yield f"signed  by {one}"
    if fork := run.forked_from:
        yield f"forked  from run {fork['run']} at event {fork['seq']}"
    if run.parent:
        yield f"called  by run {run.parent}, call {run.called_by}"


async def _going_on(host: HostApi, run_id: str) -> list[str]:
    """Return the lines that say how a suspended run goes on."""
    from ..lib.machine import SystemClock
    from ..runs.approvals import open_questions

    async with host.history() as store:
        recording = await Recording.load(run_id, store)
    by_itself = going_on(host, recording)
    if recording.is_restored:
        note(str(RestoredError(run_id)))
        if recording.is_session:
            return [f"to end it: {host.command()} runs cancel {run_id}"]
        return [f"{by_itself} --restored"]
    if halted := halted_in(recording):
        return [f"to go on: {host.named(halted.fix)}", by_itself]
    if stopped(recording):
        return [by_itself]
    if callee := recording.waits_for:
        return [f"to go on: {host.command()} runs show {callee}"]
    asked = open_questions(recording, SystemClock().now())
    commands = (
        *(resolving(host, run_id, one.seq) for one in recording.journal().in_doubt),
        *(deciding(host, run_id, one, "approve") for one in asked),
    )
    return [f"to go on: {one}" for one in commands] or [by_itself]


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
        say("erased  without a record: see caxton audit verify")
        return
    say(f"erased  by {_who(erased.actor)}: {plain(erased.reason)}")
    if erased.bundle:
        say(f"bundle  {plain(erased.bundle['name'])}")


def _who(actor: JSON) -> str:
    told = actor if isinstance(actor, dict) else {}
    return plain(f"{told.get('kind')} {told.get('id')}")


_DIFFERENT = 1


@on_host(command.command("diff"))
@click.argument("a")
@click.argument("b")
def diff_(host: HostApi, a: str, b: str, as_json: bool) -> None:
    """
    Show how run B differs from run A.

    Prints the first difference, then every call that differs. Calls are compared in
    order, by name, tool, parameters and outcome; then the ends and the outputs. Times,
    ids and fuel are ignored.

    \b
    Exit codes: 0 no difference; 1 they differ; 2 no such run.

    \b
    Examples:
      caxton runs diff 0198 @last
      caxton runs diff 0198c1 0198c2 --json
    """
    found = wait(_diff(host, a, b))
    if as_json:
        show(found.to_document())
    else:
        tell_diff(found)
    if not found.same:
        raise Exit(_DIFFERENT)


async def _diff(host: HostApi, a: str, b: str) -> Diff:

    async with host.history() as store:
        one, other = [
            await Recording.load(await store.find_run(run), store) for run in (a, b)
        ]
    return diff(one.history, other.history)
