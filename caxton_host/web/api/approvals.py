"""Approvals: calls that wait for a person, and decisions."""

from __future__ import annotations

import logging
from functools import partial
from typing import Any

from starlette.responses import Response

from ...core.grants.approvals import VERDICTS, Verdict
from ...core.log.runs import RunFilter, RunRow
from ...errors import CaxtonError
from ...runs.approvals import Waiting, waiting_in
from ...runs.questions import inbox, marks
from ...runs.recording import Recording
from ...service.run_service import sees
from ..edge.messages import Refusal
from .operations import IN_PATH, Answer, Asked, Operation, Parameter, answer, takes
from .runs import REASON, STARTED, WAIT, going_on, seen

logger = logging.getLogger("caxton_host")

_PAGE = 100


def _unread(run_id: str, exc: CaxtonError) -> None:
    logger.warning("run %s cannot be read: %s", run_id, exc)


async def list_(asked: Asked) -> Response:
    """Return what people are asked in runs that the caller may see."""
    service, run = asked.service, asked.text("run")
    only = RunFilter(agent=asked.text("agent"), **asked.who.limits)

    def visible(row: RunRow) -> bool:
        return run in {None, row.run_id} and sees(asked.who, row)

    reader = service.store.reader
    found = await inbox(
        reader,
        service.host.clock.now(),
        most=asked.number("limit"),
        only=only,
        cursor=asked.text("cursor"),
        sees=visible,
        unread=_unread,
    )
    return answer(
        {
            "$type": "caxton.approvals/v1",
            "approvals": [one.to_document() for one in found.calls],
            "questions": [one.to_document() for one in found.questions],
            "more": found.next is not None,
            "next": found.next,
            "waiting": len(await marks(reader, _PAGE, only, visible)),
        }
    )


def _waiting(asked: Asked, recording: Recording) -> list[Waiting]:
    return waiting_in(recording, asked.service.host.clock.now())


async def show(asked: Asked) -> Response:
    """Return the approval request of a call."""
    recording = await asked.service.recording(asked.who, asked.path["run"])
    for one in _waiting(asked, recording):
        if one.asked.seq == int(asked.path["seq"]):
            return answer(one.to_document())
    raise Refusal(
        "not-found",
        "that event is not waiting for an approval",
        fix="ask for the list of approvals",
    )


async def decide(verdict: Verdict, asked: Asked) -> Response:
    """Record the caller's decision on a call."""
    run_id, seq = asked.path["run"], int(asked.path["seq"])
    reason = str(asked.body.get("reason", ""))
    row = await asked.service.row(asked.who, run_id)
    await asked.service.decide(asked.who, run_id, seq, verdict, reason)
    return await going_on(asked, run_id, behind=row.epoch)


async def answer_question(asked: Asked) -> Response:
    """Answer a question of a tool server for the caller, or decline it."""
    content: Any = asked.body.get("content")
    await asked.service.answer(
        asked.who,
        asked.path["run"],
        int(asked.path["seq"]),
        content,
        str(asked.body.get("reason", "")),
    )
    return answer((await seen(asked)).to_document())


def _deciding(verdict: Verdict, about: str) -> Operation:
    return Operation(
        id=f"{verdict}Call",
        method="POST",
        path=f"/approvals/{{run}}/{{seq}}/{verdict}",
        about=about,
        scopes=("decide",),
        handler=partial(decide, verdict),
        parameters=(WAIT,),
        body=takes(reason=REASON),
        answers=STARTED,
        problems=("not-found", "conflict", "refused", "stale-sign-in"),
    )


_ABOUT = (
    "Approve a call with exactly these parameters.",
    "Deny a call. The agent learns that it was not approved.",
)

OPERATIONS: tuple[Operation, ...] = (
    Operation(
        id="listApprovals",
        reads=True,
        method="GET",
        path="/approvals",
        about="List the calls that wait for approval, and the questions of tool "
        "servers, oldest first. `more`: others wait, on the page `next`. `waiting`: "
        "how many wait on all pages, at most 100.",
        scopes=("run", "read", "decide"),
        shows="approvals",
        handler=list_,
        parameters=(
            Parameter(
                name="agent",
                about="Only runs of this agent.",
                schema={"type": "string", "maxLength": 200},
            ),
            Parameter(name="run", about="Only of this run.", schema=IN_PATH["run"][0]),
            Parameter(
                name="limit",
                about="The maximum number of calls and questions.",
                schema={
                    "type": "integer",
                    "minimum": 1,
                    "maximum": _PAGE,
                    "default": _PAGE,
                },
            ),
            Parameter(
                name="cursor",
                about="Where to continue: `next` of an earlier answer.",
                schema={"type": "string", "maxLength": 120},
            ),
        ),
        answers={200: Answer(about="The calls.", schema="Approvals")},
    ),
    Operation(
        id="showApproval",
        reads=True,
        method="GET",
        path="/approvals/{run}/{seq}",
        about="Show an approval request: everything that would be sent. `seq` is the "
        "event of the "
        "question.",
        scopes=("run", "read", "decide"),
        shows="approval",
        handler=show,
        answers={200: Answer(about="The question.", schema="Approval")},
        problems=("not-found", "erased"),
    ),
    *(
        _deciding(verdict, f"{about} The run then resumes.")
        for verdict, about in zip(VERDICTS, _ABOUT, strict=True)
    ),
    Operation(
        id="answerQuestion",
        method="POST",
        path="/approvals/{run}/{seq}/answer",
        about="Answer a question of a tool server, by its `form`; without `content`, "
        "decline it. `seq` is the event of the question.",
        scopes=("decide",),
        handler=answer_question,
        body=takes(
            content={"type": "object", "description": "The fields of the form."},
            reason=REASON,
        ),
        answers={200: Answer(about="The run as it is now.", schema="Run")},
        problems=("not-found", "conflict", "refused"),
    ),
)
