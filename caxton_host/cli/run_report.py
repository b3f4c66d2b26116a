"""How a run went, told where it was driven: what happened, the output, what to do."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from ..core.calls import JSON
from ..core.grants.approvals import VERDICTS, Asked, Verdict
from ..core.grants.grants import Grant
from ..core.log.events import ApprovalRequested, RunSuspended, ToolProgress
from ..core.log.runs import RunSummary, call_list, summarise
from ..errors import RestoredError
from .context import Frame
from .exits import FAILED, SUSPENDED
from .output import clipped, complain, note, plain, say, show, to_json
from .overrides import Overrides
from .run_outcome import failure, report
from .show import told

if TYPE_CHECKING:
    from ..config import Config
    from ..runs.recording import Recording


_WIDTH, _SHORT = 200, 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """
    Tells how runs went.

    Attributes:
        given: What the command line added; a command that goes on needs it again.

        quiet: Only the output.

        as_json: Only the document of the run.

        private: Variables that only servers get to see.

        restored: A run goes on although its log is a copy.
    """

    frame: Frame
    config: Config
    given: Overrides
    quiet: bool
    as_json: bool
    private: Mapping[str, JSON] = field(default_factory=dict[str, JSON], repr=False)
    restored: bool = False

    @property
    def watch(self) -> Callable[[str, ToolProgress], None]:
        """What tells of a call while it lasts."""
        from ..runs.executor import unwatched

        return unwatched if self.quiet or self.as_json else progressed

    def again(self) -> Config:
        """Read the configuration again, with what the command line added."""
        return self.given.servers_in(self.frame.load())

    def ending(self, recording: Recording) -> int:
        """Tell how a run went, and return the exit code that stands for it."""
        run = summarise(recording.run_id, recording.own)
        if not self.quiet:
            self._report(run, recording)
        if self.as_json:
            show({**run.to_document(), "call_list": call_list(recording.own)})
        elif run.state == "completed" and run.output is not None:
            say(to_json(run.output))
        if run.state == "suspended":
            self.suspension(recording)
        failure(run, recording.own, self.frame.named)
        return code_of(run)

    def _report(self, run: RunSummary, recording: Recording) -> None:
        from ..app.tool_setup import server_names
        from .offered import known

        there = self.frame.there is not None
        report(
            run,
            recording.own,
            configured=there or run.agent in self.config.agents,
            servers=recording.started.servers if there else server_names(self.config),
            known=dict if there else partial(known, self.config, start=False),
        )

    def todays(self, name: str) -> Grant:
        """Return what the operator grants an agent now."""
        agent = self.config.agents.get(name)
        return self.given.added_to(agent.grant if agent else Grant(), self.config)

    def resolving(self, run_id: str, seq: int | None, choice: str = "--retry") -> str:
        """Return the command that resolves a call; see `resolving`."""
        return resolving(self.frame, run_id, seq, choice, self.given)

    def suspension(self, recording: Recording) -> None:
        """Tell what a suspended run waits for, and the commands that end it."""
        from ..lib.machine import SystemClock
        from ..runs.approvals import open_questions

        run_id, waiting = recording.run_id, recording.journal().in_doubt
        if recording.is_restored:
            error = RestoredError(run_id)
            complain(str(error), self.frame.named(error.fix))
            return
        if stopped(recording):
            complain(
                f"run {run_id} is suspended, for its host was stopped",
                f"{self.frame.command()} runs resume {run_id}",
            )
            return
        if isinstance(recording.latest.event, RunSuspended) and not waiting:
            self._unapproved(run_id, open_questions(recording, SystemClock().now()))
            return
        for doubt in waiting:
            call = doubt.invoked
            params = clipped(plain(to_json(call.params)), _WIDTH)
            note(f"in doubt: call {call.call} (event {doubt.seq}) {call.name} {params}")
            note("  it was sent; whether it happened is unknown. One of these goes on:")
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
            note(f"  {self.frame.command()} approval show {run_id} {asked.seq}")
            for verdict in VERDICTS:
                note(f"  {deciding(self.frame, run_id, asked, verdict, self.given)}")
        complain(
            f"run {run_id} is suspended",
            f"decide: {deciding(self.frame, run_id, waiting[0], 'approve', self.given)}"
            if waiting
            else f"{self.frame.command()} runs resume {run_id}",
        )


def stopped(recording: Recording) -> bool:
    """Return whether a run waits for a host, and not for a person."""
    last = recording.latest.event
    return isinstance(last, RunSuspended) and last.reason == "host_stopped"


def progressed(_run: str, event: ToolProgress) -> None:
    """Print what is told of a call while it lasts."""
    note(f"call {event.call}: {clipped(told(event), _WIDTH)}")


def resolving(
    frame: Frame,
    run_id: str,
    seq: int | None,
    choice: str = "--retry",
    given: Overrides | None = None,
) -> str:
    """Return the command that resolves a call."""
    words = [frame.command(), "runs resolve", run_id, str(seq), choice]
    words += ['--reason "..."', given.options() if given else ""]
    return " ".join(filter(None, words))


def deciding(
    frame: Frame,
    run_id: str,
    asked: Asked,
    verdict: Verdict,
    given: Overrides | None = None,
) -> str:
    """Return the command that says a word about a call."""
    words = [frame.command(), "approval", verdict, run_id, str(asked.seq)]
    if frame.there is None:  # A host knows it by the token.
        words += [f"--as {shlex.quote(str(role))}" for role in asked.requested.by[:1]]
    words += ['--reason "..."', given.options() if given else ""]
    return " ".join(filter(None, words))


def named(call: ApprovalRequested) -> str:
    """Return a call that somebody is asked about, in a line."""
    params = clipped(plain(to_json(call.params)), _SHORT)
    return f"call {call.call}, {call.server}/{call.tool} {params}"


def described(asked: Asked) -> list[str]:
    """Return the lines that say what is asked: all that would be sent."""
    call = asked.requested
    by = " or ".join(map(str, call.by)) or "anybody"
    return [
        f"call   {call.call} (event {asked.seq})  {call.server}/{call.tool}",
        f"rule   {call.rule} wants the word of {by}",
        *to_json(call.params, indent=2).split("\n"),
    ]


def code_of(run: RunSummary) -> int:
    """Return the exit code that stands for the state of a run."""
    if run.state == "suspended":
        return SUSPENDED
    return 0 if run.state == "completed" else FAILED
