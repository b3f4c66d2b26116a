"""What is done to runs that have begun: cancel, resume, resolve, fork; and explain."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

from starlette.responses import Response

from ...core.calls import JSON, Completed
from ...core.grants.forks import forking_point
from ...core.log.events import ToolInvoked
from ...core.log.requests import Abort, Fail, GiveResult, Resend, Resolution
from ...errors import ToolError
from ...gateway.results import answered
from ...runs.explain import checks_of, explanation
from ...runs.recording import Recording
from ..edge.problems import Refusal
from .operations import IN_PATH, Answer, Asked, Operation, Parameter, answer
from .runs import STARTED, WAIT, going_on, seen

REASON: dict[str, JSON] = {
    "type": "string",
    "maxLength": 2000,
    "default": "",
    "description": "Why; it is recorded.",
}
_RESULT: dict[str, JSON] = {
    "type": "object",
    "description": "What the tool answers: an MCP CallToolResult.",
}
_SEQ: dict[str, JSON] = {**IN_PATH["seq"][0]}

_CHOICES: Mapping[str, Callable[[], Resolution]] = {
    "retry": Resend,
    "fail": Fail,
    "abort": Abort,
}


async def cancel(asked: Asked) -> Response:
    """End a run."""
    reason = str(asked.body.get("reason", ""))
    await asked.service.cancel(asked.who, asked.path["run"], reason)
    return answer((await seen(asked)).to_document())


async def resume(asked: Asked) -> Response:
    """Let a run go on."""
    restored = asked.body.get("restored") is True
    await asked.service.resume(asked.who, asked.path["run"], restored=restored)
    return await going_on(asked, asked.path["run"])


async def fork(asked: Asked) -> Response:
    """Start a run that begins with what another did."""
    run_id, seq = asked.path["run"], _number(asked.body["seq"])
    edited: Completed | None = None
    if "result" in asked.body:
        recording = await asked.service.recording(asked.who, run_id)
        point = forking_point(recording.history, seq, edit=True)
        edited = _given(asked, recording, point.edited)
    new = await asked.service.fork(asked.who, run_id, seq, edited)
    return await going_on(asked, new)


async def resolve(asked: Asked) -> Response:
    """Record what is said of a call in doubt."""
    run_id, seq = asked.path["run"], _number(asked.body["seq"])
    choice = str(asked.body["choice"])
    if (choice == "result") != ("result" in asked.body):
        raise Refusal("bad-request", "result: it goes with the choice of that name")
    resolution: Resolution
    if choice == "result":
        recording = await asked.service.recording(asked.who, run_id)
        called = next((e.event for e in recording.own if e.seq == seq), None)
        invoked = called if isinstance(called, ToolInvoked) else None
        resolution = GiveResult(_given(asked, recording, invoked))
    else:
        resolution = _CHOICES[choice]()
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
    """Return an answer in a request, as if the tool had given it."""
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
    service = asked.service
    recording = await service.recording(asked.who, asked.path["run"])
    checks = await checks_of(recording, service.store, service.config())
    return answer(explanation(recording, checks, asked.number("seq")))


_PROBLEMS = ("not-found", "conflict", "waiting", "erased", "refused", "sandbox")

OPERATIONS: tuple[Operation, ...] = (
    Operation(
        id="cancelRun",
        method="POST",
        path="/runs/{run}/cancel",
        about="End a run that you started. 409 if another host drives it: that one is "
        "asked to end it.",
        scopes=("run",),
        handler=cancel,
        body={
            "type": "object",
            "additionalProperties": False,
            "properties": {"reason": REASON},
        },
        answers={200: Answer(about="The run as it is now.", schema="Run")},
        problems=("not-found", "conflict", "refused"),
    ),
    Operation(
        id="resumeRun",
        method="POST",
        path="/runs/{run}/resume",
        about="Let a run that is suspended, or that no host drives, go on. One that is "
        "suspended since its log was restored from a copy (`waits_for` is `restored`) "
        "goes on with `restored`, which needs the scope `decide` too.",
        scopes=("run",),
        handler=resume,
        parameters=(WAIT,),
        body={
            "type": "object",
            "additionalProperties": False,
            "properties": {"restored": {"type": "boolean"}},
        },
        answers=STARTED,
        problems=_PROBLEMS,
    ),
    Operation(
        id="resolveCall",
        method="POST",
        path="/runs/{run}/resolve",
        about="Say what became of a call in doubt. `seq` is the event of its "
        "ToolInvoked. The run goes on by itself.",
        scopes=("decide",),
        handler=resolve,
        parameters=(WAIT,),
        body={
            "type": "object",
            "additionalProperties": False,
            "required": ["seq", "choice", "reason"],
            "properties": {
                "seq": _SEQ,
                "choice": {
                    "type": "string",
                    "enum": ["retry", "result", "fail", "abort"],
                },
                "result": _RESULT,
                "reason": REASON,
            },
        },
        answers=STARTED,
        problems=_PROBLEMS,
    ),
    Operation(
        id="forkRun",
        method="POST",
        path="/runs/{run}/fork",
        about="Start a run that begins with what another did, up to event `seq`. With "
        "`result`, the call of that event answers something else; that needs the scope "
        "`decide` too.",
        scopes=("run",),
        handler=fork,
        parameters=(WAIT,),
        body={
            "type": "object",
            "additionalProperties": False,
            "required": ["seq"],
            "properties": {"seq": _SEQ, "result": _RESULT},
        },
        answers=STARTED,
        problems=_PROBLEMS,
    ),
    Operation(
        id="explainCall",
        reads=True,
        method="GET",
        path="/runs/{run}/explain",
        about="Why a call was allowed or denied: each rule, and what it says of it.",
        scopes=("run", "read", "decide"),
        handler=explain,
        parameters=(
            Parameter(
                name="seq", about="Any event of the call.", schema=_SEQ, required=True
            ),
        ),
        answers={200: Answer(about="The explanation.", schema="Explanation")},
        problems=("not-found", "erased", "refused"),
    ),
)
