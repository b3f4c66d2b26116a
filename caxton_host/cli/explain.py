"""``caxton runs explain``: why a call was allowed or denied."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import click

from ..core.attribution import call_of
from ..core.calls import JSON, Completed, Denied, Failed, Outcome, Route
from ..core.catalogue import routes_from_payload
from ..core.decisions import Attempt, Refusal, Stage, Tally
from ..core.events import ApprovalRequested, ToolInvoked
from ..core.grants import Grant
from ..core.judging import ALLOWED, ASKS, Explanation, explain
from ..core.payloads import outcome_of
from ..core.remedies import remedy
from ..core.schemas import Mismatch
from ..errors import NotFoundError, NotKeptError, UsageError
from .frame import Frame, as_json, wait
from .judgement import (
    as_sent,
    considered,
    tell_asked,
    tell_remedy,
    tell_rules,
)
from .screen import plain, say, show

if TYPE_CHECKING:
    from ..core.events import Recorded
    from ..recording import Recording

__all__ = ["Call", "Checks", "document", "find", "of_run"]

#: By exposed name: where parameters are not as the schema of the tool wants them.
Checks: TypeAlias = Mapping[str, Callable[[JSON], Mismatch | None]]

#: What says what a call is; of one that people were asked about, there are two.
_INTENTS = (ToolInvoked, ApprovalRequested)
_OF_STORE: Mapping[str, Stage] = {"budget": "budget", "rate": "rate", "busy": "busy"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """
    A call that was made, and everything that decided about it.

    Attributes:
        seq: The place of its intent in the stream.

        invoked: Its intent, or, as long as it was not made, what people were asked.

        outcome: How it ended, or ``None``: it is in doubt, or waits for a word.

        explained: What the recorded grants say of it.

        tally: What the run had done by then.
    """

    run_id: str
    agent: str
    seq: int
    invoked: ToolInvoked | ApprovalRequested
    outcome: Outcome | None
    explained: Explanation
    tally: Tally

    @property
    def verdict(self) -> str:
        """``allowed``, ``asks``, or the code of the denial, as recorded."""
        if isinstance(self.outcome, Denied):
            return self.outcome.code
        return ASKS if isinstance(self.invoked, ApprovalRequested) else ALLOWED

    @property
    def ending(self) -> str:
        """How it ended, in words."""
        if isinstance(self.invoked, ApprovalRequested):
            return "waits for a person's word"
        return _ending(self.outcome)

    @property
    def rule(self) -> str | None:
        """The rule that decided, as recorded."""
        if isinstance(self.outcome, Denied):
            return self.outcome.rule
        return self.invoked.rule

    @property
    def remedy(self) -> str | None:
        """What would allow it, to paste; nothing if the grants are not the reason."""
        if self.verdict != self.explained.code:
            return None
        return remedy(self.agent, self.explained, self.tally)


@click.command("explain")
@click.argument("run")
@click.argument("seq", type=click.IntRange(min=1))
@as_json
@click.pass_obj
def of_run(frame: Frame, run: str, seq: int, as_json: bool) -> None:
    """
    Show why a call of RUN was allowed or denied. SEQ is any event of that call.

    Each rule of the recorded grants is shown with what it says of the call, as things
    stood when it was made.

    \b
    Examples:
      caxton runs explain @last 2
      caxton runs explain 0198 7 --json
    """
    found = find(*wait(_recording(frame, run)), seq)
    if as_json:
        show(document(found))
        return
    call = found.invoked
    say(f"call {call.call} (event {found.seq})  {call.name}")
    where = f"{call.server}/{call.tool}" if call.server else "no tool of this run"
    effect = f", effect {call.effect}" if isinstance(call, ToolInvoked) else ""
    say(f"leads to  {where}{effect}")
    say(f"params    {plain(call.params)}")
    say(f"verdict   {found.verdict}, rule {found.rule or 'none'}")
    tell_asked(found.explained)
    tell_rules(found.explained)
    say(f"ended     {found.ending}")
    tell_remedy(found.remedy)


async def _recording(frame: Frame, run: str) -> tuple[Recording, Checks]:
    """Return a run, and what compares parameters with the tools that it could see."""
    from ..bootstrap import open_store
    from ..recording import Recording, schemas_of
    from ..schemas import input_check

    config = frame.load()
    async with open_store(config, write=False) as store:
        run_id = await store.find_run(run)
        try:
            recording = await Recording.load(run_id, store)
        except NotKeptError as exc:
            raise NotKeptError(str(exc), fix=f"caxton runs show {run}") from None
        schemas: dict[str, dict[str, JSON]] = {}
        with suppress(NotFoundError):  # Its definitions are not kept here.
            schemas = schemas_of(await recording.guest("", store))
    routes = routes_from_payload(recording.started.catalogue)
    return recording, {
        name: as_sent(
            config, routes[name].server, routes[name].tool, input_check(schema)
        )
        for name, schema in schemas.items()
    }


def find(recording: Recording, checks: Checks, seq: int) -> Call:
    """
    Return the call that event *seq* of a run is about.

    Args:
        recording: The run.

        checks: Compare parameters with the schemas of tools, by exposed name.

        seq: Any event of the call.

    Raises:
        UsageError: It is about none.
    """
    history = recording.own
    chosen = next((e for e in history if e.seq == seq), None)
    number = call_of(chosen) if chosen else None
    intents = {e.event.call: e for e in history if isinstance(e.event, _INTENTS)}
    if number is None or number not in intents:
        what = f"is {chosen.type}, not of a call" if chosen else "does not exist"
        known = ", ".join(str(e.seq) for e in intents.values()) or "none"
        raise UsageError(
            f"event {seq} {what}; calls of this run are at events: {known}",
            fix="name one of those events",
        )
    ends = (outcome_of(e.event) for e in history if e.event)
    outcome = next((end[1] for end in ends if end and end[0] == number), None)
    return _call(recording, checks, intents[number], outcome)


def _call(
    recording: Recording, checks: Checks, intent: Recorded, outcome: Outcome | None
) -> Call:
    from ..codec import encode
    from ..schemas import fits

    invoked = intent.event
    assert isinstance(invoked, _INTENTS)  # noqa: S101 -- see `find`
    route = None
    if invoked.server is not None and invoked.tool is not None:
        route = Route(server=invoked.server, tool=invoked.tool)
    params = invoked.params or {}
    attempt = Attempt(
        route=route,
        params=params,
        size=len(encode(params)),
        now=intent.recorded_at,
        matches=fits,
        schema=checks.get(invoked.name),
        refused=_refused(outcome),
    )
    tally = recording.until(intent.seq - 1).journal().tally
    return Call(
        run_id=recording.run_id,
        agent=recording.started.agent,
        seq=intent.seq,
        invoked=invoked,
        outcome=outcome,
        explained=explain(Grant.from_payload(recording.started.grants), attempt, tally),
        tally=tally,
    )


def _refused(outcome: Outcome | None) -> dict[str, Refusal]:
    """Return what the store refused: what runs had spent together is not in the log."""
    if not isinstance(outcome, Denied) or outcome.rule is None:
        return {}
    stage = _OF_STORE.get(outcome.code)
    return {outcome.rule: Refusal(stage, outcome.message)} if stage else {}


def document(found: Call) -> dict[str, JSON]:
    """Return the ``caxton.explanation/v1`` document of a call that was made."""
    call = found.invoked
    return {
        "$type": "caxton.explanation/v1",
        "run_id": found.run_id,
        "seq": found.seq,
        "call": call.call,
        "name": call.name,
        "server": call.server,
        "tool": call.tool,
        "params": call.params,
        "verdict": found.verdict,
        "rule": found.rule,
        "considered": considered(found.explained),
        "ended": found.ending,
        "remedy": found.remedy,
    }


def _ending(outcome: Outcome | None) -> str:
    if outcome is None:
        return "in doubt"
    if isinstance(outcome, Completed):
        return f"{'tool error' if outcome.is_error else 'ok'}: {plain(outcome.message)}"
    if isinstance(outcome, Failed):
        how = f"failed ({outcome.kind}, sent {outcome.sent})"
        return f"{how}: {plain(outcome.message)}"
    return f"denied: {plain(outcome.message)}"
