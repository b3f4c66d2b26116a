"""The report of a run: what happened, the output, and the next commands."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..core.calls import JSON
from ..core.grants.approvals import VERDICTS, Verdict
from ..core.grants.freezes import Halted, frozen_in
from ..core.log.asked import Asked
from ..core.log.events import (
    ApprovalRequested,
    LogWritten,
    RunStarted,
    RunSuspended,
    ToolProgress,
)
from ..core.log.projection import summarise
from ..core.log.runs import RunSummary, call_list
from ..errors import RestoredError
from .context import HostApi
from .output import (
    FAILED,
    SUSPENDED,
    clipped,
    complain,
    counted,
    note,
    plain,
    say,
    show,
    to_json,
)
from .overrides import Overrides
from .run_text import failure, report, told

if TYPE_CHECKING:
    from ..core.analysis.checking import Known
    from ..runs.recording import Recording


_WIDTH, _SHORT = 200, 60


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReport:
    """
    Prints how a run went.

    Attributes:
        host: Drives the run.

        given: What the command line added; a command that goes on needs it again.

        quiet: Print only the output.

        as_json: Print only the document of the run.

        is_configured: Whether the agent of a name has a table in ``caxton.toml``.

        servers: Returns every server that a grant of a run could name.

        known: Returns what servers offer, as far as it is known.
    """

    host: HostApi
    given: Overrides
    quiet: bool
    as_json: bool
    is_configured: Callable[[str], bool] = field(default=lambda _: True)
    servers: Callable[[RunStarted], Collection[str]] = field(
        default=lambda started: started.servers
    )
    known: Callable[[], Known] = dict

    @property
    def watch(self) -> Callable[[str, ToolProgress], None]:
        """The callback for the progress of calls."""
        from ..runs.executor import unwatched

        return unwatched if self.quiet or self.as_json else print_progress

    def ending(self, recording: Recording) -> int:
        """Print how a run went, and return its exit code."""
        run = summarise(recording.run_id, recording.own)
        if not self.quiet:
            report(
                run,
                recording.own,
                configured=self.is_configured(run.agent),
                servers=self.servers(recording.started),
                known=self.known,
            )
        if self.as_json:
            show({**run.to_document(), "call_list": call_list(recording.own)})
        elif run.state == "completed" and run.output is not None:
            say(to_json(run.output))
        elif run.state == "completed" and recording.started.program and not self.quiet:
            self._without_output(recording)
        if run.state == "suspended":
            self.suspension(recording)
        failure(run, recording.own, self.host.named)
        return code_of(run)

    def _without_output(self, recording: Recording) -> None:
        """Tell where the lines are that a program printed, as first programs do."""
        lines = sum(isinstance(each.event, LogWritten) for each in recording.own)
        where = f"{self.host.command()} events list {recording.run_id}"
        said = f"; {counted(lines, 'line')} in its log: {where}" if lines else ""
        note(f"no output: what run() returns is the output{said}")

    def recorded(self, recording: Recording) -> int:
        """Print the state of a run that is not resumed, and return 0."""
        run = summarise(recording.run_id, recording.own)
        if self.as_json:
            show(run.to_document())
        note(f"recorded; run {recording.run_id} is {run.state}")
        return 0

    def deciding(self, run_id: str, asked: Asked, verdict: Verdict) -> str:
        """Return the command that decides about a call; see `deciding`."""
        return deciding(self.host, run_id, asked, verdict, self.given)

    def resolving(self, run_id: str, seq: int | None, choice: str = "--retry") -> str:
        """Return the command that resolves a call; see `resolving`."""
        return resolving(self.host, run_id, seq, choice, self.given)

    def suspension(self, recording: Recording) -> None:
        """Print what a suspended run waits for, and the commands that end it."""
        from ..lib.machine import SystemClock
        from ..runs.approvals import open_questions

        run_id, waiting = recording.run_id, recording.journal().in_doubt
        if recording.is_restored:
            error = RestoredError(run_id)
            complain(str(error), self.host.named(error.fix))
            return
        if halted := halted_in(recording):
            complain(
                f"run {run_id} is suspended: {halted}",
                f"{self.host.command()} runs resume {run_id}, after "
                f"{self.host.named(halted.fix)}",
            )
            return
        if stopped(recording):
            complain(
                f"run {run_id} is suspended, for its host was stopped",
                f"{self.host.command()} runs resume {run_id}",
            )
            return
        if callee := recording.waits_for:
            complain(
                f"run {run_id} is suspended, for it waits for run {callee}",
                f"{self.host.command()} runs show {callee}",
            )
            return
        if isinstance(recording.latest.event, RunSuspended) and not waiting:
            self._unapproved(run_id, open_questions(recording, SystemClock().now()))
            return
        for doubt in waiting:
            call = doubt.invoked
            params = clipped(plain(to_json(call.params)), _WIDTH)
            note(f"in doubt: call {call.call} (event {doubt.seq}) {call.name} {params}")
            note("  it was sent; its outcome is unknown. One of these resumes the run:")
            for choice in ("--retry", "--result FILE", "--fail", "--abort"):
                note(f"  {self.resolving(run_id, doubt.seq, choice)}")
        seq = waiting[0].seq if waiting else None
        complain(
            f"run {run_id} is suspended",
            f"find out whether it happened, then {self.resolving(run_id, seq)}",
        )

    def _unapproved(self, run_id: str, waiting: Sequence[Asked]) -> None:
        for asked in waiting:
            call = asked.requested
            params = clipped(plain(to_json(call.params)), _WIDTH)
            note(f"waits for an approval: call {call.call} (event {asked.seq})")
            note(f"  {call.server}/{call.tool} {params}")
            note(f"  {self.host.command()} approval show {run_id} {asked.seq}")
            for verdict in VERDICTS:
                note(f"  {deciding(self.host, run_id, asked, verdict, self.given)}")
        complain(
            f"run {run_id} is suspended",
            f"decide: {deciding(self.host, run_id, waiting[0], 'approve', self.given)}"
            if waiting
            else f"{self.host.command()} runs resume {run_id}",
        )


def halted_in(recording: Recording) -> Halted | None:
    """Return why a run is suspended if it was frozen."""
    last = recording.latest.event
    found = frozen_in(last)
    return Halted(getattr(last, "call", None) or 0, found) if found else None


def stopped(recording: Recording) -> bool:
    """Return whether a run waits for a host rather than a person."""
    last = recording.latest.event
    return isinstance(last, RunSuspended) and last.reason == "host_stopped"


def print_progress(_run: str, event: ToolProgress) -> None:
    """Print the progress of a call."""
    note(f"call {event.call}: {clipped(told(event), _WIDTH)}")


def going_on(host: HostApi, recording: Recording) -> str:
    """Return what says how a run goes on that nothing holds up."""
    if recording.is_session:
        return "the session goes on when its client calls again"
    return f"to go on: {host.command()} runs resume {recording.run_id}"


def decided(host: HostApi, recording: Recording, *, as_json: bool) -> int:
    """Print how a run goes on that a decision does not resume, and return 0."""
    if as_json:
        show(summarise(recording.run_id, recording.own).to_document())
    note(going_on(host, recording))
    return 0


def resolving(
    host: HostApi,
    run_id: str,
    seq: int | None,
    choice: str = "--retry",
    given: Overrides | None = None,
) -> str:
    """Return the command that resolves a call."""
    words = [host.command(), "runs resolve", run_id, str(seq), choice]
    words += ['--reason "..."', given.options() if given else ""]
    return " ".join(filter(None, words))


def deciding(
    host: HostApi,
    run_id: str,
    asked: Asked,
    verdict: Verdict,
    given: Overrides | None = None,
) -> str:
    """Return the command that approves or denies a call."""
    words = [host.command(), "approval", verdict, run_id, str(asked.seq)]
    words += host.role_options(asked.requested.by)
    words += ['--reason "..."', given.options() if given else ""]
    return " ".join(filter(None, words))


def named(call: ApprovalRequested) -> str:
    """Return a call that waits for approval, in a line."""
    params = clipped(plain(to_json(call.params)), _SHORT)
    return f"call {call.call}, {call.server}/{call.tool} {params}"


def described(asked: Asked) -> list[str]:
    """Return the lines that show a call for approval: all that would be sent."""
    call = asked.requested
    by = " or ".join(map(str, call.by)) or "anybody"
    what = "an approval" if call.count == 1 else f"{call.count} approvals"
    but = f", but not by {call.not_by.get('id')}" if call.not_by else ""
    new = f", signed in within {call.fresh:g} s" if call.fresh else ""
    yes = ", ".join(f"{one.actor.get('id')}" for one in asked.counted.values())
    return [
        f"call   {call.call} (event {asked.seq})  {call.server}/{call.tool}",
        f"rule   {call.rule} needs {what} by {by}{but}{new}",
        *([f"given  {len(asked.counted)} of {call.count}, by {yes}"] if yes else []),
        *to_json(call.params, indent=2).split("\n"),
        *map(_sourced, (call.sources or {}).items()),
    ]


def _sourced(found: tuple[str, JSON]) -> str:
    path, places = found
    listed = places if isinstance(places, list) else []
    known = [one for one in listed if isinstance(one, dict)]
    texts = (f"{one['source']} (call {one['call']}, {one['path']})" for one in known)
    return f"from   {path}: {', '.join(texts) or 'no source that the rule names'}"


def code_of(run: RunSummary) -> int:
    """Return the exit code that stands for the state of a run."""
    if run.state == "suspended":
        return SUSPENDED
    return 0 if run.state == "completed" else FAILED
