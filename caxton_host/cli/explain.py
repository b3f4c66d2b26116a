"""Why a call is allowed or denied: one that was made, or one that could be."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from ..core.attribution import call_of
from ..core.calls import JSON, Completed, Denied, Failed, Outcome, Route
from ..core.decisions import Allowed, Attempt, Refusal, Stage, Tally, decide
from ..core.events import ApprovalRequested, ToolInvoked
from ..core.grants import Grant
from ..core.judging import ALLOWED, ASKS, Explanation, explain
from ..core.payloads import outcome_of
from ..core.remedies import remedy
from ..errors import NotFoundError, NotKeptError, UsageError
from .exits import FAILED, SUSPENDED
from .frame import Frame, as_json, wait
from .judgement import agent_of, considered, tell_asked, tell_remedy, tell_rules
from .params import Words
from .screen import plain, say, show
from .tools import split

if TYPE_CHECKING:
    from ..core.events import Recorded
    from ..recording import Recording

__all__ = ["Call", "document", "find", "of_agent", "of_run"]

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


async def _recording(
    frame: Frame, run: str
) -> tuple[Recording, dict[str, dict[str, JSON]]]:
    """Return a run, and the schemas of the tools that it could see."""
    from ..recording import Recording, schemas_of

    async with frame.store() as store:
        run_id = await store.find_run(run)
        try:
            recording = await Recording.load(run_id, store)
        except NotKeptError as exc:
            raise NotKeptError(str(exc), fix=f"caxton runs show {run}") from None
        schemas: dict[str, dict[str, JSON]] = {}
        with suppress(NotFoundError):  # Its definitions are not kept here.
            schemas = schemas_of(await recording.guest("", store))
        return recording, schemas


def find(
    recording: Recording, schemas: Mapping[str, Mapping[str, JSON]], seq: int
) -> Call:
    """
    Return the call that event *seq* of a run is about.

    Args:
        recording: The run.

        schemas: Of the parameters of the tools that it could see, by exposed name.

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
    return _call(recording, schemas, intents[number], outcome)


def _call(
    recording: Recording,
    schemas: Mapping[str, Mapping[str, JSON]],
    intent: Recorded,
    outcome: Outcome | None,
) -> Call:
    from ..codec import encode
    from ..schemas import fits, input_check

    invoked = intent.event
    assert isinstance(invoked, _INTENTS)  # noqa: S101 -- see `find`
    route = None
    if invoked.server is not None and invoked.tool is not None:
        route = Route(server=invoked.server, tool=invoked.tool)
    params = invoked.params or {}
    schema = schemas.get(invoked.name)
    attempt = Attempt(
        route=route,
        params=params,
        size=len(encode(params)),
        now=intent.recorded_at,
        matches=fits,
        schema=None if schema is None else input_check(schema),
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


# -- a call that could be made ---------------------------------------------------


@click.command("explain")
@click.argument("agent")
@click.argument("tool", metavar="SERVER/TOOL")
@click.argument("params", nargs=-1, metavar="[JSON | KEY=VALUE...]")
@click.option(
    "--after",
    metavar="SERVER/TOOL",
    multiple=True,
    help="As if the run had called that before, with success. May be repeated.",
)
@as_json
@click.pass_obj
@click.pass_context
def of_agent(
    ctx: click.Context,
    frame: Frame,
    agent: str,
    tool: str,
    params: tuple[str, ...],
    after: tuple[str, ...],
    as_json: bool,
) -> None:
    """
    Show whether AGENT may call SERVER/TOOL with these parameters, and why.

    Each rule is shown with what it says of the call, and what would allow it if it is
    denied. Nothing is called, started or recorded. It is judged as the first call of a
    run, but for what --after says.

    \b
    Exit codes: 0 it is allowed; 1 it is denied; 2 usage or configuration; 3 it waits
    for a person's word.

    \b
    Examples:
      caxton grant explain weather demo/get_weather '{"location": "Oslo"}'
      caxton grant explain weather demo/echo text=hi --after demo/get_weather
    """
    from ..clock import SystemClock
    from ..codec import encode
    from ..schemas import fits, input_check
    from .offered import known

    config = frame.load()
    one = agent_of(config, agent)
    server, name = split(tool)
    values = Words.read(params).params({})
    schema = (known(config, start=False).get(server) or {}).get(name)
    tally = Tally()
    for before in map(split, after):
        _spend(one.grant, before, tally)
    attempt = Attempt(
        route=Route(server=server, tool=name),
        params=values,
        size=len(encode(values)),
        now=SystemClock().now(),
        matches=fits,
        schema=input_check(schema) if isinstance(schema, dict) else None,
    )
    explained = explain(one.grant, attempt, tally)
    lacks = remedy(agent, explained, tally)
    if as_json:
        show(
            {
                "$type": "caxton.judgement/v1",
                "agent": agent,
                "server": server,
                "tool": name,
                "params": values,
                "verdict": explained.code,
                "rule": explained.rule,
                "considered": considered(explained),
                "remedy": lacks,
            }
        )
    else:
        say(f"verdict   {explained.code}, rule {explained.rule or 'none'}")
        tell_asked(explained)
        tell_rules(explained)
        tell_remedy(lacks)
    if explained.code == ASKS:
        ctx.exit(SUSPENDED)
    if explained.code != ALLOWED:
        ctx.exit(FAILED)


def _spend(grant: Grant, target: tuple[str, str], tally: Tally) -> None:
    server, tool = target
    verdict = decide(grant, Attempt(route=Route(server=server, tool=tool)), tally)
    if isinstance(verdict, Allowed):
        tally.used[verdict.rule.id] += 1
    tally.called.add(target)
    tally.done.add(target)
