"""Runs: start, list, show, cancel, resume, resolve, fork and explain."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import re
from functools import partial
from typing import Any

from starlette.responses import Response

from ...core.calls import JSON, Completed
from ...core.grants.forks import forking_point
from ...core.log.diff import diff
from ...core.log.events import RunHeld, RunReleased, ToolInvoked, to_payload
from ...core.log.holds import HOLDS, hold_document
from ...core.log.requests import RESOLUTIONS, GiveResult, Resolution
from ...core.log.runs import (
    ENDS,
    GOING_ON,
    OUTCOMES,
    RunFilter,
    RunRow,
    RunSummary,
)
from ...core.names import stream_of
from ...errors import StoreError, ToolError, UsageError
from ...gateway.results import answered
from ...runs.explain import checks_of, explanation
from ...runs.precedents import context_of
from ...runs.recording import Recording
from ...runs.tracing import call_at, lineage, traced_call
from ...service.run_service import Submission, sees
from ..edge.messages import Refusal
from .operations import (
    IN_PATH,
    PREFIX,
    Answer,
    Asked,
    Operation,
    Page,
    Parameter,
    answer,
    takes,
)

logger = logging.getLogger("caxton_host")

_PAGE = 100
#: Runs that are read for one page, visible or not.
_LOOKED_AT = 2_000
_LONGEST_WAIT = 60
_PAUSE = 0.05
#: Sorts after the id of every run.
_BEHIND = "f" * 64
_CURSOR = re.compile(r"([0-9]{1,18})-([0-9a-f-]{1,64})", re.ASCII)

_TEXT: dict[str, JSON] = {"type": "string", "maxLength": 200}
_RULES: dict[str, JSON] = {"type": "array", "items": {"type": "object"}}
_NARROW: dict[str, JSON] = {
    "type": "object",
    "description": "Rules that the run is given beside those of its agent: each call "
    "needs the permission of both. They have the keys of `[[agents.NAME.allow]]` and "
    "`[[agents.NAME.deny]]`.",
    "required": ["allow"],
    "additionalProperties": False,
    "properties": {"allow": _RULES, "deny": _RULES},
}
_KEY: dict[str, JSON] = {"type": "string", "pattern": "^[!-~]{1,200}$"}

WAIT = Parameter(
    name="wait",
    about="Seconds to wait for the run to end, or to be suspended.",
    schema={"type": "integer", "minimum": 0, "maximum": _LONGEST_WAIT, "default": 0},
)
STARTED = {
    200: Answer(
        about="The run has ended.",
        schema="Run",
        headers={"Location": "Where the run is."},
    ),
    202: Answer(
        about="The run is in progress.",
        schema="Run",
        headers={"Location": "Where the run is."},
    ),
}


async def seen(asked: Asked) -> RunSummary:
    """Return the summary of the run that the path names."""
    row = await asked.service.row(asked.who, asked.path["run"])
    return await asked.service.summaries.of(row)


async def going_on(asked: Asked, run_id: str, behind: int = 0) -> Response:
    """
    Return the summary of a run, after the wait of the request.

    Args:
        asked: Says how long.

        run_id: The run.

        behind: How often it was driven before; it is to be driven once more.
    """
    service = asked.service
    if seconds := asked.number("wait"):
        with contextlib.suppress(TimeoutError, StoreError):
            async with asyncio.timeout(seconds):
                while (await service.row(asked.who, run_id)).epoch <= behind:  # noqa: ASYNC110 -- driven by any host
                    await asyncio.sleep(_PAUSE)
                await service.over(run_id)
    run = await service.summaries.of(await service.row(asked.who, run_id))
    status = 202 if run.state in GOING_ON else 200
    where = {"location": f"{PREFIX}/runs/{run_id}"}
    return answer(run.to_document(), status, where)


async def start(asked: Asked) -> Response:
    """Start a run."""
    variables = asked.body.get("variables") or {}
    assert isinstance(variables, dict)  # noqa: S101 -- its schema says so
    _check_module(asked, str(asked.body["agent"]))
    wanted = Submission(
        agent=str(asked.body["agent"]),
        input=asked.body.get("input"),
        variables=variables,
        key=asked.text("idempotency-key"),
        trace=asked.service.host.telemetry.trace_of(asked.request.headers),
        narrow=asked.body.get("narrow"),
    )
    return await going_on(asked, await asked.service.submit(asked.who, wanted))


def _check_module(asked: Asked, name: str) -> None:
    agent = asked.service.agent(asked.who, name)
    try:
        asked.service.library.check(agent)
    except UsageError as exc:
        # It names files of the host.
        logger.warning("agent %s cannot be run: %s", name, exc)
        raise Refusal(
            "unusable",
            "the host has no module or program for the agent",
            fix="ask the operator of the host",
        ) from None


async def list_(asked: Asked) -> Response:
    """Return a page of runs."""
    limit = asked.number("limit")
    found, after = await _visible(asked, limit)
    runs = Page()
    for row in found:
        runs.add(row.to_document())
        if runs.is_full:
            after = _cursor((row.started_at, row.run_id))
            break
    return runs.answer({"$type": "caxton.runs/v1", "next": after}, "runs")


async def _visible(asked: Asked, limit: int) -> tuple[list[RunRow], str | None]:
    """Return runs that the caller may see, and the place of the next ones."""
    before = _place(asked.text("cursor"))
    given = {one.name: asked.given.get(one.name) for one in _FILTERS}
    told: dict[str, Any] = {key: value for key, value in given.items() if value}
    told["top"] = "top" in told
    only = RunFilter(**told, **asked.who.limits)
    found: list[RunRow] = []
    for _ in range(0, _LOOKED_AT, _PAGE):
        rows = await asked.service.store.reader.runs(_PAGE, only, before=before)
        for row in rows:
            before = row.started_at, row.run_id
            if sees(asked.who, row):
                found.append(row)
                if len(found) == limit:
                    return found, _cursor(before)
        if len(rows) < _PAGE:
            return found, None
    assert before is not None  # noqa: S101 -- some were looked at
    # The last one may be of another principal, whose ids are not shown: those of its
    # timestamp are read again.
    last = before[0]
    return [row for row in found if row.started_at != last], _cursor((last, _BEHIND))


def _cursor(place: tuple[int, str] | None) -> str | None:
    return f"{place[0]}-{place[1]}" if place else None


def _place(cursor: str | None) -> tuple[int, str] | None:
    if cursor is None:
        return None
    match = _CURSOR.fullmatch(cursor)
    if match is None:
        raise Refusal(
            "bad-request",
            "cursor: not a cursor of a list of runs",
            fix="send the next of an earlier page",
        )
    return int(match[1]), match[2]


async def show(asked: Asked) -> Response:
    """Return a run, its hold, and of an erased one who erased it and why."""
    run = await seen(asked)
    document = run.to_document()
    document["hold"] = (await _hold(asked, run.run_id))["hold"]
    if run.erased:
        erased = (await asked.service.store.reader.erased()).get(stream_of(run.run_id))
        document["erasure"] = to_payload(erased) if erased else None
    return answer(document)


async def _hold(asked: Asked, run_id: str) -> dict[str, JSON]:
    return hold_document(run_id, await asked.service.store.reader.read(HOLDS + run_id))


async def hold(event: type[RunHeld | RunReleased], asked: Asked) -> Response:
    """Put a run on hold, or release it."""
    run_id = (await asked.service.row(asked.who, asked.path["run"])).run_id
    reason = asked.service.host.redact.text(str(asked.body["reason"]))
    await asked.service.store.holding.record(
        event(run=run_id, actor=asked.who.actor, reason=reason)
    )
    return answer(await _hold(asked, run_id))


async def result(asked: Asked) -> Response:
    """Return the result of a run."""
    run = await seen(asked)
    goes_on = run.state in GOING_ON
    return answer(
        {
            "$type": "caxton.run-result/v1",
            "run_id": run.run_id,
            "state": run.state,
            "output": run.output,
            "error": run.error,
        },
        202 if goes_on else 200,
        {"retry-after": "1"} if goes_on else None,
    )


SINCE: dict[str, JSON] = {"type": "integer", "minimum": 0, "maximum": 2**53}
_FILTERS = (
    Parameter(name="agent", about="Only runs of this agent.", schema=_TEXT),
    Parameter(
        name="state",
        about="Only runs in this state.",
        schema={
            "type": "string",
            "enum": [*sorted({*ENDS.values()})],
        },
    ),
    Parameter(
        name="reason",
        about="Only runs suspended or failed for this reason.",
        schema=_TEXT,
    ),
    Parameter(
        name="kind",
        about="Only runs of this kind.",
        schema={"type": "string", "enum": ["agent", "program", "session"]},
    ),
    Parameter(
        name="tool",
        about="Only runs that called this tool, `server/tool`.",
        schema=_TEXT,
    ),
    Parameter(
        name="outcome",
        about="Only runs with such a call; with `tool`, of that tool.",
        schema={"type": "string", "enum": [*OUTCOMES]},
    ),
    Parameter(
        name="actor", about="Only runs that the actor of this id started.", schema=_TEXT
    ),
    Parameter(
        name="since",
        about="Only runs started at this time or later, in microseconds since 1970.",
        schema=SINCE,
    ),
    Parameter(
        name="until",
        about="Only runs started before this time.",
        schema=SINCE,
    ),
    Parameter(
        name="prefix",
        about="Only runs whose ids begin with this.",
        schema={"type": "string", "pattern": "^[0-9a-f-]{1,64}$"},
    ),
    Parameter(
        name="top",
        about="Only runs that no agent called.",
        schema={"type": "string", "enum": ["true"]},
    ),
)
_LIST = (
    *_FILTERS,
    Parameter(
        name="limit",
        about="The maximum number of runs.",
        schema={"type": "integer", "minimum": 1, "maximum": _PAGE, "default": 20},
    ),
    Parameter(
        name="cursor",
        about="Where to continue: `next` of an earlier answer.",
        schema={"type": "string", "maxLength": 100},
    ),
)


REASON: dict[str, JSON] = {
    "type": "string",
    "maxLength": 2000,
    "default": "",
    "description": "The reason; it is recorded.",
}
_RESULT: dict[str, JSON] = {
    "type": "object",
    "description": "The answer of the tool: an MCP CallToolResult.",
}
SEQ: dict[str, JSON] = {**IN_PATH["seq"][0]}
_OF_CALL = Parameter(
    name="seq", about="Any event of the call.", schema=SEQ, required=True
)


async def cancel(asked: Asked) -> Response:
    """Cancel a run."""
    reason = str(asked.body.get("reason", ""))
    await asked.service.cancel(asked.who, asked.path["run"], reason)
    return answer((await seen(asked)).to_document())


async def resume(asked: Asked) -> Response:
    """Resume a run."""
    restored = asked.body.get("restored") is True
    await asked.service.resume(asked.who, asked.path["run"], restored=restored)
    return await going_on(asked, asked.path["run"])


async def fork(asked: Asked) -> Response:
    """Fork a run."""
    run_id, seq = asked.path["run"], _number(asked.body["seq"])
    edited: Completed | None = None
    if "result" in asked.body:
        recording = await asked.service.recording(asked.who, run_id)
        point = forking_point(recording.history, seq, edit=True)
        edited = _given(asked, recording, point.edited)
    narrow = asked.body.get("narrow")
    new = await asked.service.fork(asked.who, run_id, seq, edited, narrow)
    return await going_on(asked, new)


async def resolve(asked: Asked) -> Response:
    """Record the resolution of a call in doubt."""
    run_id, seq = asked.path["run"], _number(asked.body["seq"])
    choice = str(asked.body["choice"])
    if (choice == "result") != ("result" in asked.body):
        raise Refusal("bad-request", "result: only valid with the choice result")
    resolution: Resolution
    if choice == "result":
        recording = await asked.service.recording(asked.who, run_id)
        called = next((e.event for e in recording.own if e.seq == seq), None)
        invoked = called if isinstance(called, ToolInvoked) else None
        resolution = GiveResult(_given(asked, recording, invoked))
    else:
        resolution = RESOLUTIONS[choice]()
    reason = str(asked.body.get("reason", ""))
    row = await asked.service.row(asked.who, run_id)
    await asked.service.resolve(asked.who, run_id, seq, resolution, reason)
    return await going_on(asked, run_id, behind=row.epoch)


def _number(value: JSON) -> int:
    # 3.0 is an integer, in JSON Schema.
    assert isinstance(value, (int, float))  # noqa: S101 -- its schema says so
    return int(value)


def _given(
    asked: Asked, recording: Recording, invoked: ToolInvoked | None
) -> Completed:
    """Return a result in a request as the tool's completion."""
    result = asked.body["result"]
    assert isinstance(result, dict)  # noqa: S101 -- its schema says so
    size = len(json.dumps(result))
    if size > recording.limits.result:
        raise Refusal("too-large", f"result: more than {recording.limits.result} bytes")
    options, redact = asked.service.config().options, asked.service.host.redact
    try:
        return answered(result, invoked, options, redact, size=size)
    except ToolError as exc:
        raise Refusal("bad-request", f"result: {exc}") from None


async def explain(asked: Asked) -> Response:
    """Return why a call was allowed or denied."""
    service, seq = asked.service, asked.number("seq")
    recording = await service.recording_at(asked.who, asked.path["run"], seq)
    config = service.config()
    checks = await checks_of(recording, service.store, config)
    agent = config.agents.get(recording.started.agent)
    # The rules are applied again to all before it: long runs would hold up others.
    return answer(await asyncio.to_thread(explanation, recording, checks, seq, agent))


async def trace(asked: Asked) -> Response:
    """Return where the values of a call came from."""
    service, seq = asked.service, asked.number("seq")
    recording = await service.recording_at(asked.who, asked.path["run"], seq)
    runs = await lineage(recording, service.store.reader)
    for n, one in enumerate(runs):
        row = await service.store.reader.row(one.run_id)
        if row is None or not sees(asked.who, row):
            # What the caller may not see is not followed.
            runs = runs[:n]
            break
    call = call_at(recording, seq)
    below = asked.text("below") or ""
    document, found = await asyncio.to_thread(traced_call, recording, runs, call, below)
    return answer({**document, "values": [one.to_document() for one in found]})


async def lines(asked: Asked) -> Response:
    """Return the lines of a program that made its calls."""
    row = await asked.service.row(asked.who, asked.path["run"])
    run = await asked.service.summaries.of(row)
    told = await asked.service.lines.of(row) if run.program else None
    return answer({"$type": "caxton.lines/v1", "run_id": run.run_id, "lines": told})


async def context(asked: Asked) -> Response:
    """Return what a call is to be compared with."""
    seq = asked.number("seq")
    recording = await asked.service.recording_at(asked.who, asked.path["run"], seq)
    found = await context_of(
        recording,
        seq,
        asked.service.store.reader,
        RunFilter(**asked.who.limits),
        partial(sees, asked.who),
    )
    return answer(found)


async def compare(asked: Asked) -> Response:
    """Return the differences between two runs."""
    recordings = [
        await asked.service.recording(asked.who, run)
        for run in (asked.path["run"], asked.text("with") or "")
    ]
    a, b = (one.history for one in recordings)
    return answer(diff(a, b).to_document())


_HELD = {200: Answer(about="The hold of the run, or null.", schema="Hold")}
_HOLDING = ("not-found", "erased", "refused")
_PROBLEMS = ("not-found", "conflict", "waiting", "erased", "refused", "sandbox")


OPERATIONS: tuple[Operation, ...] = (
    Operation(
        id="startRun",
        method="POST",
        path="/runs",
        about="Start a run of an agent. It runs in the background.",
        scopes=("run",),
        handler=start,
        parameters=(
            WAIT,
            Parameter(
                name="idempotency-key",
                about="A key that you choose. A second request with the same key "
                "returns the same run.",
                schema=_KEY,
                place="header",
            ),
        ),
        body={
            "type": "object",
            "required": ["agent"],
            "additionalProperties": False,
            "properties": {
                "agent": {"type": "string", "minLength": 1, "maxLength": 200},
                "input": {"description": "The input of the agent."},
                "variables": {"type": "object"},
                "narrow": _NARROW,
            },
        },
        answers=STARTED,
        problems=("not-found", "conflict", "refused", "server-unavailable", "unusable"),
    ),
    Operation(
        id="listRuns",
        reads=True,
        method="GET",
        path="/runs",
        about="List the runs that you may see, newest first. A run in progress has no "
        "`calls` here, and its `tools` are those before it last went on.",
        scopes=("run", "read", "decide"),
        shows="runs",
        handler=list_,
        parameters=_LIST,
        answers={200: Answer(about="A page of runs.", schema="Runs")},
    ),
    Operation(
        id="showRun",
        reads=True,
        method="GET",
        path="/runs/{run}",
        about="Show a run.",
        scopes=("run", "read", "decide"),
        shows="run",
        handler=show,
        answers={200: Answer(about="The run.", schema="Run")},
        problems=("not-found",),
    ),
    Operation(
        id="runResult",
        reads=True,
        method="GET",
        path="/runs/{run}/result",
        about="Return the output of a run that has ended.",
        scopes=("run", "read", "decide"),
        shows="output",
        handler=result,
        answers={
            200: Answer(about="The run has ended.", schema="RunResult"),
            202: Answer(about="The run is in progress.", schema="RunResult"),
        },
        problems=("not-found",),
    ),
    Operation(
        id="cancelRun",
        method="POST",
        path="/runs/{run}/cancel",
        about="Cancel a run that you started. 409 if another host drives it: that "
        "host is "
        "asked to end it.",
        scopes=("run",),
        handler=cancel,
        body=takes(reason=REASON),
        answers={200: Answer(about="The run as it is now.", schema="Run")},
        problems=("not-found", "conflict", "refused"),
    ),
    Operation(
        id="holdRun",
        method="POST",
        path="/runs/{run}/hold",
        about="Put a run on hold: nobody can erase or archive it, nor the runs that it "
        "was forked from, until it is released.",
        scopes=("admin",),
        handler=partial(hold, RunHeld),
        body=takes(["reason"], reason=REASON),
        answers=_HELD,
        problems=_HOLDING,
    ),
    Operation(
        id="releaseRun",
        method="POST",
        path="/runs/{run}/release",
        about="Release a run from its hold.",
        scopes=("admin",),
        handler=partial(hold, RunReleased),
        body=takes(["reason"], reason=REASON),
        answers=_HELD,
        problems=_HOLDING,
    ),
    Operation(
        id="resumeRun",
        method="POST",
        path="/runs/{run}/resume",
        about="Resume a run that is suspended or that no host drives. A run that is "
        "suspended because its log was restored from a copy (`waits_for` is "
        "`restored`) "
        "resumes with `restored`, which also requires the scope `decide`.",
        scopes=("run",),
        handler=resume,
        parameters=(WAIT,),
        body=takes(restored={"type": "boolean"}),
        answers=STARTED,
        problems=_PROBLEMS,
    ),
    Operation(
        id="resolveCall",
        method="POST",
        path="/runs/{run}/resolve",
        about="Resolve a call in doubt. `seq` is the event of its "
        "ToolInvoked. The run then resumes.",
        scopes=("decide",),
        handler=resolve,
        parameters=(WAIT,),
        body=takes(
            ("seq", "choice", "reason"),
            seq=SEQ,
            choice={"type": "string", "enum": ["retry", "result", "fail", "abort"]},
            result=_RESULT,
            reason=REASON,
        ),
        answers=STARTED,
        problems=_PROBLEMS,
    ),
    Operation(
        id="forkRun",
        method="POST",
        path="/runs/{run}/fork",
        about="Fork a run: start one that begins with its events up to `seq`. With "
        "`result`, the call of that event gets this result; that requires the scope "
        "`decide` too. `narrow` binds the calls that it makes itself, beside what "
        "narrows the run already.",
        scopes=("run",),
        handler=fork,
        parameters=(WAIT,),
        body=takes(["seq"], seq=SEQ, result=_RESULT, narrow=_NARROW),
        answers=STARTED,
        problems=_PROBLEMS,
    ),
    Operation(
        id="explainCall",
        reads=True,
        method="GET",
        path="/runs/{run}/explain",
        about="Explain why a call was allowed or denied, rule by rule.",
        scopes=("run", "read", "decide"),
        shows="explanation",
        handler=explain,
        parameters=(_OF_CALL,),
        answers={200: Answer(about="The explanation.", schema="Explanation")},
        problems=("not-found", "erased", "refused"),
    ),
    Operation(
        id="traceCall",
        reads=True,
        method="GET",
        path="/runs/{run}/trace",
        about="Follow the values of a call back to where they entered.",
        scopes=("run", "read", "decide"),
        shows="trace",
        handler=trace,
        parameters=(
            _OF_CALL,
            Parameter(
                name="below",
                about="Only the values at or below this JSON path.",
                schema=_TEXT,
            ),
        ),
        answers={200: Answer(about="Where they came from.", schema="Trace")},
        problems=("not-found", "erased", "refused"),
    ),
    Operation(
        id="callingLines",
        method="GET",
        path="/runs/{run}/lines",
        about="Execute a program again, over its log and without effects, and return "
        "the line of its source that made each call, by number of the call. It is the "
        "program's own account. `lines` is null if it is no program, if it did "
        "something else or if it took more than 10 seconds.",
        scopes=("read",),
        shows="lines",
        handler=lines,
        answers={200: Answer(about="The lines.", schema="CallingLines")},
        problems=("not-found", "erased", "refused", "sandbox"),
    ),
    Operation(
        id="callContext",
        reads=True,
        method="GET",
        path="/runs/{run}/context",
        about="Show what a call is to be compared with: up to five calls of the run "
        "before it, the last approved call of the tool that ended well, among the 10 "
        "newest runs with one, and the schema of the tool's answers.",
        scopes=("run", "read", "decide"),
        shows="context",
        handler=context,
        parameters=(_OF_CALL,),
        answers={200: Answer(about="The context.", schema="CallContext")},
        problems=("not-found", "erased", "refused"),
    ),
    Operation(
        id="compareRuns",
        reads=True,
        method="GET",
        path="/runs/{run}/diff",
        about="Compare the calls and the end of two runs.",
        scopes=("run", "read", "decide"),
        shows="difference",
        handler=compare,
        parameters=(
            Parameter(
                name="with",
                about="The other run.",
                schema=IN_PATH["run"][0],
                required=True,
            ),
        ),
        answers={200: Answer(about="The differences.", schema="Diff")},
        problems=("not-found", "erased", "refused"),
    ),
)
