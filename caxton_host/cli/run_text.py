"""Runs, events and calls as text for people."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from functools import cache

from ..core.analysis.checking import Known, astray
from ..core.analysis.grant_hints import grant_for, unoffered
from ..core.calls import JSON, Completed, Denied, Outcome
from ..core.clients import table_of
from ..core.grants.bounds import TODAY, bounds_of, grant_of
from ..core.grants.grants import Grant
from ..core.log.events import (
    ApprovalDecided,
    ApprovalRequested,
    LogWritten,
    Recorded,
    RunCompleted,
    RunFailed,
    RunStarted,
    ToolCompleted,
    ToolDenied,
    ToolFailed,
    ToolInvoked,
    ToolProgress,
    ToolRetried,
    event_document,
    outcome_of,
    to_payload,
)
from ..core.log.runs import ExportLine, RunSummary, call_of, callee_of
from ..core.names import meant_tool
from ..core.text.templates import unfilled
from ..core.tools.contexts import BUILT_IN
from .output import clipped, complain, counted, note, plain, to_json

_ROW_WIDTH = 100


def line_document(line: ExportLine) -> dict[str, JSON]:
    """Return the document of an exported event, which stands alone."""
    document = event_document(line.recorded)
    document["run"] = line.run
    document["agent"] = line.agent
    document["actor"] = line.actor
    document["tool"] = line.tool
    document["outcome"] = line.outcome
    return document


def moment(at_us: int) -> str:
    """
    Return a time of an event, to the millisecond, UTC.

    >>> moment(1_700_000_000_123_456)
    '2023-11-14 22:13:20.123'
    """
    then = datetime.fromtimestamp(at_us / 1e6, UTC)
    return then.strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]


def second(at_us: int) -> str:
    """Return a time of an event, to the second, UTC."""
    return moment(at_us).partition(".")[0]


def told(event: ToolProgress) -> str:
    """
    Return the text of a progress event.

    >>> told(ToolProgress(call=1, message="reading", progress=1.0, total=3.0))
    '1 of 3 reading'
    """
    far = "" if event.progress is None else f"{event.progress:g}"
    if far and event.total is not None:
        far += f" of {event.total:g}"
    return " ".join(filter(None, (far, plain(event.message))))


def remark(recorded: Recorded) -> str:  # noqa: C901, PLR0911 -- a table of types
    """Return the main content of an event, in a line."""
    match recorded.event:
        case None:
            return "erased"
        case RunStarted() as event:
            return f"{event.agent} {event.module_sha256[:12]} {plain(event.input)}"
        case ToolInvoked() | ApprovalRequested() as event:
            return f"{event.name} {plain(event.params)}"
        case ToolCompleted() as event:
            how = "tool error" if event.is_error else "ok"
            how += ", cached" if event.cached else ""
            return f"{how}: {plain(event.data if event.cut else event.message)}"
        case ToolDenied() as event:
            return f"{event.code}: {plain(event.message)}"
        case ToolFailed() as event:
            return f"{event.kind}, sent {event.sent}: {plain(event.message)}"
        case ApprovalDecided() as event:
            role = f" as {event.role}" if event.role else ""
            said = f"{event.verdict} by {plain(event.actor.get('id'))}{role}"
            return f"{said}: {plain(event.reason)}"
        case LogWritten() as event:
            return f"{event.level}: {plain(event.text)}"
        case ToolProgress() as event:
            return told(event)
        case RunCompleted() as event:
            return plain(event.output)
        case RunFailed() as event:
            return f"{event.kind}: {plain(event.message)}"
        case event:
            return ", ".join(f"{k}={plain(v)}" for k, v in to_payload(event).items())


def rows(history: Sequence[Recorded]) -> list[tuple[object, ...]]:
    """Return the table of a stream: seq, call, time, type, remark."""
    return [
        (
            e.seq,
            call_of(e),
            moment(e.recorded_at),
            e.type,
            clipped(remark(e), _ROW_WIDTH),
        )
        for e in history
    ]


def bound_lines(bounds: Iterable[JSON]) -> Iterator[str]:
    """
    Yield a line for each rule of the grants that bind a run besides its agent's.

    >>> rule = {"id": "allow[1]", "tools": ["crm/*"], "source": "a.toml:1"}
    >>> one = {"name": "narrow", "grants": {"allow": [rule], "deny": []}, "owner": ""}
    >>> [*bound_lines([one])]
    ['narrow.allow[1]  allow crm/*  (a.toml:1)']
    """
    for bound in bounds_of(bounds):
        both = ("deny", bound.grant.deny), ("allow", bound.grant.allow)
        for kind, rules in both:
            for rule in rules:
                tools = ", ".join(pattern.text for pattern in rule.tools)
                source = f"  ({rule.source})" if rule.source else ""
                yield plain(f"{bound.rule(rule.id)}  {kind} {tools}{source}")
        if not bound.grant.allow:
            yield f"{bound.name}  allows nothing"


_PARAMS_WIDTH, _WIDTH, _LINES = 60, 200, 12
#: Calls with one name and outcome that a report shows each by itself.
_ALIKE = 5

#: The error of languages when a guest is out of memory.
_ROOMLESS = re.compile(r"\bMemoryError\b|\bout of memory\b")
_OWN_FAULTS = {"agent_error", "trap"}


def report(
    run: RunSummary,
    history: Sequence[Recorded],
    *,
    configured: bool,
    servers: Collection[str],
    known: Callable[[], Known] = dict,
) -> None:
    """
    Print on stderr what a run did, and what would allow its denied calls.

    Args:
        run: The fold of *history*.

        history: All events of the run.

        configured: Its agent is in a configuration file.

        servers: Every server that a grant could name.

        known: Returns what they offer, as far as it is known.
    """
    for line in folded(history):
        note(f"  {line}")
    _placeholders(history)
    known = cache(known)
    _misspelt(history, known)
    _denials(history, run.agent if configured else None, servers, known)
    calls = run.calls
    note(
        f"{run.state} in {run.duration_ms:.0f} ms: {counted(calls['total'], 'call')}, "
        f"{calls['denied']} denied, {calls['failed'] + calls['tool_error']} failed, "
        f"{counted(run.events, 'event')}"
    )


def failure(
    run: RunSummary, history: Sequence[Recorded], named: Callable[[str], str] = str
) -> None:
    """Print why a run did not complete, its last error lines, and a fix."""
    if run.error is None:
        return
    kind, message = str(run.error["kind"]), str(run.error["message"])
    said = error_lines(history)
    if "\n" in message:  # A traceback, which is in the log, too.
        message, said = "", message.split("\n")
    see = f"caxton events list {run.run_id} shows what led to it"
    if kind == "limit":
        limit = message.partition(":")[0]
        see = f"raise limits.{limit} of [agents.{run.agent}] in caxton.toml; {see}"
    elif kind in _OWN_FAULTS and _ROOMLESS.search("\n".join([message, *said[-1:]])):
        see = f"raise limits.memory of the agent, now {_memory(history)}; {see}"
    complain("\n  ".join([f"{kind}: {plain(message)}".rstrip(), *said]), named(see))


def error_lines(history: Sequence[Recorded]) -> list[str]:
    """Return the last error lines in the log of a failed run, without its message."""
    said: list[str] = []
    for recorded in history:
        event = recorded.event
        if isinstance(event, LogWritten) and event.level == "error":
            said += (clipped(plain(line), _WIDTH) for line in event.text.splitlines())
        elif isinstance(event, RunFailed) and said[-1:] == [plain(event.message)]:
            said.pop()
    return said[-_LINES:]


def _memory(history: Sequence[Recorded]) -> str:
    """Return the memory limit of a run."""
    started = (e.event for e in history if isinstance(e.event, RunStarted))
    limit = next((one.limits.get("memory") for one in started), None)
    return f"{limit / 2**20:g} MiB" if isinstance(limit, int) else "the default"


def call_lines(history: Sequence[Recorded]) -> list[str]:
    """Return one line per call: number, seq, name, parameters, outcome."""
    return [f"{text}  {end}" for _, text, end in _calls(history)]


def folded(history: Sequence[Recorded]) -> list[str]:
    """Return a line per call; of many with one name and outcome, one for the rest."""
    lines: list[str] = []
    alike: Counter[tuple[str, str]] = Counter()
    for name, text, end in _calls(history):
        kind = name, re.split(r", | \(", end)[0]
        alike[kind] += 1
        if alike[kind] <= _ALIKE:
            lines.append(f"{text}  {end}")
    for (name, how), number in alike.items():
        if number > _ALIKE:
            lines.append(f"{counted(number - _ALIKE, 'more call')} of {name}  {how}")
    return lines


def _calls(history: Sequence[Recorded]) -> list[tuple[str, str, str]]:
    """Return the name, the first part of the line, and the outcome of each call."""
    names: dict[int, str] = {}
    lines: dict[int, str] = {}
    ended: dict[int, str] = {}
    attempts: dict[int, int] = {}
    callees: dict[int, str] = {}
    for recorded in history:
        event = recorded.event
        if isinstance(event, ToolRetried):
            attempts[event.call] = event.attempt
        elif isinstance(event, ToolInvoked):
            text = "" if event.params is None else to_json(event.params)
            names[event.call] = event.name
            lines[event.call] = (
                f"call {event.call} (event {recorded.seq})  {event.name} "
                f"{clipped(text, _PARAMS_WIDTH)}"
            )
            ended.pop(event.call, None)
            if callee := callee_of(recorded.stream, event):
                callees[event.call] = callee
        elif isinstance(event, ApprovalRequested):
            params = clipped(to_json(event.params), _PARAMS_WIDTH)
            names[event.call] = event.name
            lines[event.call] = (
                f"call {event.call} (event {recorded.seq})  {event.name} {params}"
            )
            ended[event.call] = "waits for an approval"
        elif isinstance(event, ApprovalDecided):
            verb = "approved" if event.verdict == "approve" else "not approved"
            ended[event.call] = f"{verb} by {plain(event.actor.get('id'))}"
        elif event is not None and (end := outcome_of(event)):
            number = end[0]
            ended[number] = _how(end[1], attempts.get(number, 1))
            lines.setdefault(number, f"call {number} (event {recorded.seq})  edited:")
    for number, callee in callees.items():
        ended[number] = f"{ended.get(number, 'under way')}, run {callee}"
    return [
        (names.get(n, ""), text, ended.get(n, "in doubt")) for n, text in lines.items()
    ]


def _how(outcome: Outcome, attempts: int) -> str:
    tries = f", {attempts} attempts" if attempts > 1 else ""
    if isinstance(outcome, Completed):
        seconds = outcome.duration_us / 1e6
        took = f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"
        took = "cached" if outcome.cached else took
        return f"{'tool error' if outcome.is_error else 'ok'}{tries}, {took}"
    if isinstance(outcome, Denied):
        return "denied"
    how = f"failed ({outcome.kind}, sent {outcome.sent}{tries})"
    return f"{how}: {plain(outcome.message)}"


def _denials(
    history: Sequence[Recorded],
    agent: str | None,
    servers: Collection[str],
    known: Callable[[], Known],
) -> None:
    """Print each distinct denial once, with the grant that would allow the call."""
    invoked: dict[int, tuple[int, ToolInvoked]] = {}
    grant, asked = Grant(), list[str]()
    told: set[tuple[str, str, str | None]] = set()
    for recorded in history:
        event = recorded.event
        if isinstance(event, RunStarted):
            grant, asked = Grant.from_payload(event.grants), [*event.servers]
        if isinstance(event, ToolInvoked):
            invoked[event.call] = recorded.seq, event
        if not isinstance(event, ToolDenied):
            continue
        seq, call = invoked[event.call]
        if (kind := (call.name, event.code, event.rule)) in told:
            continue
        told.add(kind)
        rule = f", rule {event.rule}" if event.rule else ""
        number = f"call {event.call} (event {seq})"
        note(f"denied: {number} {call.name}: {plain(event.message)}{rule}")
        if event.code == "not_granted" and grant_of(event.rule) in {"", TODAY}:
            granted = None if call.server else unoffered(call.name, asked, grant)
            _tell_grant(call.name, _target(call, servers), agent, known(), granted)


def _misspelt(history: Sequence[Recorded], known: Callable[[], Known]) -> None:
    """Warn about granted tools that were called and that their servers lack."""
    invoked: dict[int, ToolInvoked] = {}
    told: set[str] = set()
    for event in (recorded.event for recorded in history):
        if isinstance(event, ToolInvoked):
            invoked[event.call] = event
        elif isinstance(event, ToolFailed) and event.kind == "changed":
            call = invoked[event.call]
            if call.name in told:
                continue
            told.add(call.name)
            if lost := astray(call.name, _target(call, ()), known()):
                note(f"warning: {call.name} is granted, and {lost}")


def _placeholders(history: Sequence[Recorded]) -> None:
    """Warn about calls that pass an unfilled placeholder."""
    known: dict[str, JSON] = {}
    for recorded in history:
        event = recorded.event
        if isinstance(event, RunStarted):
            known = dict.fromkeys(BUILT_IN) | event.context
        if not isinstance(event, ToolInvoked):
            continue
        for name in unfilled(event.params, known):
            note(
                f"warning: call {event.call} (event {recorded.seq}) {event.name} "
                f"passes {{{name}}} on, and not the variable of that name"
            )


def _tell_grant(
    name: str,
    target: tuple[str, str] | None,
    agent: str | None,
    known: Known,
    granted: str | None,
) -> None:
    lost = astray(name, target, known)
    if granted:
        note(granted)
    if target is None or lost:
        note(f"  {lost}")
    elif granted:
        return
    elif agent is None:
        note(f"  to allow it: --allow {'/'.join(target)}")
    else:
        note("  to allow it, in caxton.toml:")
        note(grant_for(table_of(agent), "/".join(target)))


def _target(call: ToolInvoked, servers: Collection[str]) -> tuple[str, str] | None:
    """Return server and tool of a call; without a route, by its name."""
    if call.server and call.tool:
        return call.server, call.tool
    return meant_tool(call.name, servers)
