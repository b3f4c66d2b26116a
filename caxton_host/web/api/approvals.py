"""Approvals: calls that wait for a person, and decisions."""

from __future__ import annotations

import logging
from functools import partial

from starlette.responses import Response

from ...core.grants.approvals import VERDICTS, Verdict
from ...errors import CaxtonError
from ...runs.approvals import Waiting, waiting_in
from ...runs.recording import Recording
from ...service.run_service import sees
from ..edge.messages import Refusal
from .operations import Answer, Asked, Operation, Parameter, answer, takes
from .runs import REASON, STARTED, WAIT, going_on

logger = logging.getLogger("caxton_host")

#: Suspended runs that are looked at for one list.
_LOOKED_AT = 1_000


async def list_(asked: Asked) -> Response:
    """Return the waiting calls of runs that the caller may see."""
    store = asked.service.store
    rows = await store.reader.runs(
        _LOOKED_AT, asked.text("agent"), "suspended", tenant=asked.who.tenant
    )
    found: list[Waiting] = []
    for row in reversed(rows):
        if sees(asked.who, row):
            try:
                found += _waiting(asked, await Recording.load(row.run_id, store.reader))
            except CaxtonError as exc:
                # The others wait nevertheless.
                logger.warning("run %s cannot be read: %s", row.run_id, exc)
    return answer(
        {
            "$type": "caxton.approvals/v1",
            "approvals": [one.to_document() for one in found],
            "more": len(rows) == _LOOKED_AT,
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
        problems=("not-found", "conflict", "refused"),
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
        about="List the calls that wait for approval, oldest first, of the newest "
        "suspended runs. `more`: others may wait.",
        scopes=("run", "read", "decide"),
        shows="approvals",
        handler=list_,
        parameters=(
            Parameter(
                name="agent",
                about="Only runs of this agent.",
                schema={"type": "string", "maxLength": 200},
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
)
