"""Schedules: what starts by the clock. They are paused as other things are frozen."""

from __future__ import annotations

from dataclasses import replace

from starlette.responses import Response

from ...runs.executor import trace_of
from ...service.scheduling import schedule_documents, scheduled, submission_of
from .operations import Answer, Asked, Operation, answer
from .runs import KEY, STARTED, WAIT, check_module, going_on


async def list_(asked: Asked) -> Response:
    """Return the schedules whose agents the caller reaches."""
    service, host = asked.service, asked.service.host
    await host.freezes.look()
    found = await schedule_documents(
        service.config(), service.store.reader, host.freezes.now, host.clock.now()
    )
    mine = [one for one in found if asked.who.reaches(str(one["agent"]))]
    return answer({"$type": "caxton.schedules/v1", "schedules": [*mine]})


async def run(asked: Asked) -> Response:
    """Start a run of the caller with what a schedule gives."""
    one = scheduled(asked.service.config(), asked.path["name"])
    check_module(asked, one.agent)
    wanted = replace(
        submission_of(one),
        key=asked.text("idempotency-key"),
        trace=trace_of(asked.request.headers),
    )
    return await going_on(asked, await asked.service.submit(asked.who, wanted))


OPERATIONS: tuple[Operation, ...] = (
    Operation(
        id="listSchedules",
        reads=True,
        method="GET",
        path="/schedules",
        about="List what starts by the clock, with its next tick and its last run. To "
        "pause a schedule, freeze it.",
        scopes=("auditor",),
        handler=list_,
        answers={200: Answer(about="The schedules.", schema="Schedules")},
    ),
    Operation(
        id="runSchedule",
        method="POST",
        path="/schedules/{name}/run",
        about="Start a run of the agent of a schedule now, with its input and "
        "variables. It is a run of the caller, and no tick of the schedule.",
        scopes=("admin",),
        handler=run,
        parameters=(WAIT, KEY),
        answers=STARTED,
        problems=("not-found", "conflict", "refused", "server-unavailable", "unusable"),
    ),
)
