"""Schedules: what starts by the clock. They are paused as other things are frozen."""

from __future__ import annotations

from starlette.responses import Response

from ...core.calls import JSON
from ...service.scheduling import schedule_documents
from .operations import Answer, Asked, Operation, answer


async def list_(asked: Asked) -> Response:
    """Return the schedules whose agents the caller reaches."""
    service, host = asked.service, asked.service.host
    await host.freezes.look()
    found = await schedule_documents(
        service.config(), service.store.reader, host.freezes.now, host.clock.now()
    )
    mine = (one for one in found if asked.who.reaches(str(one["agent"])))
    shown: list[JSON] = [host.redact.value(one) for one in mine]
    return answer({"$type": "caxton.schedules/v1", "schedules": shown})


OPERATIONS: tuple[Operation, ...] = (
    Operation(
        id="listSchedules",
        reads=True,
        method="GET",
        path="/schedules",
        about="List what starts by the clock, with its next tick and its last run. To "
        "pause a schedule, freeze it; to run it now, start a run of its agent.",
        scopes=("auditor",),
        handler=list_,
        answers={200: Answer(about="The schedules.", schema="Schedules")},
    ),
)
