"""The inbox: what waits for a person, and what a decision can be compared with."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from ...core.calls import JSON
from ...core.log.asked import is_fresh, seconds_since
from ...core.log.events import (
    ApprovalDecided,
    ApprovalRequested,
    QuestionAnswered,
    QuestionAsked,
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunResumed,
    RunSuspended,
)
from .asking import Asking, Shown, View
from .forms import fields_of
from .run import doubt_of, told_of
from .views import live, may

#: Selects the runs that wait for a decision about a call in doubt.
IN_DOUBT: Mapping[str, JSON] = {"state": "suspended", "reason": "in_doubt"}
#: Those on one page, with all that is told of them.
_SHOWN = 6
#: Events that change what waits.
_TURNS = (
    ApprovalRequested,
    ApprovalDecided,
    QuestionAsked,
    QuestionAnswered,
    RunSuspended,
    RunResumed,
    *(RunCompleted, RunFailed, RunCancelled),
)


async def inbox(asking: Asking) -> Shown:
    """Show what waits for a person."""
    query = asking.query
    followed = await live(asking, *_TURNS)
    found = await asking.of(
        "listApprovals",
        run=query.get("run"),
        limit=_SHOWN,
        cursor=query.get("cursor"),
    )
    about = [told_of(asking, one["run_id"], one["seq"]) for one in found["approvals"]]
    since = seconds_since(asking.who.signed_in_at, asking.now)
    for one, they in zip(found["approvals"], await asyncio.gather(*about), strict=True):
        one |= {**they, "decidable": _decides(asking, one)}
        one["stale"] = not is_fresh(since, one["fresh"])
        told: dict[str, Any] = one["explained"] or {}
        one["rules"] = [
            rule for rule in told.get("considered", ()) if rule["id"] == one["rule"]
        ]
    for one in found["questions"]:
        one["decidable"] = _decides(asking, one)
        one["fields"] = fields_of(one["form"])
    listed = await asking.of(
        "listRuns",
        **IN_DOUBT,
        limit=_SHOWN,
        prefix=query.get("run"),
    )
    doubts = await asyncio.gather(
        *(_doubt(asking, one["run_id"]) for one in listed["runs"])
    )
    return Shown(
        template="inbox",
        title="Inbox",
        values={
            **followed,
            "approvals": found["approvals"],
            "questions": found["questions"],
            "doubts": [one for one in doubts if one],
            "more_doubts": listed["next"] is not None,
            "more": found["next"],
            "may": may(asking),
        },
    )


async def _doubt(asking: Asking, run_id: str) -> dict[str, Any] | None:
    return await doubt_of(asking, await asking.of("showRun", run=run_id))


def _decides(asking: Asking, one: Mapping[str, Any]) -> bool:
    who = asking.who
    if not who.may("decide", one["agent"]) or one.get("expired"):
        return False
    if one["by"] and not {*one["by"]} & {*who.roles}:
        return False
    return not (one.get("not_by") and who.is_actor(one["not_by"]))


#: Paths below ``/ui``, and their pages.
VIEWS: Mapping[str, View] = {"/inbox": inbox}
