"""``caxton replay``: execute a recorded run again, or step through it."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from ..core.log.events import LogWritten, Recorded, ToolInvoked, event_document
from ..core.log.runs import RunFilter, call_of
from ..errors import UsageError
from ..runs.modules import read_instead
from . import interrupt
from .context import HostApi, on_host, wait
from .events import receiver
from .options import Moment, of_runs
from .output import (
    AUDIT,
    DIVERGED,
    USAGE,
    complain,
    counted,
    note,
    patience,
    plain,
    say,
    show,
    to_json,
)
from .run_text import remark
from .verdict import believe

if TYPE_CHECKING:
    from ..config import Config
    from ..core.calls import JSON
    from ..core.log.bundle import Bundle
    from ..ports.history import Streams
    from ..runs.recording import Recording
    from ..runs.replay import Replayed
    from ..telemetry.replay_spans import ReplaySpans


#: Sections of the configuration for a replay.
_OF_REPLAY = ("sandbox", "telemetry")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    run: str
    until: int | None
    step: bool
    against: Path | None
    lines: bool
    otlp: str | None


@on_host(click.command("replay"))
@click.argument("run", required=False)
@click.option("--all", "whole", is_flag=True, help="Judge all recorded runs.")
@click.option(
    "--until",
    metavar="SEQ|TIME",
    help="Stop after that event; with --all, only runs started before this time.",
)
@click.option("--step", is_flag=True, help="Stop at each call and wait for a command.")
@click.option(
    "--against",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Execute another module or program over the log of RUN.",
)
@click.option(
    "--lines",
    is_flag=True,
    help="Print the line of the program that made each call.",
)
@click.option(
    "--to-otlp",
    "otlp",
    is_flag=False,
    flag_value="",
    metavar="[URL]",
    help="Send the replay as a trace, with the recorded times, to an OTLP receiver.",
)
@click.option(
    "--grants",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="With --all: judge calls by the grants of this file.",
)
@click.option(
    "--tool",
    metavar="SERVER/TOOL[=FILE]",
    help="With --all: only runs that called this tool; with a file, held against its "
    "definition there.",
)
@click.option(
    "--fresh", is_flag=True, help="With --all: judge every run, also remembered ones."
)
@click.option(
    "--junit",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="With --all: write JUnit XML, with a test for each run.",
)
@click.option(
    "--html",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="With --all: write a page with the groups.",
)
@of_runs
@click.option(
    "--bundle",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Replay the run of this bundle, without a database.",
)
@click.option(
    "--key",
    "keys",
    multiple=True,
    metavar="PUBKEY",
    help="Trust only this public key of a bundle. Repeatable.",
)
@click.pass_context
def command(
    ctx: click.Context,
    /,
    host: HostApi,
    run: str | None,
    whole: bool,
    until: str | None,
    step: bool,
    against: Path | None,
    lines: bool,
    otlp: str | None,
    bundle: Path | None,
    keys: tuple[str, ...],
    as_json: bool,
    **of_all: object,
) -> None:
    """
    Execute RUN again over its log without side effects.

    No tool server is started or called, and no credential is read. The replay stops
    at the first difference and prints the event, the place in it, and both values.
    Another module, with --against, may use other fuel and write other log lines.

    With --lines, a program is executed once more to learn the lines of its calls. They
    are its own account; if it does something else then, none are known.

    If the log has only the digest of an answer (record = "hash"), the replay ends at
    that call: what follows can be verified, but not executed.

    The calls of a session are judged again by the grant that was recorded: a client
    made them, and what it did between them is not in the log.

    --to-otlp sends the replay to URL, the base URL of an OTLP receiver over HTTP, or to
    that of [telemetry] or the environment. Its spans are marked as a replay, linked to
    those of the run, and the same each time.

    With --all, each recorded run that the filters select is a test of a change: of
    another module or program of --agent, of grants, or of the definition of a tool.
    Runs are grouped by their first difference.

    \b
    Exit codes: 0 identical; 1 the receiver refused, or with --all, a run failed; 2 no
      such run, erased, or it cannot be replayed to its end; 4 diverged, or calls are
      newly denied or allowed; 5 the bundle is broken, or not signed by a trusted key.

    \b
    Examples:
      caxton replay @last
      caxton replay 0198 --until 7 --json
      caxton replay @last --step
      caxton replay @last --lines
      caxton replay @last --to-otlp http://localhost:4318
      caxton replay @last --against new.wasm
      caxton replay --all --agent weather --against new.wasm --junit junit.xml
      caxton replay --all --since 7d --grants new.toml
      caxton replay --bundle run.caxton --key 3b6a27bc...
    """
    if [run is not None, bundle is not None, whole].count(True) != 1:
        raise click.UsageError("Name RUN, --bundle and a file, or --all.", ctx)
    if whole:
        of_all["otlp"] = otlp
        ctx.exit(_all(ctx, host, until, against, of_all, as_json=as_json))
    if any(of_all.values()):
        raise click.UsageError("Filters, --grants and --tool need --all.", ctx)
    _check(
        step=step,
        lines=lines,
        as_json=as_json,
        part=bool(until or against),
        sent=otlp is not None,
    )
    seq = None if until is None else click.IntRange(min=1)(until, ctx=ctx)
    wanted = _Wanted(
        run=run or "", until=seq, step=step, against=against, lines=lines, otlp=otlp
    )
    with interrupt.interruptible() if step else nullcontext():
        if bundle is None:
            found, spans = wait(_replay(host, wanted))
        elif believed := believe(host, bundle, keys):
            found, spans = wait(_replay_bundle(host, believed, wanted))
        else:
            ctx.exit(AUDIT)
    if as_json:
        more = {"lines": found.lines_document()} if lines else {}
        show(found.to_document() | more | _sent(host, spans, otlp))
    else:
        tell(found, lines=lines)
        _sent(host, spans, otlp)
    if found.divergence:
        complain(
            f"diverged at {found.divergence}",
            host.named(f"compare it with caxton events list {found.run_id}"),
        )
        ctx.exit(DIVERGED)
    if found.not_kept:
        complain(str(found.not_kept), found.not_kept.fix)
        ctx.exit(USAGE)


def _sent(
    host: HostApi, spans: ReplaySpans | None, otlp: str | None
) -> dict[str, JSON]:
    """Send *spans*, if there are any, and return what a document says of that."""
    if spans is None:
        return {}
    from ..telemetry.export import host as host_of

    url = receiver(host.look("telemetry"), otlp, "--to-otlp")
    with patience("sending spans"):
        sent = spans.deliver(url)
    note(f"sent {counted(sent, 'span')} to {host_of(url)}, trace {spans.trace_id}")
    return {"trace_id": spans.trace_id, "spans": sent}


def _check(*, step: bool, lines: bool, as_json: bool, part: bool, sent: bool) -> None:
    """
    Return if the options of a replay go together.

    Raises:
        UsageError: They do not.
    """
    if step and as_json:
        raise UsageError(
            "--step speaks to a person, --json to a program", fix="leave one out"
        )
    if lines and (part or step or sent):
        raise UsageError(
            "--lines is for a whole run and its own program",
            fix="leave out --until, --step, --against and --to-otlp",
        )


def _all(
    ctx: click.Context,
    host: HostApi,
    until: str | None,
    against: Path | None,
    given: dict[str, object],
    *,
    as_json: bool,
) -> int:
    from .history import All, judge_all

    of_all = cast("dict[str, Any]", given)
    own = {key: of_all.pop(key) for key in ("grants", "fresh", "junit", "html")}
    tool: str | None = of_all.pop("tool")
    if of_all.pop("otlp") is not None:
        raise click.UsageError("--to-otlp sends one replay: name its run.", ctx)
    name, is_changed, file = (tool or "").partition("=")
    if sum(map(bool, (against, own["grants"], is_changed))) > 1:
        raise click.UsageError("Change one thing: --against, --grants or --tool.", ctx)
    before = None if until is None else Moment()(until, ctx=ctx)
    wanted = All(
        only=RunFilter(**of_all, until=before, tool=name or None),
        against=against,
        definition=Path(file) if is_changed else None,
        **own,
    )
    return judge_all(host, wanted, as_json=as_json)


def tell(found: Replayed, *, lines: bool = False) -> None:
    """Print how a replay went, and if asked the *lines* of its calls."""
    for call, line in sorted((found.lines or {}).items()):
        say(f"call {call}: line {line}")
    if lines and not found.lines:
        note("no line is known: it is no program, or told none, or did something else")
    upto = f" up to event {found.until}" if found.until else ""
    if not found.executed:
        say(f"{found.verdict}{upto}: {counted(found.calls, 'call')} judged again")
        note(
            f"run {found.run_id} is a session: a client made its calls, so nothing is "
            "executed, and the grant that was recorded judges them again"
        )
        return
    answered = (found.not_kept.call or 1) - 1 if found.not_kept else found.calls
    say(f"{found.verdict}{upto}: {counted(answered, 'call')} answered from the log")
    note(f"replayed run {found.run_id}; no tool was called")
    if found.state == "running" and not found.until:
        note("the run has not ended; the replay covers the recorded part")


async def _replay(
    host: HostApi, wanted: _Wanted
) -> tuple[Replayed, ReplaySpans | None]:
    config = host.settings(*_OF_REPLAY)
    async with host.history() as store:
        run_id = await store.find_run(wanted.run)
        return await _execute(host, config, run_id, store, wanted)


async def _replay_bundle(
    host: HostApi, bundle: Bundle, wanted: _Wanted
) -> tuple[Replayed, ReplaySpans | None]:
    from ..store.bundle_store import BundleStore

    store = BundleStore(bundle)
    return await _execute(
        host, host.look(*_OF_REPLAY), bundle.header.run, store, wanted
    )


async def _execute(
    host: HostApi, config: Config, run_id: str, store: Streams, wanted: _Wanted
) -> tuple[Replayed, ReplaySpans | None]:
    from ..app.bootstrap import open_sandbox
    from ..runs.recording import Recording
    from ..runs.replay import Options, replay
    from ..telemetry import observe

    module, program, pause, spans = None, None, None, None
    sends = wanted.otlp is not None
    if wanted.against or wanted.step or sends:
        recording = await Recording.load(run_id, store)
        if wanted.against:
            module, program = read_instead(
                wanted.against, recording.started, recording.limits.module
            )
        if wanted.step:
            pause = Stepper(recording.history).pause
        if sends:
            spans = _spans_of(config, recording, wanted)
    async with AsyncExitStack() as stack:
        telemetry = (
            spans.observer()
            if spans
            else observe(config.telemetry.endpoint, os.environ)
        )
        stack.callback(telemetry.close)
        sandbox = await stack.enter_async_context(
            open_sandbox(host.paths(), config.places)
        )
        # No spinner on the terminal while a person types.
        with nullcontext() if pause else patience("replaying"):
            execute = partial(
                replay, run_id, store=store, sandbox=sandbox, telemetry=telemetry
            )
            options = Options(
                until=wanted.until, against=module, program=program, pause=pause
            )
            found = await execute(options=options)
            if not wanted.lines or found.divergence:
                return found, spans
            told = await execute(options=Options(lines=True))
            return replace(found, lines=told.lines), None


def _spans_of(config: Config, recording: Recording, wanted: _Wanted) -> ReplaySpans:
    """
    Return what makes the spans of a replay.

    Raises:
        UsageError: There is nowhere to send them, or nothing that is executed again.
    """
    from ..telemetry.replay_spans import ReplaySpans

    receiver(config, wanted.otlp, "--to-otlp")
    if recording.is_session:
        run_id = recording.run_id
        raise UsageError(
            f"run {run_id} is a session, which is not executed again",
            fix=f"send its own trace: caxton events export --to-otlp {run_id}",
        )
    part = recording.until(wanted.until) if wanted.until else recording
    return ReplaySpans(part, os.environ)


HELP = """\
next [N]   go on to the next call, or N calls on; an empty line does the same
continue   go on to the end
event      print the recorded events of this call, one JSON document a line
log        print the log lines so far
quit       stop here; the end of the input does the same
help       this; n, c, e, l, q and h will do"""

_COMMANDS = ("next", "continue", "event", "log", "quit", "help")
_MAX_LINE = 4096
_MAX_DIGITS = 10


class Stepper:
    """
    Stops a replay at its calls, and executes typed commands.

    Args:
        history: The events of the run, behind those that it inherited.
    """

    def __init__(self, history: Sequence[Recorded]) -> None:
        self._history = history
        self._lines = {
            e.event.n: e.event for e in history if isinstance(e.event, LogWritten)
        }
        self._next: float = 1

    async def pause(self, number: int, lines: int) -> None:
        """
        Show call *number*, and return to continue the replay.

        Args:
            number: The call; it has its answer.

            lines: How many log lines were written so far.

        Raises:
            Halt: It is to stop here.
        """
        from ..runs.replay import Halt

        if number < self._next:
            return
        events = [e for e in self._history if call_of(e) == number]
        for recorded in events:
            _show(number, recorded)
        while True:
            word, *more = _typed()
            if word == "next" and (count := _count(more)):
                self._next = number + count
                return
            if word == "continue":
                self._next = math.inf
                return
            if word == "quit":
                raise Halt
            if word == "event":
                for recorded in events:
                    click.echo(to_json(event_document(recorded)))
            elif word == "log":
                self._log(lines)
            else:
                say(HELP)

    def _log(self, lines: int) -> None:
        for n in range(1, lines + 1):
            if line := self._lines.get(n):
                say(f"{line.level}: {plain(line.text)}")
        if not lines:
            note("no log line so far")


def _show(number: int, recorded: Recorded) -> None:
    if isinstance(recorded.event, ToolInvoked):
        say(f"call {number} (event {recorded.seq})  {remark(recorded)}")
    else:
        say(f"  event {recorded.seq}  {recorded.type}  {remark(recorded)}")


def _typed() -> list[str]:
    """Return the typed command, in full, and its arguments."""
    if sys.stdin.isatty():
        click.echo("(step) ", nl=False, err=True)
    line = sys.stdin.buffer.readline(_MAX_LINE)
    if not line:
        return ["quit"]
    word, *more = line.decode(errors="replace").split() or ["next"]
    for command in _COMMANDS:
        if command.startswith(word):
            return [command, *more]
    note(f"no such command: {plain(word)}")
    return ["help"]


def _count(words: Sequence[str]) -> int:
    """Return the number of calls to continue, or 0 if it is not a number."""
    if not words:
        return 1
    text = words[0]
    return int(text) if text.isdecimal() and len(text) < _MAX_DIGITS else 0
