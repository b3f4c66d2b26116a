"""Freezes: what is stopped on every host: agents, tokens, servers and schedules."""

from __future__ import annotations

from starlette.responses import Response

from ...core.grants.freezes import KINDS
from ...core.log.events import Frozen, Thawed
from ...errors import ForbiddenError
from ...runs import freezing
from .operations import Answer, Asked, Operation, answer, takes
from .runs import REASON

_BODY = takes(
    ("kind", "name", "reason"),
    kind={"enum": [*KINDS]},
    name={"type": "string", "minLength": 1, "maxLength": 300},
    reason=REASON,
)


async def list_(asked: Asked) -> Response:
    """Return what is frozen."""
    await asked.service.host.freezes.look()
    found = asked.service.host.freezes.now.documents()
    return answer({"$type": "caxton.freezes/v1", "freezes": [*found]})


async def freeze(asked: Asked) -> Response:
    """Stop the calls of an agent, a token, a server or a schedule."""
    service = asked.service
    await freezing.freeze(
        service.store,
        Frozen(**_fields(asked)),
        agents=service.config().agents,
        servers=service.host.servers,
        schedules=service.config().schedules,
    )
    return await list_(asked)


async def thaw(asked: Asked) -> Response:
    """Let it make calls again."""
    await freezing.thaw(asked.service.store, Thawed(**_fields(asked)))
    return await list_(asked)


def _fields(asked: Asked) -> freezing.Fields:
    kind, name, reason = (str(asked.body[key]) for key in ("kind", "name", "reason"))
    known = asked.service.config().schedules
    agent = known[name].agent if kind == "schedule" and name in known else name
    if kind in {"agent", "schedule"} and not asked.who.reaches(agent):
        raise ForbiddenError(
            "the agent is not one of yours", fix="use a token that may"
        )
    return {
        "kind": kind,
        "name": name,
        "actor": asked.who.actor,
        "reason": asked.service.host.redact.text(reason),
    }


_FROZEN = {200: Answer(about="What is frozen now.", schema="Freezes")}

OPERATIONS: tuple[Operation, ...] = (
    Operation(
        id="listFreezes",
        reads=True,
        method="GET",
        path="/freezes",
        about="List what is frozen, oldest first.",
        scopes=("auditor",),
        handler=list_,
        answers=_FROZEN,
    ),
    Operation(
        id="freeze",
        method="POST",
        path="/freezes",
        about="Freeze an agent, a token, a server or a schedule: its calls stop on "
        "every host of the log, its runs are suspended at their next call, and a "
        "schedule starts none. A token is named by its name or id, and a subject of "
        "the authorization server by `oauth/SUBJECT`, or `@TENANT/oauth/SUBJECT`.",
        scopes=("admin",),
        handler=freeze,
        body=_BODY,
        answers=_FROZEN,
        problems=("not-found",),
    ),
    Operation(
        id="thaw",
        method="POST",
        path="/freezes/thaw",
        about="Thaw what is frozen. Its suspended runs then resume.",
        scopes=("admin",),
        handler=thaw,
        body=_BODY,
        answers=_FROZEN,
        problems=("not-found",),
    ),
)
