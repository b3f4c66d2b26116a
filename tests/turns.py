"""Events that turn a run, and calls in between."""

from __future__ import annotations

from caxton_host.core.calls import JSON
from caxton_host.core.log.events import (
    ApprovalDecided,
    ApprovalRequested,
    CallResolved,
    QuestionAnswered,
    QuestionAsked,
    RunFailed,
    RunResumed,
    RunSuspended,
    ToolCompleted,
    ToolDenied,
    ToolFailed,
    ToolInvoked,
    ToolRetried,
)

ANN: dict[str, JSON] = {"kind": "local", "id": "ann", "authenticated": False}


def invoked(call: int = 1, tool: str | None = "t") -> ToolInvoked:
    return ToolInvoked(
        call=call,
        name="x",
        server=tool and "s",
        tool=tool,
        params={},
        params_sha256="",
        effect="unsafe",
        rule=None,
        idempotency_key="",
        fuel=0,
    )


def completed(call: int = 1, *, is_error: bool = False) -> ToolCompleted:
    return ToolCompleted(call=call, is_error=is_error, message="", data=None)


def denied(call: int = 1) -> ToolDenied:
    return ToolDenied(call=call, code="denied", rule=None, message="")


def failed(call: int = 1) -> ToolFailed:
    return ToolFailed(call=call, kind="timeout", sent="unknown", message="")


def retried(call: int = 1) -> ToolRetried:
    return ToolRetried(call=call, attempt=2, reason="resolved")


def asked(call: int = 1, until: int | None = None, count: int = 1) -> ApprovalRequested:
    return ApprovalRequested(
        call=call,
        name="x",
        server="s",
        tool="t",
        params={},
        params_sha256="",
        rule="",
        fuel=0,
        by=(),
        until=until,
        count=count,
    )


def decided(call: int = 1, verdict: str = "approve") -> ApprovalDecided:
    return ApprovalDecided(call=call, verdict=verdict, actor=ANN, reason="")


def resolved(call: int = 1, verdict: str = "retry") -> CallResolved:
    return CallResolved(call=call, verdict=verdict, actor=ANN, reason="")


def question(call: int = 1, number: int = 1, to: str = "people") -> QuestionAsked:
    return QuestionAsked(
        call=call,
        question=number,
        name="q",
        server="s",
        tool="t",
        message="",
        form={},
        to=to,
        by=(),
        until=9,
    )


def answered(call: int = 1, number: int = 1) -> QuestionAnswered:
    return QuestionAnswered(
        call=call,
        question=number,
        action="decline",
        content=None,
        actor=ANN,
        reason="",
    )


def resumed(epoch: int = 2) -> RunResumed:
    return RunResumed(
        actor=ANN, host="host/2", epoch=epoch, reason="", grants_sha256="00"
    )


def suspended(reason: str = "approval", call: int | None = 1) -> RunSuspended:
    return RunSuspended(reason=reason, call=call)


def trapped() -> RunFailed:
    return RunFailed(kind="trap", message="", fuel=None)
